"""Hippocampi: crops of MR images of the Medical Segmentation Decathlon, on two cores in less than an hour."""

from pathlib import Path
from typing import Any

from roundtrip.algorithms.card import Intensities, Preparation
from roundtrip.data.config import DataConfig, Fractions
from roundtrip.data.sources import ManifestSource
from roundtrip.training.config import CheckpointConfig, StageConfig, TrainingConfig, ValidationConfig
from roundtrip.training.control import FixedLambda
from roundtrip.training.schedule import LearningRate
from roundtrip.training.similarity import LocalCorrelation


def hippocampus() -> TrainingConfig:
    """Coarse to fine without labels, which only validate.

    The manifest has the columns image, labels and subject: images 2k - 1 and 2k are of one person.
    """
    unet = {"class": "UNet", "dims": 3, "down_features": [16, 32, 64, 128], "up_features": [16, 32, 64, 128]}
    step: dict[str, Any] = {"class": "DisplacementRegistration", "net": unet}
    coarse = StageConfig(
        name="coarse",
        algorithm={"class": "TwoStep", "first": step, "second": step},
        resolution=2,
        steps=1000,
        batch=4,
        learning_rate=LearningRate(start=1e-3, decay="cosine"),
        similarity=LocalCorrelation(sigma=2),
        lambda_=FixedLambda(start=10.0),
    )
    fine = coarse.model_copy(
        update={
            "name": "fine",
            "algorithm": {"class": "TwoStep", "first": {"stage": "coarse"}, "second": step},
            "resolution": 1,
            "steps": 200,
            "batch": 2,
            "learning_rate": LearningRate(start=5e-4, decay="cosine"),
        }
    )
    return TrainingConfig(
        data=DataConfig(
            source=ManifestSource(path=Path("hippocampus.csv")),
            preparation=Preparation(
                orientation="RAS",
                intensities=Intensities(unit="percentiles", lower=1, upper=99),
                spacing=(1.0, 1.0, 1.0),
                grid=(48, 64, 48),
            ),
            split=Fractions(train=0.7, validation=0.1, test=0.2),
        ),
        stages=(coarse, fine),
        validation=ValidationConfig(every=200, pairs=20),
        checkpoints=CheckpointConfig(every=50, keep=2),
        about="Hippocampi in MR, Medical Segmentation Decathlon Task04 (Simpson et al., arXiv:1902.09063).",
        licence="CC-BY-SA-4.0",
    )
