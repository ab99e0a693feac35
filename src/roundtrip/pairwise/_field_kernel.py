"""Compiled kernels behind `compiled.py`: reading, inverting and judging fields, plane by plane.

Arrays are `(C, n0, n1, n2)`, lengths in voxels of their grid. Kernels end in `(..., b, start, stop)` and
write the planes start <= z < stop (of channel b, where it takes channels one by one), each number in one
order: the result does not depend on how many threads there are. Compiled by numba at first use and cached on
disk.
"""

from typing import Any, no_type_check

import numpy as np
from numba import njit

_COMPILED: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"contract", "nsz"},
}


# `no_type_check` keeps the tests' annotation checks out of what numba compiles.


@njit(**_COMPILED)
@no_type_check
def _cell(at, n, real):
    """The lower voxel of a place clamped to an axis of n voxels, the fraction beyond it, the way up."""
    at = min(max(at, real(0)), real(n - 1))
    # NaN casts to anything, and must not become an address.
    lower = max(min(np.int64(at), np.int64(n - 2)), np.int64(0))
    return lower, at - real(lower)


@njit(**_COMPILED)
@no_type_check
def _add_cells(row, u, at, ahead, n, stride, index, fraction):
    """Adds `stride` times the lower voxel of each place at + ahead * x + u(x) of a row to its index."""
    real = u.dtype.type
    zero, last, highest = real(0), real(n - 1), np.int32(max(n - 2, 0))
    for x in range(len(u)):
        place = min(max(at + ahead * real(np.int32(x)) + u[x], zero), last)
        # NaN casts to anything, and must not become an address.
        lower = max(min(np.int32(place), highest), np.int32(0))
        fraction[x] = place - real(lower)
        index[x] = (index[x] if row else 0) + stride * np.int64(lower)


@njit(**_COMPILED)
@no_type_check
def _read_row(values, shape, index, f0, f1, f2, out):
    """A row of values in a volume that lies flat, each between the eight voxels above its index."""
    n0, n1, n2 = shape
    d0, d1, d2 = n1 * n2 if n0 > 1 else 0, n2 if n1 > 1 else 0, 1 if n2 > 1 else 0
    for x in range(len(out)):
        i00 = index[x]
        i01, i10 = i00 + d1, i00 + d0
        i11 = i10 + d1
        t = f2[x]
        v00 = values[i00] + t * (values[i00 + d2] - values[i00])
        v01 = values[i01] + t * (values[i01 + d2] - values[i01])
        v10 = values[i10] + t * (values[i10 + d2] - values[i10])
        v11 = values[i11] + t * (values[i11 + d2] - values[i11])
        v0, v1 = v00 + f1[x] * (v01 - v00), v10 + f1[x] * (v11 - v10)
        out[x] = v0 + f0[x] * (v1 - v0)


@njit(**_COMPILED)
@no_type_check
def read_at(values, u, add, out, b, start, stop):
    """out(x) = values(x + u(x)), linear between the voxels, clamped to the edge; plus add * u(x).

    For image b of two.
    """
    _read_planes(values[b], u[b], add, out[b], start, stop)


@njit(**_COMPILED)
@no_type_check
def _read_planes(values, u, add, out, start, stop):
    C, n0, n1, n2 = values.shape
    real = u.dtype.type
    flat = values.reshape(C, n0 * n1 * n2)
    index = np.empty(u.shape[3], dtype=np.int64)
    f = np.empty((3, u.shape[3]), dtype=u.dtype)
    zero, one = real(0), real(1)
    for z in range(start, stop):
        for y in range(u.shape[2]):
            _add_cells(False, u[0, z, y], real(z), zero, n0, n1 * n2, index, f[0])
            _add_cells(True, u[1, z, y], real(y), zero, n1, n2, index, f[1])
            _add_cells(True, u[2, z, y], zero, one, n2, 1, index, f[2])
            for c in range(C):
                line = out[c, z, y]
                _read_row(flat[c], (n0, n1, n2), index, f[0], f[1], f[2], line)
                if add != 0:
                    own = u[c, z, y]
                    for x in range(len(line)):
                        line[x] += add * own[x]


