"""Coarse versions of images and finer versions of displacements, on grids whose corners coincide.

Tensors are `(C, X, Y, Z)`, displacements in voxels of their grid. Neighbours:
`arithmetic.py`, `deformable.py`.
"""

import math
from collections.abc import Sequence

import torch

from roundtrip._shapes import Tensor
from roundtrip.pairwise.arithmetic import AbstractArithmetic, Values, Vectors, Weights

# Blurring before sampling, in voxels of the coarse grid. Less than the textbook's half a voxel: what little
# that lets through as an alias matters less than the detail it keeps.
BLUR = 0.3

# Below so many voxels along an axis there is nothing left to see.
_FEWEST = 5


def gaussian_weights(sigma: float, *, like: Tensor) -> Weights:
    """Half of a Gaussian window of `sigma` voxels, whose weights add up to 1 with those of the other half."""
    reach = max(1, math.ceil(2.5 * sigma)) if sigma > 0.2 else 0
    half = [math.exp(-((k / sigma) ** 2) / 2) for k in range(reach + 1)] if reach else [1.0]
    total = 2 * sum(half) - half[0]
    return torch.tensor([w / total for w in half], dtype=like.dtype, device=like.device)


def coarse_shape(shape: Sequence[int], spacing: Sequence[float], coarser: float) -> tuple[int, ...]:
    """The grid whose spacing is `coarser` times the finest of `spacing`, or along an axis what is there."""
    target = min(s for s, n in zip(spacing, shape, strict=True) if n > 1) * coarser
    wanted = (max(_FEWEST, round((n - 1) * s / target) + 1) for n, s in zip(shape, spacing, strict=True))
    return tuple(min(n, m) for n, m in zip(shape, wanted, strict=True))


def coarse_image(image: Values, shape: Sequence[int], arithmetic: AbstractArithmetic) -> Tensor:
    """The image, blurred and sampled on a grid of that shape; itself where that is its own."""
    if tuple(shape) == tuple(image.shape[1:]):
        return image
    ratios = [(n - 1) / max(m - 1, 1) for n, m in zip(image.shape[1:], shape, strict=True)]
    sigmas = [BLUR * math.sqrt(max(ratio**2 - 1, 0)) for ratio in ratios]
    halves = [gaussian_weights(sigma, like=image) for sigma in sigmas]
    return resized(arithmetic.smooth(image, halves, torch.empty_like(image)), shape, arithmetic)


def fine_field(u: Vectors, shape: Sequence[int], arithmetic: AbstractArithmetic) -> Tensor:
    """The displacement, in voxels of a grid of that shape, linear between where it was known."""
    fine = resized(u, shape, arithmetic)
    for component, n, m in zip(fine, shape, u.shape[1:], strict=True):
        component *= (n - 1) / max(m - 1, 1)
    return fine


def resized(values: Values, shape: Sequence[int], arithmetic: AbstractArithmetic) -> Tensor:
    """Read on another grid over the same place."""
    places = [
        torch.linspace(0, n - 1, m, dtype=values.dtype, device=values.device)
        - torch.arange(m, dtype=values.dtype, device=values.device)
        for n, m in zip(values.shape[1:], shape, strict=True)
    ]
    u = torch.stack(torch.meshgrid(*places, indexing="ij"))
    return arithmetic.read(values, u, values.new_empty(len(values), *shape))
