"""Reads a manifest, the table that says which images there are: CSV, TSV or JSON lines.

What is wrong with it is collected, a line each. Neighbour: `folder.py`, for images without such a table.
"""

import csv
import difflib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from roundtrip._problems import Problems
from roundtrip.data.records import Record

REQUIRED = ("image", "subject")
FILES = ("image", "labels", "mask", "landmarks")
KNOWN = (*REQUIRED, "labels", "mask", "landmarks", "group")
JSON_LINES = (".jsonl", ".ndjson", ".json")


class Line(NamedTuple):
    """One line of the table."""

    number: int
    cells: dict[str, str]


def read_manifest(path: Path, problems: Problems) -> list[Record]:
    """An image per line; files are relative to the manifest's folder, and have to be there."""
    lines = read_table(path, problems)
    if not lines:
        return []
    names = list(dict.fromkeys(name for line in lines for name in line.cells))
    if not _has_usable_columns(path, names, problems):
        return []
    records = [record for line in lines if (record := _record(path, line, problems)) is not None]
    _require_once(records, problems)
    return records


def read_pairs(path: Path, problems: Problems) -> list[tuple[str, str, str]]:
    """(line, moving, fixed) of a table of pairs."""
    lines = read_table(path, problems)
    pairs = []
    for line in lines:
        where = f"{path}:{line.number}"
        missing = [name for name in ("moving", "fixed") if not line.cells.get(name)]
        if missing:
            problems.add(
                where, f"there is no {' and no '.join(missing)}; a pair has a moving and a fixed image."
            )
        else:
            pairs.append((where, line.cells["moving"], line.cells["fixed"]))
    return pairs


def read_table(path: Path, problems: Problems) -> list[Line]:
    """The lines of a CSV, TSV or file of JSON lines, by the names of their columns."""
    before = len(problems.lines)
    lines = problems.attempt(str(path), lambda: _lines_of(path, problems))
    if not lines and len(problems.lines) == before:
        problems.add(str(path), "it has no lines.")
    return lines or []


def _lines_of(path: Path, problems: Problems) -> list[Line]:
    if not path.is_file():
        raise FileNotFoundError("there is no such file.")
    try:
        # Some programs begin a file with a mark that is no part of the first column's name.
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not text in UTF-8 ({error.reason}); save it as such.") from error
    if path.suffix.lower() in JSON_LINES:
        return list(_json_lines(path, text, problems))
    return list(_csv_lines(path, text, problems))


def _csv_lines(path: Path, text: str, problems: Problems) -> Iterator[Line]:
    header = text.split("\n", 1)[0]
    delimiter = max("\t;,", key=header.count)
    reader = csv.reader(text.splitlines(keepends=True), delimiter=delimiter)
    names: list[str] = []
    for cells in reader:
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            continue
        where = f"{path}:{reader.line_num}"
        if not names:
            names = cells
            if twice := sorted({name for name in names if names.count(name) > 1}):
                problems.add(where, f"column {twice[0]!r} is there twice.")
        elif len(cells) > len(names):
            problems.add(where, f"it has {len(cells)} cells, but there are {len(names)} columns.")
        else:
            yield Line(reader.line_num, dict(zip(names, cells, strict=False)))


def _json_lines(path: Path, text: str, problems: Problems) -> Iterator[Line]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            values = json.loads(line)
        except ValueError as error:
            problems.add(where, f"it is not JSON: {error}. Every line is an object of its own.")
            continue
        if not isinstance(values, dict):
            problems.add(where, 'it is not a JSON object such as {"image": "a.nii.gz", "subject": "1"}.')
        elif odd := [name for name, value in values.items() if isinstance(value, list | dict | bool)]:
            problems.add(where, f"{odd[0]!r} is {values[odd[0]]!r}; text or a number is needed.")
        else:
            yield Line(number, {k: "" if v is None else str(v).strip() for k, v in values.items()})


def _has_usable_columns(path: Path, names: Sequence[str], problems: Problems) -> bool:
    missing = [name for name in KNOWN if name not in names]
    # Who has both `labels` and `label` means two things; who has only the latter probably meant the former.
    strange = [name for name in names if name not in KNOWN]
    taken: set[str] = set()
    for name in missing:
        meant = difflib.get_close_matches(name, [s.lower() for s in strange], n=1, cutoff=0.75)
        written = next((s for s in strange if meant and s.lower() == meant[0] and s not in taken), None)
        if written is not None:
            taken.add(written)
            problems.add(f"{path}:1", f"column {written!r} is not known; did you mean {name!r}?")
        elif name in REQUIRED:
            known = ", ".join(names)
            problems.add(f"{path}:1", f"there is no column {name!r}; columns are {known}.")
    return not any(name in missing for name in REQUIRED)


def _record(path: Path, line: Line, problems: Problems) -> Record | None:
    where, cells = f"{path}:{line.number}", line.cells
    empty = [name for name in REQUIRED if not cells.get(name)]
    for name in empty:
        problems.add(where, f"{name!r} is empty.")
    files: dict[str, Path] = {}
    for name in FILES:
        if cells.get(name):
            files[name] = path.parent / cells[name]
            if not files[name].exists():
                problems.add(where, f"{name} {cells[name]} does not exist (there is no {files[name]}).")
    if empty:
        return None
    columns = {name: value for name, value in cells.items() if name not in FILES and name != "subject"}
    return Record(cells["image"], where, cells["subject"], columns, **files)


def _require_once(records: Sequence[Record], problems: Problems) -> None:
    first: dict[Path, Record] = {}
    for record in records:
        assert record.image is not None
        before = first.setdefault(record.image.resolve(), record)
        if before is not record:
            line = before.where.rsplit(":", 1)[1]
            problems.add(record.where, f"image {record.name} is in line {line} already.")
