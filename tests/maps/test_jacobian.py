"""Derivatives of maps: exact, by differences, on a grid, and in millimetres."""

import math

import pytest
import torch
from torch.testing import assert_close

from roundtrip.maps.affine import AffineMap
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.jacobian import (
    central_difference,
    determinant,
    grid_jacobian,
    jacobian,
    physical_jacobian,
)
from roundtrip.maps.map import Composition, Identity

METHODS = {
    "jacobian": jacobian,
    "central_difference": lambda phi, x: central_difference(phi, x, 1e-3),
}


@pytest.fixture(params=METHODS.values(), ids=METHODS.keys())
def derivative(request):
    return request.param


@pytest.fixture(params=(1, 2, 3), ids=lambda N: f"{N}D")
def N(request):
    return request.param


def random(*size, seed=0):
    return torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def bend(x):
    """A smooth map that mixes all coordinates."""
    weights = torch.linspace(0.5, 1.5, x.shape[1] ** 2, dtype=x.dtype).view(x.shape[1], x.shape[1])
    return x + 0.1 * torch.sin(3 * torch.einsum("ij,bj...->bi...", weights, x))


def bend_jacobian(x):
    N = x.shape[1]
    weights = torch.linspace(0.5, 1.5, N**2, dtype=x.dtype).view(N, N)
    slope = 0.3 * torch.cos(3 * torch.einsum("ij,bj...->bi...", weights, x))
    layout = [1] * (x.ndim - 2)
    return torch.eye(N, dtype=x.dtype).view(1, N, N, *layout) + slope[:, :, None] * weights.view(
        1, N, N, *layout
    )


def affine(N, batch=2):
    noise = random(batch, N, N + 1, seed=1)
    return AffineMap(torch.eye(N, dtype=torch.float64) + 0.5 * noise[..., :N], noise[..., N])


class TestEitherWay:
    @pytest.mark.parametrize("layout", [(), (5,), (2, 3), (2, 1, 2, 2)], ids=str)
    def test_the_derivative_of_an_affine_map_is_its_matrix(self, derivative, N, layout):
        phi = affine(N)
        expected = phi.matrix.view(2, N, N, *[1] * len(layout)).expand(2, N, N, *layout)
        assert_close(derivative(phi, random(2, N, *layout)), expected)

    def test_columns_are_axes_and_rows_are_components(self, derivative, N):
        x = random(2, N, 6)
        assert_close(derivative(bend, x), bend_jacobian(x), rtol=0, atol=1e-5)

    def test_one_set_of_points_serves_every_map_of_a_batch(self, derivative, N):
        phi, x = affine(N, batch=3), random(1, N, 4)
        assert_close(derivative(phi, x), derivative(phi, x.expand(3, -1, -1)))

    def test_no_gradient_is_needed_or_left_behind(self, derivative, N):
        x = random(2, N, 4)
        with torch.no_grad():
            result = derivative(bend, x)
        assert_close(result, bend_jacobian(x), rtol=0, atol=1e-5)
        assert not result.requires_grad and not x.requires_grad

    def test_the_identity(self, derivative, N):
        eye = torch.eye(N, dtype=torch.float64).view(1, N, N, 1).expand(2, N, N, 4)
        assert_close(derivative(Identity(), random(2, N, 4)), eye)

    def test_the_precision_is_that_of_the_points(self, derivative, N):
        assert derivative(bend, random(1, N, 3).float()).dtype == torch.float32


class TestExact:
    def test_it_equals_the_formula(self, N):
        x = random(2, N, 6)
        assert_close(jacobian(bend, x), bend_jacobian(x))

    def test_it_can_be_differentiated_with_respect_to_the_points(self, N):
        x = random(1, N, 2).requires_grad_()
        assert torch.autograd.gradcheck(lambda x: jacobian(bend, x, create_graph=True), (x,))

    def test_and_to_the_map(self, N):
        field, x = 0.1 * random(1, N, *(4, 3, 2)[:N]), random(1, N, 3, seed=2)

        def matrices(field):
            return jacobian(DisplacementMap(field), x, create_graph=True)

        assert torch.autograd.gradcheck(matrices, (field.requires_grad_(),), fast_mode=True)

    def test_without_being_asked_it_keeps_no_graph(self, N):
        field = (0.1 * random(1, N, *(4, 3, 2)[:N])).requires_grad_()
        assert not jacobian(DisplacementMap(field), random(1, N, 3)).requires_grad
        # What computed the field can still be differentiated.
        (2 * field).sum().backward()

    def test_at_a_kink_it_is_the_side_of_the_higher_index(self):
        displacement = torch.tensor([[[0.0, 0.1, 0.4]]], dtype=torch.float64)
        at = torch.tensor([[[0.25, 0.5, 0.75, 0.0, 1.0]]], dtype=torch.float64)
        slopes = jacobian(DisplacementMap(displacement), at).flatten()
        assert_close(slopes, torch.tensor([1.2, 1.6, 1.6, 1.0, 1.0], dtype=torch.float64))

    @pytest.mark.parametrize(
        "phi",
        [lambda x: x.detach() + 1, lambda x: x.detach() * torch.ones(1, requires_grad=True)],
        ids=["detached", "depends on something else"],
    )
    def test_a_map_that_cannot_be_differentiated_is_refused(self, phi):
        with pytest.raises(ValueError, match="Use `central_difference"):
            jacobian(phi, random(1, 2, 3))


