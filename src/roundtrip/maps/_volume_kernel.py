"""The compiled kernel behind `interpolate` for volumes on a CPU: linear sampling and its two gradients.

Reads values and points where they lie, channels first, with no copy. Work is divided so that no two threads
write one number, and every number is summed in one order: the result does not depend on how many threads
there are. Compiled by numba at first use and cached on disk.
"""

from typing import Any, no_type_check

import numpy as np
import torch
from numba import njit
from torch import Tensor

from roundtrip._threads import run_in_threads

_COMPILED: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"contract", "nsz"},
}


def sample_volume(values: Tensor, at: Tensor) -> Tensor:
    """Linear interpolation of `(#B, C, D, H, W)` at `(#B, 3, *P)`, clamped to the edge, in one precision."""
    return _SampleVolume.apply(values, at)


class _SampleVolume(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, at: Tensor) -> Tensor:
        values, at = values.contiguous(), at.contiguous()
        ctx.save_for_backward(values, at)
        batch = max(values.shape[0], at.shape[0])
        out = at.new_empty(batch, values.shape[1], *at.shape[2:])
        arrays = _flat(values), _flat(at), _flat(out)
        run_in_threads(_sample, batch, arrays[1].shape[2], *arrays, tuple(values.shape[2:]))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        values, at = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _differentiable_gradients(values, at, grad)
        return _gradients(values, at, grad, ctx.needs_input_grad)


def _gradients(values: Tensor, at: Tensor, grad: Tensor, wanted: tuple[bool, ...]) -> Any:
    batch, shape, grad = grad.shape[0], tuple(values.shape[2:]), grad.contiguous()
    grad_values = grad_at = None
    if wanted[1]:
        grad_at = torch.empty(batch, *at.shape[1:], dtype=at.dtype)
        arrays = _flat(values), _flat(at), _flat(grad), _flat(grad_at)
        run_in_threads(_gradient_at, batch, arrays[1].shape[2], *arrays, shape)
        grad_at = grad_at.sum_to_size(at.shape)
    if wanted[0]:
        grad_values = torch.zeros(batch, *values.shape[1:], dtype=values.dtype)
        run_in_threads(_gradient_values, batch, shape[0], _flat(at), _flat(grad), _flat(grad_values), shape)
        grad_values = grad_values.sum_to_size(values.shape)
    return grad_values, grad_at


def _differentiable_gradients(values: Tensor, at: Tensor, grad: Tensor) -> Any:
    """The same gradients through torch's own operations, so that they can be differentiated again."""
    from roundtrip.maps.interpolate import interpolate_by_gathering

    inputs = [t for t in (values, at) if t.requires_grad]
    sampled = interpolate_by_gathering(values, at)
    grads = iter(torch.autograd.grad(sampled, inputs, grad, create_graph=True))
    return tuple(next(grads) if t.requires_grad else None for t in (values, at))


def _flat(x: Tensor) -> np.ndarray:
    return x.detach().view(x.shape[0], x.shape[1], -1).numpy()


# Below, `x` are the points, `b` the element of the batch. A batch of one serves every element: b % 1 is 0.
# `no_type_check` keeps the tests' annotation checks out of what numba compiles.


@njit(**_COMPILED)
@no_type_check
def _cell(coordinate, n, real):
    """The lower voxel of a unit coordinate clamped to an axis of n voxels, and the fraction beyond it."""
    last = real(n - 1)
    voxel = min(max(coordinate * last, real(0)), last)
    # The index is clamped too: NaN casts to anything, and must not become an address.
    lower = max(min(np.int64(voxel), np.int64(n - 2)), np.int64(0))
    return lower, voxel - real(lower)


@njit(**_COMPILED)
@no_type_check
def _steps(shape):
    """Strides of the three axes, and the way to the upper voxel: none on an axis of one voxel."""
    n0, n1, n2 = shape
    return (n1 * n2, n2), (n1 * n2 if n0 > 1 else 0, n2 if n1 > 1 else 0, 1 if n2 > 1 else 0)


