"""How far our Table 1 is from the paper's, for each way to read its words. Neighbour: `readings.py`."""

import math
from collections.abc import Mapping, Sequence

from roundtrip.evaluation.summary import Row, as_markdown
from roundtrip.experiments.table1 import Published

DICE = {
    "dice": "warped image > 0.5, mean over pairs",
    "dice_half_range": "warped image > half of the range",
    "dice_of_masks": "warped mask (nearest pixel)",
    "dice_all_pixels": "warped image > 0.5, all pixels at once",
    "dice_training_mode": "batch norm in training mode (U-Net alone)",
}
FOLDS = {
    "folds": "forward differences < 0 (the package's)",
    "folds_central": "central differences <= 0",
    "folded_cells": "cells with any folded simplex",
    "folds_training_mode": "batch norm in training mode (U-Net alone)",
}
LEAST = 0.05
"""Folds per image below this are chance: added before ratios are taken."""


def closeness(rows: Sequence[Row], published: Mapping[tuple[str, int], Published]) -> str:
    """A table of readings: over the cells that were run, how far ours are from the paper's on average.

    Dice as a difference, ours minus the paper's, and its size; folds as a factor, always above 1.
    """
    lines: list[Row] = []
    for doubled, convention in ((1, "the package's lambda"), (2, "the formula's lambda")):
        for name, reading in DICE.items():
            pairs = _pairs(rows, published, name, doubled)
            if pairs:
                off = [ours - paper.dice for ours, paper in pairs]
                line = {"measure": "Dice", "reading": reading, "lambda": convention, "cells": len(pairs)}
                lines.append(
                    {**line, "ours - paper": _mean(off), "distance": _mean([abs(one) for one in off])}
                )
        for name, reading in FOLDS.items():
            pairs = _pairs(rows, published, name, doubled)
            if pairs:
                ratios = [math.log((ours + LEAST) / (paper.folds + LEAST)) for ours, paper in pairs]
                line = {"measure": "folds", "reading": reading, "lambda": convention, "cells": len(pairs)}
                factor, distance = (math.exp(_mean(list(r))) for r in (ratios, map(abs, ratios)))
                lines.append({**line, "ours - paper": f"x {factor:.2g}", "distance": f"x {distance:.2g}"})
    return as_markdown(
        [{k: f"{v:.3f}" if isinstance(v, float) else v for k, v in line.items()} for line in lines]
    )


def _pairs(
    rows: Sequence[Row], published: Mapping[tuple[str, int], Published], name: str, doubled: int
) -> list[tuple[float, Published]]:
    """Our number of each cell that has this reading, and the paper's of the same lambda, as it is read."""
    found = []
    for row in rows:
        paper = published.get((row["network"], row["lambda"] // doubled))
        if paper is not None and row.get(name) is not None:
            found.append((row[name], paper))
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
