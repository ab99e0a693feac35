"""Displacement maps: Eq. (11) between the voxels, and what they do outside."""

import pytest
import torch
from torch.testing import assert_close

from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.interpolate import interpolate


def field(shape=(5, 4), dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return 0.1 * torch.randn(2, len(shape), *shape, generator=generator, dtype=dtype)


def points(N=2):
    return torch.rand(2, N, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_the_displacement_is_interpolated_and_added():
    x = points()
    assert_close(DisplacementMap(field())(x), x + interpolate(field(), at=x))


def test_outside_the_edge_is_continued_and_the_point_kept():
    outside = torch.tensor([[[-0.7, 1.3], [0.5, 2.0]]], dtype=torch.float64)
    edge = outside.clamp(0, 1)
    phi = DisplacementMap(field())
    assert_close(phi(outside) - outside, phi(edge) - edge)


def test_zero_displacement_is_the_identity_everywhere():
    x = 5 * points() - 2
    assert torch.equal(DisplacementMap(torch.zeros(1, 2, 3, 3, dtype=torch.float64))(x), x)


def test_a_linear_displacement_is_represented_exactly():
    grid = unit_grid((5, 4, 3), like=torch.zeros(1, dtype=torch.float64))
    matrix = torch.tensor([[0.1, 0.2, 0.0], [-0.1, 0.0, 0.3], [0.2, 0.1, -0.1]], dtype=torch.float64)
    phi = DisplacementMap(torch.einsum("ij,bj...->bi...", matrix, grid))
    x = points(3)
    assert_close(phi(x), x + torch.einsum("ij,bj...->bi...", matrix, x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_displacements_move_points_of_single_precision(dtype):
    x = points().float()
    phi = DisplacementMap(field(dtype=torch.float64).to(dtype))
    assert phi(x).dtype == phi.on_grid_of(torch.zeros(1, 1, 5, 4)).dtype == torch.float32
    assert_close(phi(x), DisplacementMap(field().to(dtype).float())(x))


@pytest.mark.parametrize("shape", [(1, 3, 4, 5), (2, 1, 6, 6), (3,)], ids=str)
def test_a_field_without_one_component_per_axis_is_refused(shape, as_users_see_it):
    with pytest.raises(ValueError, match="`displacement` has shape"):
        DisplacementMap(torch.zeros(shape))


def test_points_must_be_floating_point(as_users_see_it):
    with pytest.raises(ValueError, match=r"points are floating point: `x\.float\(\)`"):
        DisplacementMap(field())(torch.zeros(2, 2, 3, dtype=torch.int64))