@njit(**_COMPILED)
@no_type_check
def _sample(values, x, out, shape, b, start, stop):
    """out[b, c, p] for the points start <= p < stop."""
    (s0, s1), (d0, d1, d2) = _steps(shape)
    real, one = x.dtype.type, x.dtype.type(1)
    v, bx = values[b % values.shape[0]], b % x.shape[0]
    for p in range(start, stop):
        i0, f0 = _cell(x[bx, 0, p], shape[0], real)
        i1, f1 = _cell(x[bx, 1, p], shape[1], real)
        i2, f2 = _cell(x[bx, 2, p], shape[2], real)
        g0, g1, g2 = one - f0, one - f1, one - f2
        k = i0 * s0 + i1 * s1 + i2
        for c in range(v.shape[0]):
            v00 = v[c, k] * g2 + v[c, k + d2] * f2
            v01 = v[c, k + d1] * g2 + v[c, k + d1 + d2] * f2
            v10 = v[c, k + d0] * g2 + v[c, k + d0 + d2] * f2
            v11 = v[c, k + d0 + d1] * g2 + v[c, k + d0 + d1 + d2] * f2
            out[b, c, p] = (v00 * g1 + v01 * f1) * g0 + (v10 * g1 + v11 * f1) * f0


@njit(**_COMPILED)
@no_type_check
def _gradient_at(values, x, grad, grad_at, shape, b, start, stop):
    """The gradient of each point start <= p < stop; none along an axis where the point was clamped."""
    (s0, s1), (d0, d1, d2) = _steps(shape)
    real, one, zero = x.dtype.type, x.dtype.type(1), x.dtype.type(0)
    m0, m1, m2 = real(shape[0] - 1), real(shape[1] - 1), real(shape[2] - 1)
    v, bx = values[b % values.shape[0]], b % x.shape[0]
    for p in range(start, stop):
        x0, x1, x2 = x[bx, 0, p], x[bx, 1, p], x[bx, 2, p]
        i0, f0 = _cell(x0, shape[0], real)
        i1, f1 = _cell(x1, shape[1], real)
        i2, f2 = _cell(x2, shape[2], real)
        g0, g1, g2 = one - f0, one - f1, one - f2
        k = i0 * s0 + i1 * s1 + i2
        t0, t1, t2 = zero, zero, zero
        for c in range(v.shape[0]):
            g = grad[b, c, p]
            v000, v001, v010, v011 = v[c, k], v[c, k + d2], v[c, k + d1], v[c, k + d1 + d2]
            k1 = k + d0
            v100, v101, v110, v111 = v[c, k1], v[c, k1 + d2], v[c, k1 + d1], v[c, k1 + d1 + d2]
            v00, v01 = v000 * g2 + v001 * f2, v010 * g2 + v011 * f2
            v10, v11 = v100 * g2 + v101 * f2, v110 * g2 + v111 * f2
            t0 += g * ((v10 - v00) * g1 + (v11 - v01) * f1)
            t1 += g * ((v01 - v00) * g0 + (v11 - v10) * f0)
            low = (v001 - v000) * g1 + (v011 - v010) * f1
            t2 += g * (low * g0 + ((v101 - v100) * g1 + (v111 - v110) * f1) * f0)
        grad_at[b, 0, p] = t0 * m0 if zero < x0 < one else zero
        grad_at[b, 1, p] = t1 * m1 if zero < x1 < one else zero
        grad_at[b, 2, p] = t2 * m2 if zero < x2 < one else zero


@njit(**_COMPILED)
@no_type_check
def _gradient_values(x, grad, grad_values, shape, b, start, stop):
    """What all points give to the slabs start <= i0 < stop of the grid; every caller reads all points."""
    (s0, s1), (d0, d1, d2) = _steps(shape)
    real, one = x.dtype.type, x.dtype.type(1)
    out, bx = grad_values[b], b % x.shape[0]
    for p in range(x.shape[2]):
        i0, f0 = _cell(x[bx, 0, p], shape[0], real)
        if i0 < start - 1 or i0 >= stop:
            continue
        i1, f1 = _cell(x[bx, 1, p], shape[1], real)
        i2, f2 = _cell(x[bx, 2, p], shape[2], real)
        g1, g2 = one - f1, one - f2
        w00, w01, w10, w11 = g1 * g2, g1 * f2, f1 * g2, f1 * f2
        k = i0 * s0 + i1 * s1 + i2
        if i0 >= start:
            for c in range(out.shape[0]):
                g = grad[b, c, p] * (one - f0)
                out[c, k] += g * w00
                out[c, k + d2] += g * w01
                out[c, k + d1] += g * w10
                out[c, k + d1 + d2] += g * w11
        if i0 + 1 < stop and d0 > 0:
            k += d0
            for c in range(out.shape[0]):
                g = grad[b, c, p] * f0
                out[c, k] += g * w00
                out[c, k + d2] += g * w01
                out[c, k + d1] += g * w10
                out[c, k + d1 + d2] += g * w11
