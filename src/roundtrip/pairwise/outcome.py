"""`Outcome`: what a registration brought, measured at every voxel of the fixed image, and whether it failed.

Neighbours: `register.py`, whose results it judges; `evaluation/` does the counting.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

import torch

from roundtrip._shapes import Tensor
from roundtrip.evaluation.inspection import fold_counts
from roundtrip.evaluation.overlap import dice
from roundtrip.evaluation.quality import FoldCounts, LabelScores
from roundtrip.evaluation.round_trip import RoundTripStatistics, statistics_of
from roundtrip.losses.information import mutual_information
from roundtrip.losses.local import lncc
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.jacobian import determinant, grid_jacobian
from roundtrip.pairwise.compiled import CompiledArithmetic
from roundtrip.pairwise.contrast import Contrast
from roundtrip.space.grid import Grid
from roundtrip.space.measures import places_in_own_frame
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

# Similarity is compared on a grid of at most so many voxels: it is a matter of tenths, not of voxels.
_COMPARED = 2**20

# Of the similarity: what two interpolations of one image differ by.
_NOISE = 5e-3

# In voxels: where two maps do not belong together any more.
_MISSED_ON_AVERAGE, _MISSED_BY_MOST = 0.5, 3.0

_LEAST_OVERLAP = 0.2

# Of what an image shares with itself. Heads and hippocampi that were registered well had .45 and more, of
# mutual information between contrasts .22 and more; noise and other anatomies had up to .17 and .07.
_LEAST_IN_COMMON = {"lncc": 0.2, "mutual_information": 0.08}

# A label drawn and interpolated anew.
_DICE_NOISE = 0.02


@dataclass(frozen=True)
class Similarity:
    """How alike the images are, more is better: local correlation; between contrasts mutual information."""

    name: Literal["lncc", "mutual_information"]
    before: float
    after: float
    best: float
    """Of the fixed image with itself: where it is flat, nothing correlates."""
    shared: float = math.inf
    """As `after`, of the voxels that show some of the moving image: its edge tells nothing."""

    @property
    def least(self) -> float:
        """What the images have in common, wherever one looks."""
        return min(self.after, self.shared)

    def as_dict(self) -> dict[str, Any]:
        """The part `similarity` of metrics.json."""
        return {"name": self.name, "before": self.before, "after": self.after, "better": "higher"}


@dataclass(frozen=True, eq=False)
class Outcome:
    """Images on the fixed grid, and numbers about them."""

    warped: Volume
    jacobian: Volume
    roundtrip_error: Volume
    """In mm."""
    similarity: Similarity
    folds: FoldCounts
    roundtrip_error_mm: RoundTripStatistics
    overlap: float
    """The share of the fixed grid that shows some of the moving image."""
    warped_labels: Volume | None = None
    dice: LabelScores | None = None

    @functools.cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why this registration is not to be relied upon; empty where nothing says so."""
        said, similarity, miss = [], self.similarity, self.roundtrip_error_mm
        unchanged = similarity.after <= similarity.before and similarity.before < 0.95 * similarity.best
        if not math.isfinite(similarity.after) or similarity.after < similarity.before - _NOISE or unchanged:
            said.append(
                f"the images are not more alike than before: {similarity.name} went from "
                f"{similarity.before:.3f} to {similarity.after:.3f}."
            )
        elif similarity.least < _LEAST_IN_COMMON[similarity.name] * similarity.best:
            said.append(
                "the images have next to nothing in common where they lie on each other: "
                f"{similarity.name} is {similarity.least:.3f}, of the fixed image with itself "
                f"{similarity.best:.3f}."
            )
        voxel = min(self.warped.spacing)
        if not (miss.mean <= _MISSED_ON_AVERAGE * voxel and miss.p99 <= _MISSED_BY_MOST * voxel):
            said.append(
                f"the two maps disagree: a round trip misses by {miss.mean:.3g} mm on average, by more than "
                f"{miss.p99:.3g} mm at 1 % of the voxels."
            )
        if self.folds.count or self.folds.non_diffeomorphic_volume_percent:
            said.append(
                f"the map folds at {self.folds.count} voxels ({self.folds.percent:.3g} %), "
                f"{self.folds.non_diffeomorphic_volume_percent:.3g} % of the volume."
            )
        if self.dice is not None and self.dice.mean < self.dice.mean_before - _DICE_NOISE:
            said.append(
                f"the labels overlap less than before: mean Dice went from {self.dice.mean_before:.3f} to "
                f"{self.dice.mean:.3f}."
            )
        if self.overlap < _LEAST_OVERLAP:
            said.append(f"only {100 * self.overlap:.0f} % of the fixed image show some of the moving one.")
        return tuple(said)


