"""Many registered pairs as files: index.html to look at, summary.csv with a row for each, tables over all.

What is known of each pair comes from `pairwise/cohort.py`. Neighbours: `overview.py`, which makes the page;
`tables.py`, for judged pairs.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roundtrip._files import write_whole
from roundtrip.evaluation.summary import as_markdown, summed_up
from roundtrip.reports.files import write_json
from roundtrip.reports.overview import PAGE, Column, Entry, Overview, write_overview
from roundtrip.reports.tables import write_csv
from roundtrip.reports.thumbnail import NAME

REPORT = "report.html"

# The first that any pair has decides which is worst.
COLUMNS = (
    Column("dice", "Dice", "lower", "dice_before", histogram=True),
    Column("similarity", "Similarity", "lower", "similarity_before"),
    Column("folds", "Folds", "higher", histogram=True),
    Column("non_diffeomorphic_volume_percent", "Folded volume (%)", "higher"),
    Column("roundtrip_error_mm_mean", "Round trip, mean (mm)", "higher", histogram=True),
    Column("roundtrip_error_mm_max", "Round trip, max (mm)", "higher"),
    Column("seconds", "Seconds"),
)


def write_summary(
    folder: Path, names: Sequence[str], marks: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Writes the four files, each whole or not at all, and returns what summary.json says."""
    values = summary_of(names, marks, settings)
    write_overview(folder / PAGE, _overview(folder, names, marks, values))
    write_csv(folder / "summary.csv", [_row(name, mark) for name, mark in zip(names, marks, strict=True)])
    write_json(folder / "summary.json", values)
    text = "\n".join(_as_page(values)) + "\n"
    write_whole(folder / "summary.md", lambda beside: beside.write_text(text, encoding="utf-8"))
    return values


def summary_of(
    names: Sequence[str], marks: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Means over the pairs; which of them failed and why; which say themselves that they are doubtful."""
    done = [(name, mark["metrics"]) for name, mark in zip(names, marks, strict=True) if not mark["error"]]
    failed = [(name, mark["error"]) for name, mark in zip(names, marks, strict=True) if mark["error"]]
    measured = [{name: value for name, value in metrics.items() if name != "ok"} for _, metrics in done]
    return {
        "settings": dict(settings),
        "pairs": len(done),
        "failed": [{"name": name, "reason": reason} for name, reason in failed],
        "doubtful": [name for name, metrics in done if not metrics["ok"]],
        "measures": [row for row in summed_up(measured) if row["mean"] is not None],
    }


def _row(name: str, mark: Mapping[str, Any]) -> dict[str, Any]:
    files = {"name": name, "moving": mark["moving"], "fixed": mark["fixed"]}
    return {**files, **(mark.get("metrics") or {}), "error": mark["error"]}


def _as_page(values: Mapping[str, Any]) -> list[str]:
    said = ", ".join(f"{name} {value}" for name, value in values["settings"].items())
    counts = f"{values['pairs']}, failed: {len(values['failed'])}, doubtful: {len(values['doubtful'])}"
    lines = ["# Cohort", "", f"- settings: {said}", f"- pairs: {counts}", ""]
    if values["measures"]:
        lines += [as_markdown(values["measures"]), ""]
    if values["doubtful"]:
        lines += ["## Not to be relied upon", "", *(f"- {name}" for name in values["doubtful"]), ""]
    if values["failed"]:
        lines += ["## Failed", "", as_markdown(values["failed"]), ""]
    return lines[:-1]


def _overview(
    folder: Path, names: Sequence[str], marks: Sequence[Mapping[str, Any]], values: Mapping[str, Any]
) -> Overview:
    entries = [_entry(folder, name, mark) for name, mark in zip(names, marks, strict=True)]
    return Overview(
        title="Cohort",
        entries=entries,
        columns=COLUMNS,
        about=values["settings"],
        tables={"Over all pairs": values["measures"]},
    )


def _entry(folder: Path, name: str, mark: Mapping[str, Any]) -> Entry:
    if mark["error"]:
        return Entry(name=name, error=mark["error"])
    metrics = mark["metrics"]
    report = f"{name}/{REPORT}"
    return Entry(
        name=name,
        values={key: value for key, value in metrics.items() if key != "ok"},
        doubts=() if metrics["ok"] else _reasons(folder / name / "metrics.json"),
        report=report if (folder / report).exists() else None,
        thumbnail=folder / name / NAME,
    )


def _reasons(path: Path) -> Sequence[str]:
    """What a pair says itself of why not to rely on it."""
    try:
        reasons = json.loads(path.read_text(encoding="utf-8"))["reasons"]
    except (OSError, ValueError, KeyError):
        reasons = []
    return reasons or ("its metrics say that it failed.",)
