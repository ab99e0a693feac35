"""What `roundtrip train` shows while it runs: a bar for each stage, on standard error, to a terminal only."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from roundtrip.training.config import StageConfig
from roundtrip.training.records import Record, StepRecord, ValidationRecord
from roundtrip.training.watch import AbstractWatcher, Example


class TrainingBar(AbstractWatcher):
    """Pairs per second, terms of the loss, folds, lambda and the time left.

    `bars` is rich's, None to show none. Notes are lines of their own, to terminals and files alike.
    """

    def __init__(self, bars: Any, *, quiet: bool) -> None:
        self._bars, self._quiet = bars, quiet
        self._task: Any = None
        self._score = ""

    def on_prepared(self, done: int, of: int) -> None:
        """So many images are ready."""
        if self._bars is not None:
            if self._task is None:
                self._task = self._bars.add_task("images", total=of, note="")
            self._bars.update(self._task, completed=done, total=of)

    def on_stage(self, stage: StageConfig, *, number: int, of: int, done: int) -> None:
        if self._bars is not None:
            if self._task is not None:
                self._bars.remove_task(self._task)
            title = f"{stage.name} {number}/{of}"
            self._task, self._score = self._bars.add_task(title, total=stage.steps, note=""), ""
            self._bars.update(self._task, completed=done)

    def on_step(self, record: StepRecord) -> None:
        if self._bars is not None:
            note = (
                f"{record.pairs_per_second:.3g}/s sim {record.similarity:.3f} inv "
                f"{record.inverse_consistency:.1e} folds {record.folds:.3g} lambda {record.lambda_:.4g}"
                f"{self._score}"
            )
            self._bars.update(self._task, completed=record.step, note=note)

    def on_validation(self, record: ValidationRecord, example: Example) -> None:
        name = "dice" if "dice" in record.numbers else "score"
        self._score = f" {name} {record.score:.3f}"

    def on_stage_end(self, stage: StageConfig, *, number: int, records: Sequence[Record]) -> None: ...

    def on_note(self, text: str) -> None:
        if not self._quiet:
            print(f"roundtrip: {text}", file=sys.stderr)


@contextlib.contextmanager
def training_bar(*, quiet: bool) -> Iterator[TrainingBar]:
    """A bar that is gone when training ends."""
    if quiet or not sys.stderr.isatty():
        yield TrainingBar(None, quiet=quiet)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=10),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield TrainingBar(bars, quiet=quiet)
