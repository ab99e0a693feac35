"""Two images, two maps that undo each other, no folds: on drawn images whose true map is known."""

import pytest
import torch

import roundtrip as rt
from roundtrip.maps.folds import non_diffeomorphic_volume
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.map import on_grid_of
from roundtrip.pairwise.deformable import deform
from roundtrip.pairwise.settings import DeformableSettings, effort

QUICK = effort("default")


def texture(x: torch.Tensor) -> torch.Tensor:
    """Bright and dark blobs on a bright ellipsoid in the middle of the unit cube."""
    waves = torch.stack([torch.sin(19 * x[:, d] + 3 * d) for d in range(x.shape[1])], dim=1).prod(dim=1)
    inside = torch.sigmoid(40 * (0.4 - (x - 0.5).norm(dim=1)))
    return (inside * (1 + 0.6 * waves))[:, None]


def bend(x: torch.Tensor, size: float = 0.05) -> torch.Tensor:
    """A smooth displacement, none at the border."""
    bump = torch.sin(torch.pi * x).prod(dim=1, keepdim=True)
    return size * bump * torch.sin(6 * x.flip(1) + 1)


def drawn(shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Moving, fixed and the true displacement: fixed(x) = moving(x + u(x))."""
    x = unit_grid(shape)
    u = bend(x)
    return texture(x), texture(x + u), u


@pytest.mark.parametrize("shape", [(40, 44), (24, 28, 22)], ids=str)
class TestAPair:
    def test_is_registered_by_maps_that_undo_each_other_without_folds(self, shape):
        moving, fixed, u = drawn(shape)
        found = deform(moving, fixed, spacing=(1.0,) * len(shape), settings=QUICK)
        inside = fixed > 0.5
        before = u.norm(dim=1, keepdim=True)[inside].mean()
        missed = (found.phi.displacement - u).norm(dim=1, keepdim=True)[inside].mean()
        assert missed < 0.35 * before
        assert found.after > found.before
        for phi in (found.phi, found.inverse):
            assert phi.displacement.shape[2:] == shape
            assert non_diffeomorphic_volume(on_grid_of(phi, fixed)).cells == 0
        voxels = torch.tensor(shape).view(1, -1, *[1] * len(shape)) - 1.0
        trip = (found.phi(on_grid_of(found.inverse, fixed)) - unit_grid(shape)) * voxels
        assert trip.norm(dim=1).mean() < 0.1

    def test_swapped_gives_the_swapped_maps(self, shape):
        moving, fixed, _ = drawn(shape)
        one = deform(moving, fixed, spacing=(1.0,) * len(shape), settings=QUICK)
        other = deform(fixed, moving, spacing=(1.0,) * len(shape), settings=QUICK)
        torch.testing.assert_close(one.phi.displacement, other.inverse.displacement, atol=1e-5, rtol=0)
        torch.testing.assert_close(one.inverse.displacement, other.phi.displacement, atol=1e-5, rtol=0)

    def test_gives_the_same_bits_again(self, shape):
        moving, fixed, _ = drawn(shape)
        one, other = (deform(moving, fixed, spacing=(1.0,) * len(shape), settings=QUICK) for _ in "ab")
        assert torch.equal(one.phi.displacement, other.phi.displacement)

    def test_of_equal_images_stays(self, shape):
        moving, _, _ = drawn(shape)
        found = deform(moving, moving, spacing=(1.0,) * len(shape), settings=QUICK)
        assert found.phi.displacement.abs().max() < 1e-3


@pytest.mark.parametrize("name", ["ncc", "mse", "mutual_information", "mind_ssc"])
def test_every_similarity_brings_images_closer(name):
    moving, fixed, u = drawn((24, 28, 22))
    settings = DeformableSettings(**{**QUICK.model_dump(), "similarity": name})
    found = deform(moving, fixed, spacing=(1.0, 1.0, 1.0), settings=settings)
    inside = (fixed > 0.5).expand_as(u)
    assert (found.phi.displacement - u)[inside].norm() < 0.75 * u[inside].norm()
    assert found.after > found.before


def test_thick_slices_are_registered_too():
    moving, fixed, u = drawn((32, 32, 9))
    found = deform(moving, fixed, spacing=(1.0, 1.0, 3.5), settings=QUICK)
    inside = (fixed > 0.5).expand_as(u)
    assert (found.phi.displacement - u)[inside].norm() < 0.6 * u[inside].norm()


def test_one_slice_and_constant_images_are_harmless():
    flat = torch.zeros(1, 1, 16, 16, 1)
    found = deform(flat, flat + 3, spacing=(1.0, 1.0, 1.0), settings=QUICK)
    assert found.phi.displacement.eq(0).all() and found.inverse.displacement.eq(0).all()


def test_what_a_mask_leaves_out_does_not_pull():
    moving, fixed, _ = drawn((40, 44))
    spoiled, mask = fixed.clone(), torch.ones_like(fixed)
    spoiled[..., :10] = torch.rand(40, 10, generator=torch.Generator().manual_seed(0))
    mask[..., :14] = 0
    with_mask = deform(moving, spoiled, spacing=(1.0, 1.0), settings=QUICK, fixed_mask=mask)
    clean = deform(moving, fixed, spacing=(1.0, 1.0), settings=QUICK, fixed_mask=mask)
    one, other = with_mask.phi.displacement[..., 20:], clean.phi.displacement[..., 20:]
    torch.testing.assert_close(one, other, atol=0.02, rtol=0)


def test_a_start_is_kept_and_refined():
    moving, fixed, u = drawn((24, 28, 22))
    phi = rt.DisplacementMap(0.8 * u)
    inverse = rt.invert(phi, like=fixed).map
    few = DeformableSettings(**{**QUICK.model_dump(), "levels": [{"coarser": 1, "steps": 1}], "step": 0.15})
    found = deform(moving, fixed, spacing=(1.0, 1.0, 1.0), settings=few, start=(phi, inverse))
    assert (found.phi.displacement - u).norm() < 0.3 * u.norm()


def test_batches_and_wrong_spacings_are_refused():
    moving, fixed, _ = drawn((12, 12))
    with pytest.raises(ValueError, match="one by one"):
        deform(moving.expand(2, 1, 12, 12), fixed.expand(2, 1, 12, 12), spacing=(1.0, 1.0), settings=QUICK)
    with pytest.raises(ValueError, match="positive lengths"):
        deform(moving, fixed, spacing=(1.0, 0.0), settings=QUICK)
