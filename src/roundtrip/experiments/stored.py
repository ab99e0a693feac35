"""Cells that were computed, in files: a result goes on where it was stopped, also by `kill -9`.

A cell is `NAME.npz` (arrays for the figure) and `NAME.json` (numbers, settings, circumstances), which is
written last: without it the cell has not been run. Neighbour: `reproduce.py`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roundtrip._files import write_whole
from roundtrip.experiments.result import Cell, Outcome
from roundtrip.reports.files import write_json


@dataclass(frozen=True)
class StoredCells:
    """The cells of one result at one scale, in their folder."""

    folder: Path

    def read(self, cell: Cell) -> Outcome | None:
        """What was computed; None if it was not, or only in part. It has to be of the same settings."""
        try:
            values = json.loads(self._json(cell).read_text(encoding="utf-8"))
            with np.load(self._arrays(cell), allow_pickle=False) as arrays:
                found = {name: arrays[name] for name in arrays.files}
        except FileNotFoundError:
            return None
        except (ValueError, OSError, EOFError) as error:
            raise ValueError(
                f"{self._json(cell)} or its .npz cannot be read ({error}). "
                "Remove both, and the cell is run again."
            ) from error
        if values["settings"] != _as_json(cell.settings):
            raise ValueError(
                f"{self._json(cell)} was made with other settings. "
                "Choose another --output, or remove that file."
            )
        return Outcome(values["numbers"], found)

    def circumstances(self, cell: Cell) -> Mapping[str, Any]:
        """When, on what and how long; of a cell that was computed."""
        found: Mapping[str, Any] = json.loads(self._json(cell).read_text(encoding="utf-8"))["made"]
        return found

    def write(self, cell: Cell, outcome: Outcome, made: Mapping[str, Any]) -> None:
        """Each file whole or not there."""

        def write_arrays(beside: Path) -> None:
            with beside.open("wb") as file:
                np.savez_compressed(file, **outcome.arrays)  # type: ignore[arg-type]

        write_whole(self._arrays(cell), write_arrays)
        values = {"settings": cell.settings, "numbers": outcome.numbers, "made": made}
        write_json(self._json(cell), _as_json(values))

    def _json(self, cell: Cell) -> Path:
        return self.folder / f"{cell.name}.json"

    def _arrays(self, cell: Cell) -> Path:
        return self.folder / f"{cell.name}.npz"


def _as_json(value: Any) -> Any:
    """As it comes back from a file: tuples are lists there. NaN is refused."""
    return json.loads(json.dumps(value, allow_nan=False))
