"""What every similarity does first: see that two images compare, and turn a mask into weights.

The rule for all of them: a voxel of weight 0 is as good as absent, even if it holds NaN, and a mask of zeros
leaves a finite loss that pulls nowhere. Neighbours: the similarities, in `similarity.py`, `local.py`,
`information.py` and `mind.py`.
"""

import torch

from roundtrip._checks import shape_of
from roundtrip._shapes import Float, Tensor
from roundtrip.maps.grid import point_dtype


def comparable(
    warped: Tensor, fixed: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Both images in one precision of at least float32, and weights `(#B, 1, *S)` of sum 1 per image.

    The weights are None where all voxels count alike. No gradient flows to a mask.
    """
    _require_comparable(warped, fixed, mask)
    dtype = torch.promote_types(point_dtype(warped), fixed.dtype)
    warped, fixed = warped.to(dtype), fixed.to(dtype)
    if mask is None:
        return warped, fixed, None
    weights = mask.detach().to(dtype)
    counts = weights > 0
    total = weights.flatten(1).sum(dim=1).view(-1, *[1] * (weights.ndim - 1))
    weights = weights / torch.where(total > 0, total, 1)
    return torch.where(counts, warped, 0), torch.where(counts, fixed, 0), weights


def weighted_mean(values: Float[Tensor, "B C *S"], weights: Tensor | None) -> Float[Tensor, "B C"]:
    """The mean of every channel under weights of sum 1; plain without them, 0 where all of them are 0."""
    if weights is None:
        return values.flatten(2).mean(dim=2)
    return (values * weights).flatten(2).sum(dim=2)


def centred(image: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """`image` minus its mean, its variance, and whether that is more than rounding, channel by channel.

    The variance is given as 1 where it is mere rounding, so that one can divide by it.
    """
    mean = weighted_mean(image, weights)
    image = image - mean.view(*mean.shape, *[1] * (image.ndim - 2))
    variance = weighted_mean(image.square(), weights)
    varies = variance > (8 * torch.finfo(image.dtype).eps * mean) ** 2
    return image, torch.where(varies, variance, 1), varies


def _require_comparable(warped: Tensor, fixed: Tensor, mask: Tensor | None) -> None:
    for image, name in ((warped, "warped"), (fixed, "fixed")):
        if not image.is_floating_point():
            raise ValueError(
                f"`{name}` has dtype {image.dtype}; intensities are floating point: `{name}.float()`."
            )
    if warped.shape != fixed.shape or not 3 <= warped.ndim <= 5:
        raise ValueError(
            f"`warped` has shape {shape_of(warped)} and `fixed` {shape_of(fixed)}; images are compared voxel "
            "by voxel: needed are equal shapes (batch, channels, *grid) with 1, 2 or 3 grid axes, as from "
            "`warped = rt.warp(moving, phi, like=fixed)`."
        )
    if mask is None:
        return
    batch, _, *grid = fixed.shape
    if list(mask.shape[1:]) != [1, *grid] or mask.shape[0] not in (1, batch):
        raise ValueError(
            f"`mask` has shape {shape_of(mask)} but the images {shape_of(fixed)}; needed is one channel on "
            f"their grid, {(batch, 1, *grid)}, or {(1, 1, *grid)} for one mask that serves all. A mask "
            "without these axes gets them by `mask[None, None]`."
        )
