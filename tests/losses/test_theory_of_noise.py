"""The paper's theory, measured: white noise after both maps is worth an H1 norm -- ICON, Eqs. (5) to (10).

The maps below are smooth, keep the unit cube, and have inverses in closed form, so that each statement can be
checked on its own: the order of the noisy loss, its constant, and the order of what the theory leaves out.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from roundtrip.losses import regularity
from roundtrip.losses.regularity import (
    expected_inverse_consistency,
    inverse_consistency,
    noisy_inverse_consistency,
)
from roundtrip.maps.map import Composition

DIMS = [2, 3]


@dataclass(frozen=True)
class Stretch:
    """Moves points along one axis by a constant on the logit scale, which depends on the other coordinates.

    0 and 1 stay where they are; the opposite strength undoes it.
    """

    axis: int
    strength: float

    def __call__(self, x):
        N = x.shape[1]
        others = [d for d in range(N) if d != self.axis]
        amount = self.strength * (math.pi * x[:, others].sum(dim=1)).cos()
        moved = x[:, self.axis] / (x[:, self.axis] + (1 - x[:, self.axis]) * (-amount).exp())
        return torch.stack([moved if d == self.axis else x[:, d] for d in range(N)], dim=1)


def inverse_pair(N):
    phi_AB, phi_BA = Stretch(0, 0.7), Stretch(0, -0.7)
    for axis in range(1, N):
        strength = 0.6 / axis
        phi_AB = Composition(phi_AB, Stretch(axis, strength))
        phi_BA = Composition(Stretch(axis, -strength), phi_BA)
    return phi_AB, phi_BA


def cell_centres(N):
    """Points that stand for a uniform distribution on the unit cube."""
    n = {2: 48, 3: 14}[N]
    line = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    return torch.stack(torch.meshgrid(*[line] * N, indexing="ij")).flatten(1)[None]


def noisy(maps, x, epsilon, seed):
    generator = torch.Generator().manual_seed(seed)
    return float(noisy_inverse_consistency(*maps, x, epsilon=epsilon, generator=generator))


def constant(N, epsilon):
    """What the closed form leaves out: the noise of the outer maps itself."""
    return 2 * N * epsilon**2


@pytest.mark.parametrize("N", DIMS)
def test_the_maps_are_what_the_theory_asks_for(N):
    maps, x = inverse_pair(N), cell_centres(N)
    assert inverse_consistency(*maps, x) < 1e-28
    faces = torch.rand(2 * N, N, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for d in range(N):
        faces[2 * d, d], faces[2 * d + 1, d] = 0, 1
    for phi in maps:
        assert (phi(x) - x).abs().max() > 0.1
        for d in range(N):
            assert (phi(faces)[2 * d, d] == 0).all() and (phi(faces)[2 * d + 1, d] == 1).all()


@pytest.mark.parametrize("N", DIMS)
def test_the_noisy_loss_is_of_second_order_in_the_noise(N):
    maps, x = inverse_pair(N), cell_centres(N)
    noise_free = float(inverse_consistency(*maps, x))
    levels = np.geomspace(1e-4, 1e-2, 5)
    extra = [noisy(maps, x, epsilon, seed=0) - noise_free for epsilon in levels]
    slope = np.polyfit(np.log(levels), np.log(extra), 1)[0]
    assert slope == pytest.approx(2, abs=0.01)


def mean_and_standard_error(maps, x, epsilon):
    """Of what the closed form stands for, over 8 draws at 8 times the points."""
    x = x.expand(8, *x.shape[1:])
    draws = np.array([noisy(maps, x, epsilon, seed) for seed in range(8)]) - constant(x.shape[1], epsilon)
    return draws.mean(), draws.std(ddof=1) / math.sqrt(len(draws))


@pytest.mark.parametrize("N", DIMS)
def test_its_mean_over_many_draws_is_the_closed_form(N):
    maps, x, epsilon = inverse_pair(N), cell_centres(N), 1e-3
    closed_form = float(expected_inverse_consistency(*maps, x, epsilon=epsilon, step=1e-4))
    mean, standard_error = mean_and_standard_error(maps, x, epsilon)
    # Sharp enough to see the weights: without the determinants the closed form would be off by a fifth.
    assert standard_error < 0.01 * closed_form
    assert abs(mean - closed_form) < 3 * standard_error


@pytest.mark.parametrize("N", DIMS)
@pytest.mark.parametrize(
    ("error", "order"), [(0.0, 4), (4.0, 3)], ids=["exact inverses", "inverses up to the noise"]
)
def test_what_the_theory_leaves_out_is_of_higher_order(N, error, order, monkeypatch):
    phi_AB, exact = inverse_pair(N)
    x = cell_centres(N)

    def mirrored(like, generator, draw=regularity._normal):
        return -draw(like, generator)

    def extra(epsilon):
        """What noise adds, averaged over one draw and its opposite: odd orders cancel exactly."""
        maps = phi_AB, Composition(Stretch(0, error * epsilon), exact)
        total = noisy(maps, x, epsilon, seed=0)
        with monkeypatch.context() as patch:
            patch.setattr(regularity, "_normal", mirrored)
            total += noisy(maps, x, epsilon, seed=0)
        return total / 2 - float(inverse_consistency(*maps, x))

    # The same draw at a tiny level is its own second-order part.
    second_order = extra(1e-6) / 1e-6**2
    levels = np.geomspace(1e-3, 4e-3, 4)
    left = [extra(epsilon) - epsilon**2 * second_order for epsilon in levels]
    slope = np.polyfit(np.log(levels), np.log(np.abs(left)), 1)[0]
    assert slope == pytest.approx(order, abs=0.1)


@pytest.mark.parametrize("N", DIMS)
def test_maps_that_are_inverse_up_to_the_noise_are_close_to_the_closed_form(N):
    phi_AB, exact = inverse_pair(N)
    x, epsilon = cell_centres(N), 0.005
    maps = phi_AB, Composition(Stretch(0, 4 * epsilon), exact)
    error = float(inverse_consistency(*maps, x))
    assert 0.1 * epsilon**2 < error < epsilon**2
    closed_form = float(expected_inverse_consistency(*maps, x, epsilon=epsilon, step=1e-4))
    mean, standard_error = mean_and_standard_error(maps, x, epsilon)
    # The terms that are left out are epsilon times smaller than those of second order.
    assert abs(mean - closed_form) < 3 * standard_error + 4 * epsilon * closed_form
