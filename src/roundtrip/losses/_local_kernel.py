"""Local correlation and its gradient on a CPU, in a few passes over memory instead of a hundred.

The result is one number per image, so the gradient is worked out on the way: the five window sums of the
moments turn, voxel by voxel, into the derivatives by these sums, which the same symmetric window carries back
to the voxels. Neighbours: `local.py` (the formula), `_window_kernel.py` (the sums). Compiled by numba at
first use and cached on disk.
"""

from typing import Any, no_type_check

import numpy as np
import torch
from numba import njit
from torch import Tensor

from roundtrip._threads import run_in_threads
from roundtrip.losses._window_kernel import sum_in_place
from roundtrip.losses.window import Window, window_sum, window_weight


def mean_local_correlation(
    warped: Tensor,
    fixed: Tensor,
    floor_warped: Tensor,
    floor_fixed: Tensor,
    weights: Tensor | None,
    window: Window,
) -> Tensor:
    """As `local.mean_local_correlation_by_torch`."""
    correlation: Tensor = _MeanLocalCorrelation.apply(
        warped, fixed, floor_warped, floor_fixed, weights, window
    )
    return correlation


class _MeanLocalCorrelation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        warped, fixed, floor_warped, floor_fixed, weights, window = inputs
        wanted, half_widths = ctx.needs_input_grad, window.along(warped.shape[2:])
        inside = window_weight(warped, window) if weights is None else window_sum(weights, window)
        A, B, m = _lines(warped), _lines(fixed), None if weights is None else _lines(weights)
        # A, AA, AB, BB, B: in this order those of either image lie together.
        sums = warped.new_empty(5, *A.shape)
        totals = np.empty((*A.shape[:2], 3))
        floors = (floor.detach().reshape(-1).numpy() for floor in (floor_warped, floor_fixed))

        def on_lines(kernel: Any, *args: Any) -> None:
            run_in_threads(kernel, *A.shape[:2], *args, m, warped.shape[1])

        def window_sums(fields: Tensor) -> np.ndarray:
            sum_in_place(fields.view(len(fields), len(A), *warped.shape[2:]), half_widths, window.passes)
            return fields.numpy()

        on_lines(_moments, A, B, sums.numpy())
        on_lines(_correlate, window_sums(sums), _lines(inside), *floors, totals, any(wanted))
        # The sums have become the derivatives by them. The one in the middle belongs to both images.
        by_warped = by_fixed = None
        if wanted[1]:
            by_fixed = torch.empty_like(fixed, memory_format=torch.contiguous_format)
            by_AB, by_BB, by_B = window_sums(sums[2:].clone() if wanted[0] else sums[2:])
            on_lines(_gradient, by_B, by_BB, by_AB, B, A, _lines(by_fixed))
        if wanted[0]:
            by_warped = torch.empty_like(warped, memory_format=torch.contiguous_format)
            by_A, by_AA, by_AB = window_sums(sums[:3])
            on_lines(_gradient, by_A, by_AA, by_AB, A, B, _lines(by_warped))
        means = torch.from_numpy(totals.sum(axis=1)).to(warped.dtype).view(*warped.shape[:2], 3)
        correlation, *by_floors = means.unbind(2)
        ctx.window = window
        ctx.save_for_backward(*inputs[:5], by_warped, by_fixed, *by_floors)
        return correlation

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        warped, fixed, floor_warped, floor_fixed, weights, *derivatives = ctx.saved_tensors
        if torch.is_grad_enabled():
            inputs = warped, fixed, floor_warped, floor_fixed
            return *_differentiable_gradients(inputs, weights, ctx.window, grad), None, None
        shaped = grad.view(*grad.shape, *[1] * (warped.ndim - 2))
        factors = shaped, shaped, grad, grad
        grads = (None if d is None else f * d for f, d in zip(factors, derivatives, strict=True))
        return *grads, None, None


def _lines(x: Tensor) -> np.ndarray:
    """The channels of all images x lines along the last axis x voxels; where memory allows it, no copy."""
    return x.detach().reshape(x.shape[0] * x.shape[1], -1, x.shape[-1]).numpy()


