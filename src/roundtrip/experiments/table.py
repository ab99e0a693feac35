"""The table of a result: rows, what they show, what was not run; as Markdown, JSON and CSV.

The JSON is the table: everything else is made of it, and `docs/results.md` too. Neighbour: `reproduce.py`.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roundtrip._files import write_whole
from roundtrip.evaluation.summary import Row
from roundtrip.experiments.result import AbstractResult, Claim, Outcome, Scale
from roundtrip.reports.files import write_json
from roundtrip.reports.tables import write_csv

TABLE = "table"
"""Of the files: table.md, table.json, table.csv."""

HOLDS = {True: "yes", False: "NO", None: "not run"}


@dataclass(frozen=True, eq=False)
class Table:
    """What was run of a result, at one scale."""

    result: str
    paper: str
    scale: Scale
    rows: Sequence[Row]
    claims: Sequence[Claim]
    not_run: Sequence[str]
    """Cells."""
    command: str
    """Goes on with what was not run."""
    made: Mapping[str, Mapping[str, Any]]
    """When, on what and how long, by cell."""

    @staticmethod
    def of(
        result: AbstractResult,
        scale: Scale,
        done: Mapping[str, Outcome],
        cells: Sequence[str],
        made: Mapping[str, Mapping[str, Any]],
    ) -> "Table":
        """Of the cells that are done, among all `cells`."""
        rows = result.rows(done, scale)
        data = " --data MNIST" if result.needs_digits else ""
        return Table(
            result=result.name,
            paper=result.paper,
            scale=scale,
            rows=[{"scale": scale, **row} for row in rows],
            claims=result.claims(rows),
            not_run=[name for name in cells if name not in done],
            command=f"roundtrip reproduce {result.name} --scale {scale}{data}",
            made=made,
        )

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Table":
        """The inverse of `as_dict`."""
        return Table(**{**values, "claims": [Claim(**one) for one in values["claims"]]})


def read_table(path: Path) -> Table:
    """What `write_table` wrote as JSON."""
    return Table.from_dict(json.loads(path.read_text(encoding="utf-8")))


def write_table(folder: Path, result: AbstractResult, table: Table) -> None:
    """The three files, each whole or not at all."""
    write_json(folder / f"{TABLE}.json", table.as_dict())
    write_csv(folder / f"{TABLE}.csv", table.rows)
    text = f"# {result.name}\n\n{as_section(result, table)}\n"
    write_whole(folder / f"{TABLE}.md", lambda beside: beside.write_text(text, encoding="utf-8"))


def as_section(result: AbstractResult, table: Table) -> str:
    """For people: scale, table, what it shows, what is missing and how to go on."""
    lines = [f"{table.paper}, scale `{table.scale}`. {_circumstances(table)}", ""]
    lines += [result.markdown([{k: v for k, v in row.items() if k != "scale"} for row in table.rows]), ""]
    lines += [
        f"- {HOLDS[one.holds]}: {one.says}{f' ({one.numbers})' if one.numbers else ''}"
        for one in table.claims
    ]
    if table.not_run:
        names = ", ".join(table.not_run)
        lines += ["", f"Not run: {names}. `{table.command}` goes on with them."]
    return "\n".join(lines)


def as_lines(table: Table) -> list[str]:
    """What a terminal shows below the table."""
    return [
        f"{HOLDS[one.holds]:>7}  {one.says}{f' ({one.numbers})' if one.numbers else ''}"
        for one in table.claims
    ]


def _circumstances(table: Table) -> str:
    """When and on what, and the seconds of all cells together."""
    if not table.made:
        return ""
    seconds = sum(one["seconds"] for one in table.made.values())
    training = sum(row.get("training_seconds", 0) for row in table.rows)
    took = f"{training} seconds of training" if training else f"{seconds:.0f} seconds"
    some = list(table.made.values())
    dates = sorted({one["date"] for one in some})
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    how = ", ".join(
        sorted({f"{one['device']}, {one['threads']} thread(s), {one['precision']}" for one in some})
    )
    return f"Run on {days}: {len(some)} cell(s), {took} ({how})."