class TestDifferences:
    def test_they_are_second_order(self, N):
        x = random(2, N, 50)

        def error(step):
            return (central_difference(bend, x, step) - bend_jacobian(x)).abs().mean()

        assert 1.9 < math.log2(error(0.02) / error(0.01)) < 2.1

    def test_every_axis_has_its_step(self):
        seen = []

        def watch(x):
            seen.append(x.flatten().tolist())
            return x

        central_difference(watch, torch.zeros(1, 2), [0.25, 0.5])
        assert seen == [[0.25, 0], [-0.25, 0], [0, 0.5], [0, -0.5]]

    @pytest.mark.parametrize("step", [0.5, [0.5, 0.5], (0.5, 0.5), torch.full((2,), 0.5)], ids=repr)
    def test_a_step_may_be_one_number_or_one_per_axis(self, step):
        x = random(1, 2, 5)
        assert_close(central_difference(bend, x, step), central_difference(bend, x, 0.5))

    def test_steps_for_other_axes_are_refused(self):
        with pytest.raises(ValueError, match="points of 2 dimensions need one number, or 2"):
            central_difference(bend, random(1, 2, 5), [0.1, 0.1, 0.1])

    def test_points_of_low_precision_are_moved_in_single(self):
        x = random(1, 2, 5).bfloat16()
        assert_close(central_difference(bend, x, 1e-3), central_difference(bend, x.float(), 1e-3))


class TestOnAGrid:
    @pytest.mark.parametrize("shape", [(5,), (2,), (4, 3), (4, 3, 2)], ids=str)
    def test_affine_maps_are_exact_up_to_the_border(self, shape):
        N = len(shape)
        phi = affine(N)
        matrices = grid_jacobian(phi.on_grid_of(torch.zeros(1, 1, *shape, dtype=torch.float64)))
        assert_close(matrices, phi.matrix.view(2, N, N, *[1] * N).expand(2, N, N, *shape))

    def test_it_is_second_order_inside_and_first_at_the_border(self, N):
        def errors(n):
            grid = unit_grid((n,) * N, like=torch.zeros(1, dtype=torch.float64))
            error = (grid_jacobian(bend(grid)) - bend_jacobian(grid)).abs().amax(dim=(0, 1, 2))
            inside = (slice(1, -1),) * N
            border = error.clone()
            border[inside] = 0
            return error[inside].max(), border.max()

        (inside, border), (inside_finer, border_finer) = errors(9), errors(17)
        assert 1.7 < math.log2(inside / inside_finer) < 2.3
        assert 0.7 < math.log2(border / border_finer) < 1.3

    def test_inside_it_is_the_central_difference_of_one_voxel(self):
        grid = unit_grid((6, 7), like=torch.zeros(1, dtype=torch.float64))
        central = central_difference(bend, grid, [1 / 5, 1 / 6])
        assert_close(grid_jacobian(bend(grid))[..., 1:-1, 1:-1], central[..., 1:-1, 1:-1])

    def test_along_an_axis_of_one_voxel_it_is_the_identity(self):
        flat = unit_grid((4, 1, 3), like=torch.zeros(1, dtype=torch.float64))
        column = grid_jacobian(bend(flat))[:, :, 1]
        assert_close(column, torch.tensor([0.0, 1, 0]).double().view(1, 3, 1, 1, 1).expand_as(column))

    def test_low_precision_is_compared_in_single(self):
        points = bend(unit_grid((5, 4))).bfloat16()
        assert_close(grid_jacobian(points), grid_jacobian(points.float()), rtol=0, atol=0)

    def test_points_that_do_not_fit_their_grid_are_refused(self, as_users_see_it):
        with pytest.raises(ValueError, match="`points_on_grid` has shape"):
            grid_jacobian(torch.zeros(1, 3, 4, 4))


