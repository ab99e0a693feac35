"""How far our Table 1 is from the paper's, for each way to read its words. Neighbour: `readings.py`."""

import math
from collections.abc import Mapping, Sequence

from roundtrip.evaluation.summary import Row, as_markdown
from roundtrip.experiments.table1 import Published

LEAST = 0.05
"""Folds per image below this are chance: added before ratios are taken."""

Papers = Mapping[tuple[str, int], Published]


def closeness(rows: Sequence[Row], published: Papers) -> str:
    """A table of readings: over the cells that were run, how far ours are from the paper's on average.

    Dice as a difference, ours minus the paper's, and its size; folds as a factor, and one that is above 1.
    Readings that only some cells have stand below one that all have, of the same cells.
    """
    norm = [row for row in rows if "dice_training_mode" in row]
    later = [row for row in rows if (row["network"], row["lambda"] // 2) in published]
    lines = [
        _dice("warped image > 0.5, mean over pairs", rows, published, "dice"),
        _dice("warped image > half of the range", rows, published, "dice_half_range"),
        _dice("warped mask (nearest pixel)", rows, published, "dice_of_masks"),
        _dice("warped image > 0.5, all pixels at once", rows, published, "dice_all_pixels"),
        _dice("U-Net: batch norm in evaluation mode", norm, published, "dice"),
        _dice("U-Net: batch norm in training mode", norm, published, "dice_training_mode"),
        _dice("128 and more: lambda as the package's", later, published, "dice"),
        _dice("128 and more: lambda as the formula's", later, _halved(published), "dice"),
        _folds("forward differences < 0, as the package", rows, published, "folds"),
        _folds("central differences <= 0", rows, published, "folds_central"),
        _folds("cells with any folded simplex", rows, published, "folded_cells"),
        _folds("U-Net: batch norm in evaluation mode", norm, published, "folds"),
        _folds("U-Net: batch norm in training mode", norm, published, "folds_training_mode"),
        _folds("128 and more: lambda as the package's", later, published, "folds"),
        _folds("128 and more: lambda as the formula's", later, _halved(published), "folds"),
    ]
    return as_markdown([line for line in lines if line is not None])


def _halved(published: Papers) -> Papers:
    """The paper's numbers by our lambda, if it printed the formula's, which is half of the package's."""
    return {(network, 2 * lambda_): one for (network, lambda_), one in published.items()}


def _dice(reading: str, rows: Sequence[Row], published: Papers, name: str) -> Row | None:
    cells = [row for row in rows if name in row]
    off = [row[name] - published[row["network"], row["lambda"]].dice for row in cells]
    if not off:
        return None
    numbers = {"ours - paper": f"{_mean(off):.3f}", "distance": f"{_mean([abs(one) for one in off]):.3f}"}
    return {"of": "Dice", "reading": reading, "cells": str(len(off)), **numbers}


def _folds(reading: str, rows: Sequence[Row], published: Papers, name: str) -> Row | None:
    cells = [row for row in rows if name in row]
    paper = [published[row["network"], row["lambda"]].folds for row in cells]
    off = [math.log((row[name] + LEAST) / (one + LEAST)) for row, one in zip(cells, paper, strict=True)]
    if not off:
        return None
    factors = [math.exp(_mean(off)), math.exp(_mean([abs(one) for one in off]))]
    numbers = {"ours - paper": f"x {factors[0]:.2g}", "distance": f"x {factors[1]:.2g}"}
    return {"of": "folds", "reading": reading, "cells": str(len(off)), **numbers}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
