"""The compiled arithmetic does what the readable one does; the readable one is right by autograd."""

import math

import pytest
import torch

from roundtrip.maps.folds import worst_growth
from roundtrip.pairwise.arithmetic import Memory, Moments, TorchArithmetic
from roundtrip.pairwise.compiled import CompiledArithmetic
from roundtrip.pairwise.pyramid import gaussian_weights

SHAPES = [(6, 17, 8), (9, 1, 7), (1, 5, 6), (40, 30, 20)]
TORCH = TorchArithmetic()


@pytest.fixture
def compiled():
    with CompiledArithmetic() as arithmetic:
        yield arithmetic


def noise(*shape: int, scale: float = 1.0, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=generator)


def windows(*sigmas: float) -> list[torch.Tensor]:
    return [gaussian_weights(sigma, like=torch.ones(1)) for sigma in sigmas]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
class TestBothAgree:
    def test_on_reading(self, compiled, shape):
        values, u = noise(2, *shape), noise(3, *shape, scale=3, seed=1)
        out = (a.read(values, u, torch.empty_like(values)) for a in (compiled, TORCH))
        torch.testing.assert_close(*out, atol=2e-5, rtol=0)

    def test_on_composing(self, compiled, shape):
        u, v = noise(3, *shape), noise(3, *shape, seed=1)
        out = (a.compose(u, v, torch.empty_like(u)) for a in (compiled, TORCH))
        torch.testing.assert_close(*out, atol=2e-5, rtol=0)

    def test_on_smoothing(self, compiled, shape):
        values, weights = noise(2, *shape), windows(0.5, 1.2, 3.0)
        out = (a.smooth(values, weights, torch.empty_like(values)) for a in (compiled, TORCH))
        torch.testing.assert_close(*out, atol=1e-6, rtol=0)

    def test_on_local_correlation(self, compiled, shape):
        A, B = noise(2, *shape), noise(2, *shape, seed=1)
        forces = [torch.full((2, 3, *shape), torch.nan) for _ in "ab"]
        values = [
            a.local_forces(A, B, windows(0.8, 1.0, 1.5), 1e-2, (1.0, 0.5, 2.0), *out)
            for a, out in zip((compiled, TORCH), forces, strict=True)
        ]
        assert values[0] == pytest.approx(values[1], abs=1e-6)
        torch.testing.assert_close(*forces, atol=1e-4, rtol=1e-4)

    def test_on_steps(self, compiled, shape):
        how, smoothing = Moments(), (windows(1.0, 0.4, 0.9), windows(0.7, 0.7, 0.6))
        results = []
        for arithmetic in (compiled, TORCH):
            u = [noise(3, *shape, seed=seed) for seed in (0, 1)]
            memories = [Memory(torch.zeros(3, *shape), torch.zeros(shape)) for _ in "ab"]
            for count in (1, 2, 3):
                g = [noise(3, *shape, seed=2 * count + seed) for seed in (0, 1)]
                spare = [torch.empty(3, *shape) for _ in "ab"]
                arithmetic.step(u, g, memories, how, count, 0.2, *smoothing, spare)
            results.append([*u, *(m for memory in memories for m in (memory.first, memory.second))])
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-5)

    def test_on_growth(self, compiled, shape):
        u = noise(3, *shape, scale=0.3)
        out = (a.growth(u, torch.empty_like(u[0])) for a in (compiled, TORCH))
        torch.testing.assert_close(*out, atol=5e-5, rtol=0)


def test_a_step_is_composed_to_first_order_in_its_length():
    shape, flat = (9, 8, 7), [torch.ones(1, dtype=torch.float64)] * 3
    u = TORCH.smooth(noise(3, *shape, scale=3).double(), windows64(1.5), torch.empty(3, *shape).double())
    g = noise(3, *shape, seed=1).double()

    def error(step: float) -> float:
        fields, spare = [u.clone(), u.clone()], [torch.empty_like(u) for _ in "AB"]
        memories = [Memory(torch.zeros_like(u), torch.zeros_like(u[0])) for _ in "AB"]
        TORCH.step(fields, [g, g], memories, Moments(), 1, step, flat, flat, spare)
        s = step * g / (g.norm(dim=0) + Moments().floor)
        return float((fields[0] - TORCH.compose(u, s, torch.empty_like(u))).abs().max())

    assert 1.8 < math.log2(error(0.2) / error(0.1)) < 2.2