def _differentiable_gradients(
    inputs: tuple[Tensor, Tensor, Tensor, Tensor], weights: Tensor | None, window: Window, grad: Tensor
) -> Any:
    """The same gradients through torch's own operations, so that they can be differentiated again."""
    from roundtrip.losses.local import mean_local_correlation_by_torch

    wanted = [t for t in inputs if t.requires_grad]
    correlation = mean_local_correlation_by_torch(*inputs, weights, window)
    grads = iter(torch.autograd.grad(correlation, wanted, grad, create_graph=True))
    return tuple(next(grads) if t.requires_grad else None for t in inputs)


# Below, `c` counts the channels of all images; `weights` are None, one set for all images, or one for each.
# Lines are summed in one order whoever sums them; within a line any order will do, so that it can be fast.
# `no_type_check` keeps the tests' annotation checks out of what numba compiles.
_COMPILED: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"contract", "nsz", "reassoc"},
}


@njit(**_COMPILED)
@no_type_check
def _moments(A, B, moments, weights, channels, c, start, stop):
    """A, AA, AB, BB and B in this order, each times its weight."""
    for line in range(start, stop):
        for i in range(A.shape[2]):
            a, b = A[c, line, i], B[c, line, i]
            moments[0, c, line, i], moments[4, c, line, i] = a, b
            if weights is not None:
                m = weights[c // channels % len(weights), line, i]
                moments[0, c, line, i], moments[4, c, line, i] = m * a, m * b
            moments[1, c, line, i] = moments[0, c, line, i] * a
            moments[2, c, line, i] = moments[0, c, line, i] * b
            moments[3, c, line, i] = moments[4, c, line, i] * b


@njit(**_COMPILED)
@no_type_check
def _correlate(sums, inside, floor_A, floor_B, totals, differentiate, weights, channels, c, start, stop):
    """The correlation and its derivatives by both floors, added per line; those by the sums replace them."""
    real = sums.dtype.type
    zero, half, one, two = real(0), real(0.5), real(1), real(2)
    floor_A, floor_B, n, image = floor_A[c], floor_B[c], sums.shape[3], c // channels
    m = one / real(sums.shape[2] * n)
    for line in range(start, stop):
        whole = inside[image % len(inside), line]
        A, AA, AB = sums[0, c, line], sums[1, c, line], sums[2, c, line]
        BB, B = sums[3, c, line], sums[4, c, line]
        total, total_A, total_B = 0.0, 0.0, 0.0
        for i in range(n):
            if weights is not None:
                m = weights[image % len(weights), line, i]
            share = one / whole[i] if m > zero else zero
            mean_A, mean_B = A[i] * share, B[i] * share
            var_A, var_B = AA[i] * share - mean_A * mean_A, BB[i] * share - mean_B * mean_B
            spread_A, spread_B = max(var_A, zero) + floor_A, max(var_B, zero) + floor_B
            scale = np.sqrt(one / spread_A) * np.sqrt(one / spread_B)
            correlation = (AB[i] * share - mean_A * mean_B) * scale
            by_A, by_B = -half * correlation / spread_A, -half * correlation / spread_B
            total += m * correlation
            total_A += m * by_A
            total_B += m * by_B
            if differentiate:
                by_A, by_B = by_A if var_A >= zero else zero, by_B if var_B >= zero else zero
                share *= m
                A[i] = -(mean_B * scale + two * mean_A * by_A) * share
                B[i] = -(mean_A * scale + two * mean_B * by_B) * share
                AA[i], BB[i], AB[i] = by_A * share, by_B * share, scale * share
        totals[c, line, 0], totals[c, line, 1], totals[c, line, 2] = total, total_A, total_B


@njit(**_COMPILED)
@no_type_check
def _gradient(by_mean, by_square, by_product, own, other, gradient, weights, channels, c, start, stop):
    """By an image, from what was carried back to its mean, its square and its product with the other."""
    two = own.dtype.type(2)
    for line in range(start, stop):
        for i in range(own.shape[2]):
            g = by_mean[c, line, i] + two * own[c, line, i] * by_square[c, line, i]
            g += other[c, line, i] * by_product[c, line, i]
            if weights is not None:
                g *= weights[c // channels % len(weights), line, i]
            gradient[c, line, i] = g
