"""The compiled kernel behind `window.py` on a CPU: running sums along one axis after the other.

Works on bundles of lines side by side, so that the processor adds many lines at once and a bundle stays in
its cache through all passes. A line is summed in one order, in float64, by one thread: the result does not
depend on how many there are. Compiled by numba at first use and cached on disk.
"""

from collections.abc import Sequence
from typing import Any, no_type_check

import numpy as np
from numba import njit
from torch import Tensor

from roundtrip._threads import run_in_threads

_COMPILED: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"contract", "nsz"},
}
_BUNDLE = 128


def sum_in_place(fields: Tensor, half_widths: Sequence[float], passes: int) -> None:
    """Every field of the contiguous `(*leading, *S)` becomes its window sums, see `window.window_sum`."""
    shape = fields.shape[fields.ndim - len(half_widths) :]
    flat = fields.view(-1, shape.numel()).numpy()
    stride = 1
    # Neighbours along the last axis are neighbours in memory; `stride` voxels lie between those of an axis.
    for n, half_width in zip(reversed(shape), reversed(half_widths), strict=True):
        whole, rim = int(half_width), half_width % 1
        run_in_threads(_sum_lines, len(flat), shape.numel() // n, flat, n, stride, whole, rim, passes)
        stride *= n


# `no_type_check` keeps the tests' annotation checks out of what numba compiles.


@njit(**_COMPILED)
@no_type_check
def _sum_lines(fields, n, stride, whole, rim, passes, f, start, stop):
    """Sums along the lines start <= line < stop of field f, in place; a line has n voxels, `stride` apart."""
    field, reach = fields[f], passes * (whole + 1)
    a = np.zeros((n + 2 * reach, _BUNDLE))
    b = np.zeros_like(a)
    running = np.zeros(_BUNDLE)
    gap = 1 if stride > 1 else n
    while start < stop:
        width = min(_BUNDLE, stop - start)
        if stride > 1:
            width = min(width, stride - start % stride)
        first = start // stride * n * stride + start % stride
        a[:reach] = 0
        a[reach + n :] = 0
        for i in range(n):
            for k in range(width):
                a[reach + i, k] = field[first + i * stride + k * gap]
        for later in range(passes - 1, -1, -1):
            # What leaves the image in one pass may return to it in a later one.
            margin = later * (whole + 1)
            _sum_bundle(a, b, running, width, reach - margin, reach + n + margin, whole, rim)
            a, b = b, a
        for i in range(n):
            for k in range(width):
                field[first + i * stride + k * gap] = a[reach + i, k]
        start += width


@njit(**_COMPILED)
@no_type_check
def _sum_bundle(a, b, running, width, start, stop, whole, rim):
    """b[i] = the sum over the box around a[i], for start <= i < stop and `width` lines."""
    share = 1 / (2 * whole + 1 + 2 * rim)
    running[:] = 0
    for i in range(start - whole, start + whole + 1):
        for k in range(width):
            running[k] += a[i, k]
    for i in range(start, stop):
        for k in range(width):
            middle, after = running[k], a[i + whole + 1, k]
            b[i, k] = (middle + rim * (a[i - whole - 1, k] + after)) * share
            running[k] = middle + (after - a[i - whole, k])