def windows64(sigma: float) -> list[torch.Tensor]:
    return [gaussian_weights(sigma, like=torch.ones(1, dtype=torch.float64))] * 3


def test_both_agree_on_the_inverse(compiled):
    u = TORCH.smooth(noise(3, 12, 11, 10, scale=3), windows(2.0, 2.0, 2.0), torch.empty(3, 12, 11, 10))
    out = (a.invert(u, torch.empty_like(u)) for a in (compiled, TORCH))
    torch.testing.assert_close(*out, atol=5e-3, rtol=0)


def test_an_inverse_undoes_its_map(compiled):
    u = TORCH.smooth(noise(3, 24, 20, 16, scale=4), windows(3.0, 3.0, 3.0), torch.empty(3, 24, 20, 16))
    assert u.abs().max() > 1
    assert compiled.growth(u, torch.empty_like(u[0])).min() > 0
    back = compiled.invert(u, torch.empty_like(u))
    miss = compiled.compose(u, back, torch.empty_like(u))
    assert miss.norm(dim=0).max() < 2e-3


def test_a_force_is_the_derivative_of_the_correlation_around_its_voxel_along_the_slope():
    shape, scale = (5, 5, 6), (1.0, 0.5, 2.0)
    A, B = noise(1, *shape).double(), noise(1, *shape, seed=1).double()
    weights = [w.double() for w in windows(0.8, 1.0, 0.9)]
    out_A, out_B = (torch.empty(3, *shape, dtype=torch.float64) for _ in "AB")
    TORCH.local_forces(A, B, weights, 1e-2, scale, out_A, out_B)

    def correlation(image):
        means = [TORCH.smooth(m, weights, torch.empty_like(m)) for m in (image, B)]
        a, b, aa, bb, ab = (_window(m, weights) for m in (image, B, image**2, B**2, image * B))
        assert torch.equal(means[1], b)
        return (ab - a * b) / ((aa - a**2 + 1e-2) * (bb - b**2 + 1e-2)).sqrt()

    jacobian = torch.autograd.functional.jacobian(correlation, A).reshape(A.numel(), A.numel())
    share = weights[0][0] * weights[1][0] * weights[2][0]
    inside = (slice(None), slice(2, 3), slice(2, 3), slice(2, 4))
    by = (jacobian.diagonal().reshape(A.shape) / share)[inside]
    slope = (A.roll(-1, 3) - A.roll(1, 3))[inside] / 2
    torch.testing.assert_close(out_A[2:3][inside], scale[2] * by * slope)


def _window(values, weights):
    """As `smooth`, through which one can differentiate."""
    from roundtrip.pairwise.arithmetic import _smooth_along

    for axis, half in enumerate(weights, start=1):
        values = _smooth_along(values, axis, half)
    return values


def test_results_do_not_depend_on_the_number_of_threads():
    A, B, results = noise(1, 40, 30, 20), noise(1, 40, 30, 20, seed=1), []
    threads = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            with CompiledArithmetic() as arithmetic:
                out = [torch.empty(3, 40, 30, 20) for _ in "AB"]
                value = arithmetic.local_forces(A, B, windows(1.0, 1.0, 1.0), 1e-2, (1.0, 1.0, 1.0), *out)
                results.append(
                    [torch.tensor(value), *out, arithmetic.smooth(A, windows(2.0, 1.0, 1.0), B.clone())]
                )
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_growth_of_the_identity_is_one():
    identity = torch.stack(torch.meshgrid(*[torch.arange(n) * 1.0 for n in (3, 4, 5)], indexing="ij"))
    assert worst_growth(identity[None]).eq(1).all()
    torch.testing.assert_close(
        TORCH.growth(torch.zeros(3, 3, 4, 5), torch.empty(3, 4, 5)), torch.ones(3, 4, 5)
    )
