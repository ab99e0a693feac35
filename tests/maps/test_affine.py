"""Affine maps: what the matrix does to the coordinates, and the exact inverse."""

import pytest
import torch
from torch.testing import assert_close

from roundtrip.maps.affine import AffineMap
from roundtrip.maps.map import Identity


def random_affine(batch=3, N=3):
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(batch, N, N + 1, generator=generator, dtype=torch.float64)
    return AffineMap(torch.eye(N, dtype=torch.float64) + 0.5 * noise[..., :N], noise[..., N])


def test_a_row_of_the_matrix_makes_a_coordinate():
    phi = AffineMap(torch.tensor([[[1.0, 2.0], [0.0, 3.0]]]), torch.tensor([[10.0, 20.0]]))
    assert phi(torch.tensor([[1.0, 1.0]])).tolist() == [[13.0, 23.0]]
    assert phi(torch.tensor([[[1.0, 0.0], [1.0, 0.5]]])).tolist() == [[[13.0, 11.0], [23.0, 21.5]]]


def test_the_inverse_undoes_it_from_both_sides():
    x = torch.rand(3, 3, 2, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    phi = random_affine()
    assert_close((phi.inverse() @ phi)(x), Identity()(x))
    assert_close((phi @ phi.inverse())(x), Identity()(x))


def test_the_precision_is_that_of_the_points():
    assert random_affine()(torch.zeros(3, 3, 5)).dtype == torch.float32


def test_autocast_does_not_change_the_inverse():
    phi = random_affine().to(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        inverse = phi.inverse()
    assert_close(inverse.offset, phi.inverse().offset, rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(2, 2), (1, 2, 3), (1, 1, 2, 2)], ids=str)
def test_one_matrix_or_one_that_is_not_square_is_refused(shape, as_users_see_it):
    with pytest.raises(ValueError, match=r"a batch of square matrices \(batch, N, N\) is needed"):
        AffineMap(torch.zeros(shape), torch.zeros(1, 2))


def test_an_offset_that_does_not_fit_is_refused(as_users_see_it):
    with pytest.raises(ValueError, match=r"one vector per matrix, \(2, 3\)"):
        AffineMap(torch.zeros(2, 3, 3), torch.zeros(2, 2))
