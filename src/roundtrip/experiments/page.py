"""`docs/results.md`: a section for every result, made of the stored tables and of notes beside them.

A folder holds `NAME-SCALE.json` (a table, as `reproduce.py` wrote it), and may hold `NAME.md` (what we found
out, in words) and `NAME.png`. Neighbours: `table.py`, and `benchmarks/results_page.py`, which calls this.
"""

from pathlib import Path
from typing import get_args

from roundtrip.experiments.result import AbstractResult, Scale
from roundtrip.experiments.results import RESULTS
from roundtrip.experiments.table import Table, as_section, read_table

TITLE = "# The paper's results, made again"


def results_page(folder: Path) -> str:
    """The whole page, of what is in `folder`, whose name is the pictures' path from the page."""
    parts = [TITLE, _introduction(folder)]
    parts += [_section(result, folder) for result in RESULTS]
    return "\n\n".join(part for part in parts if part) + "\n"


def stored_tables(result: AbstractResult, folder: Path) -> list[Table]:
    """Of all scales at which the result was stored."""
    paths = [folder / f"{result.name}-{scale}.json" for scale in get_args(Scale)]
    return [read_table(path) for path in paths if path.exists()]


def _introduction(folder: Path) -> str:
    path = folder / "introduction.md"
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""


def _section(result: AbstractResult, folder: Path) -> str:
    lines = [f"## {result.name}: {result.paper}", "", f"{result.shows[0].upper()}{result.shows[1:]}."]
    if (folder / f"{result.name}.png").exists():
        lines += ["", f"![{result.name}]({folder.name}/{result.name}.png)"]
    tables = stored_tables(result, folder)
    if not tables:
        data = " --data MNIST" if result.needs_digits else ""
        lines += ["", f"Not run yet. `roundtrip reproduce {result.name} --scale hours{data}` does it."]
    for table in tables:
        lines += ["", as_section(result, table)]
    notes = folder / f"{result.name}.md"
    if notes.exists():
        lines += ["", notes.read_text(encoding="utf-8").strip()]
    return "\n".join(lines)
