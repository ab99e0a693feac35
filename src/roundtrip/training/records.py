"""What happens in a run, as it is logged, drawn and shown: one record to a step, to a validation.

Neighbours: `log.py` (writes and reads them), `watch.py` (who wants to be told).
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StepRecord:
    """One step: means over the whole batch before its update, and what they were weighed with."""

    stage: str
    step: int
    """Counted from 1 in every stage."""
    total: float
    similarity: float
    inverse_consistency: float
    """The regularity term, whichever it is, without its weight."""
    folds: float
    magnitude: float
    lambda_: float
    learning_rate: float
    labels: float | None = None
    """One minus the soft Dice, both ways added; None where labels have no weight."""
    pairs_per_second: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """As a line of the log."""
        return {"kind": "step", **_plain(self)}


@dataclass(frozen=True)
class ValidationRecord:
    """Means over the held-out pairs."""

    stage: str
    step: int
    score: float
    """Higher is better."""
    numbers: Mapping[str, float]
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """As a line of the log."""
        return {"kind": "validation", **_plain(self)}


Record = StepRecord | ValidationRecord


def record_of(values: Mapping[str, Any]) -> Record:
    """The inverse of `as_dict`."""
    given = {"lambda_" if name == "lambda" else name: value for name, value in values.items()}
    kinds: dict[str, type[StepRecord] | type[ValidationRecord]]
    kinds = {"step": StepRecord, "validation": ValidationRecord}
    return kinds[given.pop("kind")](**given)


def _plain(record: Any) -> dict[str, Any]:
    values = dataclasses.asdict(record)
    return {name.rstrip("_"): value for name, value in values.items() if value is not None}
