"""Measures one registered pair: the two maps it was given, the images, and what else is known of them.

`judge` takes images on one grid, as networks see them. `judge_sides` takes each image with a grid of its own,
as files have them. What comes out is a `PairQuality` (`quality.py`).
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from roundtrip._checks import require_image, require_pair, shape_of
from roundtrip._shapes import Image, Mask, Points, Scalar, Shaped, Tensor
from roundtrip.evaluation.landmarks import target_registration_error
from roundtrip.evaluation.lengths import frame_of, lengths, spacing_of
from roundtrip.evaluation.overlap import dice
from roundtrip.evaluation.quality import (
    FoldCounts,
    LabelScores,
    LandmarkErrors,
    PairQuality,
    SimilarityChange,
)
from roundtrip.evaluation.round_trip import round_trip_distance, statistics_of
from roundtrip.evaluation.surface import surface_distance
from roundtrip.losses.similarity import mse
from roundtrip.maps.folds import folds_central, non_diffeomorphic_volume
from roundtrip.maps.interpolate import interpolate, interpolate_nearest
from roundtrip.maps.jacobian import Frame
from roundtrip.maps.map import Identity, Map, on_grid_of

Similarity = Callable[..., Scalar]
"""(warped, fixed, mask) -> how different they are."""


@dataclass(frozen=True, eq=False)
class Side:
    """One image of a pair, and what is known about it. A batch of one."""

    image: Image
    frame: Frame
    """Linear part of world-from-unit; `frame_of(image, spacing)` makes it for a grid along the axes."""
    labels: Shaped[Tensor, "1 1 *S"] | None = None
    landmarks: Points | None = None
    """In unit coordinates."""
    mask: Mask | None = None
    """Where the image counts when intensities are compared."""


def judge(
    phi_AB: Map,
    phi_BA: Map,
    moving: Image,
    fixed: Image,
    *,
    spacing: Sequence[float] | None = None,
    moving_labels: Shaped[Tensor, "1 1 *S"] | None = None,
    fixed_labels: Shaped[Tensor, "1 1 *S"] | None = None,
    moving_landmarks: Points | None = None,
    fixed_landmarks: Points | None = None,
    similarity: Similarity = mse,
) -> PairQuality:
    """Measures one pair (a batch of 1) on one grid: phi_AB takes points of `fixed` to points of `moving`.

    Distances are in the unit of `spacing`, or in voxels without it. Labels are integers or booleans, and
    compared on the fixed image; the paper's Dice of pixels brighter than 0.5 is that of `moving > 0.5` and
    `fixed > 0.5`, up to the pixels at which interpolation decides. Landmarks are in unit coordinates.
    "Before" is the identity.
    """
    require_pair(moving, fixed)
    frame = frame_of(fixed, spacing)
    return judge_sides(
        phi_AB,
        phi_BA,
        Side(moving, frame, moving_labels, moving_landmarks),
        Side(fixed, frame, fixed_labels, fixed_landmarks),
        unit="voxels" if spacing is None else "mm",
        similarity=similarity,
    )


@torch.no_grad()
def judge_sides(
    phi_AB: Map,
    phi_BA: Map,
    moving: Side,
    fixed: Side,
    *,
    unit: Literal["mm", "voxels"],
    similarity: Similarity = mse,
    before: Map | None = None,
) -> PairQuality:
    """Measures one pair whose images have grids of their own, in the unit of their frames.

    `before` takes points of the fixed image to where they were in the moving one before registration: by
    unit coordinates unless given.
    """
    _require_side(moving, "moving")
    _require_side(fixed, "fixed")
    before = before or Identity()
    start, end = on_grid_of(before, fixed.image), on_grid_of(phi_AB, fixed.image)
    there_and_back = lengths(phi_BA(end) - on_grid_of(Identity(), fixed.image), fixed.frame)
    back_and_there = round_trip_distance(phi_AB, phi_BA, moving.image, frame=moving.frame)
    overlap, hd95, surface = _compare_labels(start, end, moving, fixed)
    return PairQuality(
        unit=unit,
        similarity=SimilarityChange(
            name_of(similarity),
            _compare_images(start, moving, fixed, similarity),
            _compare_images(end, moving, fixed, similarity),
        ),
        folds=_count_folds(end, moving, fixed),
        roundtrip_error=statistics_of(there_and_back, back_and_there),
        magnitude=lengths(end - start, moving.frame).double().mean().item(),
        dice=overlap,
        hd95=hd95,
        surface_distance=surface,
        landmark_error=_compare_landmarks(before, phi_AB, moving, fixed),
    )


def name_of(similarity: Similarity) -> str:
    """What a similarity is called, options left out."""
    while isinstance(similarity, functools.partial):
        similarity = similarity.func
    return getattr(similarity, "__name__", type(similarity).__name__)


def _compare_images(at: Points, moving: Side, fixed: Side, similarity: Similarity) -> float:
    mask = None if fixed.mask is None else fixed.mask.to(at.dtype)
    if moving.mask is not None:
        warped_mask = interpolate_nearest(moving.mask.to(at.dtype), at)
        mask = warped_mask if mask is None else mask * warped_mask
    warped = interpolate(moving.image, at)
    return similarity(warped, fixed.image.to(warped), mask).item()


def _count_folds(points: Points, moving: Side, fixed: Side) -> FoldCounts:
    frames = {"fixed_frame": fixed.frame, "moving_frame": moving.frame}
    folds, volume = folds_central(points, **frames), non_diffeomorphic_volume(points, **frames)
    return FoldCounts(int(folds.count.item()), folds.percent.item(), volume.percent.item())


def _compare_labels(
    start: Points, end: Points, moving: Side, fixed: Side
) -> tuple[LabelScores | None, LabelScores | None, LabelScores | None]:
    """Dice, HD95 and mean surface distance of the labels that both images have; None without labels."""
    if moving.labels is None or fixed.labels is None:
        return None, None, None
    common = _foreground(moving.labels) & _foreground(fixed.labels)
    # Labels that only one image has are of no interest, and cost time.
    source, target = (_only(common, labels) for labels in (moving.labels, fixed.labels))
    spacing, scores = spacing_of(fixed.frame, fixed.image), []
    for at in (start, end):
        warped = interpolate_nearest(source, at)
        overlap, surface = dice(warped, target), surface_distance(warped, target, spacing=spacing)
        scores.append(
            (
                # A label that was there and left the image overlaps nothing.
                _by_label(common, overlap.labels, overlap.dice, missing=0.0),
                _by_label(common, surface.labels, surface.hd95, missing=float("nan")),
                _by_label(common, surface.labels, surface.mean, missing=float("nan")),
            )
        )
    of_dice, of_hd95, of_mean = (LabelScores(b, a) for b, a in zip(*scores, strict=True))
    return of_dice, of_hd95, of_mean


def _foreground(labels: Tensor) -> set[int]:
    return {int(label) for label in labels.unique()} - {0}


def _only(common: set[int], labels: Tensor) -> Tensor:
    labels = labels.long()
    return labels * torch.isin(labels, labels.new_tensor(sorted(common)))


def _by_label(common: set[int], labels: Sequence[int], values: Tensor, *, missing: float) -> dict[int, float]:
    scores: Mapping[int, Any] = dict(zip(labels, values[0].nan_to_num(missing).tolist(), strict=True))
    return {label: scores.get(label, missing) for label in sorted(common)}


def _compare_landmarks(before: Map, phi_AB: Map, moving: Side, fixed: Side) -> LandmarkErrors | None:
    if moving.landmarks is None or fixed.landmarks is None:
        return None
    start, end = (
        target_registration_error(phi, fixed.landmarks, moving.landmarks, moving_frame=moving.frame).double()
        for phi in (before, phi_AB)
    )
    return LandmarkErrors(start.mean().item(), end.mean().item(), end.max().item(), end.numel())


def _require_side(side: Side, name: str) -> None:
    require_image(side.image, name)
    if len(side.image) != 1:
        raise ValueError(
            f"`{name}` holds {len(side.image)} images; pairs are judged one by one: "
            f"`judge(phi_AB[i : i + 1], phi_BA[i : i + 1], ...)` with `{name}[i : i + 1]` for each i."
        )
    if side.labels is None:
        return
    if side.labels.shape != (1, 1, *side.image.shape[2:]):
        raise ValueError(
            f"`{name}_labels` has shape {shape_of(side.labels)} but its image {shape_of(side.image)}; a "
            "label map is drawn on the grid of its image. Resample it onto that grid, by nearest neighbour."
        )
    if side.labels.is_floating_point() or side.labels.is_complex():
        raise ValueError(
            f"`{name}_labels` has dtype {side.labels.dtype}; labels are integers or booleans: "
            f"`{name}_labels.long()`, or `{name} > 0.5` of an image."
        )
