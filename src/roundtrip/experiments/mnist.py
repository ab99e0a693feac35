"""The fives of MNIST: the U-Net of the paper's Table 1."""

from pathlib import Path

from roundtrip.data.config import ByColumn, DataConfig
from roundtrip.data.sources import DigitsSource
from roundtrip.training.config import StageConfig, TrainingConfig, ValidationConfig
from roundtrip.training.control import FixedLambda
from roundtrip.training.schedule import LearningRate
from roundtrip.training.similarity import MeanSquares


def mnist() -> TrainingConfig:
    """Batches of 128, 18750 steps; lambda 2048 in the package's convention.

    `--set data.source.path=FOLDER` says where MNIST is. Its test images validate: there is no third part.
    """
    return TrainingConfig(
        data=DataConfig(
            source=DigitsSource(path=Path("mnist"), digit=5),
            split=ByColumn(train=("train",), validation=("test",), test=()),
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
        about="Fives of MNIST, 28x28.",
        licence="CC-BY-SA-3.0",
    )
