"""Points in CSV files: one to a row, in millimetres. Neighbour: `files.py`, for images.

A row may hold more than the coordinates (names, labels); it is kept as it is. The world is LPS, as ITK's and
ANTs' tables have it, unless the caller says RAS, as 3D Slicer and nibabel count.
"""

import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from roundtrip._files import write_whole
from roundtrip._shapes import Float, Tensor

World = Literal["LPS", "RAS"]
_NAMES = ("x", "y", "z")


@dataclass(frozen=True, eq=False)
class PointTable:
    """The points of a file, and the rest of its table."""

    xyz: Float[Tensor, "P N"]
    """LPS millimetres, float64."""
    header: tuple[str, ...]
    """Of all columns; empty for a file without."""
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[int, ...]
    """Which of them hold the coordinates."""

    def with_points(self, xyz: Float[Tensor, "P N"]) -> "PointTable":
        """The same table with its points elsewhere."""
        return PointTable(xyz, self.header, self.rows, self.columns)


def read_points(path: str | os.PathLike[str], *, dims: int = 3, world: World = "LPS") -> PointTable:
    """Columns x, y (and z) by their names, or the first ones of a table without names."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text; points are read from CSV, one point a row: x,y,z.") from error
    lines = [tuple(cell.strip() for cell in line) for line in csv.reader(text.splitlines()) if any(line)]
    if not lines:
        raise ValueError(f"{path} is empty; points are read from CSV, one point a row: x,y,z.")
    named = not all(_is_number(cell) for cell in lines[0][:dims])
    header, rows = (lines[0], lines[1:]) if named else ((), lines)
    columns = _columns(path, header, dims)
    numbers = [[_number(path, row, column) for column in columns] for row in rows]
    xyz = torch.tensor(numbers, dtype=torch.float64).view(-1, dims)
    return PointTable(_turned(xyz, world), header, tuple(rows), columns)


def write_points(table: PointTable, path: str | os.PathLike[str], *, world: World = "LPS") -> None:
    """The table with its points in a CSV file, which appears whole or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if table.header:
        writer.writerow(table.header)
    for row, point in zip(table.rows, _turned(table.xyz, world).tolist(), strict=True):
        cells = list(row)
        for column, value in zip(table.columns, point, strict=True):
            cells[column] = f"{value:.6f}"
        writer.writerow(cells)
    write_whole(Path(path), lambda beside: beside.write_text(text.getvalue(), encoding="utf-8"))


def _columns(path: Path, header: tuple[str, ...], dims: int) -> tuple[int, ...]:
    if not header:
        return tuple(range(dims))
    names = [name.lower() for name in header]
    missing = [name for name in _NAMES[:dims] if name not in names]
    if missing:
        raise ValueError(
            f"{path} has columns {', '.join(header)}, but none is called {missing[0]}. The coordinates are "
            f"the columns {', '.join(_NAMES[:dims])}, in millimetres."
        )
    return tuple(names.index(name) for name in _NAMES[:dims])


def _number(path: Path, row: tuple[str, ...], column: int) -> float:
    if column >= len(row) or not _is_number(row[column]):
        raise ValueError(
            f"{path} has a row {','.join(row)!r} without a number in column {column + 1}; one point a row is "
            "needed, x,y,z in millimetres."
        )
    return float(row[column])


def _is_number(cell: str) -> bool:
    try:
        return abs(float(cell)) < float("inf")
    except ValueError:
        return False


def _turned(xyz: Tensor, world: World) -> Tensor:
    """LPS from RAS, and back: the first two axes run the other way."""
    if world == "LPS":
        return xyz
    return xyz * torch.tensor([-1.0, -1.0, 1.0], dtype=torch.float64)[: xyz.shape[1]]
