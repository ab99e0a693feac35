"""What can be said of a transform without looking at an image: folds, growth of volumes, round trips, in mm.

Neighbours: `judge.py`, which compares images and labels too, and `round_trip.py`.
"""

from dataclasses import dataclass
from typing import Any

import torch

from roundtrip._shapes import Tensor
from roundtrip.evaluation.quality import FoldCounts
from roundtrip.evaluation.round_trip import RoundTripStatistics, statistics_of
from roundtrip.maps.folds import non_diffeomorphic_volume
from roundtrip.maps.jacobian import determinant, grid_jacobian
from roundtrip.space.grid import Grid
from roundtrip.space.measures import places, places_in_own_frame
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume, grid_of


@dataclass(frozen=True)
class JacobianStatistics:
    """Of the factor by which volumes grow, over all voxels: above 1 the moving image is larger."""

    min: float
    p1: float
    median: float
    mean: float
    p99: float
    max: float
    log_std: float | None
    """The standard deviation of its logarithm: how uneven it is. None where it folds."""


@dataclass(frozen=True)
class Inspection:
    """What is known about a transform on a grid."""

    grid: Grid
    moved_mm_mean: float
    moved_mm_max: float
    folds: FoldCounts
    jacobian: JacobianStatistics
    roundtrip_error_mm: RoundTripStatistics | None
    """With the inverse it was given; None without."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON knows it."""
        values: dict[str, Any] = {
            "grid": {"shape": list(self.grid.shape), "spacing_mm": list(self.grid.spacing)},
            "moved_mm": {"mean": self.moved_mm_mean, "max": self.moved_mm_max},
            "folds": vars(self.folds),
            "jacobian": vars(self.jacobian),
        }
        if self.roundtrip_error_mm is not None:
            values["roundtrip_error_mm"] = vars(self.roundtrip_error_mm)
        return values


@torch.no_grad()
def inspect(
    transform: Transform, inverse: Transform | None = None, *, onto: Volume | Grid | None = None
) -> Inspection:
    """Measures a transform at every voxel of the fixed grid, or of `onto`.

    With an `inverse` (that of another file, or `transform.inverse()`) round trips from the fixed image, and
    from the moving one where its grid is known, count alike.
    """
    grid = transform.fixed if onto is None else grid_of(onto)
    if grid is None:
        raise ValueError(
            "an affine transform has no grid of its own: say which image it is for, on the command line "
            "`--fixed IMAGE`."
        )
    like = torch.empty(0, device=transform.device)
    points = places_in_own_frame(transform.steps, grid, like=like)
    growth = determinant(grid_jacobian(points))
    frame = grid.world_from_unit[:-1, :-1]
    moved = places(transform.steps, grid, like=like) - places((), grid, like=like)
    distances = moved.square().sum(dim=1).sqrt()
    return Inspection(
        grid=grid,
        moved_mm_mean=distances.double().mean().item(),
        moved_mm_max=distances.max().item(),
        folds=fold_counts(points, growth, frame),
        jacobian=_statistics(growth),
        roundtrip_error_mm=None if inverse is None else _round_trips(transform, inverse, grid),
    )


def fold_counts(points: Tensor, growth: Tensor, frame: Tensor) -> FoldCounts:
    """Of a map in the frame of its own grid, evaluated at its voxels, and its determinants there."""
    folded = int((~(growth > 0)).sum())
    volume = non_diffeomorphic_volume(points, fixed_frame=frame, moving_frame=frame)
    return FoldCounts(folded, 100 * folded / growth.numel(), volume.percent.item())


def _round_trips(transform: Transform, inverse: Transform, grid: Grid) -> RoundTripStatistics:
    errors = [transform.round_trip_error(inverse, onto=grid).data]
    other = inverse.fixed or transform.moving
    if other is not None:
        errors.append(inverse.round_trip_error(transform, onto=other).data)
    return statistics_of(*errors)


def _statistics(growth: Tensor) -> JacobianStatistics:
    values = growth.flatten().double().sort().values
    places_of = [round(share * (len(values) - 1)) for share in (0, 0.01, 0.5, 0.99, 1)]
    lowest, p1, median, p99, highest = values[places_of].tolist()
    log_std = values.log().std(correction=0).item() if lowest > 0 else None
    return JacobianStatistics(lowest, p1, median, values.mean().item(), p99, highest, log_std)
