"""The smallest training that has everything: two stages, one frozen in the other, folds, validation."""

from pathlib import Path
from typing import Any

from roundtrip._launch import Ranks, Resources, launch
from roundtrip.training.config import TrainingConfig
from roundtrip.training.config_file import as_yaml
from roundtrip.training.run import Trained, train

UNET = {
    "class": "DisplacementRegistration",
    "net": {"class": "UNet", "dims": 2, "down_features": [4, 6], "up_features": [4, 6]},
}


def stage(name: str, **changes: Any) -> dict[str, Any]:
    plain = {
        "name": name,
        "algorithm": UNET,
        "steps": 6,
        "batch": 4,
        "learning_rate": 3e-2,
        "similarity": "mse",
        "lambda": {"kind": "growth", "start": 1.0, "increment": 5.0, "acceptable_folds": 0.0},
    }
    return plain | changes


def plain_config(*stages: dict[str, Any], **changes: Any) -> dict[str, Any]:
    second = {"class": "TwoStep", "first": {"stage": "low", "frozen": True}, "second": UNET}
    stages = stages or (stage("low", resolution=2), stage("high", algorithm=second))
    plain = {
        "data": {
            "source": {"kind": "shapes", "count": 16, "size": 8},
            "split": {"kind": "counts", "train": 10, "validation": 3, "test": 3},
        },
        "stages": list(stages),
        "validation": {"every": 3, "pairs": 2},
        "checkpoints": {"every": 2, "keep": 2},
    }
    return plain | changes


def config(*stages: dict[str, Any], **changes: Any) -> TrainingConfig:
    return TrainingConfig.model_validate(plain_config(*stages, **changes))


def write(path: Path, *stages: dict[str, Any], **changes: Any) -> Path:
    path.write_text(as_yaml(plain_config(*stages, **changes)))
    return path


def alone() -> Ranks:
    return launch(Resources(accelerator="cpu"))


def run(
    folder: Path, *stages: dict[str, Any], resume: bool = False, seed: int = 0, **changes: Any
) -> Trained:
    watchers = changes.pop("watchers", ())
    asked = config(*stages, **changes)
    return train(asked, folder, ranks=alone(), seed=seed, resume=resume, watchers=watchers)
