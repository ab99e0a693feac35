"""Regularity of maps that we can compute by hand, and what evaluating on the grid alone cannot see."""

import itertools
import math
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from roundtrip.losses.regularity import (
    bending_energy,
    diffusion,
    expected_inverse_consistency,
    gradicon,
    inverse_consistency,
    noisy_inverse_consistency,
    points_as_published,
    points_off_grid,
    points_on_grid,
    round_trip_error,
)
from roundtrip.maps.affine import AffineMap
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.map import Identity

SAMPLERS = [points_off_grid, points_on_grid, points_as_published]
PAIRWISE = {
    "inverse_consistency": inverse_consistency,
    "expected_inverse_consistency": partial(expected_inverse_consistency, epsilon=0.1, step=0.03),
    "gradicon": partial(gradicon, step=0.02),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def image(*shape, batch=2, dtype=torch.float64):
    return torch.zeros(batch, 1, *shape, dtype=dtype)


def points(N=2, batch=2):
    return torch.rand(batch, N, 4, 5, generator=seeded(), dtype=torch.float64)


def shear(amount):
    """Slides along the first axis by as much as the second coordinate bends; its inverse slides back."""

    def slide(x):
        return torch.cat([x[:, :1] + amount * (3 * x[:, 1:2]).sin(), x[:, 1:]], dim=1)

    return slide


def affine(N, seed=0):
    random = torch.rand(1, N, N + 1, generator=seeded(seed), dtype=torch.float64)
    return AffineMap(torch.eye(N) + 0.4 * random[..., :N], random[..., N])


def scaling(*factors):
    return AffineMap(
        torch.diag(torch.tensor(factors, dtype=torch.float64))[None], torch.zeros(1, len(factors))
    )


def displacement(N, batch=2, seed=0):
    shape = (batch, N, *(5, 4, 3)[:N])
    return 0.1 * torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


def test_a_map_and_its_inverse_cost_nothing():
    assert inverse_consistency(shear(+0.3), shear(-0.3), points()) < 1e-28


def test_two_equal_shears_do_not_undo_each_other():
    x = points()
    expected = 2 * (0.6 * (3 * x[:, 1]).sin()).square().mean()
    assert expected > 1e-2
    assert_close(inverse_consistency(shear(0.3), shear(0.3), x), expected)


@pytest.mark.parametrize("N", [1, 2, 3])
def test_affine_pairs_are_not_penalised(N):
    phi, x = affine(N), points(N)
    assert inverse_consistency(phi, phi.inverse(), x) < 1e-28
    assert gradicon(phi, phi.inverse(), x) < 1e-20


def test_squared_lengths_add_up_over_components_and_directions():
    shift = AffineMap(torch.eye(2)[None], torch.tensor([[0.3, 0.4]]).double())
    x = points()
    assert_close(round_trip_error(shift, Identity(), x), torch.tensor(0.25).double())
    assert_close(inverse_consistency(shift, Identity(), x), torch.tensor(0.5).double())


def test_each_direction_composes_in_its_own_order():
    outer, inner, x = affine(2), affine(2, seed=1), points()
    there = outer(inner(x)) - x
    assert_close(round_trip_error(outer, inner, x), there.square().sum(dim=1).mean())
    assert_close(
        inverse_consistency(outer, inner, x),
        round_trip_error(outer, inner, x) + round_trip_error(inner, outer, x),
    )


def swap(*shape):
    """Displacements of nothing, except that two neighbouring pixels in the middle change places."""
    u = torch.zeros(1, len(shape), *shape, dtype=torch.float64)
    middle = tuple(n // 2 for n in shape)
    neighbour = (middle[0] - 1, *middle[1:])
    u[(0, 0, *middle)], u[(0, 0, *neighbour)] = -1 / (shape[0] - 1), 1 / (shape[0] - 1)
    return DisplacementMap(u)


@pytest.mark.parametrize("shape", [(8,), (8, 7), (6, 5, 7)], ids=str)
def test_a_swap_of_two_pixels_is_only_seen_off_the_grid(shape):
    """ICON, Figs. 2 and 3."""
    phi, where = swap(*shape), image(*shape, batch=1)
    on_grid = inverse_consistency(phi, phi, points_on_grid(where))
    off_grid = inverse_consistency(phi, phi, points_off_grid(where, seeded()))
    # Rounding is all that is left on the grid; off it, points near the swap miss by up to a pixel.
    pixel = 1 / (shape[0] - 1)
    assert on_grid < 1e-28
    assert off_grid > 0.1 * pixel**2 / math.prod(shape)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_points_are_drawn_by_the_generator_in_the_precision_of_coordinates(sampler, dtype):
    where = image(5, 4, 3, dtype=dtype)
    x = sampler(where, seeded())
    assert torch.equal(x, sampler(where, seeded()))
    assert x.dtype == (torch.float32 if dtype == torch.bfloat16 else dtype)


def test_on_the_grid_are_the_voxels():
    assert torch.equal(points_on_grid(image(5, 4)), unit_grid((5, 4), like=image(5, 4)))


def test_off_the_grid_the_noise_is_one_voxel_along_each_axis():
    where = image(101, 51)
    noise = points_off_grid(where, seeded()) - unit_grid((101, 51), like=where)
    assert noise.shape == (2, 2, 101, 51)
    # 5151 numbers know their standard deviation to 1 percent.
    assert_close(noise.std(dim=(2, 3)), torch.tensor([[0.01, 0.02]] * 2).double(), rtol=0.04, atol=0)
    correlation = torch.corrcoef(noise.reshape(4, -1)) - torch.eye(4)
    assert correlation.abs().max() < 0.06


def test_the_published_noise_is_one_over_the_last_size_and_shared_by_the_batch():
    where = image(7, 4, 5)
    x = points_as_published(where, seeded())
    noise = torch.randn(1, 3, 7, 4, 5, generator=seeded(), dtype=torch.float64)
    assert torch.equal(x, unit_grid((7, 4, 5), like=where) + noise / 5)


def test_without_a_generator_torchs_own_seed_counts():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        drawn = points_off_grid(image(5, 4))
    assert torch.equal(drawn, points_off_grid(image(5, 4), seeded(3)))


def test_noise_of_level_zero_is_no_noise():
    phi_AB, phi_BA, x = affine(2), shear(0.2), points()
    assert_close(
        noisy_inverse_consistency(phi_AB, phi_BA, x, epsilon=0.0, generator=seeded()),
        inverse_consistency(phi_AB, phi_BA, x),
    )


def test_noise_follows_the_generator():
    loss = partial(noisy_inverse_consistency, shear(0.1), shear(-0.1), points(), epsilon=0.1)
    assert loss(generator=seeded(1)) == loss(generator=seeded(1)) != loss(generator=seeded(2))


@pytest.mark.parametrize("N", [1, 2, 3])
def test_the_expected_loss_of_an_affine_pair(N):
    phi, x, epsilon = affine(N), points(N), 0.1
    back = phi.inverse()
    squares = [m.matrix.square().sum() * m.matrix[0].det().abs() for m in (phi, back)]
    loss = expected_inverse_consistency(phi, back, x, epsilon=epsilon, step=0.05)
    assert_close(loss, epsilon**2 * sum(squares))


def test_reflections_count_by_the_magnitude_of_their_determinant():
    mirror = scaling(-1.0, 1.0)
    loss = expected_inverse_consistency(mirror, mirror, points(), epsilon=0.5, step=0.05)
    assert_close(loss, torch.tensor(0.25 * (2 + 2)).double())


def test_the_expected_loss_takes_a_step_per_axis():
    phi, x = affine(2), points()
    losses = [
        expected_inverse_consistency(phi, phi, x, epsilon=0.1, step=step)
        for step in (0.05, [0.05, 0.02], torch.tensor([0.05, 0.02]))
    ]
    assert_close(losses[0], losses[1])
    assert_close(losses[1], losses[2])


@pytest.mark.parametrize("N", [1, 2, 3])
def test_gradicon_of_affine_maps_is_the_mean_square_of_the_matrix_that_is_left(N):
    outer, inner = affine(N), affine(N, seed=1)
    left = torch.eye(N) - outer.matrix[0] @ inner.matrix[0]
    assert_close(gradicon(outer, inner, points(N)), left.square().sum() / N)


def test_gradicon_is_made_of_forward_differences_of_one_direction():
    phi_AB, phi_BA, x, step = affine(2), shear(0.3), points(), 0.05

    def error(x):
        return x - phi_AB(phi_BA(x))

    total = 0.0
    for axis in range(2):
        ahead = x.clone()
        ahead[:, axis] += step
        total += (((error(x) - error(ahead)) / step) ** 2).mean()
    assert_close(gradicon(phi_AB, phi_BA, x, step=step), total)
    assert not torch.isclose(gradicon(phi_BA, phi_AB, x, step=step), total)


@pytest.mark.parametrize("name", PAIRWISE)
def test_maps_of_a_batch_share_points(name):
    both = [DisplacementMap(displacement(2, batch=2, seed=seed)) for seed in (0, 1)]
    x = points(batch=1)
    alone = [PAIRWISE[name](both[0][i : i + 1], both[1][i : i + 1], x) for i in range(2)]
    assert_close(PAIRWISE[name](*both, x), torch.stack(alone).mean())


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize("N", [1, 2, 3])
def test_gradients(name, N):
    fields = [displacement(N, seed=seed).requires_grad_() for seed in (0, 1)]

    def loss(one, other):
        return PAIRWISE[name](DisplacementMap(one), DisplacementMap(other), points(N))

    assert torch.autograd.gradcheck(loss, fields, fast_mode=True)


def test_gradients_of_the_noisy_loss():
    fields = [displacement(2, seed=seed).requires_grad_() for seed in (0, 1)]

    def loss(one, other):
        maps = DisplacementMap(one), DisplacementMap(other)
        return noisy_inverse_consistency(*maps, points(), epsilon=0.05, generator=seeded())

    assert torch.autograd.gradcheck(loss, fields, fast_mode=True)


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_points_of_low_precision_are_computed_in_float32(name, dtype):
    maps = [DisplacementMap(displacement(2, seed=seed).to(dtype)) for seed in (0, 1)]
    x = points().to(dtype)
    loss = PAIRWISE[name](*maps, x)
    assert loss.dtype == torch.float32 and loss.isfinite()
    assert_close(loss, PAIRWISE[name](*maps, x.float()))


@pytest.mark.parametrize("shape", [(6,), (5, 7), (4, 5, 6)], ids=str)
def test_translations_cost_diffusion_nothing_and_affine_maps_bending_energy(shape):
    N = len(shape)
    where, phi = image(*shape), affine(N)
    shift = AffineMap(torch.eye(N)[None], phi.offset)
    assert diffusion(shift, where) < 1e-28
    assert bending_energy(phi, where) < 1e-24
    assert_close(diffusion(phi, where), (phi.matrix - torch.eye(N)).square().sum())


def quadratic(x):
    """Second derivatives of the displacement: 1 along the first axis, and 3 mixed."""
    u = torch.stack([0.5 * x[:, 0] ** 2, 3 * x[:, 0] * x[:, 1]], dim=1)
    return x + u


def test_bending_energy_of_a_quadratic_counts_mixed_derivatives_twice():
    assert_close(bending_energy(quadratic, image(5, 9)), torch.tensor(1.0 + 2 * 9).double())


@pytest.mark.parametrize(
    ("regulariser", "count"), [(diffusion, 1), (bending_energy, 2)], ids=["diffusion", "bending_energy"]
)
def test_differences_are_second_order(regulariser, count):
    amplitude, direction = torch.tensor([0.1, 0.2]).double(), torch.tensor([2.0, 3.0]).double()

    def wave(x):
        phase = torch.einsum("d,bd...->b...", direction, x)
        return x + amplitude.view(1, 2, 1, 1) * phase.sin()[:, None]

    def exact(n):
        """The derivatives at the places which the differences lie around."""
        total = 0.0
        for axes in itertools.product(range(2), repeat=count):
            # Each difference takes half a voxel away from both ends of its axis.
            ends = [0.5 * axes.count(d) / (n - 1) for d in range(2)]
            along = [torch.linspace(e, 1 - e, n - axes.count(d)).double() for d, e in enumerate(ends)]
            phase = direction[0] * along[0][:, None] + direction[1] * along[1]
            derivative = (phase.cos() if count == 1 else phase.sin()) * direction[list(axes)].prod()
            total += amplitude.square().sum() * derivative.square().mean()
        return total

    def error(n):
        return abs(float(regulariser(wave, image(n, n)) - exact(n)))

    assert 1.8 < math.log2(error(9) / error(17)) < 2.2


@pytest.mark.parametrize("regulariser", [diffusion, bending_energy])
def test_gradients_of_regularisers(regulariser):
    for N in (1, 2, 3):
        u = displacement(N).requires_grad_()
        assert torch.autograd.gradcheck(lambda u: regulariser(DisplacementMap(u), u), u, fast_mode=True)


@pytest.mark.parametrize("regulariser", [diffusion, bending_energy])
@pytest.mark.parametrize("shape", [(1,), (2,), (1, 1), (1, 4), (2, 2), (3, 1, 4)], ids=str)
def test_axes_without_differences_add_nothing(regulariser, shape):
    u = 0.1 * torch.randn(1, len(shape), *shape, generator=seeded(), dtype=torch.float64)
    loss = regulariser(DisplacementMap(u), u)
    assert loss.isfinite()
    if max(shape) == 1:
        assert loss == 0
