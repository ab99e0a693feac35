"""Augmentation: what it changes, what it leaves, and that labels and masks stay with their images."""

import math

import pytest
import torch

from roundtrip.data.augment import augmented
from roundtrip.data.batch import Batch
from roundtrip.data.config import Augmentation
from roundtrip.maps.grid import unit_grid

SHAPES = [(17,), (16, 21), (12, 14, 11)]
ALL = Augmentation(
    rotation_degrees=20, scaling=0.2, shear=0.1, translation=0.1, gamma=0.5, brightness=0.1, contrast=0.2,
    noise=0.05,
)  # fmt: skip


def batch(shape, count=3) -> Batch:
    """Smooth images, whose labels and masks are where they are bright."""
    generator = torch.Generator().manual_seed(0)
    at = unit_grid(shape)
    waves = [
        torch.sin(4 * (at * torch.rand(1, len(shape), *[1] * len(shape), generator=generator)).sum(1) + i)
        for i in range(2 * count)
    ]
    images = torch.stack(waves)
    labels, masks = (images > 0.5).int(), images > -0.5
    return Batch(images[:count], images[count:], labels[:count], labels[count:], masks[:count], masks[count:])


def apply(config: Augmentation, to: Batch, seed: int = 0, **more) -> Batch:
    return augmented(to, config, torch.Generator().manual_seed(seed), **more)


def same(a: Batch, b: Batch) -> bool:
    return all(x.equal(y) for x, y in zip(vars(a).values(), vars(b).values(), strict=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_seed_decides_and_nothing_asked_for_is_nothing_done(shape):
    given = batch(shape)
    assert same(apply(Augmentation(), given), given)
    first, again, other = apply(ALL, given), apply(ALL, given), apply(ALL, given, seed=1)
    assert same(first, again) and not first.moving.equal(other.moving)
    assert [part.shape for part in vars(first).values()] == [part.shape for part in vars(given).values()]
    assert [part.dtype for part in vars(first).values()] == [part.dtype for part in vars(given).values()]


@pytest.mark.parametrize("shape", SHAPES)
def test_labels_and_masks_stay_with_their_image(shape):
    moved = apply(Augmentation(rotation_degrees=25, scaling=0.2, translation=0.2, shear=0.2), batch(shape))
    for image, labels in ((moved.moving, moved.moving_labels), (moved.fixed, moved.fixed_labels)):
        # Linear and nearest interpolation differ within a voxel of the border.
        clear = (image - 0.5).abs() > 0.35
        assert labels[clear].equal((image[clear] > 0.5).int()) and clear.any()


def test_beyond_the_field_of_view_the_mask_ends():
    given = batch((16, 16))
    whole = Batch(given.moving, given.fixed, moving_mask=torch.ones(3, 1, 16, 16, dtype=torch.bool))
    moved = apply(Augmentation(translation=0.5), whole)
    assert moved.moving_mask.dtype == torch.bool and not moved.moving_mask.all()
    assert moved.moving_labels is None and moved.fixed_mask is None


@pytest.mark.parametrize("axis", [0, 1])
def test_both_images_of_a_pair_are_flipped_together_and_every_second_pair(axis):
    given = batch((6, 7), count=400)
    flipped = apply(Augmentation(flip_axes=(axis,)), given)
    back = flipped.moving.flip(2 + axis)
    changed = (back == given.moving).flatten(1).all(1)
    assert 160 < changed.sum() < 240
    for name, part in vars(flipped).items():
        expected = getattr(given, name).clone()
        expected[changed] = expected[changed].flip(2 + axis)
        assert part.equal(expected)


def test_moving_and_fixed_go_their_own_ways():
    given = batch((16, 16))
    twins = Batch(given.moving, given.moving)
    moved = apply(Augmentation(rotation_degrees=20), twins)
    assert not moved.moving.equal(moved.fixed)
    assert not torch.allclose(moved.moving[0], moved.moving[1])


def test_a_rotation_is_one_in_millimetres():
    # A disc on voxels of 1 x 3 mm stays a disc, whatever the angle.
    shape, spacing = (61, 21), (1.0, 3.0)
    at = unit_grid(shape) - 0.5
    radius = torch.hypot(60 * at[:, 0], 60 * at[:, 1])[:, None]
    disc = torch.tanh((18 - radius) / 4).expand(4, 1, *shape)
    turned = apply(Augmentation(rotation_degrees=180), Batch(disc, disc), spacing=spacing)
    assert (turned.moving - disc).abs().mean() < 0.03
    bent = apply(Augmentation(rotation_degrees=180), Batch(disc, disc))
    assert (bent.moving - disc).abs().mean() > 0.1


@pytest.mark.parametrize(
    ("change", "bound"),
    [({"scaling": 0.25}, math.log(1.25)), ({"rotation_degrees": 30.0}, 0.0), ({"shear": 0.4}, 0.0)],
)
def test_volume_changes_by_scaling_alone_and_at_most_as_asked(change, bound):
    shape = (33, 33)
    at = unit_grid(shape) - 0.5
    blob = torch.exp(-60 * (at**2).sum(1, keepdim=True)).expand(64, 1, *shape)
    moved = apply(Augmentation(**change), Batch(blob, blob)).moving
    volume = moved.sum((1, 2, 3)) / blob.sum((1, 2, 3))
    assert volume.log().abs().max() < 2 * bound + 0.02
    assert volume.log().abs().max() > bound * 0.8


@pytest.mark.parametrize("change", [{"gamma": 1.0}, {"contrast": 0.4}, {"brightness": 0.3}])
def test_intensities_keep_their_order_and_each_image_its_own_change(change):
    given = batch((16, 16))
    new = apply(Augmentation(**change), given)
    order = given.moving.flatten(1).argsort(dim=1)
    sorted_values = new.moving.flatten(1).gather(1, order)
    assert (sorted_values.diff(dim=1) >= -1e-6).all()
    assert not torch.allclose(new.moving - given.moving, new.fixed - given.fixed, atol=1e-3)
    assert new.moving_labels.equal(given.moving_labels)


def test_gamma_keeps_the_range_and_noise_has_its_size():
    given = batch((40, 40))
    gamma = apply(Augmentation(gamma=1.0), given).moving
    torch.testing.assert_close(gamma.amin((1, 2, 3)), given.moving.amin((1, 2, 3)))
    torch.testing.assert_close(gamma.amax((1, 2, 3)), given.moving.amax((1, 2, 3)))
    noise = apply(Augmentation(noise=0.1), given).moving - given.moving
    extent = given.moving.amax((1, 2, 3)) - given.moving.amin((1, 2, 3))
    torch.testing.assert_close(noise.std((1, 2, 3)), 0.1 * extent, rtol=0.1, atol=0)


def test_a_constant_image_stays_finite():
    flat = torch.zeros(2, 1, 5, 5)
    assert torch.isfinite(apply(ALL, Batch(flat, flat)).moving).all()


def test_an_axis_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="names axis 2, but images have axes 0 to 1"):
        apply(Augmentation(flip_axes=(2,)), batch((4, 4)))
