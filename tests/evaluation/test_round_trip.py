"""Round-trip errors of maps whose error is known."""

import dataclasses

import pytest
import torch

from roundtrip.evaluation.round_trip import round_trip_distance, round_trip_statistics
from roundtrip.maps.affine import AffineMap
from roundtrip.maps.map import Identity

IMAGE = torch.zeros(1, 1, 11, 21, dtype=torch.float64)


def shift(rows: float, columns: float, batch: int = 1) -> AffineMap:
    """Moves by so many voxels of `IMAGE`."""
    offset = torch.tensor([[rows / 10, columns / 20]], dtype=torch.float64).repeat(batch, 1)
    return AffineMap(torch.eye(2, dtype=torch.float64).repeat(batch, 1, 1), offset)


def test_a_map_and_its_inverse_come_home():
    phi = AffineMap(
        torch.tensor([[[1.1, 0.2], [-0.1, 0.9]]], dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    )
    assert round_trip_statistics(phi, phi.inverse(), IMAGE).max < 1e-12


def test_two_shifts_miss_by_their_sum_counted_in_voxels_of_each_axis():
    error = round_trip_statistics(shift(1, 2), shift(2, 2), IMAGE)
    assert dataclasses.astuple(error) == pytest.approx((5, 5, 5))


def test_the_distance_is_measured_where_it_occurs():
    def bump(x):
        return torch.where(x[:, :1] < 0.05, x + torch.tensor([0.0, 0.05]).view(1, 2, 1, 1), x)

    distance = round_trip_distance(Identity(), bump, IMAGE)
    torch.testing.assert_close(distance[0, 0, 0], torch.ones(21, dtype=torch.float64))
    assert distance[0, 0, 1:].max() == 0


def test_both_directions_and_all_pairs_count():
    """One pair of two misses by 3 voxels, the other by none."""
    offset = torch.tensor([[0.3, 0.0], [0.0, 0.0]], dtype=torch.float64)
    phi = AffineMap(torch.eye(2, dtype=torch.float64).repeat(2, 1, 1), offset)
    error = round_trip_statistics(phi, Identity(), IMAGE)
    assert dataclasses.astuple(error) == pytest.approx((1.5, 3, 3))


def test_the_percentile_is_a_distance_that_99_percent_do_not_exceed():
    image = torch.zeros(1, 1, 100, dtype=torch.float64)

    def grow(x):
        """Voxel i misses by i voxels."""
        return 2 * x

    error = round_trip_statistics(grow, Identity(), image)
    assert error.p99 == pytest.approx(98)
    assert error.max == pytest.approx(99)


def test_the_two_directions_differ_when_the_maps_do():
    """phi_BA after phi_AB starts in the fixed image, phi_AB after phi_BA in the moving one."""

    def clamp(x):
        return x.clamp(max=0.5)

    there = round_trip_distance(clamp, shift(0, 5), IMAGE)
    back = round_trip_distance(shift(0, 5), clamp, IMAGE)
    assert not torch.allclose(there, back)
    expected = torch.cat([there, back]).mean().item()
    assert round_trip_statistics(shift(0, 5), clamp, IMAGE).mean == pytest.approx(expected)
