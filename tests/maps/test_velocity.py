"""Flows of velocity fields: against flows that are known, and the group they form."""

import math

import pytest
import torch
from torch.testing import assert_close

from roundtrip.maps import velocity as velocity_module
from roundtrip.maps.folds import non_diffeomorphic_volume
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.velocity import exponential


def grid(shape):
    return unit_grid(shape, like=torch.zeros(1, dtype=torch.float64))


def smooth(shape, size=0.1, batch=2):
    """Velocities that vanish at the border, and differ between the elements of a batch."""
    x = grid(shape)
    waves = torch.cat([torch.sin(5 * x.flip(1) + b) for b in range(batch)])
    return size * waves * (math.pi * x).sin().prod(dim=1, keepdim=True)


def towards_the_centre(N):
    """v(x) = A (x - 1/2), which keeps every point inside, and its flow expm(A)."""
    matrix = -0.4 * torch.eye(N, dtype=torch.float64)
    if N > 1:
        matrix[0, 1], matrix[1, 0] = 0.3, -0.2
    return matrix, torch.linalg.matrix_exp(matrix)


def linear(matrix, x):
    return torch.einsum("ij,bj...->bi...", matrix, x - 0.5)


@pytest.mark.parametrize("shape", [(6,), (5, 6), (4, 5, 3)], ids=str)
class TestLinearVelocity:
    def test_its_flow_is_the_matrix_exponential(self, shape):
        matrix, flow = towards_the_centre(len(shape))
        phi = exponential(linear(matrix, grid(shape)), num_steps=10)
        x = torch.rand(1, len(shape), 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        assert_close(phi(x), 0.5 + linear(flow, x), rtol=0, atol=1e-7)

    def test_every_step_more_makes_the_error_four_times_smaller(self, shape):
        matrix, flow = towards_the_centre(len(shape))

        def error(num_steps):
            phi = exponential(linear(matrix, grid(shape)), num_steps=num_steps)
            return (phi.displacement + grid(shape) - 0.5 - linear(flow, grid(shape))).abs().max()

        for num_steps in (2, 5):
            assert 3.7 < error(num_steps) / error(num_steps + 1) < 4.3


def test_a_flow_that_is_no_straight_line():
    # x' = x (1 - x), the logistic equation, whose flow is known and which stays between 0 and 1.
    def error(n):
        x = grid((n,))
        exact = x * math.e / (1 + x * (math.e - 1))
        return (exponential(x * (1 - x), num_steps=12).displacement + x - exact).abs().max()

    assert error(65) < 1e-3
    # Second order, but for the logarithm that the number of squarings over more than a voxel adds.
    assert 1.6 < math.log2(error(33) / error(65)) < 2.1


@pytest.mark.parametrize("shape", [(17,), (13, 12), (9, 10, 8)], ids=str)
class TestGroup:
    def test_no_velocity_is_the_identity(self, shape):
        assert exponential(torch.zeros(1, len(shape), *shape)).displacement.abs().max() == 0

    def test_a_constant_velocity_is_a_shift(self, shape):
        constant = torch.full((1, len(shape), *shape), 0.3, dtype=torch.float64)
        assert_close(exponential(constant).displacement, constant)

    def test_twice_half_the_way_is_the_way(self, shape):
        v = smooth(shape)
        half = exponential(v / 2, num_steps=6)
        assert_close((half @ half).on_grid_of(v), exponential(v, num_steps=7).on_grid_of(v))

    def test_the_way_back_is_the_inverse(self, shape):
        v = smooth(shape)
        there, back = exponential(v), exponential(-v)
        assert (there.displacement).abs().max() > 0.05
        for round_trip in (there @ back, back @ there):
            assert (round_trip.on_grid_of(v) - grid(shape)).abs().max() < 0.01

    def test_it_never_folds(self, shape):
        points = exponential(smooth(shape, size=0.3), num_steps=9).on_grid_of(smooth(shape))
        assert non_diffeomorphic_volume(points).cells.tolist() == [0, 0]
        # The same displacement without flowing does.
        assert non_diffeomorphic_volume(grid(shape) + 3 * smooth(shape, size=0.3)).cells.min() > 0


def test_the_way_back_is_the_inverse_to_the_order_of_the_grid():
    def error(n):
        v = smooth((n, n))
        return ((exponential(v) @ exponential(-v)).on_grid_of(v) - grid((n, n))).abs().max()

    assert 1.6 < math.log2(error(17) / error(33)) < 2.4


def test_batch_elements_flow_apart():
    v = smooth((9, 8), batch=3)
    assert_close(
        exponential(v).displacement, torch.cat([exponential(one).displacement for one in v.split(1)])
    )


@pytest.mark.parametrize("num_steps", [0, 1, 7])
def test_every_squaring_costs_one_interpolation_and_the_first_step_another(num_steps, monkeypatch):
    calls, original = [], velocity_module.interpolate

    def counted(values, at):
        calls.append(at.shape)
        return original(values, at)

    monkeypatch.setattr(velocity_module, "interpolate", counted)
    exponential(smooth((5, 4)), num_steps=num_steps)
    assert len(calls) == num_steps + 1


@pytest.mark.parametrize("shape", [(4,), (3, 4), (3, 2, 3)], ids=str)
def test_gradients_reach_the_velocity(shape):
    v = smooth(shape, batch=1) + 0.01
    assert torch.autograd.gradcheck(
        lambda v: exponential(v, num_steps=2).displacement, (v.requires_grad_(),), fast_mode=True
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_flows_in_single(dtype):
    v = smooth((9, 8)).to(dtype)
    assert exponential(v).displacement.dtype == torch.float32
    assert_close(exponential(v).displacement, exponential(v.float()).displacement)


def test_an_axis_of_one_voxel():
    flat = smooth((9, 8))
    volume = torch.cat([flat, torch.full((2, 1, 9, 8), 0.2).double()], dim=1)[..., None]
    flow = exponential(volume).displacement
    assert_close(flow[:, :2, ..., 0], exponential(flat).displacement)
    assert_close(flow[:, 2], torch.full_like(flow[:, 2], 0.2))


def test_a_negative_number_of_steps_is_refused():
    with pytest.raises(ValueError, match="`num_steps` is -1"):
        exponential(smooth((4, 4)), num_steps=-1)


def test_a_field_without_one_component_per_axis_is_refused(as_users_see_it):
    with pytest.raises(ValueError, match="`velocity` has shape"):
        exponential(torch.zeros(1, 3, 4, 4))
