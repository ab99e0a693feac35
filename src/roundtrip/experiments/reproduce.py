"""Runs the cells of a result and writes its table, figure and settings, again after each cell.

Neighbours: `result.py` (what a result is), `stored.py` (cells in files), `table.py` (the table's files).
"""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from roundtrip.experiments.result import AbstractResult, Cell, Outcome, Scale
from roundtrip.experiments.stored import StoredCells
from roundtrip.experiments.table import Table, write_table
from roundtrip.experiments.workplace import Workplace
from roundtrip.reports.files import write_figure, write_json

CELLS, FIGURE, SETTINGS = "cells", "figure.png", "settings.json"
DPI = 130
"""The figures are for a screen, and small."""


@dataclass(frozen=True, eq=False)
class Reproduced:
    """What there is of a result now."""

    folder: Path
    table: Table


def reproduce(
    result: AbstractResult,
    scale: Scale,
    place: Workplace,
    *,
    only: Sequence[str] = (),
    on_cell: Callable[[str], None] = lambda name: None,
) -> Reproduced:
    """Computes the cells that have not been yet, or of these `only` some, and writes what they make.

    The same call goes on where one was stopped. Alone: results are not for several processes.
    """
    if place.ranks.count > 1:
        raise ValueError("a result of the paper is made by one process; leave out `--devices`.")
    cells = result.cells(scale)
    chosen = _chosen(cells, only, result)
    folder = place.root / f"{result.name}-{scale}"
    stored = StoredCells(folder / CELLS)
    found = {cell.name: stored.read(cell) for cell in cells}
    done = {name: outcome for name, outcome in found.items() if outcome is not None}
    table = None
    for cell in chosen:
        on_cell(cell.name)
        if cell.name not in done:
            start = time.perf_counter()
            outcome = cell.compute(place)
            stored.write(cell, outcome, _made(place, time.perf_counter() - start))
            done[cell.name] = outcome
            table = _write(result, scale, folder, stored, cells, done)
    # All were there: what is made of them may have changed.
    return Reproduced(folder, table or _write(result, scale, folder, stored, cells, done))


def _chosen(cells: Sequence[Cell], only: Sequence[str], result: AbstractResult) -> Sequence[Cell]:
    names = [cell.name for cell in cells]
    if unknown := [name for name in only if name not in names]:
        raise ValueError(f"{result.name} has no cell {', '.join(unknown)}; its cells: {', '.join(names)}.")
    return [cell for cell in cells if not only or cell.name in only]


def _write(
    result: AbstractResult,
    scale: Scale,
    folder: Path,
    stored: StoredCells,
    cells: Sequence[Cell],
    done: Mapping[str, Outcome],
) -> Table:
    made = {cell.name: stored.circumstances(cell) for cell in cells if cell.name in done}
    # In the order of the result, whatever was computed first.
    done = {cell.name: done[cell.name] for cell in cells if cell.name in done}
    table = Table.of(result, scale, done, [cell.name for cell in cells], made)
    write_table(folder, result, table)
    write_figure(folder / FIGURE, result.figure(done), dpi=DPI)
    settings = {cell.name: cell.settings for cell in cells}
    write_json(folder / SETTINGS, {"result": result.name, "scale": scale, "cells": settings})
    return table


def _made(place: Workplace, seconds: float) -> dict[str, Any]:
    return {
        "date": date.today().isoformat(),
        "seconds": round(seconds, 1),
        "device": str(place.ranks.device),
        "threads": torch.get_num_threads(),
        "precision": str(place.ranks.fabric.strategy.precision.precision),
        "roundtrip": version("roundtrip"),
        "torch": version("torch"),
        "python": platform.python_version(),
    }
