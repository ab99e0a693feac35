"""How far labels and landmarks miss each other, where somebody drew them: `soft_dice`, `landmark_distance`.

For training; scores of hard results, in millimetres, are the business of the room `evaluation`.
"""

from collections.abc import Sequence

import torch

from roundtrip._checks import require_points, shape_of
from roundtrip._shapes import Float, Image, Mask, Scalar, Tensor
from roundtrip.losses._weights import comparable, weighted_mean
from roundtrip.maps.grid import along_channels
from roundtrip.maps.map import Map


def soft_dice(warped: Image, fixed: Image, mask: Mask | None = None) -> Scalar:
    r"""One minus the Dice overlap of one-hot labels, a channel for each label: 0 the same, 1 disjoint.

    $1 - 2 \sum p q / (\sum p^2 + \sum q^2)$, averaged over the labels of each image and then over the batch;
    the squares make equal soft labels cost 0, and change nothing for hard ones. A label that neither of two
    images has says nothing about them and is left out. Warp one-hot labels with linear interpolation to have
    a gradient, and give only labels that are to count: the background is a large and easy one.
    """
    warped, fixed, weights = comparable(warped, fixed, mask)
    overlap = weighted_mean(warped * fixed, weights)
    total = weighted_mean(warped.square() + fixed.square(), weights)
    present = total > 0
    miss = torch.where(present, 1 - 2 * overlap / torch.where(present, total, 1), 0)
    return (miss.sum(dim=1) / present.sum(dim=1).clamp(min=1)).mean()


def landmark_distance(
    phi: Map,
    fixed_points: Float[Tensor, "#B N *P"],
    moving_points: Float[Tensor, "#B N *P"],
    *,
    scale: Sequence[float] | Float[Tensor, "N"] | None = None,
) -> Scalar:
    """Mean distance of phi(fixed_points) to the points of the moving image that they belong to.

    In unit coordinates, or in those times `scale` along each axis: give it (n - 1) times the voxel spacing in
    mm, and the distance is in mm.
    """
    if fixed_points.shape[1:] != moving_points.shape[1:]:
        raise ValueError(
            f"`fixed_points` has shape {shape_of(fixed_points)} but `moving_points` "
            f"{shape_of(moving_points)}; point i of one belongs to point i of the other: both need one "
            "layout (batch, N, *layout)."
        )
    require_points(moving_points, fixed_points.shape[1], "moving_points")
    miss = phi(fixed_points) - moving_points
    if scale is not None:
        scale = torch.as_tensor(scale, dtype=miss.dtype, device=miss.device)
        if scale.shape != miss.shape[1:2]:
            raise ValueError(
                f"`scale` has shape {shape_of(scale)}; points of {miss.shape[1]} dimensions need one number "
                "per axis."
            )
        miss = miss * along_channels(scale, miss)
    return torch.linalg.vector_norm(miss, dim=1).mean()
