"""The log of a run: JSON lines, one record to a line, in the order of training. Neighbour: `records.py`."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from roundtrip._files import write_whole
from roundtrip.training.checkpoint import Place
from roundtrip.training.records import Record, record_of


@dataclass(frozen=True)
class Log:
    """A file that grows by a line for every step, and shrinks to where a run goes on."""

    path: Path

    def append(self, record: Record) -> None:
        """Adds a line, seen by all who read the file from now on."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(record))

    def read(self) -> list[Record]:
        """All records; a line that a killed process left unfinished is left out."""
        return list(self._records()) if self.path.exists() else []

    def cut(self, place: Place, stages: Sequence[str]) -> None:
        """Forget what came after `place`: it will happen again."""
        kept = [r for r in self.read() if Place(stages.index(r.stage), r.step) <= place]
        text = "".join(map(_line, kept))
        write_whole(self.path, lambda beside: beside.write_text(text, encoding="utf-8"))

    def _records(self) -> Iterator[Record]:
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                yield record_of(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue


def _line(record: Record) -> str:
    return json.dumps(record.as_dict()) + "\n"
