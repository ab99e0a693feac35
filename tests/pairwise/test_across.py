"""Images of different contrast: translated into one, they are registered as if they were of one."""

import math

import pytest
import torch

from roundtrip.maps.folds import non_diffeomorphic_volume
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.map import on_grid_of
from roundtrip.pairwise.across import deform_across
from roundtrip.pairwise.deformable import deform
from roundtrip.pairwise.settings import effort
from roundtrip.pairwise.translation import translation

SHAPES = pytest.mark.parametrize("shape", [(44, 48), (28, 32, 26)], ids=str)


def tissues(x):
    """Three tissues, one inside the other, with wavy borders, and nothing around them."""
    wave = 0.05 * torch.sin(14 * x).sum(dim=1)
    depth = 0.42 - (x - 0.5).norm(dim=1) + wave
    return sum(torch.sigmoid(40 * (depth - d)) for d in (0.0, 0.1, 0.2))[:, None] / 3


def other_contrast(image):
    """The middle tissue is the brightest, those on both sides are equal; shaded and noisy."""
    x = unit_grid(image.shape[2:])
    generator = torch.Generator().manual_seed(0)
    remapped = torch.sin(math.pi * image * 0.75)
    noise = 0.005 * torch.randn(image.shape, generator=generator)
    return remapped * (1 + 0.3 * (x[:, :1] - 0.5)) + noise


def bend(x, size=0.04):
    return size * torch.sin(torch.pi * x).prod(dim=1, keepdim=True) * torch.sin(6 * x.flip(1) + 1)


def missed(found, u, inside):
    return (found.phi.displacement - u).norm(dim=1, keepdim=True)[inside].mean()


@SHAPES
@pytest.mark.parametrize("which", ["moving", "fixed"])
def test_another_contrast_is_registered_where_one_contrast_is_not_assumed(shape, which):
    x = unit_grid(shape)
    u = bend(x)
    moving, fixed = tissues(x), tissues(x + u)
    seen = [
        other_contrast(image) if which == name else image
        for name, image in (("moving", moving), ("fixed", fixed))
    ]
    how = {"spacing": (1.0,) * len(shape), "settings": effort("default")}
    across, as_one = deform_across(*seen, **how), deform(*seen, **how)
    inside = (fixed > 0.2) & (fixed < 0.95)
    before = u.norm(dim=1, keepdim=True)[inside].mean()
    assert missed(across, u, inside) < before < missed(as_one, u, inside)
    for phi in (across.phi, across.inverse):
        assert non_diffeomorphic_volume(on_grid_of(phi, fixed)).cells == 0
    voxels = torch.tensor(shape).view(1, -1, *[1] * len(shape)) - 1.0
    trip = (across.phi(on_grid_of(across.inverse, fixed)) - x) * voxels
    assert trip.norm(dim=1).mean() < 0.1


@SHAPES
def test_one_image_becomes_the_other_on_the_way_that_is_a_function(shape):
    image = tissues(unit_grid(shape))
    dark = (1 - 2 * (image - 0.5).abs()) ** 2
    for moving, fixed, of_fixed in ((dark, image, True), (image, dark, False)):
        way = translation(moving, fixed)
        assert way.of_fixed is of_fixed
        one, other = way(moving, fixed)
        assert (one - other).abs().mean() < 0.03
        assert torch.equal(one, moving) if of_fixed else torch.equal(other, fixed)


def test_only_what_counts_is_learned():
    image = tissues(unit_grid((44, 48)))
    other, mask = 1 - image, torch.ones_like(image)
    other[..., :20] = torch.rand(44, 20, generator=torch.Generator().manual_seed(0))
    mask[..., :20] = 0
    one, two = translation(image, other, mask)(image, other)
    assert (one - two)[mask > 0].abs().mean() < 0.03


def test_constant_images_are_harmless():
    flat = torch.zeros(1, 1, 16, 16)
    found = deform_across(flat, flat + 3, spacing=(1.0, 1.0), settings=effort("fast"))
    assert found.phi.displacement.eq(0).all()
