"""`Contrast`: whether equal tissue is equally bright in two images, as far as they can tell.

Measured on affinely aligned pairs of brains, hippocampi and drawn bodies, with intensities as they are,
inverted, and folded over at the middle. Neighbour: `register.py`, which aligns first and then asks.
"""

import math
from typing import Literal, TypeAlias

import torch

from roundtrip._shapes import Tensor
from roundtrip.losses.local import lncc
from roundtrip.pairwise.linear import Alignment
from roundtrip.space.resample import grid_with_spacing, resampled
from roundtrip.space.volume import Volume

Contrast: TypeAlias = Literal["same", "different"]

# So many voxels tell it.
_VOXELS = 2**17

# Local correlation, as a share of what an image has with itself, from which on there is no doubt; .55 was the
# most between contrasts, of brains cut out alike, and aligned brains of one contrast have .8.
_SURE = 0.65

# What straight lines explain of what any curves do: .78 and more of one contrast, .52 and less of two.
_STRAIGHT = 0.65

# Of the variance: where less is explained, the images may have been aligned wrongly.
_ENOUGH = 0.1


@torch.no_grad()
def alike(laid: Volume, fixed: Volume) -> bool:
    """Whether two images on one grid, aligned more or less, correlate as only images of one contrast do."""
    factor = max((math.prod(fixed.shape) / _VOXELS) ** (1 / fixed.dims), 1.0)
    coarse = grid_with_spacing(fixed, [factor * size for size in fixed.spacing])
    other, target = resampled(laid, like=coarse).data, resampled(fixed, like=coarse).data
    return _correlation(other, target) > _SURE * _correlation(target, target)


def straight(same: Alignment) -> bool:
    """Whether lines explain enough, and curves hardly more, of images aligned as if of one contrast."""
    explained = 1 - same.after
    return explained > _ENOUGH and explained > _STRAIGHT * (1 - same.curved)


def contrast_of(same: Alignment, different: Alignment) -> Contrast:
    """By how much more of the images a curve explains than a straight line, each where it aligned them."""
    return "same" if 1 - same.after > _STRAIGHT * (1 - different.after) else "different"


def _correlation(warped: Tensor, fixed: Tensor) -> float:
    return 1 - lncc(warped[None].float(), fixed[None].float(), sigma=2.0).item()
