"""The compiled kernel behind `linear_fit.py` on a CPU: sums by which a linear map is judged.

One pass over the samples of one image, seen in the other through each of a batch of matrices. Chunks of
samples are summed each by one thread and into its own row, so that the sums do not depend on how many threads
there are. Compiled by numba at first use and cached on disk.
"""

from typing import Any, no_type_check

import numpy as np
from numba import njit

from roundtrip._threads import run_in_threads
from roundtrip.pairwise.linear_levels import Samples, View

_COMPILED: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"contract", "nsz"},
}
# So many samples take less time than it takes to start a thread.
_FEW = 2000


def add_up(
    samples: Samples, target: View, matrices: np.ndarray, channel: int, differentiate: bool
) -> np.ndarray:
    """As `linear_fit.add_up_by_torch`."""
    size = 73 + 15 * samples.knots if differentiate else 1 + 3 * samples.knots
    sums = np.empty((len(matrices), len(samples.edges) - 1, size))
    sampled = samples.points, samples.knot[channel], samples.fraction[channel], samples.weights, samples.edges
    arguments = (
        target.data[channel].reshape(-1).numpy(),
        None if target.weight is None else target.weight.reshape(-1).numpy(),
        tuple(target.data.shape[1:]),
        *(tensor.numpy() for tensor in sampled),
        np.ascontiguousarray(matrices[:, :3]),
        samples.knots,
        differentiate,
        sums,
    )
    if len(matrices) * samples.points.shape[1] < _FEW:
        for b in range(len(matrices)):
            _add_up(*arguments, b, 0, sums.shape[1])
    else:
        run_in_threads(_add_up, *sums.shape[:2], *arguments)
    return sums


# `no_type_check` keeps the tests' annotation checks out of what numba compiles.


@njit(**_COMPILED)
@no_type_check
def _cell(y, n):
    """The lower voxel, the fraction beyond it, how much the place counts, and whether it was moved inside."""
    last = float(n - 1)
    beyond = max(-y, y - last, 0.0)
    inside = min(max(y, 0.0), last)
    # The index is clamped too: NaN casts to anything, and must not become an address.
    lower = max(min(np.int64(inside), np.int64(n - 2)), np.int64(0))
    return lower, inside - lower, max(1.0 - beyond, 0.0), 0.0 if beyond > 0.0 else 1.0


@njit(**_COMPILED)
@no_type_check
def _add_up(
    target,
    weight,
    shape,
    points,
    knot,
    fraction,
    weights,
    edges,
    matrices,
    knots,
    differentiate,
    sums,
    b,
    start,
    stop,
):
    """Chunks start <= chunk < stop, seen through matrix b."""
    n0, n1, n2 = shape
    s0, s1 = n1 * n2, n2
    d0, d1, d2 = s0 if n0 > 1 else 0, s1 if n1 > 1 else 0, 1 if n2 > 1 else 0
    V = matrices[b]
    by_products = 1 + 3 * knots
    by_knots = by_products + 12
    by_squares = by_knots + 12 * knots
    x, g = np.ones(4), np.zeros(3)
    xx, gx = np.ones(10), np.zeros(12)
    for chunk in range(start, stop):
        out = sums[b, chunk]
        out[:] = 0.0
        for p in range(edges[chunk], edges[chunk + 1]):
            x[0], x[1], x[2] = points[0, p], points[1, p], points[2, p]
            i0, f0, w0, e0 = _cell(V[0, 0] * x[0] + V[0, 1] * x[1] + V[0, 2] * x[2] + V[0, 3], n0)
            i1, f1, w1, e1 = _cell(V[1, 0] * x[0] + V[1, 1] * x[1] + V[1, 2] * x[2] + V[1, 3], n1)
            i2, f2, w2, e2 = _cell(V[2, 0] * x[0] + V[2, 1] * x[1] + V[2, 2] * x[2] + V[2, 3], n2)
            w = weights[p] * w0 * w1 * w2
            if w <= 0.0:
                continue
            i = i0 * s0 + i1 * s1 + i2
            if weight is not None:
                w *= weight[i + (d0 if f0 > 0.5 else 0) + (d1 if f1 > 0.5 else 0) + (d2 if f2 > 0.5 else 0)]
                if w <= 0.0:
                    continue
            v000, v001 = np.float64(target[i]), np.float64(target[i + d2])
            v010, v011 = np.float64(target[i + d1]), np.float64(target[i + d1 + d2])
            i += d0
            v100, v101 = np.float64(target[i]), np.float64(target[i + d2])
            v110, v111 = np.float64(target[i + d1]), np.float64(target[i + d1 + d2])
            v00, v01 = v000 + f2 * (v001 - v000), v010 + f2 * (v011 - v010)
            v10, v11 = v100 + f2 * (v101 - v100), v110 + f2 * (v111 - v110)
            v0, v1 = v00 + f1 * (v01 - v00), v10 + f1 * (v11 - v10)
            m = v0 + f0 * (v1 - v0)
            k, t = knot[p], np.float64(fraction[p])
            s = 1.0 - t
            ws, wt = w * s, w * t
            out[0] += w
            out[1] += w * m * m
            out[2 + k] += ws * m
            out[3 + k] += wt * m
            out[2 + knots + k] += ws * s
            out[3 + knots + k] += wt * t
            out[2 + 2 * knots + k] += ws * t
            if not differentiate:
                continue
            g[0] = e0 * (v1 - v0)
            g[1] = e1 * (v01 - v00 + f0 * ((v11 - v10) - (v01 - v00)))
            low = v001 - v000 + f1 * ((v011 - v010) - (v001 - v000))
            high = v101 - v100 + f1 * ((v111 - v110) - (v101 - v100))
            g[2] = e2 * (low + f0 * (high - low))
            for a in range(3):
                for c in range(4):
                    gx[4 * a + c] = g[a] * x[c]
            at = by_knots + 12 * k
            wm = w * m
            for a in range(12):
                out[by_products + a] += wm * gx[a]
                out[at + a] += ws * gx[a]
                out[at + 12 + a] += wt * gx[a]
            xx[0], xx[1], xx[2], xx[3] = x[0] * x[0], x[0] * x[1], x[0] * x[2], x[0]
            xx[4], xx[5], xx[6] = x[1] * x[1], x[1] * x[2], x[1]
            xx[7], xx[8] = x[2] * x[2], x[2]
            at = by_squares
            for a in range(3):
                for c in range(a, 3):
                    gg = w * g[a] * g[c]
                    for j in range(10):
                        out[at + j] += gg * xx[j]
                    at += 10
