"""Surface distances of shapes whose distance is known, of any shapes against comparing every two voxels."""

import itertools
import math

import numpy as np
import pytest
import torch

from roundtrip.evaluation.surface import surface_distance


def blobs(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Labels 0 to 3 in lumps, some of which touch the border."""
    g = torch.Generator().manual_seed(seed)
    coarse = torch.randint(4, [1, 1, *(max(1, n // 2) for n in shape)], generator=g)
    for axis, n in enumerate(shape, start=2):
        coarse = coarse.repeat_interleave(-(-n // coarse.shape[axis]), dim=axis).narrow(axis, 0, n)
    return coarse


def surface_points(region: np.ndarray, spacing: tuple[float, ...]) -> np.ndarray:
    """In millimetres: voxels of which some face neighbour is not in the region, one voxel at a time."""
    points = []
    for voxel in itertools.product(*map(range, region.shape)):
        neighbours = [
            tuple(v + step * (d == axis) for d, v in enumerate(voxel))
            for axis in range(region.ndim)
            for step in (-1, 1)
        ]
        inside = [
            all(0 <= v < n for v, n in zip(q, region.shape, strict=True)) and region[q] for q in neighbours
        ]
        if region[voxel] and not all(inside):
            points.append(np.multiply(voxel, spacing))
    return np.array(points)


def compared_one_by_one(
    one: np.ndarray, other: np.ndarray, spacing: tuple[float, ...]
) -> tuple[float, float]:
    a, b = surface_points(one, spacing), surface_points(other, spacing)
    distances = np.linalg.norm(a[:, None] - b[None], axis=2)
    there, back = distances.min(axis=1), distances.min(axis=0)
    hd95 = max(np.percentile(there, 95), np.percentile(back, 95))
    return hd95, np.concatenate([there, back]).mean()


@pytest.mark.parametrize(
    ("shape", "spacing"),
    [((70,), (0.7,)), ((11, 14), (1.0, 2.5)), ((9, 8, 10), (3.0, 0.8, 1.2)), ((12, 1, 13), (1.0, 5.0, 2.0))],
)
def test_every_label_agrees_with_comparing_all_voxels_of_both_surfaces(shape, spacing):
    first, second = blobs(shape, seed=1), blobs(shape, seed=2)
    found = surface_distance(first, second, spacing=spacing)
    assert found.labels == (1, 2, 3) and not found.hd95.isnan().any()
    for column, label in enumerate(found.labels):
        regions = ((x == label).numpy()[0, 0] for x in (first, second))
        expected = compared_one_by_one(*regions, spacing)
        assert (found.hd95[0, column].item(), found.mean[0, column].item()) == pytest.approx(
            expected, rel=1e-5
        )


def test_a_shifted_slab_is_as_far_away_as_it_was_shifted():
    # It spans the image, so that its surface is two planes, and where the image ends there is its rim too.
    slab = torch.zeros(1, 1, 40, 3, 3, dtype=torch.bool)
    one, other = slab.clone(), slab.clone()
    one[:, :, 10], other[:, :, 16] = True, True
    found = surface_distance(one, other, spacing=(0.5, 2.0, 7.0))
    assert found.labels == (1,)
    assert (found.hd95.item(), found.mean.item()) == pytest.approx((3.0, 3.0))


def test_of_two_voxels_it_is_the_diagonal_in_millimetres():
    one, other = torch.zeros(2, 1, 1, 8, 8, dtype=torch.int64)
    one[..., 1, 2], other[..., 4, 6] = 5, 5
    assert surface_distance(one, other).hd95.item() == pytest.approx(5)
    assert surface_distance(one, other, spacing=(2.0, 1.0)).hd95.item() == pytest.approx(math.hypot(6, 4))


def test_a_region_is_no_distance_from_itself():
    some = blobs((9, 10, 8), seed=3)
    found = surface_distance(some, some)
    assert not found.hd95.any() and not found.mean.any()


def test_five_percent_may_lie_anywhere_and_the_worse_direction_counts():
    one = torch.zeros(1, 1, 200, dtype=torch.bool)
    one[..., 0:40:2] = True
    other = one.clone()
    # Of 21 surface voxels one is far away: less than 5 % of them, and it has no part in the mean's minimum.
    other[..., 199] = True
    there, back = surface_distance(one, other), surface_distance(other, one)
    assert there.hd95.item() == back.hd95.item() == pytest.approx(0)
    assert there.mean.item() == back.mean.item() == pytest.approx((199 - 38) / 41)
    other[..., 190] = True
    assert surface_distance(one, other).hd95.item() > 100


def test_what_one_image_lacks_is_not_a_number():
    one, other = torch.tensor([[[1, 1, 0]], [[1, 2, 0]]]), torch.tensor([[[0, 2, 2]], [[1, 2, 0]]])
    found = surface_distance(one, other)
    assert found.labels == (1, 2)
    assert found.hd95.isnan().tolist() == [[True, True], [False, False]]


@pytest.mark.parametrize("spacing", [(1.0,), (1.0, 0.0), (1.0, -2.0)])
def test_spacing_is_a_positive_number_per_axis(spacing):
    mask = torch.ones(1, 1, 3, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="2 positive numbers"):
        surface_distance(mask, mask, spacing=spacing)
