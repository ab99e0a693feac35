"""The trainings of Table 1 and Fig. 5: every network at every lambda, on MNIST's fives or on shapes.

Lambda is named as the paper prints it and taken as the published package means it, of a mean over the two
components of a vector: the weight in our loss is half of it (`FixedLambda(start=lambda_ / 2)`). Neighbours:
`architectures.py` (Table 1), `grids.py` (Fig. 5), `readings.py` (how a cell is judged).
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from roundtrip.data.config import ByColumn, Counts, DataConfig
from roundtrip.data.dataset import open_dataset
from roundtrip.data.sources import DigitsSource, ShapesSource
from roundtrip.data.subset import AbstractSubset
from roundtrip.experiments.result import Scale
from roundtrip.experiments.workplace import TrainedModel, Workplace
from roundtrip.training.config import CheckpointConfig, StageConfig, TrainingConfig
from roundtrip.training.control import FixedLambda
from roundtrip.training.schedule import LearningRate
from roundtrip.training.similarity import MeanSquares

Images = Literal["mnist", "shapes"]


@dataclass(frozen=True)
class Budget:
    """What a scale spends on each training."""

    steps: int
    batch: int
    learning_rate: LearningRate
    free_rate: LearningRate
    """For lambda 0, where nothing holds maps back and a higher one explodes."""
    train: int
    """Shapes to train on; MNIST has its own split."""
    test: int
    """Shapes to judge on."""
    size: int
    """Pixels along each side of a shape; a five has 28."""
    pairs: int
    """Held-out pairs that a cell is judged on."""
    features: dict[str, Any]
    """What changes in the networks: their sizes; {} for the paper's."""


QUICK_FEATURES: dict[str, Any] = {
    "mlp": {"hidden_features": [256, 128]},
    "encoder-decoder": {"down_features": [8, 16, 32], "up_features": [8, 16, 32]},
    "unet": {"down_features": [8, 16, 32], "up_features": [8, 16, 32]},
    "conv-only": {},
}

BUDGETS: dict[Scale, Budget] = {
    "full": Budget(
        steps=18750,
        batch=128,
        learning_rate=LearningRate(start=1e-4),
        free_rate=LearningRate(start=1e-4),
        train=6000,
        test=6000,
        size=128,
        pairs=1000,
        features={},
    ),
    "hours": Budget(
        steps=800,
        batch=32,
        learning_rate=LearningRate(start=1e-3, decay="cosine", warmup=20),
        free_rate=LearningRate(start=1e-4, warmup=20),
        train=2000,
        test=500,
        size=32,
        pairs=500,
        features={},
    ),
    "quick": Budget(
        steps=80,
        batch=16,
        learning_rate=LearningRate(start=3e-3, decay="cosine"),
        free_rate=LearningRate(start=1e-3),
        train=200,
        test=50,
        size=16,
        pairs=50,
        features=QUICK_FEATURES,
    ),
}

SHORTER = replace(
    BUDGETS["hours"], steps=400, learning_rate=LearningRate(start=2e-3, decay="cosine", warmup=20)
)
"""For shapes at `hours`: they are easier than digits."""


@dataclass(frozen=True)
class Training:
    """One cell of Table 1."""

    images: Images
    network: str
    lambda_: int
    scale: Scale

    @property
    def name(self) -> str:
        """Also that of the folder of the training, which Table 1 and Fig. 5 share."""
        return f"{self.images}-{self.scale}-{self.network}-{self.lambda_}"

    @property
    def budget(self) -> Budget:
        return SHORTER if (self.images, self.scale) == ("shapes", "hours") else BUDGETS[self.scale]

    def config(self, digits: Path) -> TrainingConfig:
        """The whole configuration; `digits` is where MNIST is."""
        budget = self.budget
        return TrainingConfig(
            data=self._data(digits),
            stages=(
                StageConfig(
                    name=self.network,
                    algorithm={"class": "DisplacementRegistration", "net": self._net()},
                    steps=budget.steps,
                    batch=budget.batch,
                    learning_rate=budget.learning_rate if self.lambda_ else budget.free_rate,
                    similarity=MeanSquares(),
                    lambda_=FixedLambda(start=self.lambda_ / 2),
                ),
            ),
            checkpoints=CheckpointConfig(every=max(budget.steps // 8, 20), keep=1),
            about="Fives of MNIST, 28x28." if self.images == "mnist" else "Drawn triangles & circles.",
            licence="CC-BY-SA-3.0" if self.images == "mnist" else "CC0-1.0",
        )

    def settings(self) -> dict[str, Any]:
        """The configuration as a table says it: MNIST wherever it is."""
        return {**self.config(Path("MNIST")).as_plain(), "seed": 0, "judged_pairs": self.budget.pairs}

    def trained(self, place: Workplace) -> TrainedModel:
        """Done, or done now."""
        return place.trained(self.name, self.config(self._digits(place)))

    def held_out(self, place: Workplace) -> AbstractSubset:
        """Images that no training saw."""
        return open_dataset(
            self._data(self._digits(place)), cache=place.root / "cache", ranks=place.ranks
        ).test

    def _digits(self, place: Workplace) -> Path:
        return place.digits() if self.images == "mnist" else Path()

    def _data(self, digits: Path) -> DataConfig:
        if self.images == "mnist":
            return DataConfig(
                source=DigitsSource(path=digits, digit=_digit_in(digits)),
                split=ByColumn(train=("train",), validation=(), test=("test",)),
            )
        counts = Counts(train=self.budget.train, test=self.budget.test)
        return DataConfig(
            source=ShapesSource(count=counts.train + counts.test, size=self.budget.size), split=counts
        )

    def _net(self) -> dict[str, Any]:
        size = 28 if self.images == "mnist" else self.budget.size
        nets: dict[str, dict[str, Any]] = {
            "mlp": {"class": "MLP", "shape": [size, size]},
            "encoder-decoder": {"class": "EncoderDecoder", "dims": 2},
            "unet": {"class": "UNet", "dims": 2},
            "conv-only": {"class": "ConvOnly", "dims": 2},
        }
        return nets[self.network] | self.budget.features.get(self.network, {})


def _digit_in(digits: Path) -> int | None:
    """An .npz may hold nothing but fives and not say so; MNIST's own files have labels."""
    return None if digits.suffix == ".npz" and not _has_labels(digits) else 5


def _has_labels(path: Path) -> bool:
    import numpy as np

    with np.load(path) as arrays:
        return any(name.startswith("y_") or name.endswith("_labels") for name in arrays.files)
