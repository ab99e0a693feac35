"""Landmarks of two images, each with its partner: by name, or by order. Neighbour: `space/points.py`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from roundtrip._shapes import Float, Tensor
from roundtrip.evaluation.quality import LandmarkErrors
from roundtrip.space.grid import Grid
from roundtrip.space.points import PointTable, read_points
from roundtrip.space.transform import Transform

PointsOrPath = PointTable | Tensor | str | os.PathLike[str]

# Columns that name a landmark, in the order in which they are looked for.
_NAMES = ("name", "label", "id")


@dataclass(frozen=True, eq=False)
class LandmarkPairs:
    """Row i of one belongs to row i of the other."""

    fixed: Float[Tensor, "P N"]
    """In LPS millimetres of the fixed world, float64."""
    moving: Float[Tensor, "P N"]
    notes: tuple[str, ...] = ()
    """What was left out."""

    def errors(self, transform: Transform) -> LandmarkErrors:
        """How far from its partner each fixed landmark ends; before, as the files place both."""
        after = (transform.points(self.fixed).cpu() - self.moving).norm(dim=1)
        before = (self.fixed - self.moving).norm(dim=1)
        return LandmarkErrors(before.mean().item(), after.mean().item(), after.max().item(), len(after))


def is_points(given: Any) -> bool:
    """Whether this is a table of points or names one, by its ending; else it is an image."""
    return isinstance(given, PointTable | Tensor) or (
        isinstance(given, str | os.PathLike) and Path(given).suffix.lower() == ".csv"
    )


def paired(
    fixed: PointsOrPath, moving: PointsOrPath, *, fixed_grid: Grid, moving_grid: Grid
) -> LandmarkPairs:
    """Landmarks and their partners: by the names of both tables, where both have some; else by order."""
    sides = {"fixed": (fixed, fixed_grid), "moving": (moving, moving_grid)}
    tables = {side: _table(points, grid.dims, side) for side, (points, grid) in sides.items()}
    for side, table in tables.items():
        _require_inside(table.xyz, sides[side][1], side)
    rows, notes = _by_name(tables["fixed"], tables["moving"])
    if rows is None:
        counts = [len(table.xyz) for table in tables.values()]
        if counts[0] != counts[1]:
            raise ValueError(
                f"there are {counts[0]} fixed landmarks but {counts[1]} moving ones; landmark i of one "
                "belongs to landmark i of the other. Leave out what only one image has, or give both "
                "tables a column `name`, by which they are then paired."
            )
        rows = [(i, i) for i in range(counts[0])]
    here, there = (list(column) for column in zip(*rows, strict=True))
    return LandmarkPairs(tables["fixed"].xyz[here], tables["moving"].xyz[there], notes)


def _by_name(fixed: PointTable, moving: PointTable) -> tuple[list[tuple[int, int]] | None, tuple[str, ...]]:
    """The rows of equal names; None where the tables have no names in common columns."""
    columns = [[name.lower() for name in table.header] for table in (fixed, moving)]
    column = next((name for name in _NAMES if name in columns[0] and name in columns[1]), None)
    if column is None:
        return None, ()
    named: list[list[str]] = []
    for table, names, side in zip((fixed, moving), columns, ("fixed", "moving"), strict=True):
        place = names.index(column)
        own = [row[place] if place < len(row) else "" for row in table.rows]
        twice = next((name for name in own if own.count(name) > 1), None)
        if twice is not None:
            raise ValueError(
                f"two of the {side} landmarks are called {twice!r} in the column {column}, by which they are "
                "paired. Give each a name of its own, or remove the column to pair them by order."
            )
        named.append(own)
    common = [name for name in named[0] if name in named[1]]
    if not common:
        raise ValueError(
            f"no fixed landmark has the {column} of a moving one: {', '.join(named[0][:3])} ... and "
            f"{', '.join(named[1][:3])} ... Landmarks are paired by the column {column}; remove it from one "
            "table to pair them by order."
        )
    left = [name for name in dict.fromkeys(named[0] + named[1]) if name not in common]
    note = f"landmarks that only one image has were left out: {', '.join(left)}."
    rows = [(named[0].index(name), named[1].index(name)) for name in common]
    return rows, (note,) if left else ()


def _table(points: PointsOrPath, dims: int, side: str) -> PointTable:
    if isinstance(points, PointTable):
        table = points
    elif isinstance(points, Tensor):
        table = PointTable(points.detach().to("cpu", torch.float64), (), (), ())
    else:
        table = read_points(points, dims=dims)
    if table.xyz.ndim != 2 or table.xyz.shape[1] != dims or not len(table.xyz):
        raise ValueError(
            f"the {side} landmarks have shape {tuple(table.xyz.shape)}; needed is at least one point, each a "
            f"row of {dims} coordinates, (points, {dims}), in LPS millimetres."
        )
    return table


def _require_inside(points: Float[Tensor, "P N"], grid: Grid, side: str) -> None:
    """Most of them lie in the image: else they are of another image, or of another world."""
    inside = _share_inside(points, grid)
    if inside >= 0.5:
        return
    turned = points * points.new_tensor([-1.0, -1.0, 1.0][: grid.dims])
    hint = (
        "Taken as RAS, as 3D Slicer writes them, they lie in it: `--points-world RAS`, in Python "
        "`read_points(path, world='RAS')`."
        if _share_inside(turned, grid) > 0.5
        else "Check that they belong to this image and are in millimetres of its world, not in voxels."
    )
    raise ValueError(
        f"{round(100 * (1 - inside))} % of the {side} landmarks lie outside the {side} image, the first at "
        f"({', '.join(f'{x:.1f}' for x in points[0].tolist())}) mm LPS. {hint}"
    )


def _share_inside(points: Float[Tensor, "P N"], grid: Grid) -> float:
    matrix = grid.voxel_from_world
    voxels = points @ matrix[:-1, :-1].mT + matrix[:-1, -1]
    inside = (voxels >= -1) & (voxels <= torch.tensor(grid.shape, dtype=voxels.dtype))
    return inside.all(dim=1).double().mean().item()
