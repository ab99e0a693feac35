"""How different two images look in the pattern of their similarities to themselves: MIND-SSC.

For images of different contrast, even where no function turns one into the other. Neighbours: `similarity.py`
(what all similarities share), `window.py` (patches).
"""

import itertools

import torch

from roundtrip._shapes import Float, Image, Mask, Scalar, Tensor
from roundtrip.losses._weights import comparable, weighted_mean
from roundtrip.losses.window import box, window_mean

# The noise estimate of a voxel lies within these multiples of its mean over the image.
_NOISE_RANGE = 1e-3, 1e3


def mind_ssc(
    warped: Image, fixed: Image, mask: Mask | None = None, *, radius: int = 2, dilation: int = 2
) -> Scalar:
    """Mean squared difference of the self-similarity contexts -- Heinrich et al., MICCAI 2013.

    0 for images that are equal up to a I + b with any a but 0, at most 1. Patches reach `radius` voxels from
    their middle, and the compared patches lie `dilation` voxels from the voxel they describe. With a mask,
    patches are compared where both count. The paper takes absolute differences; squares are smooth.
    """
    for size, name in ((radius, "radius"), (dilation, "dilation")):
        if not (isinstance(size, int) and size > 0):
            raise ValueError(f"`{name}` is {size}; a whole number of voxels is needed, at least 1.")
    warped, fixed, weights = comparable(warped, fixed, mask)
    if warped.ndim < 4:
        raise ValueError(
            "MIND-SSC compares neighbours along different axes: it needs images of 2 or 3 spatial axes, and "
            "these have 1. For lines, `lncc` is blind to changes of brightness and contrast too."
        )
    contexts = (
        self_similarity(image, weights, radius=radius, dilation=dilation) for image in (warped, fixed)
    )
    difference = torch.sub(*contexts).square().mean(dim=2)
    return weighted_mean(difference, weights).mean()


def self_similarity(
    image: Image, weights: Tensor | None = None, *, radius: int = 2, dilation: int = 2
) -> Float[Tensor, "B C K *S"]:
    """How alike the patches around a voxel's neighbours are, from 0 to 1, the most alike 1.

    For all pairs of its 2N neighbours that lie on different axes: 12 in 3D, 4 in 2D.
    """
    B, C, *shape = image.shape
    images, counts = image.reshape(B * C, 1, *shape), None
    if weights is not None:
        weights = weights.expand(B, C, *shape).reshape(B * C, 1, *shape)
        counts = (weights > 0).to(image.dtype)
    distance = _patch_distances(images, counts, radius, dilation)
    excess = distance - distance.amin(dim=1, keepdim=True)
    noise = excess.mean(dim=1, keepdim=True)
    typical = weighted_mean(noise, weights).view(B * C, *[1] * (noise.ndim - 1))
    noise = noise.clamp(*(bound * typical for bound in _NOISE_RANGE))
    alike = torch.exp(-excess / torch.where(noise > 0, noise, 1))
    return alike.view(B, C, -1, *shape)


def _patch_distances(image: Tensor, counts: Tensor | None, radius: int, dilation: int) -> Tensor:
    """Mean squared differences of the patches around the neighbours, one channel for each pair."""
    pairs = _pairs(image, dilation)
    squares = torch.cat([(one - other).square() for one, other in pairs], dim=1)
    if counts is None:
        return window_mean(squares, box(radius))
    both = torch.cat([one * other for one, other in _pairs(counts, dilation)], dim=1)
    return window_mean(squares, box(radius), both)


def _pairs(image: Tensor, dilation: int) -> list[tuple[Tensor, Tensor]]:
    """The image seen from two of the 2N neighbours that lie on different axes, for each such pair."""
    axes = [
        [_seen_from(image, axis, step) for step in (dilation, -dilation)] for axis in range(2, image.ndim)
    ]
    return [pair for two in itertools.combinations(axes, 2) for pair in itertools.product(*two)]


def _seen_from(image: Tensor, axis: int, step: int) -> Tensor:
    """image(x + step along `axis`), which continues beyond the border as the voxel there."""
    n = image.shape[axis]
    width = min(abs(step), n)
    edge = image.narrow(axis, n - 1 if step > 0 else 0, 1)
    edges = edge.expand(*[width if d == axis else size for d, size in enumerate(image.shape)])
    if step > 0:
        return torch.cat([image.narrow(axis, width, n - width), edges], dim=axis)
    return torch.cat([edges, image.narrow(axis, 0, n - width)], dim=axis)
