"""Who wants to be told how a run goes: progress bars, TensorBoard, figures. `run.py` tells them.

Only the first process has watchers. The log (`log.py`) is always written and is none of them.
"""

import abc
from collections.abc import Sequence
from dataclasses import dataclass

from roundtrip._shapes import Image
from roundtrip.maps.map import Map
from roundtrip.training.config import StageConfig
from roundtrip.training.records import Record, StepRecord, ValidationRecord


@dataclass(frozen=True, eq=False)
class Example:
    """One held-out pair and its maps, to look at."""

    moving: Image
    fixed: Image
    phi_AB: Map
    phi_BA: Map


class AbstractWatcher(abc.ABC):
    """Is told what happens, in order; must not change anything."""

    @abc.abstractmethod
    def on_stage(self, stage: StageConfig, *, number: int, of: int, done: int) -> None:
        """A stage begins, or goes on after `done` steps; stages are counted from 1."""

    @abc.abstractmethod
    def on_step(self, record: StepRecord) -> None: ...

    @abc.abstractmethod
    def on_validation(self, record: ValidationRecord, example: Example) -> None: ...

    @abc.abstractmethod
    def on_stage_end(self, stage: StageConfig, *, number: int, records: Sequence[Record]) -> None:
        """With all records of the run so far."""

    @abc.abstractmethod
    def on_note(self, text: str) -> None:
        """Something a user should know, such as a checkpoint that had to be skipped."""
