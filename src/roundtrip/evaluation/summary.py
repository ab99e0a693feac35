"""Many judged pairs side by side: means and medians, per measure and per label, as rows of plain values.

Rows are dictionaries with one set of keys, ready for JSON, `csv.DictWriter` or `as_markdown`. What could not
be measured of a pair is None in its row and left out of means; every mean says over how many pairs it is.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roundtrip.evaluation.quality import LabelScores, PairQuality

Row = dict[str, Any]


def pair_row(quality: PairQuality) -> Row:
    """Every measure of a pair in one row: `dice_before`, `dice`, `folds`, ..., one number each."""
    return {name: value for name, value in _measures(quality)}


def label_rows(quality: PairQuality) -> list[Row]:
    """A row for every label that both images of a pair have."""
    if quality.dice is None or quality.hd95 is None or quality.surface_distance is None:
        return []
    scores = {
        "dice": quality.dice,
        f"hd95_{quality.unit}": quality.hd95,
        f"surface_distance_{quality.unit}": quality.surface_distance,
    }
    return [
        {
            "label": label,
            **{name: value for part in scores.items() for name, value in _of_label(*part, label)},
        }
        for label in quality.dice.after
    ]


def summary_rows(qualities: Sequence[PairQuality]) -> list[Row]:
    """For every measure its mean, median and spread over the pairs, and before registration where known."""
    return summed_up([pair_row(quality) for quality in qualities])


def summed_up(table: Sequence[Row]) -> list[Row]:
    """As `summary_rows`, of rows that may hold more than a quality does."""
    names = dict.fromkeys(name for row in table for name in row)
    rows = []
    for name in names:
        if not name.endswith("_before"):
            after = _known(row.get(name) for row in table)
            before = _known(row.get(f"{name}_before") for row in table)
            rows.append(
                {
                    "measure": name,
                    "before_mean": _mean(before),
                    "before_median": _median(before),
                    "mean": _mean(after),
                    "median": _median(after),
                    "std": statistics.stdev(after) if len(after) > 1 else None,
                    "min": min(after, default=None),
                    "max": max(after, default=None),
                    "pairs": len(after),
                }
            )
    return rows


def label_summary_rows(qualities: Sequence[PairQuality]) -> list[Row]:
    """For every label the means and medians of its scores over the pairs that have it."""
    table = [row for quality in qualities for row in label_rows(quality)]
    rows = []
    for label in sorted({row["label"] for row in table}):
        of_label = [row for row in table if row["label"] == label]
        names = dict.fromkeys(name for row in of_label for name in row if name != "label")
        scores: Row = {"label": label, "pairs": len(of_label)}
        for name in names:
            values = _known(row.get(name) for row in of_label)
            scores[f"{name}_mean"], scores[f"{name}_median"] = _mean(values), _median(values)
        rows.append(scores)
    return rows


def as_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a table; a dash stands for what could not be measured."""
    if not rows:
        return ""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(3, *(len(line[column]) for line in cells)) for column in range(len(names))]
    # Words stand left, numbers right.
    left = [isinstance(rows[0].get(name), str) for name in names]

    def line(of: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(of, widths, left, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    rule = (
        "-" * width if to_left else "-" * (width - 1) + ":"
        for width, to_left in zip(widths, left, strict=True)
    )
    return "\n".join([line(cells[0]), line(list(rule)), *map(line, cells[1:])])


def _measures(quality: PairQuality) -> Iterator[tuple[str, Any]]:
    unit, change = quality.unit, quality.similarity
    for name, scores in (
        ("dice", quality.dice),
        (f"hd95_{unit}", quality.hd95),
        (f"surface_distance_{unit}", quality.surface_distance),
    ):
        if scores is not None:
            yield f"{name}_before", _plain(scores.mean_before)
            yield name, _plain(scores.mean)
    if quality.dice is not None:
        yield "labels", quality.dice.num_labels
    if (errors := quality.landmark_error) is not None:
        yield f"landmark_error_{unit}_before", _plain(errors.before)
        yield f"landmark_error_{unit}", _plain(errors.mean)
    yield f"{change.name}_before", _plain(change.before)
    yield change.name, _plain(change.after)
    yield "folds", quality.folds.count
    yield "folds_percent", _plain(quality.folds.percent)
    yield "non_diffeomorphic_volume_percent", _plain(quality.folds.non_diffeomorphic_volume_percent)
    for part, value in vars(quality.roundtrip_error).items():
        yield f"roundtrip_error_{part}_{unit}", _plain(value)
    yield f"magnitude_{unit}", _plain(quality.magnitude)


def _of_label(name: str, scores: LabelScores, label: int) -> Iterator[tuple[str, Any]]:
    yield f"{name}_before", _plain(scores.before[label])
    yield name, _plain(scores.after[label])


def _plain(value: Any) -> Any:
    return value if math.isfinite(value) else None


def _known(values: Any) -> list[float]:
    return [float(value) for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    # A file may be called anything, also with what ends a cell.
    return str(value).replace("|", "\\|").replace("\n", " ")
