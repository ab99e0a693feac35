"""The compiled kernels behind `compiled.py`: what the deformable engine does to arrays, plane by plane.

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
def read_at(values, u, add, out, b, start, stop):
    """out(x) = values(x + u(x)), linear between the voxels, clamped to the edge; plus add * u(x)."""
    C, n0, n1, n2 = values.shape
    real = u.dtype.type
    one = real(1)
    d0, d1, d2 = min(1, n0 - 1), min(1, n1 - 1), min(1, n2 - 1)
    for z in range(start, stop):
        for y in range(u.shape[2]):
            for x in range(u.shape[3]):
                u0, u1, u2 = u[0, z, y, x], u[1, z, y, x], u[2, z, y, x]
                i0, f0 = _cell(real(z) + u0, n0, real)
                i1, f1 = _cell(real(y) + u1, n1, real)
                i2, f2 = _cell(real(x) + u2, n2, real)
                g0, g1, g2 = one - f0, one - f1, one - f2
                j0, j1, j2 = i0 + d0, i1 + d1, i2 + d2
                w00, w01, w10, w11 = g0 * g1, g0 * f1, f0 * g1, f0 * f1
                for c in range(C):
                    low = values[c, i0, i1, i2] * w00 + values[c, i0, j1, i2] * w01
                    low += values[c, j0, i1, i2] * w10 + values[c, j0, j1, i2] * w11
                    high = values[c, i0, i1, j2] * w00 + values[c, i0, j1, j2] * w01
                    high += values[c, j0, i1, j2] * w10 + values[c, j0, j1, j2] * w11
                    out[c, z, y, x] = low * g2 + high * f2
                if add != 0:
                    out[0, z, y, x] += add * u0
                    out[1, z, y, x] += add * u1
                    out[2, z, y, x] += add * u2


@njit(**_COMPILED)
@no_type_check
def _smooth_plane(plane, w1, w2, padded, out):
    """The weighted sums along the rows and columns of one plane; the edge repeats."""
    n1, n2 = plane.shape
    r1, r2 = len(w1) - 1, len(w2) - 1
    row = padded[r2 : r2 + n2]
    for y in range(n1):
        middle, line, w = plane[y], out[y], w1[0]
        for x in range(n2):
            row[x] = w * middle[x]
        for k in range(1, r1 + 1):
            below, above, w = plane[max(y - k, 0)], plane[min(y + k, n1 - 1)], w1[k]
            for x in range(n2):
                row[x] += w * (below[x] + above[x])
        padded[:r2] = row[0]
        padded[r2 + n2 :] = row[n2 - 1]
        w = w2[0]
        for x in range(n2):
            line[x] = w * row[x]
        for k in range(1, r2 + 1):
            below, above, w = padded[r2 - k : r2 - k + n2], padded[r2 + k : r2 + k + n2], w2[k]
            for x in range(n2):
                line[x] += w * (below[x] + above[x])


@njit(**_COMPILED)
@no_type_check
def _across(ring, slot, y, w0, line):
    """The weighted sum over the planes around `slot` of a ring of as many planes, at row y."""
    taps, n2, w = len(ring), len(line), w0[0]
    middle = ring[slot % taps, y]
    for x in range(n2):
        line[x] = w * middle[x]
    for k in range(1, len(w0)):
        below, above, w = ring[(slot - k) % taps, y], ring[(slot + k) % taps, y], w0[k]
        for x in range(n2):
            line[x] += w * (below[x] + above[x])


@njit(**_COMPILED)
@no_type_check
def smooth(values, w0, w1, w2, out, b, start, stop):
    """out = the weighted sum around every voxel; w[k]: of the voxels k away. The edge repeats."""
    n0, n1, n2 = values.shape[1:]
    r0 = len(w0) - 1
    ring = np.empty((2 * r0 + 1, n1, n2), dtype=values.dtype)
    padded = np.empty(n2 + 2 * len(w2) - 2, dtype=values.dtype)
    for z in range(start - r0, stop + r0):
        slot = z - start
        _smooth_plane(values[b, min(max(z, 0), n0 - 1)], w1, w2, padded, ring[(slot + r0) % len(ring)])
        if slot >= r0:
            for y in range(n1):
                _across(ring, slot, y, w0, out[b, z - r0, y])


@njit(**_COMPILED)
@no_type_check
def _moment(A, B, f, out):
    """Of two planes: A, AA, AB, BB or B."""
    for y in range(out.shape[0]):
        a, b, line = A[y], B[y], out[y]
        if f == 0:
            line[:] = a
        elif f == 4:
            line[:] = b
        else:
            p, q = (b if f == 3 else a), (a if f == 1 else b)
            for x in range(len(line)):
                line[x] = p[x] * q[x]


@njit(**{**_COMPILED, "fastmath": {"contract", "nsz", "reassoc"}})
@no_type_check
def _correlate(sums, a, b, floor, by_a, by_b):
    """The correlation around the voxels of a row, added up; by_a, by_b: derivatives by the two voxels."""
    real = sums.dtype.type
    zero, one, total = real(0), real(1), real(0)
    A, AA, AB, BB, B = sums[0], sums[1], sums[2], sums[3], sums[4]
    for x in range(len(a)):
        var_a = max(AA[x] - A[x] * A[x], zero) + floor
        var_b = max(BB[x] - B[x] * B[x], zero) + floor
        scale = one / np.sqrt(var_a * var_b)
        correlation = (AB[x] - A[x] * B[x]) * scale
        p, q = a[x] - A[x], b[x] - B[x]
        by_a[x] = scale * q - correlation / var_a * p
        by_b[x] = scale * p - correlation / var_b * q
        total += correlation
    return total


@njit(**_COMPILED)
@no_type_check
def _pull(image, by, z, y, scale, first, out):
    """by times the slope of the image, added to one row of the field out, which the first channel clears."""
    n0, n1, n2 = image.shape
    if first:
        out[:, z, y] = 0
    line, down, up, s = out[0, z, y], image[max(z - 1, 0), y], image[min(z + 1, n0 - 1), y], scale[0]
    for x in range(n2):
        line[x] += s * by[x] * (up[x] - down[x])
    line, down, up, s = out[1, z, y], image[z, max(y - 1, 0)], image[z, min(y + 1, n1 - 1)], scale[1]
    for x in range(n2):
        line[x] += s * by[x] * (up[x] - down[x])
    line, row, s = out[2, z, y], image[z, y], scale[2]
    for x in range(1, n2 - 1):
        line[x] += s * by[x] * (row[x + 1] - row[x - 1])
    line[0] += s * by[0] * (row[min(1, n2 - 1)] - row[0])
    if n2 > 1:
        line[n2 - 1] += s * by[n2 - 1] * (row[n2 - 1] - row[n2 - 2])


@njit(**_COMPILED)
@no_type_check
def local_forces(A, B, w0, w1, w2, floor, scale, out_A, out_B, totals, c, b, start, stop):
    """Local correlation of channel c, added up per plane, and how it pulls at both images."""
    n0, n1, n2 = A.shape[1:]
    r0 = len(w0) - 1
    ring = np.empty((5, 2 * r0 + 1, n1, n2), dtype=A.dtype)
    moment, padded = np.empty((n1, n2), dtype=A.dtype), np.empty(n2 + 2 * len(w2) - 2, dtype=A.dtype)
    sums, by_A, by_B = (
        np.empty((5, n2), dtype=A.dtype),
        np.empty(n2, dtype=A.dtype),
        np.empty(n2, dtype=A.dtype),
    )
    for z in range(start - r0, stop + r0):
        inside, slot = min(max(z, 0), n0 - 1), z - start
        for f in range(5):
            _moment(A[c, inside], B[c, inside], f, moment)
            _smooth_plane(moment, w1, w2, padded, ring[f, (slot + r0) % (2 * r0 + 1)])
        if slot < r0:
            continue
        total = 0.0
        for y in range(n1):
            for f in range(5):
                _across(ring[f], slot, y, w0, sums[f])
            total += _correlate(sums, A[c, z - r0, y], B[c, z - r0, y], floor, by_A, by_B)
            _pull(A[c], by_A, z - r0, y, scale, c == 0, out_A)
            _pull(B[c], by_B, z - r0, y, scale, c == 0, out_B)
        totals[c, z - r0] = total


@njit(**_COMPILED)
@no_type_check
def advance(u, g, m, v, b1, b2, share, eps, step, out, b, start, stop):
    """A step s of Adam up the gradient g, with one second moment per voxel; out = s + u(x + s)."""
    real = u.dtype.type
    one, a1, a2 = real(1), real(1) - b1, real(1) - b2
    n0, n1, n2 = u.shape[1:]
    d0, d1, d2 = min(1, n0 - 1), min(1, n1 - 1), min(1, n2 - 1)
    for z in range(start, stop):
        for y in range(n1):
            for x in range(n2):
                p0, p1, p2 = g[0, z, y, x], g[1, z, y, x], g[2, z, y, x]
                square = b2 * v[z, y, x] + a2 * (p0 * p0 + p1 * p1 + p2 * p2)
                p0, p1, p2 = (
                    b1 * m[0, z, y, x] + a1 * p0,
                    b1 * m[1, z, y, x] + a1 * p1,
                    b1 * m[2, z, y, x] + a1 * p2,
                )
                m[0, z, y, x], m[1, z, y, x], m[2, z, y, x], v[z, y, x] = p0, p1, p2, square
                length = step / (np.sqrt(share * square) + eps)
                p0, p1, p2 = length * p0, length * p1, length * p2
                i0, f0 = _cell(real(z) + p0, n0, real)
                i1, f1 = _cell(real(y) + p1, n1, real)
                i2, f2 = _cell(real(x) + p2, n2, real)
                g0, g1, g2 = one - f0, one - f1, one - f2
                j0, j1, j2 = i0 + d0, i1 + d1, i2 + d2
                w00, w01, w10, w11 = g0 * g1, g0 * f1, f0 * g1, f0 * f1
                for c in range(3):
                    low = u[c, i0, i1, i2] * w00 + u[c, i0, j1, i2] * w01
                    low += u[c, j0, i1, i2] * w10 + u[c, j0, j1, i2] * w11
                    high = u[c, i0, i1, j2] * w00 + u[c, i0, j1, j2] * w01
                    high += u[c, j0, i1, j2] * w10 + u[c, j0, j1, j2] * w11
                    out[c, z, y, x] = low * g2 + high * f2
                out[0, z, y, x] += p0
                out[1, z, y, x] += p1
                out[2, z, y, x] += p2


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
