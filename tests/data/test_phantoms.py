"""Drawn heads: what makes them an oracle of registration, above all that the map between them is known."""

import pytest
import torch

from roundtrip.data.phantoms import LABELS, draw_pair
from roundtrip.evaluation.overlap import dice
from roundtrip.maps.jacobian import central_difference
from roundtrip.maps.map import Map
from roundtrip.space.grid import orientation_of
from roundtrip.space.sampling import sample, unit_points_of
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

SHAPE = (40, 48, 40)


@pytest.fixture(scope="module")
def pair():
    return draw_pair(shape=SHAPE, seed=3)


def carried(volume: Volume, onto: Volume, truth: Map) -> torch.Tensor:
    """What the moving `volume` shows at the places where the true map takes the voxels of `onto`."""
    units = unit_points_of(onto.grid, onto.grid, like=torch.empty(0, dtype=torch.float64))[0]
    matrix, back = onto.world_from_unit, volume.unit_from_world
    x = torch.einsum("ij,jabc->iabc", matrix[:3, :3], units) + matrix[:3, 3].view(3, 1, 1, 1)
    y = truth(x)
    return sample(
        volume, (torch.einsum("ij,jabc->iabc", back[:3, :3], y) + back[:3, 3].view(3, 1, 1, 1))[None]
    )


def test_the_inverse_is_exact(pair):
    x = 200 * torch.rand(3, 500, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 100
    assert (pair.truth.back(pair.truth(x)) - x).abs().max() < 1e-10
    assert (pair.truth(pair.truth.back(x)) - x).abs().max() < 1e-10


def test_the_map_folds_nowhere(pair):
    x = 220 * torch.rand(1, 3, 2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 110
    slopes = central_difference(lambda points: pair.truth(points[0])[None], x, 1e-3)
    growth = torch.linalg.det(slopes[0].movedim(-1, 0))
    # Every wave keeps volumes, so the whole map changes them as its linear part does.
    assert torch.allclose(growth, torch.linalg.det(pair.truth.affine[:3, :3]).expand_as(growth), rtol=1e-5)


def test_the_true_map_lays_the_moving_head_onto_the_fixed_one(pair):
    labels = carried(pair.moving.labels, pair.fixed.labels, pair.truth)
    overlap = dice(labels[None], pair.fixed.labels.data[None])
    assert overlap.labels == tuple(range(1, len(LABELS) + 1))
    assert overlap.dice.min() > 0.7 and overlap.mean > 0.8
    untouched = carried(pair.moving.labels, pair.fixed.labels, lambda x: x)
    assert dice(untouched[None], pair.fixed.labels.data[None]).mean < 0.5


def test_images_agree_under_the_true_map_but_for_shading_and_noise(pair):
    warped = carried(pair.moving.image, pair.fixed.image, pair.truth).flatten()
    fixed = pair.fixed.image.data.flatten()
    assert torch.corrcoef(torch.stack([warped, fixed]))[0, 1] > 0.95


def test_the_linear_part_alone_is_some_millimetres_off(pair):
    nothing = Transform.from_affine(torch.eye(4, dtype=torch.float64))
    before, linear = pair.errors(nothing), pair.errors(Transform.from_affine(pair.truth.affine))
    assert before.mean() > 8
    assert 2 < linear.mean() < 8
    assert before.shape == linear.shape == (int((pair.fixed.labels.data > 0).sum()),)


def test_grids_and_orientations_differ(pair):
    fixed, moving = pair.fixed.image, pair.moving.image
    assert orientation_of(fixed.grid) == "LPS" and orientation_of(moving.grid) == "RAS"
    assert fixed.shape == SHAPE != moving.shape
    assert min(abs(one - other) for one, other in zip(fixed.spacing, moving.spacing, strict=True)) > 0.05
    assert pair.fixed.labels.grid.same_as(fixed.grid) and pair.moving.labels.grid.same_as(moving.grid)


def test_the_seed_decides(pair):
    again, other = draw_pair(shape=SHAPE, seed=3), draw_pair(shape=SHAPE, seed=4)
    assert again.moving.image.data.equal(pair.moving.image.data)
    assert not other.truth.affine.equal(pair.truth.affine)


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="three sizes from 8"):
        draw_pair(shape=(40, 2, 40))
