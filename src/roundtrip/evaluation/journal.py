"""What has been judged so far, one line to a pair, so that an evaluation goes on where it was stopped.

Every process appends to a file of its own and sees each line on the disk before it begins the next pair. A
line that a killed process left unfinished is ignored: that pair is done again.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roundtrip.evaluation.quality import PairQuality


@dataclass(frozen=True)
class Judged:
    """One pair: what was measured, or why that could not be."""

    moving: str
    fixed: str
    quality: PairQuality | None = None
    seconds: float | None = None
    """What registration took, without files and measuring."""
    error: str | None = None

    @property
    def pair(self) -> tuple[str, str]:
        return self.moving, self.fixed

    def as_dict(self) -> dict[str, Any]:
        """As a line of the journal."""
        about = {"moving": self.moving, "fixed": self.fixed, "seconds": self.seconds, "error": self.error}
        return about | {"quality": None if self.quality is None else self.quality.as_dict()}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "Judged":
        """The inverse of `as_dict`."""
        quality = values["quality"]
        return Judged(
            moving=values["moving"],
            fixed=values["fixed"],
            quality=None if quality is None else PairQuality.from_dict(quality),
            seconds=values["seconds"],
            error=values["error"],
        )


@dataclass(frozen=True)
class Journal:
    """The files of all processes in one folder, of which this process writes the one of its `rank`."""

    folder: Path
    rank: int = 0

    def append(self, judged: Judged) -> None:
        """Adds a line, and sees it on the disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps(judged.as_dict(), allow_nan=False) + "\n"
        with self._own().open("ab+") as file:
            if _ends_within_a_line(file):
                line = "\n" + line
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> dict[tuple[str, str], Judged]:
        """The pairs of all processes; one that failed and then succeeded has succeeded."""
        found: dict[tuple[str, str], Judged] = {}
        for path in sorted(self.folder.glob("*.jsonl")):
            for judged in _lines(path):
                if judged.error is None or judged.pair not in found:
                    found[judged.pair] = judged
        return found

    def _own(self) -> Path:
        return self.folder / f"{self.rank:04}.jsonl"


def _lines(path: Path) -> Iterator[Judged]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            yield Judged.from_dict(json.loads(line))
        except (ValueError, KeyError, TypeError):
            continue


def _ends_within_a_line(file: Any) -> bool:
    """A process was killed while it wrote."""
    if file.seek(0, os.SEEK_END) == 0:
        return False
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) != b"\n")
