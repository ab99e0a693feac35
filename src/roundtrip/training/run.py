"""A whole training: stages one after the other, written down so often that it can always go on.

The folder becomes a model: `model.safetensors` and `card.json`, beside what the run leaves: `config.yaml`,
`split.json`, `log.jsonl` and `checkpoints/`. Neighbours: `stages.py` (one stage), `checkpoint.py`,
`validation.py`, `watch.py` (who is told), `fitting.py` (what is checked before).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from roundtrip._files import write_whole
from roundtrip._launch import Ranks
from roundtrip.algorithms.card import Card
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.algorithms.saved import write_model
from roundtrip.data.dataset import Dataset, open_dataset
from roundtrip.data.split import write_split
from roundtrip.training.assembly import Weights, assembled, at_full_resolution, thawed
from roundtrip.training.batches import Batches
from roundtrip.training.checkpoint import Checkpoint, Checkpoints, Place
from roundtrip.training.config import StageConfig, TrainingConfig
from roundtrip.training.config_file import as_yaml
from roundtrip.training.fitting import require_fitting
from roundtrip.training.log import Log
from roundtrip.training.randomness import seed_of
from roundtrip.training.records import Record, StepRecord, ValidationRecord
from roundtrip.training.refining import LAMBDA
from roundtrip.training.resuming import alone_in, newest_checkpoint, require_free
from roundtrip.training.stages import StageRun
from roundtrip.training.validation import validate
from roundtrip.training.watch import AbstractWatcher, Example

CONFIG, SPLIT, LOG, CHECKPOINTS = "config.yaml", "split.json", "log.jsonl", "checkpoints"


@dataclass(frozen=True, eq=False)
class Trained:
    """What a training leaves, apart from its folder."""

    algorithm: AbstractRegistration
    """For images as the data has them; nothing is frozen, in eval mode."""
    card: Card
    records: Sequence[Record]


def train(
    config: TrainingConfig,
    folder: Path,
    *,
    ranks: Ranks,
    seed: int = 0,
    resume: bool = False,
    cache: Path | None = None,
    watchers: Sequence[AbstractWatcher] = (),
    on_prepared: Callable[[int, int], None] | None = None,
) -> Trained:
    """Trains the stages of `config` in `folder`, or goes on where a run there stopped, and writes the model.

    `resume` goes on from the newest whole checkpoint, or begins where there is none. Every process calls
    this; the first alone writes, and has watchers. `on_prepared(done, of)` is told how many images are ready.
    """
    store = Checkpoints(folder / CHECKPOINTS, keep=config.checkpoints.keep)
    require_free(folder, store, resume=resume)
    cache = cache or folder / "cache"
    with alone_in(folder, ranks):
        dataset = open_dataset(config.data, cache=cache, ranks=ranks, on_progress=on_prepared)
        require_fitting(config, dataset)
        plain = {"seed": seed, **config.as_plain()}
        newest = newest_checkpoint(store, plain, watchers) if resume else None
        # Nobody writes or removes a checkpoint before all have read the newest.
        ranks.wait()
        training = _Training(config, folder, dataset, ranks, seed, store, plain, watchers)
        return training.run(newest)


@dataclass(frozen=True, eq=False)
class _Training:
    """One run: what it was asked to do, and where it writes."""

    config: TrainingConfig
    folder: Path
    dataset: Dataset
    ranks: Ranks
    seed: int
    store: Checkpoints
    plain: Mapping[str, Any]
    """The configuration and the seed, as checkpoints hold them."""
    watchers: Sequence[AbstractWatcher]

    @property
    def log(self) -> Log:
        return Log(self.folder / LOG)

    def run(self, newest: Checkpoint | None) -> Trained:
        self._write_down_beginning(newest)
        for number in range(len(self.config.stages)):
            if newest is None or number >= newest.place.stage:
                here = newest is not None and number == newest.place.stage
                self._run_stage(number, newest if here else None)
        return self._finish()

    def _write_down_beginning(self, newest: Checkpoint | None) -> None:
        if not self.ranks.is_first:
            return
        self.store.remove_unfinished()
        text = as_yaml(self.config.as_plain())
        write_whole(self.folder / CONFIG, lambda beside: beside.write_text(text, encoding="utf-8"))
        write_split(self.folder / SPLIT, self.dataset.split)
        place = Place(0, 0) if newest is None else newest.place
        self.log.cut(place, [stage.name for stage in self.config.stages])

    def _run_stage(self, number: int, start: Checkpoint | None) -> None:
        stage, subset = self.config.stages[number], self.dataset.train
        batches = Batches(
            subset, stage, self.ranks, seed=self.seed, augmentation=self.config.data.augmentation
        )
        try:
            run = StageRun(stage, self._new_algorithm(number), subset, batches, self.ranks)
            if start is not None:
                run.restore(start)
            for watcher in self.watchers:
                watcher.on_stage(stage, number=number + 1, of=len(self.config.stages), done=run.step)
            while not run.is_done:
                self._advance(number, run)
        finally:
            batches.close()
        self._end_stage(number)

    def _advance(self, number: int, run: StageRun) -> None:
        """One step, and what is due after it."""
        record = run.advance()
        if self.ranks.is_first:
            self.log.append(record)
            for watcher in self.watchers:
                watcher.on_step(record)
        if self._is_due(run, self.config.validation):
            self._validate(number, run)
        if self._is_due(run, self.config.checkpoints):
            checkpoint = run.checkpoint(number, self.plain)
            if self.ranks.is_first:
                self.store.write(checkpoint, is_end=run.is_done)

    def _is_due(self, run: StageRun, what: Any) -> bool:
        return what is not None and (run.is_done or run.step % what.every == 0)

    def _validate(self, number: int, run: StageRun) -> None:
        algorithm = at_full_resolution(run.algorithm, run.stage.resolution)
        record, example = self._validated(algorithm, run.stage, run.step)
        if run.best is None or record.score > run.best:
            run.best = record.score
            best = run.checkpoint(number, self.plain)
            if self.ranks.is_first:
                self.store.write_best(best)
        if self.ranks.is_first:
            self.log.append(record)
            for watcher in self.watchers:
                watcher.on_validation(record, example)

    def _validated(
        self, algorithm: AbstractRegistration, stage: StageConfig, step: int
    ) -> tuple[ValidationRecord, Example]:
        assert self.config.validation is not None
        return validate(
            algorithm,
            self.dataset.validation,
            pairs=self.config.validation.pairs,
            similarity=stage.similarity.function(),
            ranks=self.ranks,
            stage=stage.name,
            step=step,
        )

    def _end_stage(self, number: int) -> None:
        # The first has written the end of the stage before the others read it.
        self.ranks.wait()
        records = self.log.read() if self.watchers else []
        for watcher in self.watchers:
            watcher.on_stage_end(self.config.stages[number], number=number + 1, records=records)

    def _new_algorithm(self, number: int) -> AbstractRegistration:
        """Stage `number` before its first step."""
        results = {self.config.stages[n].name: self._result(n) for n in range(number)}
        seed = seed_of(self.seed, "weights", self.config.stages[number].name)
        return assembled(self.config.stages[number].blueprint, self.config.before(number), results, seed=seed)

    def _result(self, number: int) -> Weights:
        validation = self.config.validation
        best = validation is not None and validation.result == "best"
        return self.store.result(number, self.config.stages[number].name, best=best)

    def _finish(self) -> Trained:
        """The last stage's result becomes the model."""
        last = len(self.config.stages) - 1
        stage, algorithm = self.config.stages[last], self._new_algorithm(last)
        algorithm.load_state_dict(self._result(last))
        algorithm = thawed(at_full_resolution(algorithm, stage.resolution))
        numbers: Mapping[str, float] = {}
        if self.config.validation is not None:
            numbers = self._validated(algorithm.to(self.ranks.device), stage, stage.steps)[0].numbers
        records = self.log.read()
        card = self._card(numbers, records)
        if self.ranks.is_first:
            write_model(algorithm, self.folder, card=card)
        self.ranks.wait()
        return Trained(algorithm.cpu(), card, records)

    def _last_lambda(self) -> float | None:
        """With which the last stage ended; refinement goes on with it."""
        steps = [record for record in self.log.read() if isinstance(record, StepRecord)]
        return steps[-1].lambda_ if steps else None

    def _card(self, numbers: Mapping[str, float], records: Sequence[Record]) -> Card:
        return Card(
            preparation=self.config.data.preparation,
            data=self.config.about,
            numbers=dict(numbers),
            licence=self.config.licence,
            training={
                "seed": self.seed,
                "processes": self.ranks.count,
                "versions": {name: version(name) for name in ("roundtrip", "torch")},
                "subjects": {part: len(subjects) for part, subjects in self.dataset.split.items()},
                LAMBDA: self._last_lambda(),
                "lambda": next(r.lambda_ for r in reversed(records) if isinstance(r, StepRecord)),
                "config": self.config.as_plain(),
            },
        )
