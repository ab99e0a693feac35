"""Triangles & circles: the U-Net of the paper's Table 1, and the same in a minute on two cores."""

from roundtrip.data.config import Counts, DataConfig
from roundtrip.data.sources import ShapesSource
from roundtrip.training.config import CheckpointConfig, StageConfig, TrainingConfig, ValidationConfig
from roundtrip.training.control import FixedLambda
from roundtrip.training.schedule import LearningRate
from roundtrip.training.similarity import MeanSquares

ABOUT = "Triangles & circles of the ICON paper, drawn by Roundtrip; no person's data."


def triangles() -> TrainingConfig:
    """As in Table 1: 128x128, 6000 images, 18750 steps of 128; lambda 2048 in the package's convention."""
    return TrainingConfig(
        data=DataConfig(
            source=ShapesSource(count=7000, size=128), split=Counts(train=6000, validation=200, test=800)
        ),
        stages=(
            StageConfig(
                name="unet",
                algorithm={"class": "DisplacementRegistration", "net": {"class": "UNet", "dims": 2}},
                steps=18750,
                batch=128,
                learning_rate=LearningRate(start=1e-4),
                similarity=MeanSquares(),
                # Half of the package's, which averages over the two components of a vector.
                lambda_=FixedLambda(start=1024.0),
            ),
        ),
        validation=ValidationConfig(every=1000, pairs=100),
        about=ABOUT,
        licence="CC0-1.0",
    )


def triangles_tiny() -> TrainingConfig:
    """Two small U-Nets, coarse to fine, on images of 64x64: what training is like, in about a minute."""
    small = {
        "class": "UNet",
        "dims": 2,
        "down_features": [16, 32, 64, 128, 256],
        "up_features": [16, 32, 64, 128, 128],
    }
    step = {"class": "DisplacementRegistration", "net": small}
    coarse = StageConfig(
        name="coarse",
        algorithm=step,
        resolution=2,
        steps=300,
        batch=8,
        learning_rate=LearningRate(start=1e-3, decay="cosine"),
        similarity=MeanSquares(),
        lambda_=FixedLambda(start=256.0),
    )
    fine = coarse.model_copy(
        update={
            "name": "fine",
            "algorithm": {"class": "TwoStep", "first": {"stage": "coarse"}, "second": step},
            "resolution": 1,
            "steps": 200,
        }
    )
    return TrainingConfig(
        data=DataConfig(
            source=ShapesSource(count=2200, size=64), split=Counts(train=2000, validation=100, test=100)
        ),
        stages=(coarse, fine),
        validation=ValidationConfig(every=100, pairs=32),
        checkpoints=CheckpointConfig(every=100, keep=2),
        about=ABOUT,
        licence="CC0-1.0",
    )