class TestDeterminant:
    def test_it_is_that_of_linear_algebra(self, N):
        matrices = random(2, N, N, 3, 4) - 0.5
        expected = torch.linalg.det(matrices.movedim((1, 2), (-2, -1)))[:, None]
        assert_close(determinant(matrices), expected)

    @pytest.mark.parametrize("size", [4, 5])
    def test_of_larger_matrices_too(self, size):
        matrices = random(2, size, size, 3) - 0.5
        assert_close(determinant(matrices)[:, 0], torch.linalg.det(matrices.movedim((1, 2), (-2, -1))))

    def test_a_rotation_keeps_volumes(self):
        angle = torch.tensor(0.7, dtype=torch.float64)
        c, s = angle.cos(), angle.sin()
        rotation = torch.stack([torch.stack([c, -s]), torch.stack([s, c])])[None]
        phi = AffineMap(rotation, torch.zeros(1, 2, dtype=torch.float64))
        assert_close(determinant(jacobian(phi, random(1, 2, 5))), torch.ones(1, 1, 5, dtype=torch.float64))

    def test_scaling_multiplies_them(self, N):
        factors = determinant(jacobian(lambda x: 2 * x, random(1, N, 5)))
        assert_close(factors, torch.full_like(factors, 2**N))

    def test_a_reflection_reverses_orientation(self, N):
        factors = determinant(jacobian(lambda x: torch.cat([1 - x[:, :1], x[:, 1:]], dim=1), random(1, N, 5)))
        assert_close(factors, torch.full_like(factors, -1))

    def test_volumes_multiply_in_compositions(self, N):
        x, phi = random(2, N, 5), affine(N)
        product = determinant(jacobian(phi, bend(x))) * determinant(jacobian(bend, x))
        assert_close(determinant(jacobian(lambda x: phi(bend(x)), x)), product)

    def test_it_can_be_differentiated(self, N):
        assert torch.autograd.gradcheck(determinant, ((random(1, N, N, 2) - 0.5).requires_grad_(),))

    def test_matrices_that_are_not_square_are_refused(self, as_users_see_it):
        with pytest.raises(ValueError, match="one square matrix per point is needed"):
            determinant(torch.zeros(2, 3, 2, 5))


class TestInMillimetres:
    def test_it_is_the_derivative_of_the_map_between_the_worlds(self, N):
        fixed, moving = (torch.eye(N).double() + random(N, N, seed=seed) for seed in (3, 4))
        unit_from_fixed = AffineMap(fixed.inverse()[None], torch.zeros(1, N, dtype=torch.float64))
        moving_from_unit = AffineMap(moving[None], torch.ones(1, N, dtype=torch.float64))
        x = random(1, N, 5)
        between_worlds = moving_from_unit @ Composition(bend, unit_from_fixed)
        expected = jacobian(between_worlds, torch.einsum("ij,bj...->bi...", fixed, x))
        assert_close(physical_jacobian(jacobian(bend, x), fixed, moving), expected)

    def test_autocast_changes_nothing(self, N):
        matrices, frame = jacobian(bend, random(1, N, 5)).float(), (torch.eye(N) + random(N, N)).float()
        expected = physical_jacobian(matrices, frame, frame.mT)
        with torch.autocast("cpu", torch.bfloat16):
            assert_close(physical_jacobian(matrices, frame, frame.mT), expected, rtol=0, atol=0)

    def test_one_world_with_anisotropic_voxels(self):
        # x -> x + y / 10 in unit coordinates, on a field of view of 100 x 20 mm: 1 mm in y makes 0.5 mm in x.
        shear = torch.tensor([[1.0, 0.1], [0.0, 1.0]], dtype=torch.float64).view(1, 2, 2, 1)
        frame = torch.diag(torch.tensor([100.0, 20.0], dtype=torch.float64))
        assert_close(
            physical_jacobian(shear, frame, frame).flatten(), torch.tensor([1.0, 0.5, 0.0, 1.0]).double()
        )

    @pytest.mark.parametrize("frame", [torch.zeros(2, 2), torch.eye(3)], ids=["singular", "of a volume"])
    def test_a_frame_that_cannot_be_is_refused(self, frame, as_users_see_it):
        with pytest.raises(ValueError, match=r"`fixed_frame` is .* but an invertible 2 x 2 matrix is needed"):
            physical_jacobian(jacobian(bend, random(1, 2, 3)), frame, torch.eye(2))
        with pytest.raises(ValueError, match="`moving_frame` is"):
            physical_jacobian(jacobian(bend, random(1, 2, 3)), torch.eye(2), frame)
