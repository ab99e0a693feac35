"""An evaluation as files: pairs.csv, labels.csv, summary.json, summary.md; and as lines for a terminal.

Rows come from `evaluation/summary.py`. Neighbour: `files.py`, which writes other results.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roundtrip._files import write_whole
from roundtrip.evaluation.journal import Judged
from roundtrip.evaluation.summary import (
    Row,
    as_markdown,
    label_rows,
    label_summary_rows,
    pair_row,
    summed_up,
)
from roundtrip.reports.files import write_json


def write_tables(folder: Path, judged: Sequence[Judged], about: Mapping[str, Any]) -> dict[str, Any]:
    """Writes the four files, each whole or not at all, and returns what summary.json says."""
    values = summary_of(judged, about)
    write_csv(folder / "pairs.csv", [_pair_row(one) for one in judged])
    write_csv(folder / "labels.csv", [row for one in judged for row in _label_rows(one)])
    write_json(folder / "summary.json", values)
    text = "\n".join(_as_page(values)) + "\n"
    write_whole(folder / "summary.md", lambda beside: beside.write_text(text, encoding="utf-8"))
    return values


def summary_of(judged: Sequence[Judged], about: Mapping[str, Any]) -> dict[str, Any]:
    """Means over the pairs, per measure and per label; which pairs failed and why; and what was evaluated."""
    qualities = [one.quality for one in judged if one.quality is not None]
    measured = [
        {**pair_row(one.quality), "seconds": one.seconds} for one in judged if one.quality is not None
    ]
    failed = [{"moving": o.moving, "fixed": o.fixed, "reason": o.error} for o in judged if o.quality is None]
    return {
        **about,
        "pairs": len(qualities),
        "failed": failed,
        "measures": summed_up(measured),
        "labels": label_summary_rows(qualities),
    }


def as_lines(values: Mapping[str, Any]) -> list[str]:
    """The summary for a terminal."""
    lines = [f"{'':34}{'before':>10}{'after':>10}{'median':>10}{'worst':>10}"]
    for row in values["measures"]:
        worst = row["min"] if row["measure"] == "dice" else row["max"]
        cells = (row["before_mean"], row["mean"], row["median"], worst)
        lines.append(f"{row['measure']:34}" + "".join(f"{_short(cell):>10}" for cell in cells))
    for row in values["labels"]:
        cells = (row["dice_before_mean"], row["dice_mean"], row["dice_median"], None)
        lines.append(
            f"{'dice of label ' + str(row['label']):34}" + "".join(f"{_short(c):>10}" for c in cells)
        )
    lines += [f"failed: {one['moving']} to {one['fixed']}: {one['reason']}" for one in values["failed"]]
    return lines


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """A column for every key of any row; what a row does not have stays empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))

    def write(beside: Path) -> None:
        with beside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)

    write_whole(path, write)


def _pair_row(judged: Judged) -> Row:
    measured = {} if judged.quality is None else pair_row(judged.quality)
    return {
        "moving": judged.moving,
        "fixed": judged.fixed,
        **measured,
        "seconds": judged.seconds,
        "error": judged.error,
    }


def _label_rows(judged: Judged) -> list[Row]:
    if judged.quality is None:
        return []
    pair = {"moving": judged.moving, "fixed": judged.fixed}
    return [{**pair, **row} for row in label_rows(judged.quality)]


def _as_page(values: Mapping[str, Any]) -> list[str]:
    known = {"pairs", "failed", "measures", "labels"}
    lines = ["# Evaluation", ""]
    lines += [f"- {name}: {_said(value)}" for name, value in values.items() if name not in known]
    lines += [f"- pairs: {values['pairs']}, failed: {len(values['failed'])}", ""]
    lines += [as_markdown(values["measures"]), ""]
    if values["labels"]:
        lines += ["## By label", "", as_markdown(values["labels"]), ""]
    if values["failed"]:
        lines += ["## Failed", "", as_markdown(values["failed"]), ""]
    return lines[:-1]


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_said(part)}" for name, part in value.items() if part is not None)
    return str(value)


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
