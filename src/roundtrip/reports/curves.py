"""The supplement's curves of a training: lambda, regularity and similarity over the steps, stage by stage.

Neighbours: `files.py` writes the figure, `training/log.py` reads the records.
"""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from roundtrip.reports.figures import FAINT, FOLD, INK
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
