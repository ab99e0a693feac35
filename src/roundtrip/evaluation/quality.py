"""`PairQuality`: all that is measured of one registered pair, and how it is written down.

`judge.py` measures it, `summary.py` puts many side by side. What is not a number (a label that one of the
images lacks) is NaN here and null in JSON.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from roundtrip.evaluation.round_trip import RoundTripStatistics

Part = TypeVar("Part")


@dataclass(frozen=True)
class SimilarityChange:
    """How different the images were and are, by a measure of which lower is better."""

    name: str
    before: float
    after: float

    @property
    def improved(self) -> bool:
        """Whether registration made the images more alike."""
        return self.after < self.before

    def as_dict(self) -> dict[str, Any]:
        """The part `similarity` of metrics.json; it says itself which way is better."""
        return {
            "name": self.name,
            "before": _plain(self.before),
            "after": _plain(self.after),
            "better": "lower",
        }


@dataclass(frozen=True)
class FoldCounts:
    """Of the map from fixed to moving: voxels that fold, by central differences, and the volume that does."""

    count: int
    percent: float
    non_diffeomorphic_volume_percent: float


@dataclass(frozen=True)
class LabelScores:
    """A score of every label that both images have, before and after registration."""

    before: dict[int, float]
    after: dict[int, float]

    @property
    def mean(self) -> float:
        """Over the labels that could be scored; NaN where the images share none."""
        return _mean(self.after.values())

    @property
    def mean_before(self) -> float:
        """As `mean`, before registration."""
        return _mean(self.before.values())

    @property
    def num_labels(self) -> int:
        """How many labels both images have."""
        return len(self.after)

    def as_dict(self) -> dict[str, Any]:
        """A part of metrics.json: mean, each label, of how many, and the same before registration."""
        return {
            "mean": _plain(self.mean),
            "labels": {str(label): _plain(score) for label, score in self.after.items()},
            "num_labels": self.num_labels,
            "before": {
                "mean": _plain(self.mean_before),
                "labels": {str(label): _plain(score) for label, score in self.before.items()},
            },
        }


@dataclass(frozen=True)
class LandmarkErrors:
    """Distances between landmarks after registration, and their mean before."""

    before: float
    mean: float
    max: float
    count: int


@dataclass(frozen=True)
class PairQuality:
    """What is known about one registered pair."""

    unit: Literal["mm", "voxels"]
    """Of all distances: voxels where no spacing was given."""
    similarity: SimilarityChange
    folds: FoldCounts
    roundtrip_error: RoundTripStatistics
    """Over the voxels of both images."""
    magnitude: float
    """How far registration moves a voxel of the fixed image, on average."""
    dice: LabelScores | None = None
    hd95: LabelScores | None = None
    """NaN for a label that left the image altogether, whose Dice is 0."""
    surface_distance: LabelScores | None = None
    landmark_error: LandmarkErrors | None = None

    def as_dict(self) -> dict[str, Any]:
        """As metrics.json holds it: parts that were not measured are left out, names end in their unit."""
        values: dict[str, Any] = {
            "similarity": self.similarity.as_dict(),
            "folds": _plain_fields(self.folds),
            f"roundtrip_error_{self.unit}": _plain_fields(self.roundtrip_error),
            f"magnitude_{self.unit}": _plain(self.magnitude),
        }
        if self.dice is not None:
            values["dice"] = self.dice.as_dict()
        if self.hd95 is not None:
            values[f"hd95_{self.unit}"] = self.hd95.as_dict()
        if self.surface_distance is not None:
            values[f"surface_distance_{self.unit}"] = self.surface_distance.as_dict()
        if self.landmark_error is not None:
            values[f"landmark_error_{self.unit}"] = _plain_fields(self.landmark_error)
        return values

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "PairQuality":
        """The inverse of `as_dict`; whatever else is in `values` is ignored."""
        unit: Literal["mm", "voxels"] = "mm" if "roundtrip_error_mm" in values else "voxels"

        def part(name: str, make: Callable[[Mapping[str, Any]], Part]) -> Part | None:
            return make(values[name]) if name in values else None

        change = values["similarity"]
        return PairQuality(
            unit=unit,
            similarity=SimilarityChange(change["name"], _number(change["before"]), _number(change["after"])),
            folds=FoldCounts(**_numbers(values["folds"])),
            roundtrip_error=RoundTripStatistics(**_numbers(values[f"roundtrip_error_{unit}"])),
            magnitude=_number(values[f"magnitude_{unit}"]),
            dice=part("dice", _scores),
            hd95=part(f"hd95_{unit}", _scores),
            surface_distance=part(f"surface_distance_{unit}", _scores),
            landmark_error=part(f"landmark_error_{unit}", lambda part: LandmarkErrors(**_numbers(part))),
        )


def _scores(values: Mapping[str, Any]) -> LabelScores:
    def by_label(labels: Mapping[str, Any]) -> dict[int, float]:
        return {int(label): _number(score) for label, score in labels.items()}

    return LabelScores(before=by_label(values["before"]["labels"]), after=by_label(values["labels"]))


def _mean(scores: Any) -> float:
    known = [score for score in scores if not math.isnan(score)]
    return sum(known) / len(known) if known else math.nan


def _plain_fields(part: Any) -> dict[str, Any]:
    return {name: _plain(value) for name, value in vars(part).items()}


def _plain(value: Any) -> Any:
    """A number as JSON knows it."""
    return value if math.isfinite(value) else None


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _number(value) for name, value in values.items()}


def _number(value: Any) -> Any:
    return math.nan if value is None else value
