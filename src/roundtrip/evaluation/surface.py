"""How far apart the surfaces of regions lie: HD95 and the mean distance, per label, in millimetres.

Neighbours: `overlap.py`, which counts the same regions' common voxels; `judge.py`, which asks for both.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from roundtrip._shapes import Float, Shaped, Tensor
from roundtrip.evaluation.lengths import checked_spacing
from roundtrip.evaluation.overlap import require_label_maps


@dataclass(frozen=True, eq=False)
class SurfaceDistance:
    """Of each label in each pair of a batch; NaN where one of the two images lacks the label."""

    labels: tuple[int, ...]
    hd95: Float[Tensor, "B L"]
    """95 % of the surface lie closer to the other surface than this: the worse of the two directions."""
    mean: Float[Tensor, "B L"]
    """Over the voxels of both surfaces, each to the nearest one of the other."""


def surface_distance(
    first: Shaped[Tensor, "B 1 *S"],
    second: Shaped[Tensor, "B 1 *S"],
    *,
    spacing: Sequence[float] | None = None,
) -> SurfaceDistance:
    """Distances between the surfaces of every label but 0, in the unit of `spacing`, or in voxels without it.

    A surface is made of the centres of a label's voxels that have a face neighbour without the label; what
    lies beyond the border of the image has none. A mask has the one label 1.
    """
    require_label_maps(first, second)
    sizes = checked_spacing(spacing, first.ndim - 2)
    labels = [int(label) for label in torch.cat([first, second]).unique() if label != 0]
    scores = np.full((2, len(first), len(labels)), np.nan)
    pairs = zip(first[:, 0].cpu().numpy(), second[:, 0].cpu().numpy(), strict=True)
    for b, (one, other) in enumerate(pairs):
        for column, label in enumerate(labels):
            scores[:, b, column] = _of_two_regions(one == label, other == label, sizes)
    hd95, mean = torch.from_numpy(scores).to(first.device)
    return SurfaceDistance(tuple(labels), hd95, mean)


def _of_two_regions(one: np.ndarray, other: np.ndarray, sizes: list[float]) -> tuple[float, float]:
    """HD95 and mean distance; NaN where there is no region."""
    if not one.any() or not other.any():
        return np.nan, np.nan
    # Nothing outside the box of both matters. Its rim of one voxel is where regions at the border end.
    box = tuple(slice(where.min(), where.max() + 1) for where in (one | other).nonzero())
    surfaces = [_surface(np.pad(region[box], 1)) for region in (one, other)]
    there = _distance_to(surfaces[1], sizes)[surfaces[0]]
    back = _distance_to(surfaces[0], sizes)[surfaces[1]]
    hd95 = max(np.percentile(there, 95), np.percentile(back, 95))
    return float(hd95), float(np.concatenate([there, back]).mean(dtype=np.float64))


def _surface(region: np.ndarray) -> np.ndarray:
    """The voxels of a padded region that have a face neighbour outside it."""
    inner = region.copy()
    for axis in range(region.ndim):
        inner &= np.roll(region, 1, axis) & np.roll(region, -1, axis)
    return region & ~inner


def _distance_to(surface: np.ndarray, sizes: list[float]) -> np.ndarray:
    """From every voxel to the nearest one of `surface`."""
    import SimpleITK as sitk

    # ITK knows planes and volumes (a line is a plane of width one), and names the fastest axis first.
    thick = surface[:, None] if surface.ndim == 1 else surface
    image = sitk.GetImageFromArray(thick.astype(np.uint8))
    image.SetSpacing((sizes + [1.0] * (thick.ndim - surface.ndim))[::-1])
    distance = sitk.SignedMaurerDistanceMap(image, squaredDistance=False, useImageSpacing=True)
    return np.abs(sitk.GetArrayFromImage(distance)).reshape(surface.shape)
