"""Many registered pairs as one page of HTML, worst first: a table, histograms, and a way to each pair.

Neighbours: `stamps.py`, the pictures on it; `page.py`, the page of one pair, which is opened from here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from roundtrip._files import write_whole
from roundtrip.reports.files import plain
from roundtrip.reports.page import assembled
from roundtrip.reports.stamps import MOST_CHARACTERS, stamps_of

PAGE = "index.html"

_SCRIPTS = ("common.js", "histograms.js", "overview.js")
_STYLES = ("common.css", "overview.css")


@dataclass(frozen=True)
class Column:
    """A number of every pair: what it is called on the page, and which end of it is bad."""

    key: str
    title: str
    worse: Literal["lower", "higher"] | None = None
    before: str | None = None
    """The key of the same number before registration."""
    histogram: bool = False


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One pair among many: its numbers, or why there are none."""

    name: str
    values: Mapping[str, float | int | None] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    """What else tells pairs apart, such as the method: each name is a column, and a list to choose from."""
    error: str | None = None
    """Why it failed."""
    doubts: Sequence[str] = ()
    """Why not to rely on it."""
    report: str | None = None
    """Its page, relative to this one."""
    thumbnail: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Overview:
    """A page of many pairs. The first column that any of them has decides which is worst."""

    title: str
    entries: Sequence[Entry]
    columns: Sequence[Column]
    about: Mapping[str, Any] = field(default_factory=dict)
    """How it was made, as names and values."""
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Rows of summaries, by their headings."""


def write_overview(path: Path, overview: Overview, *, budget: int = MOST_CHARACTERS) -> None:
    """Writes the page, whole or not at all; at most 10 MB for 5 000 pairs, whose pictures take `budget`."""
    entries = worst_first(overview.entries, overview.columns)
    columns = [c for c in overview.columns if any(_short(e.values.get(c.key)) is not None for e in entries)]
    texts = list(dict.fromkeys(name for entry in entries for name in entry.texts))
    stamps = stamps_of([entry.thumbnail for entry in entries], budget=budget)
    facts = {
        "title": overview.title,
        "about": _flat(overview.about),
        "columns": [vars(column) for column in columns],
        "texts": texts,
        "stamps": stamps.facts(),
        "rows": [
            _row(entry, columns, texts, place) for entry, place in zip(entries, stamps.places, strict=True)
        ],
        "tables": [
            {"title": title, "names": list(rows[0]), "rows": [list(row.values()) for row in rows]}
            for title, rows in overview.tables.items()
            if rows
        ],
    }
    page = assembled("overview.html", _STYLES, _SCRIPTS, plain(facts), stamps.blocks)
    write_whole(path, lambda beside: beside.write_text(page, encoding="utf-8"))


def worst_first(entries: Sequence[Entry], columns: Sequence[Column]) -> list[Entry]:
    """Those that failed, then those in doubt, then the others; among them by the columns in their order."""

    def badness(entry: Entry) -> tuple[float, ...]:
        state = 0.0 if entry.error else 1.0 if entry.doubts else 2.0
        return (state, *(_goodness(entry.values.get(c.key), c) for c in columns if c.worse))

    return sorted(entries, key=badness)


def _goodness(value: float | int | None, column: Column) -> float:
    if value is None or math.isnan(value):
        return math.inf
    return float(value if column.worse == "lower" else -value)


def _row(entry: Entry, columns: Sequence[Column], texts: Sequence[str], place: int | None) -> dict[str, Any]:
    """As short as it can be: there are thousands."""
    row: dict[str, Any] = {"n": entry.name, "v": [_short(entry.values.get(c.key)) for c in columns]}
    before = [None if c.before is None else _short(entry.values.get(c.before)) for c in columns]
    given = {
        "b": before if any(value is not None for value in before) else None,
        "t": [entry.texts.get(name, "") for name in texts] or None,
        "e": entry.error,
        "d": list(entry.doubts) or None,
        # Relative for certain, whatever a folder is called.
        "r": None if entry.report is None else "./" + quote(entry.report),
        "p": place,
    }
    return row | {name: value for name, value in given.items() if value is not None}


def _short(value: float | int | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[list[str]]:
    """Names and values of nested settings, the names joined by dots."""
    rows: list[list[str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{name}. ")
        elif value is not None:
            rows.append([f"{prefix}{name}", str(value)])
    return rows
