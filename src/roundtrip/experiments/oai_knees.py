"""The paper's knees: its recipe for the Osteoarthritis Initiative's 3D MR images, in three stages.

Access to the images is granted by the initiative. `data/knees.py` draws a small set like them, on which
`oai_knees_drawn` goes the same way in minutes.
"""

from pathlib import Path
from typing import Any

from roundtrip.algorithms.card import Intensities, Mirror, Preparation
from roundtrip.data.config import DataConfig, Fractions
from roundtrip.data.sources import ManifestSource
from roundtrip.training.config import CheckpointConfig, StageConfig, TrainingConfig, ValidationConfig
from roundtrip.training.control import GrowingLambda
from roundtrip.training.schedule import LearningRate
from roundtrip.training.similarity import MeanSquares

# The supplement's increments, 0.1 and 0.8, divided by the three components over which the package averages.
LOW_INCREMENT, HIGH_INCREMENT = 0.1 / 3, 0.8 / 3


def oai_knees() -> TrainingConfig:
    """Supplement, "Training Procedure for our OAI knee results", and Sec. 4.3 for the fourth U-Net.

    Two U-Nets at half resolution; these, frozen, with a third at full resolution; all of them, frozen, with a
    fourth. The manifest has the columns image, subject and side, and labels for validation. The last stage's
    steps are not published; they are those of the stage before. Squared differences are compared inside the
    image, as the published package does. Lambda starts at 0: the start is not published either.
    """
    return TrainingConfig(
        data=DataConfig(
            source=ManifestSource(path=Path("knees.csv")),
            # Axes left to right, front to back, bottom to top: 80 slices run from side to side.
            preparation=_preparation((80, 192, 192)),
            split=Fractions(train=0.8, validation=0.1, test=0.1),
        ),
        stages=_stages(_unet(), steps=(16000, 75000, 75000), batches=(128, 16, 16), folds=200.0, rate=5e-5),
        validation=ValidationConfig(every=2000, pairs=50),
        checkpoints=CheckpointConfig(every=500, keep=3),
        about="Knees of the Osteoarthritis Initiative, DESS MR, left ones mirrored.",
    )


def oai_knees_drawn() -> TrainingConfig:
    """The same way on drawn knees, at a quarter of the resolution, with small networks and few steps."""
    full = oai_knees()
    small = {"down_features": [8, 16, 32], "up_features": [8, 16, 32]}
    data = full.data.model_copy(
        update={
            "preparation": _preparation((20, 48, 48)),
            "split": Fractions(train=0.6, validation=0.2, test=0.2),
        }
    )
    return full.model_copy(
        update={
            "data": data,
            "stages": _stages(_unet(**small), steps=(150, 100, 50), batches=(8, 4, 4), folds=2.0, rate=1e-3),
            "validation": ValidationConfig(every=50, pairs=8),
            "checkpoints": CheckpointConfig(every=50, keep=2),
            "about": "Knees that were drawn, by Roundtrip; no person's data.",
            "licence": "CC0-1.0",
        }
    )


def _preparation(grid: tuple[int, int, int]) -> Preparation:
    """The whole field of view on the grid; the darkest and the brightest percent clamped; all knees right."""
    return Preparation(
        orientation="LPS",
        mirror=Mirror(column="side", value="left", axis=0),
        intensities=Intensities(unit="percentiles", lower=1, upper=99),
        grid=grid,
    )


def _stages(
    unet: dict[str, Any],
    *,
    steps: tuple[int, int, int],
    batches: tuple[int, int, int],
    folds: float,
    rate: float,
) -> tuple[StageConfig, ...]:
    algorithms: tuple[dict[str, Any], ...] = (
        {"class": "TwoStep", "first": unet, "second": unet},
        {"class": "TwoStep", "first": {"stage": "low", "frozen": True}, "second": unet},
        {"class": "TwoStep", "first": {"stage": "high", "frozen": True}, "second": unet},
    )
    return tuple(
        StageConfig(
            name=name,
            algorithm=algorithm,
            resolution=2 if name == "low" else 1,
            steps=count,
            batch=batch,
            learning_rate=LearningRate(start=rate),
            similarity=MeanSquares(inside_image=True),
            lambda_=GrowingLambda(
                acceptable_folds=folds, increment=LOW_INCREMENT if name == "low" else HIGH_INCREMENT
            ),
        )
        for name, algorithm, count, batch in zip(
            ("low", "high", "high-2"), algorithms, steps, batches, strict=True
        )
    )


def _unet(**features: Any) -> dict[str, Any]:
    return {"class": "DisplacementRegistration", "net": {"class": "UNet", "dims": 3, **features}}
