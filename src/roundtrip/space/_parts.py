"""`Part`: what files can hold of a transform, a matrix or a displacement in millimetres.

Between the steps of a transform (`steps.py`) and its files (`transform_files.py`, `_itk_transform.py`).
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import torch

from roundtrip._shapes import Tensor
from roundtrip.maps.displacement import DisplacementMap, sampled
from roundtrip.space.grid import Affine, Grid
from roundtrip.space.steps import AffineStep, MapStep, Steps, joined
from roundtrip.space.volume import Volume

# Within so many voxels of the grid a point counts as on it: half a voxel, to rounding noise.
_SLACK = 0.49

# So many times more voxels than the images have are too many.
_WIDEST = 3

Part: TypeAlias = Affine | Volume
"""A homogeneous matrix between worlds, or a displacement T(x) - x, a channel for each coordinate; LPS mm."""


def parts_of_steps(steps: Steps, *, like: Tensor) -> list[Part]:
    """Each step on its own; a map that is not stored on a grid is evaluated at the voxels of its own."""
    return [step.matrix if isinstance(step, AffineStep) else _in_millimetres(step, like) for step in steps]


def steps_of_parts(parts: Sequence[Part]) -> Steps:
    """Outside its grid a displacement is continued by its value at the nearest edge."""
    return joined(*(_step(part) for part in parts))


def widened(step: MapStep, start: Grid, before: Affine) -> MapStep | None:
    """The same displacement on a grid that covers where `before` sends the voxels of `start`.

    It is continued by its edge, as ours are anyway. None where that would take far more voxels than `start`
    has.
    """
    assert isinstance(step.map, DisplacementMap)
    displacement = step.map.displacement
    grid = _with_shape(step.grid, displacement.shape[2:])
    corners = torch.cartesian_prod(*(torch.tensor([0.0, n - 1.0], dtype=torch.float64) for n in start.shape))
    matrix = grid.voxel_from_world @ before @ start.world_from_voxel
    ends = corners.view(-1, grid.dims) @ matrix[:-1, :-1].mT + matrix[:-1, -1]
    below = (-ends.amin(dim=0) - _SLACK).ceil().clamp(min=0).int().tolist()
    last = torch.tensor(grid.shape) - 1
    above = (ends.amax(dim=0) - last - _SLACK).ceil().clamp(min=0).int().tolist()
    shape = [n + low + high for n, low, high in zip(grid.shape, below, above, strict=True)]
    if math.prod(shape) > _WIDEST * max(math.prod(start.shape), math.prod(grid.shape)):
        return None
    padding = [size for pair in zip(reversed(below), reversed(above), strict=True) for size in pair]
    wider = torch.nn.functional.pad(displacement, padding, mode="replicate")
    world_from_voxel = grid.world_from_voxel.clone()
    first = torch.tensor([*(-low for low in below), 1], dtype=torch.float64)
    world_from_voxel[:, -1] = grid.world_from_voxel @ first
    # In unit coordinates of the wider grid the same way is a smaller part of it.
    steps = [max(n - 1, 1) / max(m - 1, 1) for n, m in zip(grid.shape, shape, strict=True)]
    scale = torch.tensor(steps).to(wider).view(1, -1, *[1] * grid.dims)
    return MapStep(DisplacementMap(wider * scale), Grid(tuple(shape), world_from_voxel))


def _in_millimetres(step: MapStep, like: Tensor) -> Volume:
    if isinstance(step.map, DisplacementMap):
        stored = step.map
    else:
        stored = sampled(step.map, like.new_empty(()).expand(1, 1, *step.grid.shape))
    displacement = stored.displacement[0]
    frame = step.grid.world_from_unit[:-1, :-1].to(displacement)
    moved = (frame @ displacement.flatten(1)).view_as(displacement)
    return Volume(moved, _with_shape(step.grid, displacement.shape[1:]).world_from_voxel)


def _step(part: Part) -> AffineStep | MapStep:
    if not isinstance(part, Volume):
        return AffineStep(part)
    frame = part.unit_from_world[:-1, :-1].to(part.data)
    displacement = (frame @ part.data.flatten(1)).view_as(part.data)
    return MapStep(DisplacementMap(displacement[None]), part.grid)


def _with_shape(grid: Grid, shape: Sequence[int]) -> Grid:
    """More or fewer voxels between the same corners: the same unit coordinates."""
    steps = torch.tensor([*(max(n - 1, 1) for n in shape), 1], dtype=torch.float64)
    return Grid(tuple(shape), grid.world_from_unit / steps)