@njit(**_COMPILED)
@no_type_check
def _miss(u, p, at, real):
    """What a guess p = at[0] of the inverse at a voxel misses it by, p + u(x + p), squared; into at[1].

    Into at[2:] go the derivatives of u along each axis in the cell there, none where it lies outside.
    """
    n0, n1, n2 = u.shape[1:]
    a0, a1, a2 = p[0] + at[0, 0], p[1] + at[0, 1], p[2] + at[0, 2]
    i0, f0 = _cell(a0, n0, real)
    i1, f1 = _cell(a1, n1, real)
    i2, f2 = _cell(a2, n2, real)
    j0, j1, j2 = min(i0 + 1, n0 - 1), min(i1 + 1, n1 - 1), min(i2 + 1, n2 - 1)
    one, zero = real(1), real(0)
    g0, g1 = one - f0, one - f1
    in0 = one if zero < a0 < real(n0 - 1) else zero
    in1 = one if zero < a1 < real(n1 - 1) else zero
    in2 = one if zero < a2 < real(n2 - 1) else zero
    miss = zero
    for c in range(3):
        v00, v01, v10, v11 = u[c, i0, i1, i2], u[c, i0, j1, i2], u[c, j0, i1, i2], u[c, j0, j1, i2]
        w00, w01 = u[c, i0, i1, j2] - v00, u[c, i0, j1, j2] - v01
        w10, w11 = u[c, j0, i1, j2] - v10, u[c, j0, j1, j2] - v11
        at[4, c] = in2 * ((w00 * g1 + w01 * f1) * g0 + (w10 * g1 + w11 * f1) * f0)
        v00, v01, v10, v11 = v00 + w00 * f2, v01 + w01 * f2, v10 + w10 * f2, v11 + w11 * f2
        at[3, c] = in1 * ((v01 - v00) * g0 + (v11 - v10) * f0)
        v0, v1 = v00 * g1 + v01 * f1, v10 * g1 + v11 * f1
        at[2, c] = in0 * (v1 - v0)
        at[1, c] = at[0, c] + v0 * g0 + v1 * f0
        miss += at[1, c] * at[1, c]
    return miss


@njit(**_COMPILED)
@no_type_check
def _newton_step(at, real):
    """(1 + du)^-1 times what is missed, by Cramer's rule; its length bounded where du is nearly -1."""
    one = real(1)
    r0, r1, r2 = at[1, 0], at[1, 1], at[1, 2]
    j00, j11, j22 = one + at[2, 0], one + at[3, 1], one + at[4, 2]
    j01, j02, j10, j12, j20, j21 = at[3, 0], at[4, 0], at[2, 1], at[4, 1], at[2, 2], at[3, 2]
    c0, c1, c2 = j11 * j22 - j12 * j21, j12 * j20 - j10 * j22, j10 * j21 - j11 * j20
    share = one / max(j00 * c0 + j01 * c1 + j02 * c2, real(0.05))
    t0 = share * (c0 * r0 + (j02 * j21 - j01 * j22) * r1 + (j01 * j12 - j02 * j11) * r2)
    t1 = share * (c1 * r0 + (j00 * j22 - j02 * j20) * r1 + (j02 * j10 - j00 * j12) * r2)
    t2 = share * (c2 * r0 + (j01 * j20 - j00 * j21) * r1 + (j00 * j11 - j01 * j10) * r2)
    return t0, t1, t2


