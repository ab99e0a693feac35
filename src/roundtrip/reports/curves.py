"""A training as curves over its steps: a page with a row for every stage, or one column, `rt.plot.curves`.

Neighbours: `files.py` writes figures, `training/log.py` reads the records.
"""

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roundtrip.reports.figures import FAINT, FOLD, INK
from roundtrip.reports.sheet import COLUMN, TEXT
from roundtrip.training.log import Log
from roundtrip.training.records import Record, StepRecord, ValidationRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = ("lambda", "inverse consistency", "similarity", "folds")
POINTS = 400
"""A curve is drawn through so many means, so that thousands of noisy steps can be read."""


def training_figure(records: Sequence[Record], *, width: float = 9.0) -> "Figure":
    """A row of curves for every stage, in the order of the records; a dot for every validation.

    The first panel is the paper's lambda, of squared vector norms. The last shows folds of the batch, and the
    Dice of the held-out pairs, where there are labels, on an axis of its own.
    """
    from matplotlib.figure import Figure

    stages = [(name, list(rows)) for name, rows in itertools.groupby(records, key=lambda r: r.stage)]
    figure = Figure(figsize=(width, 1.9 * len(stages) + 0.2), facecolor="white", layout="constrained")
    panels = figure.subplots(len(stages), len(COLUMNS), squeeze=False)
    for row, (name, rows) in zip(panels, stages, strict=True):
        _draw_stage(list(row), name, rows)
    return figure


def curves(run: str | os.PathLike[str] | Sequence[Record], *, width: float = COLUMN) -> "Figure":
    """How a training went, step by step: lambda, regularity, similarity, folds, and Dice of held-out pairs.

    `run` is the folder that `roundtrip train` wrote, or its log. Stages follow each other, a dashed line
    between them. What was measured at too many steps to be seen is averaged over neighbours.
    """
    from matplotlib.figure import Figure

    records = _records(run)
    panels = [panel for panel in _PANELS if any(panel.of(record) is not None for record in records)]
    size = (width, 0.75 * len(panels) + 0.5)
    figure = Figure(figsize=size, facecolor="white", layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    steps, borders = _running_steps(records)
    for ax, panel in zip(axes, panels, strict=True):
        known = [(s, v) for s, r in zip(steps, records, strict=True) if (v := panel.of(r)) is not None]
        x, y = zip(*known, strict=True)
        ax.plot(
            *_means([float(step) for step in x], y),
            color=INK,
            linewidth=0.9,
            marker="o" if panel.dots else None,
            markersize=2.5,
        )
        # Inverse consistency falls over orders of magnitude; it is 0 while all maps are the identity.
        if panel.logarithmic and any(value > 0 for value in y):
            ax.set_yscale("log")
        ax.set_ylabel(panel.title, fontsize=TEXT, color=INK)
        ax.tick_params(which="both", labelsize=TEXT - 1, length=2, width=0.5)
        for border in borders:
            ax.axvline(border, color=FAINT, linewidth=0.6, linestyle="--")
        for spine in ax.spines.values():
            spine.set(linewidth=0.5, color=FAINT)
    axes[-1].set_xlabel("step", fontsize=TEXT, color=INK)
    figure.align_ylabels()
    return figure


def _draw_stage(panels: Sequence["Axes"], name: str, rows: Sequence[Record]) -> None:
    steps = [row for row in rows if isinstance(row, StepRecord)]
    judged = [row for row in rows if isinstance(row, ValidationRecord)]
    values = (
        [s.lambda_ for s in steps],
        [s.inverse_consistency for s in steps],
        [s.similarity for s in steps],
        [s.folds for s in steps],
    )
    for ax, title, curve in zip(panels, COLUMNS, values, strict=True):
        ax.plot(*_means([float(s.step) for s in steps], curve), color=INK, linewidth=0.9)
        ax.set_title(f"{name}: {title}", fontsize=8, loc="left", color=INK)
        ax.tick_params(which="both", labelsize=6.5, length=2, width=0.5)
        for spine in ax.spines.values():
            spine.set(linewidth=0.5, color=FAINT)
    # Inverse consistency falls over orders of magnitude; it is 0 while all maps are the identity.
    if any(value > 0 for value in values[1]):
        panels[1].set_yscale("log")
    overlap = [(one.step, one.numbers["dice"]) for one in judged if "dice" in one.numbers]
    if overlap:
        beside = panels[3].twinx()
        beside.plot(*zip(*overlap, strict=True), color=FOLD, marker="o", markersize=2.5, linewidth=0.9)
        beside.tick_params(labelsize=6.5, length=2, width=0.5, colors=FOLD)
        panels[3].set_title(f"{name}: folds, held-out Dice (right)", fontsize=8, loc="left", color=INK)
        for spine in beside.spines.values():
            spine.set(linewidth=0.5, color=FAINT)


def _means(steps: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Both, averaged over runs of neighbours, so that at most `POINTS` are left."""
    size = max(1, -(-len(steps) // POINTS))

    def mean(numbers: Sequence[float]) -> list[float]:
        return [
            sum(part) / len(part) for part in (numbers[i : i + size] for i in range(0, len(numbers), size))
        ]

    return mean(steps), mean(values)


@dataclass(frozen=True)
class _Panel:
    """One curve over the steps."""

    title: str
    of: Callable[[Record], float | None]
    logarithmic: bool = False
    dots: bool = False


def _of_step(name: str) -> Callable[[Record], float | None]:
    return lambda record: getattr(record, name) if isinstance(record, StepRecord) else None


def _dice(record: Record) -> float | None:
    return record.numbers.get("dice") if isinstance(record, ValidationRecord) else None


_PANELS = (
    _Panel("λ", _of_step("lambda_")),
    _Panel("regularity", _of_step("inverse_consistency"), logarithmic=True),
    _Panel("similarity", _of_step("similarity")),
    _Panel("folds", _of_step("folds")),
    _Panel("Dice", _dice, dots=True),
)


def _records(run: Any) -> list[Record]:
    if isinstance(run, str | os.PathLike):
        path = Path(run)
        log = path / "log.jsonl" if path.is_dir() else path
        records = Log(log).read()
        if not records:
            raise ValueError(
                f"{log} holds no steps; name the folder that `roundtrip train` wrote, or its log.jsonl."
            )
        return records
    if not run:
        raise ValueError("there are no records to draw.")
    return list(run)


def _running_steps(records: Sequence[Record]) -> tuple[list[int], list[int]]:
    """The step of every record when stages are counted through, and the steps at which stages end."""
    steps: list[int] = []
    borders = [0]
    for _, rows in itertools.groupby(records, key=lambda record: record.stage):
        of_stage = [record.step for record in rows]
        steps += [borders[-1] + step for step in of_stage]
        borders.append(borders[-1] + max(of_stage))
    return steps, borders[1:-1]
