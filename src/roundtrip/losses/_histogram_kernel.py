"""The compiled kernel behind `information.py` on a CPU: joint histograms of two images, and the way back.

Every voxel adds to 4 x 4 bins. Voxels are counted in a fixed number of blocks, each by one thread into its
own histogram, so that the sums do not depend on how many threads there are. Compiled by numba at first use
and cached on disk.
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
_BLOCKS = 16


def count(a: Tensor, b: Tensor, weights: Tensor | None, bins: int) -> Tensor:
    """As `information.count_by_torch`."""
    channels = a.shape[1]
    joint = np.zeros((len(a) * channels, _BLOCKS, bins, bins))
    arrays = _flat(a), _flat(b), None if weights is None else _flat(weights)
    run_in_threads(_count, len(joint), _BLOCKS, *arrays, channels, joint)
    return torch.from_numpy(joint.sum(axis=1)).to(a.dtype)


def gradients(a: Tensor, b: Tensor, weights: Tensor | None, grad: Tensor) -> tuple[Tensor, Tensor]:
    """As `information.gradients_by_torch`."""
    by_a, by_b = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (a, b))
    arrays = _flat(a), _flat(b), None if weights is None else _flat(weights)
    out = grad.contiguous().numpy(), _flat(by_a), _flat(by_b)
    run_in_threads(_gradients, len(grad), a.shape[2], *arrays, a.shape[1], *out)
    return by_a, by_b


def _flat(x: Tensor) -> np.ndarray:
    return x.detach().reshape(x.shape[0] * x.shape[1], -1).numpy()


# Below, `c` counts the channels of all images; `weights` are None, one set for all images, or one for each.
# `no_type_check` keeps the tests' annotation checks out of what numba compiles.


@njit(**_COMPILED)
@no_type_check
def _spread(position, bins, real):
    """The first of the four bins that a position touches, the weights of these, and their derivatives."""
    # The index is clamped: NaN casts to anything, and must not become an address.
    first = max(min(np.int64(position), np.int64(bins - 3)), np.int64(1))
    t = position - real(first)
    s, sixth, half, two = real(1) - t, real(1 / 6), real(0.5), real(2)
    middle_t = real(2 / 3) - t * t * (real(1) - half * t)
    middle_s = real(2 / 3) - s * s * (real(1) - half * s)
    weights = s * s * s * sixth, middle_t, middle_s, t * t * t * sixth
    slopes = -half * s * s, t * (real(1.5) * t - two), s * (two - real(1.5) * s), half * t * t
    return first - 1, weights, slopes


@njit(**_COMPILED)
@no_type_check
def _count(a, b, weights, channels, joint, c, start, stop):
    """Blocks start <= block < stop of channel c, each into a histogram of its own."""
    real, bins, voxels = a.dtype.type, joint.shape[2], a.shape[1]
    m = real(1 / voxels)
    for block in range(start, stop):
        histogram = joint[c, block]
        for v in range(voxels * block // joint.shape[1], voxels * (block + 1) // joint.shape[1]):
            if weights is not None:
                m = weights[c // channels % len(weights), v]
            i, weights_a, _ = _spread(a[c, v], bins, real)
            j, weights_b, _ = _spread(b[c, v], bins, real)
            for k in range(4):
                for n in range(4):
                    histogram[i + k, j + n] += m * weights_a[k] * weights_b[n]


@njit(**_COMPILED)
@no_type_check
def _gradients(a, b, weights, channels, grad, by_a, by_b, c, start, stop):
    """For the voxels start <= v < stop of channel c, from the gradient of its histogram."""
    real, bins = a.dtype.type, grad.shape[1]
    m = real(1 / a.shape[1])
    for v in range(start, stop):
        if weights is not None:
            m = weights[c // channels % len(weights), v]
        i, weights_a, slopes_a = _spread(a[c, v], bins, real)
        j, weights_b, slopes_b = _spread(b[c, v], bins, real)
        total_a, total_b = real(0), real(0)
        for k in range(4):
            for n in range(4):
                g = grad[c, i + k, j + n]
                total_a += slopes_a[k] * weights_b[n] * g
                total_b += weights_a[k] * slopes_b[n] * g
        by_a[c, v], by_b[c, v] = m * total_a, m * total_b
