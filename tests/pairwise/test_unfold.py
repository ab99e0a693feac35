"""After the last step no simplex is folded, whatever came in, and what was fine is left alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roundtrip.maps.folds import folds_central, non_diffeomorphic_volume
from roundtrip.pairwise.arithmetic import TorchArithmetic
from roundtrip.pairwise.compiled import CompiledArithmetic
from roundtrip.pairwise.unfold import SMALLEST_GROWTH, unfold


def violent(shape: tuple[int, int, int], strength: float, seed: int) -> torch.Tensor:
    return strength * torch.randn(3, *shape, generator=torch.Generator().manual_seed(seed))


def places(u: torch.Tensor) -> torch.Tensor:
    axes = [torch.arange(n, dtype=u.dtype) for n in u.shape[1:]]
    return (torch.stack(torch.meshgrid(*axes, indexing="ij")) + u)[None]


@settings(max_examples=25, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(2, 9)),
    strength=st.floats(0, 30),
    seed=st.integers(0, 99),
)
def test_no_fold_is_left_of_any_field(shape, strength, seed):
    u = violent(shape, strength, seed)
    with CompiledArithmetic() as arithmetic:
        result = unfold(u, arithmetic)
        assert arithmetic.growth(result, torch.empty_like(u[0])).min() >= SMALLEST_GROWTH
    axes = [axis for axis, n in enumerate(shape) if n > 1]
    flat = tuple(axis + 2 for axis, n in enumerate(shape) if n == 1)
    at = places(result)[:, axes].squeeze(flat)
    assert non_diffeomorphic_volume(at).cells == 0
    assert folds_central(at).count == 0


def test_the_readable_arithmetic_unfolds_too():
    result = unfold(violent((6, 7, 8), 3.0, seed=1), TorchArithmetic())
    assert non_diffeomorphic_volume(places(result)).cells == 0


def test_a_field_without_folds_is_returned_as_it_is():
    u = violent((6, 7, 8), 0.05, seed=2)
    assert unfold(u, TorchArithmetic()) is u


def test_far_from_a_fold_nothing_changes():
    u = torch.zeros(3, 32, 32, 32)
    u[0, 4, 4, 4] = 2.0
    result = unfold(u, TorchArithmetic())
    assert non_diffeomorphic_volume(places(u)).cells > 0
    assert non_diffeomorphic_volume(places(result)).cells == 0
    assert result[:, 16:].abs().max() == 0


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_ends_in_no_displacement(value):
    u = torch.full((3, 4, 4, 4), value)
    assert unfold(u, TorchArithmetic()).eq(0).all()