@torch.no_grad()
def judged(
    transform: Transform,
    fixed: Volume,
    moving: Volume,
    *,
    contrast: Contrast = "same",
    fixed_labels: Volume | None = None,
    moving_labels: Volume | None = None,
) -> Outcome:
    """Measures a transform that knows its inverse; "before" are the images as their files place them."""
    grid, inverse = fixed.grid, transform.inverse()
    like = torch.empty(0, device=transform.device)
    points = places_in_own_frame(transform.steps, grid, like=like)
    growth = determinant(grid_jacobian(points))
    error = transform.round_trip_error(inverse, onto=grid)
    warped = transform.warp(moving, onto=grid)
    before = Transform.from_affine(torch.eye(grid.dims + 1)).to(like.device)
    labels, scores = _labels(transform, before, fixed_labels, moving_labels)
    return Outcome(
        warped=warped,
        jacobian=Volume(growth[0], grid.world_from_voxel),
        roundtrip_error=error,
        similarity=_similarity(
            before.warp(moving, onto=grid), warped, fixed, contrast, _seen(transform, moving, grid)
        ),
        folds=_folds(points, growth, grid.world_from_unit[:-1, :-1]),
        roundtrip_error_mm=statistics_of(error.data),
        overlap=_overlap(transform, fixed, moving),
        warped_labels=labels,
        dice=scores,
    )


def _folds(points: Tensor, growth: Tensor, frame: Tensor) -> FoldCounts:
    """As `fold_counts`, which is asked only where a fast look at all simplices does not rule folds out."""
    shape = points.shape[2:]
    if len(shape) != 3 or points.device.type != "cpu" or not (growth > 0).all():
        return fold_counts(points, growth, frame)
    steps = torch.tensor([n - 1 for n in shape]).view(3, 1, 1, 1)
    displacement = (points[0] - unit_grid(shape, like=points)[0]) * steps
    with CompiledArithmetic() as arithmetic:
        worst = arithmetic.growth(displacement.contiguous(), torch.empty(shape))
    return FoldCounts(0, 0.0, 0.0) if (worst > 0).all() else fold_counts(points, growth, frame)


def _seen(transform: Transform, moving: Volume, grid: Grid) -> Volume:
    """Which voxels of a grid show some of the moving image: 1, else 0."""
    ones = Volume(torch.ones_like(moving.data[:1], dtype=torch.float32), moving.world_from_voxel)
    return transform.warp(ones, onto=grid)


def _similarity(before: Volume, after: Volume, fixed: Volume, contrast: Contrast, seen: Volume) -> Similarity:
    target, inside = _coarse(fixed), _coarse(seen) > 0.99

    def measured(volume: Volume, mask: Tensor | None = None) -> float:
        image = _coarse(volume)
        if contrast == "same":
            return 1 - lncc(image, target, mask, sigma=2.0).item()
        return -mutual_information(image, target, mask).item()

    name: Literal["lncc", "mutual_information"] = "lncc" if contrast == "same" else "mutual_information"
    shared = measured(after, inside) if inside.any() else 0.0
    return Similarity(name, measured(before), measured(after), measured(fixed), shared)


def _coarse(volume: Volume) -> Tensor:
    """Means over blocks of voxels, as few as are compared."""
    data = volume.data[None].float()
    factor = math.ceil((math.prod(volume.shape) / _COMPARED) ** (1 / volume.dims) - 1e-9)
    for axis in range(2, data.ndim):
        keep = max(data.shape[axis] // factor, 1)
        size = factor if data.shape[axis] >= factor else data.shape[axis]
        data = data.narrow(axis, 0, keep * size).unflatten(axis, (keep, size)).mean(dim=axis + 1)
    return data


def _overlap(transform: Transform, fixed: Volume, moving: Volume) -> float:
    """Of a few thousand voxels spread over the fixed grid, how many are sent into the moving one."""
    shape = [min(n, 20) for n in fixed.shape]
    steps = [torch.linspace(0, 1 if n > 1 else 0, n, dtype=torch.float64) for n in shape]
    unit = torch.stack(torch.meshgrid(*steps, indexing="ij")).flatten(1)
    world = fixed.world_from_unit[:-1, :-1] @ unit + fixed.world_from_unit[:-1, -1:]
    ends = transform.points(world.mT).cpu()
    matrix = moving.grid.voxel_from_world
    voxels = ends @ matrix[:-1, :-1].mT + matrix[:-1, -1]
    inside = (voxels >= -0.5) & (voxels <= torch.tensor(moving.shape) - 0.5)
    return inside.all(dim=1).double().mean().item()


def _labels(
    transform: Transform, before: Transform, fixed: Volume | None, moving: Volume | None
) -> tuple[Volume | None, LabelScores | None]:
    """The warped label map, and Dice of the labels that both images have."""
    if moving is None:
        return None, None
    warped = transform.warp(moving, onto=None if fixed is None else fixed, labels=True)
    if fixed is None:
        return warped, None
    common = _foreground(fixed) & _foreground(moving)
    scores = [
        _dice(volume, fixed, common) for volume in (before.warp(moving, onto=fixed, labels=True), warped)
    ]
    return warped, LabelScores(*scores)


def label_scores(transform: Transform, before: Transform, fixed: Volume, moving: Volume) -> LabelScores:
    """Dice of the labels that both maps have, moved by two transforms between their images."""
    scores = _labels(transform, before, fixed, moving)[1]
    assert scores is not None
    return scores


def _foreground(labels: Volume) -> set[int]:
    return set(labels.data.unique().tolist()) - {0}


def _dice(warped: Volume, fixed: Volume, common: set[int]) -> dict[int, float]:
    """A label that both images have, and that left the fixed grid, overlaps nothing: 0."""
    overlap = dice(warped.data[None].to(fixed.data), fixed.data[None])
    scores = dict(zip(overlap.labels, overlap.dice[0].nan_to_num(0).tolist(), strict=True))
    return {label: scores.get(label, 0.0) for label in sorted(common)}
