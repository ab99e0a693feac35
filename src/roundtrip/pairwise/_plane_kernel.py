"""Compiled kernels behind `compiled.py`: windows over planes, and what is made of them.

Arrays are `(C, n0, n1, n2)`, lengths in voxels of their grid. Kernels end in `(..., b, start, stop)` and
write the planes start <= z < stop of one of two images, each number in one order: the result does not depend
on how many threads there are. Planes are treated as one long line: rows of small images are too short for
loops to be fast. Compiled by numba at first use and cached on disk.
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


# `no_type_check` keeps the tests' annotation checks out of what numba compiles. Loops run over few arrays at
# a time: beyond about eight, LLVM gives up proving that none overlaps another, and computes one by one.


@njit(**_COMPILED)
@no_type_check
def _even(w):
    """A window that reaches an even number of voxels, two at least; what is added weighs nothing."""
    padded = np.zeros(max(3, len(w) + 1 - len(w) % 2), dtype=w.dtype)
    padded[: len(w)] = w
    return padded


@njit(**_COMPILED)
@no_type_check
def _begin_sum(middle, low1, high1, low2, high2, w0, w1, w2, line):
    for x in range(len(line)):
        line[x] = w0 * middle[x] + w1 * (low1[x] + high1[x]) + w2 * (low2[x] + high2[x])


@njit(**_COMPILED)
@no_type_check
def _add_to_sum(low1, high1, low2, high2, w1, w2, line):
    for x in range(len(line)):
        line[x] += w1 * (low1[x] + high1[x]) + w2 * (low2[x] + high2[x])


@njit(**_COMPILED)
@no_type_check
def _weigh(values, first, apart, w, line):
    """line(x) = the weighted sum of values(first + x +- k * apart), the window w being even."""
    n, k = len(line), 1
    last = first + n
    _begin_sum(
        values[first:last],
        values[first - apart : last - apart],
        values[first + apart : last + apart],
        values[first - 2 * apart : last - 2 * apart],
        values[first + 2 * apart : last + 2 * apart],
        w[0],
        w[1],
        w[2],
        line,
    )
    for k in range(3, len(w), 2):
        one, other = k * apart, (k + 1) * apart
        _add_to_sum(
            values[first - one : last - one],
            values[first + one : last + one],
            values[first - other : last - other],
            values[first + other : last + other],
            w[k],
            w[k + 1],
            line,
        )


@njit(**_COMPILED)
@no_type_check
def _weigh_ring(ring, slot, w, line):
    """The weighted sum of the planes around `slot`, in a ring of as many planes as w weighs."""
    taps = len(ring)
    _begin_sum(
        ring[slot % taps],
        ring[(slot - 1) % taps],
        ring[(slot + 1) % taps],
        ring[(slot - 2) % taps],
        ring[(slot + 2) % taps],
        w[0],
        w[1],
        w[2],
        line,
    )
    for k in range(3, len(w), 2):
        _add_to_sum(
            ring[(slot - k) % taps],
            ring[(slot + k) % taps],
            ring[(slot - k - 1) % taps],
            ring[(slot + k + 1) % taps],
            w[k],
            w[k + 1],
            line,
        )


@njit(**_COMPILED)
@no_type_check
def _pad(padded, r1, r2, n1, n2):
    """The edge of a plane repeated around it, where it lies within `padded`."""
    for y in range(n1):
        row = padded[r1 + y]
        row[:r2] = row[r2]
        row[r2 + n2 :] = row[r2 + n2 - 1]
    for k in range(r1):
        padded[k] = padded[r1]
        padded[r1 + n1 + k] = padded[r1 + n1 - 1]


@njit(**_COMPILED)
@no_type_check
def _copied(plane, padded, r1, r2):
    n1, n2 = plane.shape
    for y in range(n1):
        padded[r1 + y, r2 : r2 + n2] = plane[y]
    _pad(padded, r1, r2, n1, n2)


@njit(**_COMPILED)
@no_type_check
def _multiplied(A, B, padded, r1, r2):
    n1, n2 = A.shape
    for y in range(n1):
        a, b, line = A[y], B[y], padded[r1 + y, r2 : r2 + n2]
        for x in range(n2):
            line[x] = a[x] * b[x]
    _pad(padded, r1, r2, n1, n2)


@njit(**_COMPILED)
@no_type_check
def _smooth_plane(padded, w1, w2, middle, out):
    """Weighted sums along both axes of a padded plane; out keeps the padding of rows, without meaning."""
    width, r1, r2 = padded.shape[1], len(w1) - 1, len(w2) - 1
    _weigh(padded.reshape(padded.size), r1 * width, width, w1, middle)
    _weigh(middle, r2, 1, w2, out[r2 : len(out) - r2])


@njit(**_COMPILED)
@no_type_check
def _unpadded(sums, width, r2, n2, plane):
    for y in range(len(plane) // n2):
        plane[y * n2 : (y + 1) * n2] = sums[y * width + r2 : y * width + r2 + n2]


@njit(**_COMPILED)
@no_type_check
def smooth(values, w0, w1, w2, out, b, start, stop):
    """out = the weighted sum around every voxel; w[k]: of the voxels k away. The edge repeats.

    Of channel b, counted through two images.
    """
    C = len(values[0])
    source, target = values[b // C][b % C], out[b // C][b % C]
    w0, w1, w2 = _even(w0), _even(w1), _even(w2)
    n0, n1, n2 = source.shape
    r0, r1, r2 = len(w0) - 1, len(w1) - 1, len(w2) - 1
    width = n2 + 2 * r2
    padded = np.empty((n1 + 2 * r1, width), dtype=source.dtype)
    middle, sums = np.empty(n1 * width, dtype=source.dtype), np.empty(n1 * width, dtype=source.dtype)
    ring = np.zeros((2 * r0 + 1, n1 * width), dtype=source.dtype)
    for z in range(start - r0, stop + r0):
        slot = z - start
        _copied(source[min(max(z, 0), n0 - 1)], padded, r1, r2)
        _smooth_plane(padded, w1, w2, middle, ring[(slot + r0) % len(ring)])
        if slot >= r0:
            _weigh_ring(ring, slot, w0, sums)
            _unpadded(sums, width, r2, n2, target[z - r0].reshape(n1 * n2))


@njit(**_COMPILED)
@no_type_check
def _inverse_variance(mean, square, floor):
    """The mean of squares becomes one over the variance."""
    zero, one = square.dtype.type(0), square.dtype.type(1)
    for x in range(len(square)):
        square[x] = one / (max(square[x] - mean[x] * mean[x], zero) + floor)


@njit(**_COMPILED)
@no_type_check
def _correlations(A, AB, B, precise_a, precise_b, scale):
    """The mean of products becomes the correlation; `scale` what covariances are divided by for that."""
    for x in range(len(AB)):
        scale[x] = np.sqrt(precise_a[x] * precise_b[x])
    for x in range(len(AB)):
        AB[x] = (AB[x] - A[x] * B[x]) * scale[x]


@njit(**_COMPILED)
@no_type_check
def _derivative(a, A, precise_a, b, B, correlation, scale, by_a):
    """Of the correlation around every voxel by the voxel itself, of the first image."""
    for x in range(len(by_a)):
        by_a[x] = scale[x] * (b[x] - B[x])
    for x in range(len(by_a)):
        by_a[x] -= correlation[x] * precise_a[x] * (a[x] - A[x])


@njit(**{**_COMPILED, "fastmath": {"contract", "nsz", "reassoc"}})
@no_type_check
def _total(line):
    total = line.dtype.type(0)
    for x in range(len(line)):
        total += line[x]
    return total


@njit(**_COMPILED)
@no_type_check
def _add(line, out, first):
    if first:
        out[:] = line
    else:
        for x in range(len(out)):
            out[x] += line[x]


@njit(**_COMPILED)
@no_type_check
def _slope(by, low, high, scale, line):
    for x in range(len(line)):
        line[x] = scale * by[x] * (high[x] - low[x])


@njit(**_COMPILED)
@no_type_check
def _pull(image, by, z, scale, first, line, out):
    """by times the slope of the image, added to a plane of the field out, which the first channel begins."""
    n0, n1, n2 = image.shape
    flat, n = image.reshape(n0, n1 * n2), n1 * n2
    here = flat[z]
    _slope(by, flat[max(z - 1, 0)], flat[min(z + 1, n0 - 1)], scale[0], line)
    _add(line, out[0, z].reshape(n), first)
    if n1 > 1:
        inside, last = slice(n2, n - n2), n - n2
        _slope(by[:n2], here[:n2], here[n2 : 2 * n2], scale[1], line[:n2])
        _slope(by[inside], here[: n - 2 * n2], here[2 * n2 :], scale[1], line[inside])
        _slope(by[last:], here[last - n2 : last], here[last:], scale[1], line[last:])
    else:
        line[:] = 0
    _add(line, out[1, z].reshape(n), first)
    if n2 > 1:
        _slope(by[1 : n - 1], here[: n - 2], here[2:], scale[2], line[1 : n - 1])
        for y in range(0, n, n2):
            last = y + n2 - 1
            line[y] = scale[2] * by[y] * (here[y + 1] - here[y])
            line[last] = scale[2] * by[last] * (here[last] - here[last - 1])
    else:
        line[:] = 0
    _add(line, out[2, z].reshape(n), first)


@njit(**_COMPILED)
@no_type_check
def local_forces(A, B, w0, w1, w2, floor, scale, out_A, out_B, totals, c, b, start, stop):
    """Local correlation of channel c, added up per plane, and how it pulls at both images."""
    n0, n1, n2 = A.shape[1:]
    w0, w1, w2 = _even(w0), _even(w1), _even(w2)
    r0, r1, r2 = len(w0) - 1, len(w1) - 1, len(w2) - 1
    taps, width, n = 2 * r0 + 1, n2 + 2 * r2, n1 * n2
    padded = np.empty((n1 + 2 * r1, width), dtype=A.dtype)
    middle, summed = np.empty(n1 * width, dtype=A.dtype), np.empty(n1 * width, dtype=A.dtype)
    # Of A, AA, AB, BB, B.
    ring, sums = np.zeros((5, taps, n1 * width), dtype=A.dtype), np.empty((5, n), dtype=A.dtype)
    scales, by, line = np.empty(n, dtype=A.dtype), np.empty(n, dtype=A.dtype), np.empty(n, dtype=A.dtype)
    for z in range(start - r0, stop + r0):
        slot = z - start
        at, inside = (slot + r0) % taps, min(max(z, 0), n0 - 1)
        here, there = A[c, inside], B[c, inside]
        _copied(here, padded, r1, r2)
        _smooth_plane(padded, w1, w2, middle, ring[0, at])
        _multiplied(here, here, padded, r1, r2)
        _smooth_plane(padded, w1, w2, middle, ring[1, at])
        _multiplied(here, there, padded, r1, r2)
        _smooth_plane(padded, w1, w2, middle, ring[2, at])
        _multiplied(there, there, padded, r1, r2)
        _smooth_plane(padded, w1, w2, middle, ring[3, at])
        _copied(there, padded, r1, r2)
        _smooth_plane(padded, w1, w2, middle, ring[4, at])
        if slot < r0:
            continue
        for f in range(5):
            _weigh_ring(ring[f], slot, w0, summed)
            _unpadded(summed, width, r2, n2, sums[f])
        mean_a, mean_b, correlation = sums[0], sums[4], sums[2]
        a, b_ = A[c, z - r0].reshape(n), B[c, z - r0].reshape(n)
        _inverse_variance(mean_a, sums[1], floor)
        _inverse_variance(mean_b, sums[3], floor)
        _correlations(mean_a, correlation, mean_b, sums[1], sums[3], scales)
        totals[c, z - r0] = _total(correlation)
        _derivative(a, mean_a, sums[1], b_, mean_b, correlation, scales, by)
        _pull(A[c], by, z - r0, scale, c == 0, line, out_A)
        _derivative(b_, mean_b, sums[3], a, mean_a, correlation, scales, by)
        _pull(B[c], by, z - r0, scale, c == 0, line, out_B)


@njit(**_COMPILED)
@no_type_check
def _moment(memory, new, decay):
    rest = memory.dtype.type(1) - decay
    for x in range(len(memory)):
        memory[x] = decay * memory[x] + rest * new[x]


@njit(**_COMPILED)
@no_type_check
def _turn(s, m, v, z, b1, b2, share, eps, step, length):
    """A step of Adam up a plane of gradients, with one second moment per voxel; s becomes the step."""
    n = len(length)
    g0, g1, g2 = s[0], s[1], s[2]
    for x in range(n):
        length[x] = g0[x] * g0[x] + g1[x] * g1[x] + g2[x] * g2[x]
    square = v[z].reshape(n)
    _moment(square, length, b2)
    for x in range(n):
        length[x] = step / (np.sqrt(share * square[x]) + eps)
    for c in range(3):
        memory, own = m[c, z].reshape(n), s[c]
        _moment(memory, own, b1)
        for x in range(n):
            own[x] = length[x] * memory[x]


@njit(**_COMPILED)
@no_type_check
def _gain_up(here, high, s, line):
    """Adds what a line gains on the way s > 0 towards the next voxel along an axis."""
    zero = here.dtype.type(0)
    for x in range(len(line)):
        line[x] += max(s[x], zero) * (high[x] - here[x])


@njit(**_COMPILED)
@no_type_check
def _gain_down(here, low, s, line):
    """The same on the way s < 0 towards the voxel before."""
    zero = here.dtype.type(0)
    for x in range(len(line)):
        line[x] += min(s[x], zero) * (here[x] - low[x])


@njit(**_COMPILED)
@no_type_check
def _follow(u, s, z, out):
    """A plane of out = s + u(x + s); s is used up."""
    n0, n1, n2 = u.shape[1:]
    n, zero = n1 * n2, u.dtype.type(0)
    for c in range(3):
        flat, own, line = u[c].reshape(n0, n), s[c], out[c, z].reshape(n)
        here = flat[z]
        for x in range(n):
            line[x] = own[x] + here[x]
        _gain_up(here, flat[min(z + 1, n0 - 1)], s[0], line)
        _gain_down(here, flat[max(z - 1, 0)], s[0], line)
        _gain_up(here[: n - n2], here[n2:], s[1, : n - n2], line[: n - n2])
        _gain_down(here[n2:], here[: n - n2], s[1, n2:], line[n2:])
    for y in range(0, n, n2):
        # Beyond either end of a row there is no neighbour.
        s[2, y] = max(s[2, y], zero)
        s[2, y + n2 - 1] = min(s[2, y + n2 - 1], zero)
    for c in range(3):
        here, line = u[c, z].reshape(n), out[c, z].reshape(n)
        _gain_up(here[: n - 1], here[1:], s[2, : n - 1], line[: n - 1])
        _gain_down(here[1:], here[: n - 1], s[2, 1:], line[1:])


@njit(**_COMPILED)
@no_type_check
def advance(u, g, m, v, w0, w1, w2, b1, b2, share, eps, step, out, b, start, stop):
    """A step s of Adam up the smoothed gradient g, for field b of two; out = s + u(x + s)."""
    u, g, m, v, out = u[b], g[b], m[b], v[b], out[b]
    w0, w1, w2 = _even(w0), _even(w1), _even(w2)
    n0, n1, n2 = u.shape[1:]
    r0, r1, r2 = len(w0) - 1, len(w1) - 1, len(w2) - 1
    taps, width, n = 2 * r0 + 1, n2 + 2 * r2, n1 * n2
    padded = np.empty((n1 + 2 * r1, width), dtype=u.dtype)
    middle, sums = np.empty(n1 * width, dtype=u.dtype), np.empty(n1 * width, dtype=u.dtype)
    ring = np.zeros((3, taps, n1 * width), dtype=u.dtype)
    s, length = np.empty((3, n), dtype=u.dtype), np.empty(n, dtype=u.dtype)
    for z in range(start - r0, stop + r0):
        slot, inside = z - start, min(max(z, 0), n0 - 1)
        for c in range(3):
            _copied(g[c, inside], padded, r1, r2)
            _smooth_plane(padded, w1, w2, middle, ring[c, (slot + r0) % taps])
        if slot < r0:
            continue
        for c in range(3):
            _weigh_ring(ring[c], slot, w0, sums)
            _unpadded(sums, width, r2, n2, s[c])
        _turn(s, m, v, z - r0, b1, b2, share, eps, step, length)
        _follow(u, s, z - r0, out)
