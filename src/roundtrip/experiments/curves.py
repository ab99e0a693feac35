"""The supplement's curves: lambda, inverse consistency and similarity during staged training.

At full scale the paper's own stages on the knees of the Osteoarthritis Initiative, whose images are granted
on request: `--data` names their manifest. Otherwise the same three stages on triangles & circles: two U-Nets
at half the resolution; these, frozen, with a third at full resolution; all of them with a fourth. Lambda
grows whenever a batch folds more than is acceptable.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from roundtrip.data.config import Counts, DataConfig
from roundtrip.data.sources import ManifestSource, ShapesSource
from roundtrip.evaluation.summary import Row
from roundtrip.experiments.oai_knees import oai_knees
from roundtrip.experiments.result import AbstractResult, Cell, Claim, Outcome, Scale
from roundtrip.experiments.workplace import Workplace
from roundtrip.reports.curves import training_figure
from roundtrip.training.config import StageConfig, TrainingConfig, ValidationConfig
from roundtrip.training.control import GrowingLambda
from roundtrip.training.records import Record, StepRecord, ValidationRecord, record_of
from roundtrip.training.schedule import LearningRate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NETWORK = {"class": "UNet", "dims": 2, "down_features": [16, 32, 64, 128], "up_features": [16, 32, 64, 128]}


@dataclass(frozen=True)
class Budget:
    """What a scale spends on shapes."""

    size: int
    images: int
    steps: tuple[int, int, int]
    batch: int
    increments: tuple[float, float]
    """Of lambda, low and high; 1 to 8 as in the supplement."""
    acceptable_folds: float


BUDGETS: dict[Scale, Budget] = {
    "hours": Budget(64, 1200, (600, 300, 200), 16, (0.25, 2.0), 2.0),
    "quick": Budget(16, 60, (80, 40, 20), 8, (0.25, 2.0), 0.05),
}


class Curves(AbstractResult):
    name, paper = "curves", "supplement"
    shows = "the lambda it takes to hold folds down grows as training goes on, fastest at full resolution"

    def cells(self, scale: Scale) -> Sequence[Cell]:
        config = oai_knees() if scale == "full" else staged(BUDGETS[scale])

        def compute(place: Workplace) -> Outcome:
            trained = place.trained(f"curves-{scale}", _with_data(config, place, scale))
            return _outcome(trained.records, config)

        return [Cell("training", {**config.as_plain(), "seed": 0}, compute)]

    def rows(self, done: Mapping[str, Outcome], scale: Scale) -> list[Row]:
        """A row for every stage."""
        return [
            {"cell": "training", **stage} for outcome in done.values() for stage in outcome.numbers["stages"]
        ]

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        grows, fast, held = (
            "lambda has to grow in every stage",
            "it grows fastest when full resolution begins",
            "folds are held down: at the end of training few are left",
        )
        if not rows:
            return [Claim(says, None) for says in (grows, fast, held)]
        ends = [row["lambda"] for row in rows]
        rates = [end / row["steps"] for end, row in zip(ends, rows, strict=True)]
        told = ", ".join(f"{row['stage']}: {end:.3g}" for row, end in zip(rows, ends, strict=True))
        rate = ", ".join(f"{row['stage']}: {one:.2g} a step" for row, one in zip(rows, rates, strict=True))
        last = rows[-1]
        return [
            Claim(grows, all(end > 0 for end in ends), told),
            Claim(fast, rates[1] > rates[0], rate),
            Claim(held, last["folds"] < 2 * last["acceptable_folds"], f"{last['folds']:.2f} per image"),
        ]

    def figure(self, done: Mapping[str, Outcome]) -> "Figure":
        return training_figure(_records(done["training"]))


def staged(budget: Budget) -> TrainingConfig:
    """The stages of `oai_knees`, in two dimensions."""
    knees = oai_knees()
    step = {"class": "DisplacementRegistration", "net": NETWORK}
    stages = []
    for number, stage in enumerate(knees.stages):
        first = {"stage": knees.stages[number - 1].name, "frozen": True} if number else step
        stages.append(
            StageConfig(
                name=stage.name,
                algorithm={"class": "TwoStep", "first": first, "second": step},
                resolution=stage.resolution,
                steps=budget.steps[number],
                batch=budget.batch,
                learning_rate=LearningRate(start=1e-3),
                similarity=stage.similarity,
                lambda_=GrowingLambda(
                    acceptable_folds=budget.acceptable_folds, increment=budget.increments[min(number, 1)]
                ),
            )
        )
    return TrainingConfig(
        data=DataConfig(
            source=ShapesSource(count=budget.images, size=budget.size),
            split=Counts(train=budget.images * 5 // 6, validation=budget.images // 6),
        ),
        stages=tuple(stages),
        validation=ValidationConfig(every=max(1, budget.steps[0] // 6), pairs=20),
        about="Drawn triangles & circles.",
        licence="CC0-1.0",
    )


def _with_data(config: TrainingConfig, place: Workplace, scale: Scale) -> TrainingConfig:
    if scale != "full":
        return config
    if place.data is None:
        raise ValueError(
            "the paper's knees are those of the Osteoarthritis Initiative, which grants access to them: name "
            "their manifest (docs/data.md) by `--data knees.csv`, or choose `--scale hours`."
        )
    data = config.data.model_copy(update={"source": ManifestSource(path=Path(place.data))})
    return config.model_copy(update={"data": data})


def _outcome(records: Sequence[Record], config: TrainingConfig) -> Outcome:
    """A row for every stage, and all curves."""
    steps = [record for record in records if isinstance(record, StepRecord)]
    stages = [
        _stage(stage, [one for one in steps if one.stage == stage.name], records) for stage in config.stages
    ]
    text = np.array([json.dumps(record.as_dict()) for record in records])
    return Outcome({"stages": stages}, {"records": text})


def _stage(stage: StageConfig, steps: Sequence[StepRecord], records: Sequence[Record]) -> dict[str, Any]:
    """Means over the last tenth of its steps."""
    end = steps[-max(1, len(steps) // 10) :]
    judged = [one for one in records if isinstance(one, ValidationRecord) and one.stage == stage.name]
    numbers = judged[-1].numbers if judged else {}
    assert isinstance(stage.lambda_, GrowingLambda)
    return {
        "stage": stage.name,
        "steps": len(steps),
        "lambda": steps[-1].lambda_,
        "similarity": float(np.mean([one.similarity for one in end])),
        "inverse_consistency": float(np.mean([one.inverse_consistency for one in end])),
        "acceptable_folds": stage.lambda_.acceptable_folds,
        "folds": float(np.mean([one.folds for one in end])),
        "dice_before": numbers.get("dice_before"),
        "dice": numbers.get("dice"),
    }


def _records(outcome: Outcome) -> list[Record]:
    return [record_of(json.loads(str(line))) for line in outcome.arrays["records"]]
