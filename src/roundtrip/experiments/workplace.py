"""Where results are made and what with: a folder, processors, MNIST, and the trainings that several share."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roundtrip._launch import Ranks
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.algorithms.saved import CARD, load, read_card
from roundtrip.data.mnist_files import fetch_mnist
from roundtrip.training.assembly import assembled
from roundtrip.training.checkpoint import Checkpoint, Checkpoints, Place
from roundtrip.training.config import TrainingConfig
from roundtrip.training.log import Log
from roundtrip.training.randomness import seed_of
from roundtrip.training.records import Record, StepRecord
from roundtrip.training.run import CHECKPOINTS, LOG, train
from roundtrip.training.watch import AbstractWatcher


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A finished training."""

    algorithm: AbstractRegistration
    """On the device of the workplace, in evaluation mode."""
    records: Sequence[Record]
    seconds: float
    """Of all its steps, whenever they were made."""


@dataclass(frozen=True, eq=False)
class Workplace:
    """`root` holds everything: a folder for every result and scale, `trainings`, and MNIST if it was fetched.

    `data` is where MNIST is, or for `curves` at full scale the manifest of the knees; None: MNIST is fetched.
    """

    root: Path
    ranks: Ranks
    data: Path | None = None
    watchers: Sequence[AbstractWatcher] = ()
    on_note: Callable[[str], None] = field(default=lambda text: None)

    def digits(self) -> Path:
        """MNIST's folder or file."""
        if self.data is not None:
            return self.data
        return fetch_mnist(self.root / "mnist", on_note=self.on_note)

    def trained(
        self,
        name: str,
        config: TrainingConfig,
        *,
        seed: int = 0,
        begin: Callable[[AbstractRegistration], None] | None = None,
    ) -> TrainedModel:
        """Trains, or goes on, or finds it done. What is there already has to be of the same configuration.

        `begin` may change the first weights of the first stage.
        """
        folder = self.root / "trainings" / name
        if (folder / CARD).exists():
            _require_same(read_card(folder).training, config, seed, folder)
            # A run that was killed while it cleared up.
            shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
            return self._model(load(folder), Log(folder / LOG).read(), config)
        self.on_note(f"training {name}")
        if begin is not None:
            _write_first(folder, config, seed, begin)
        done = train(config, folder, ranks=self.ranks, seed=seed, resume=True, watchers=self.watchers)
        # The weights and moments of a large network are gigabytes that nobody needs any more.
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        return self._model(done.algorithm, done.records, config)

    def _model(
        self, algorithm: AbstractRegistration, records: Sequence[Record], config: TrainingConfig
    ) -> TrainedModel:
        batch = {stage.name: stage.batch for stage in config.stages}
        steps = [record for record in records if isinstance(record, StepRecord)]
        seconds = sum(batch[one.stage] / one.pairs_per_second for one in steps)
        return TrainedModel(algorithm.to(self.ranks.device), records, seconds)


def _write_first(
    folder: Path, config: TrainingConfig, seed: int, begin: Callable[[AbstractRegistration], None]
) -> None:
    """A checkpoint after no step, from which the training goes on; unless there is one already."""
    store, stage = Checkpoints(folder / CHECKPOINTS, keep=1), config.stages[0]
    if any(True for _ in store.newest_first()):
        return
    algorithm = assembled(stage.blueprint, {}, {}, seed=seed_of(seed, "weights", stage.name))
    begin(algorithm)
    store.write(
        Checkpoint(
            place=Place(0, 0),
            stage_name=stage.name,
            weights=algorithm.state_dict(),
            optimizer={},
            lambda_=stage.lambda_.first(),
            config={"seed": seed, **config.as_plain()},
        )
    )


def _require_same(before: Mapping[str, Any] | None, config: TrainingConfig, seed: int, folder: Path) -> None:
    if before is None or before["config"] != config.as_plain() or before["seed"] != seed:
        raise ValueError(
            f"{folder} holds a training with other settings; choose another --output, or remove that folder."
        )