@njit(**_COMPILED)
@no_type_check
def invert(u, tolerance, iterations, out, b, start, stop):
    """out with out(x) + u(x + out(x)) = 0, by Newton's method from the neighbour's solution or from -u(x)."""
    real = u.dtype.type
    half, enough = real(0.5), tolerance * tolerance
    x = np.empty(3, dtype=u.dtype)
    at, new = np.empty((5, 3), dtype=u.dtype), np.empty((5, 3), dtype=u.dtype)
    for x0 in range(start, stop):
        for x1 in range(u.shape[2]):
            for x2 in range(u.shape[3]):
                x[0], x[1], x[2] = x0, x1, x2
                if x2 == 0:
                    at[0] = -u[:, x0, x1, x2]
                miss = _miss(u, x, at, real)
                if miss > enough:
                    new[0, 0], new[0, 1], new[0, 2] = -u[0, x0, x1, x2], -u[1, x0, x1, x2], -u[2, x0, x1, x2]
                    other = _miss(u, x, new, real)
                    if other < miss:
                        at, new, miss = new, at, other
                for _ in range(iterations):
                    if miss <= enough:
                        break
                    t0, t1, t2 = _newton_step(at, real)
                    other = miss
                    for _ in range(6):
                        new[0, 0], new[0, 1], new[0, 2] = at[0, 0] - t0, at[0, 1] - t1, at[0, 2] - t2
                        other = _miss(u, x, new, real)
                        if other < miss:
                            break
                        t0, t1, t2 = half * t0, half * t1, half * t2
                    if not other < miss:
                        break
                    at, new, miss = new, at, other
                for c in range(3):
                    out[c, x0, x1, x2] = at[0, c]


@njit(**_COMPILED)
@no_type_check
def _growth_at(p, corner, other0, other1, other2):
    """The determinant of the edges from one corner of a cell, of eight in p, to three others."""
    a0, a1, a2 = p[other0, 0] - p[corner, 0], p[other0, 1] - p[corner, 1], p[other0, 2] - p[corner, 2]
    b0, b1, b2 = p[other1, 0] - p[corner, 0], p[other1, 1] - p[corner, 1], p[other1, 2] - p[corner, 2]
    c0, c1, c2 = p[other2, 0] - p[corner, 0], p[other2, 1] - p[corner, 1], p[other2, 2] - p[corner, 2]
    return a0 * (b1 * c2 - b2 * c1) - a1 * (b0 * c2 - b2 * c0) + a2 * (b0 * c1 - b1 * c0)


@njit(**_COMPILED)
@no_type_check
def growth(u, out, b, start, stop):
    """The growth of the worst simplex of every cell; along an axis of one voxel the field repeats."""
    n0, n1, n2 = u.shape[1:]
    real = u.dtype.type
    p = np.empty((8, 3), dtype=u.dtype)
    for z in range(start, stop):
        for y in range(n1):
            for x in range(n2):
                out[z, y, x] = real(1)
                if (z == n0 - 1 and n0 > 1) or (y == n1 - 1 and n1 > 1) or (x == n2 - 1 and n2 > 1):
                    continue
                for k in range(8):
                    k0, k1, k2 = k >> 2, (k >> 1) & 1, k & 1
                    i0, i1, i2 = min(z + k0, n0 - 1), min(y + k1, n1 - 1), min(x + k2, n2 - 1)
                    # Out of a flat axis nothing moves: what the field says there does not count.
                    p[k, 0] = real(k0) + (u[0, i0, i1, i2] if n0 > 1 else real(0))
                    p[k, 1] = real(k1) + (u[1, i0, i1, i2] if n1 > 1 else real(0))
                    p[k, 2] = real(k2) + (u[2, i0, i1, i2] if n2 > 1 else real(0))
                # The tetrahedra left in the middle when every other corner is cut off, in halves.
                worst = min(_growth_at(p, 0, 3, 5, 6) / real(2), _growth_at(p, 7, 4, 2, 1) / real(-2))
                for k in range(8):
                    sign = real(1) - real(2) * real(((k >> 2) + (k >> 1) + k) & 1)
                    worst = min(worst, sign * _growth_at(p, k, k ^ 4, k ^ 2, k ^ 1))
                # Not a number is not less than anything, and must count as folded.
                out[z, y, x] = worst if worst == worst else real(-1)
