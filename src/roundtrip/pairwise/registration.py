"""`Registration`: what `register` gives. Neighbour: `outcome.py`, which measures it when it is asked for."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from roundtrip._showing import shown
from roundtrip.pairwise.contrast import Contrast
from roundtrip.pairwise.guidance import Guidance, GuidedOutcome
from roundtrip.pairwise.landmark_pairs import LandmarkPairs
from roundtrip.pairwise.outcome import Outcome, judged
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume


@dataclass(frozen=True, eq=False)
class Registration:
    """A registered pair: the transform and its inverse, and how good they are, once that is asked for."""

    transform: Transform
    """Takes points of the fixed world to points of the moving world; knows its inverse."""
    moving: Volume
    fixed: Volume
    contrast: Contrast
    """How intensities were compared."""
    seconds: float
    """From images in memory to the transform, with everything loaded that does it."""
    linear_seconds: float
    """The part of them before the deformation."""
    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    """What was done otherwise than was asked, and why."""
    moving_labels: Volume | None = None
    fixed_labels: Volume | None = None
    landmarks: LandmarkPairs | None = None
    """That measure."""
    guidance: Guidance = Guidance()  # noqa: RUF009
    """What steered."""

    @property
    def inverse(self) -> Transform:
        """Takes points of the moving world to points of the fixed world."""
        return self.transform.inverse()

    @functools.cached_property
    def outcome(self) -> Outcome:
        """Everything measured, at every voxel of the fixed image."""
        return judged(
            self.transform,
            self.fixed,
            self.moving,
            contrast=self.contrast,
            fixed_labels=self.fixed_labels,
            moving_labels=self.moving_labels,
        )

    @functools.cached_property
    def guided(self) -> GuidedOutcome:
        """What became of what steered."""
        return self.guidance.outcome(self.transform)

    @property
    def warped(self) -> Volume:
        """The moving image on the fixed grid."""
        return self.outcome.warped

    @property
    def warped_labels(self) -> Volume | None:
        """The moving labels on the fixed grid, if there were any."""
        return self.outcome.warped_labels

    @property
    def ok(self) -> bool:
        """Whether nothing says that the registration failed."""
        return not self.reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it failed."""
        return (*self.outcome.reasons, *self.guided.reasons)

    @property
    def metrics(self) -> dict[str, Any]:
        """All numbers, as metrics.json holds them."""
        outcome = self.outcome
        values: dict[str, Any] = {
            "ok": self.ok,
            "reasons": list(self.reasons),
            "notes": list(self.notes),
            "seconds": round(self.seconds, 3),
            "linear_seconds": round(self.linear_seconds, 3),
            "similarity": outcome.similarity.as_dict(),
            "folds": vars(outcome.folds),
            "roundtrip_error_mm": vars(outcome.roundtrip_error_mm),
            "overlap_percent": round(100 * outcome.overlap, 1),
        }
        if outcome.dice is not None:
            values["dice"] = outcome.dice.as_dict()
        if self.landmarks is not None:
            values["landmark_error_mm"] = vars(self.landmarks.errors(self.transform))
        values |= self.guided.as_dict()
        return {**values, "settings": dict(self.settings), "version": version("roundtrip")}

    def _repr_html_(self) -> str:
        """In a notebook: the verdict with its reasons, and slices through the middle."""
        return shown(self, "registration_as_html")
