"""Where a pair is computed: the part of the fixed grid that shows something, no finer than memory allows.

Neighbours: `register.py`, which computes there, and puts what it finds back onto the whole grid.
"""

import math
from dataclasses import dataclass

import torch

from roundtrip._free import free_memory
from roundtrip._shapes import Bool, Tensor
from roundtrip.space.grid import Grid
from roundtrip.space.resample import grid_with_spacing, resampled
from roundtrip.space.volume import Volume

# Of the contrast: what differs less from the background belongs to it.
_NOISE = 0.02

# Of the voxels on the border of an image that has a background: so many are of one intensity.
_UNIFORM = 0.9

# Free voxels around the foreground: room to move, and for windows to see an edge.
_MARGIN = 12

# A box is cut out where that saves at least so much.
_WORTH_IT = 0.85

# What a registration needs for each voxel of its grid and each channel beyond the first, at most.
BYTES_PER_VOXEL, BYTES_PER_CHANNEL = 232, 24

# Nothing works in less.
_LEAST = 2**16

# Of the free memory.
_SHARE = 0.7


@dataclass(frozen=True, eq=False)
class Domain:
    """The grid on which a pair is computed, and what has to be said about it."""

    grid: Grid
    first: tuple[int, ...] | None
    """The voxel of the fixed image at which it begins; None if it is coarser."""
    notes: tuple[str, ...] = ()

    def of(self, volume: Volume) -> Volume:
        """What a volume on the fixed grid shows here."""
        if self.first is None:
            return resampled(volume, like=self.grid)
        region = [slice(first, first + n) for first, n in zip(self.first, self.grid.shape, strict=True)]
        return Volume(volume.data[(slice(None), *region)].contiguous(), self.grid.world_from_voxel)


def domain_of(fixed: Volume, moving: Volume, *, memory: int | None = None, more: int = 0) -> Domain:
    """For two images on one grid: the box of what either of them shows, coarser where `memory` asks for it.

    `memory` is in bytes, what is free unless given; `more` are bytes needed for each voxel besides the usual.
    """
    first, grid = _box(fixed.grid, _foreground(fixed) | _foreground(moving))
    bytes_per_voxel = BYTES_PER_VOXEL + BYTES_PER_CHANNEL * (fixed.data.shape[0] - 1) + more
    available = max(free_memory() if memory is None else memory, _LEAST)
    needed = math.prod(grid.shape) * bytes_per_voxel
    if needed <= _SHARE * available:
        return Domain(grid, first)
    factor = (needed / (_SHARE * available)) ** (1 / grid.dims)
    coarse = grid_with_spacing(grid, [size * factor for size in grid.spacing])
    spacing = " x ".join(f"{size:.3g}" for size in coarse.spacing)
    note = (
        f"computed at {spacing} mm instead of {' x '.join(f'{size:.3g}' for size in grid.spacing)} mm: the "
        f"images' own resolution needs about {needed / 2**30:.1f} GB of memory, and {available / 2**30:.1f} "
        "GB are free."
    )
    return Domain(coarse, None, (note,))


def _foreground(volume: Volume) -> Bool[Tensor, "*S"]:
    """What differs from the one intensity at the border; everything, if the border has no one intensity."""
    data = volume.data.float()
    border = _border(data)
    background = border.median(dim=1).values.view(-1, *[1] * volume.dims)
    contrast = (data.amax() - data.amin()) * _NOISE
    if ((border - background.flatten(1)).abs() <= contrast).double().mean() < _UNIFORM:
        return torch.ones(volume.shape, dtype=torch.bool, device=data.device)
    return ((data - background).abs() > contrast).any(dim=0)


def _border(data: Tensor) -> Tensor:
    faces = [data.select(axis, end).flatten(1) for axis in range(1, data.ndim) for end in (0, -1)]
    return torch.cat(faces, dim=1)


def _box(grid: Grid, inside: Tensor) -> tuple[tuple[int, ...], Grid]:
    first, shape = [], []
    for axis, n in enumerate(grid.shape):
        others = [other for other in range(grid.dims) if other != axis]
        where = inside.any(dim=tuple(others)).nonzero() if others else inside.nonzero()
        if len(where) == 0:
            return (0,) * grid.dims, grid
        low, high = max(int(where[0]) - _MARGIN, 0), min(int(where[-1]) + _MARGIN, n - 1)
        first.append(low)
        shape.append(high - low + 1)
    if math.prod(shape) > _WORTH_IT * math.prod(grid.shape):
        return (0,) * grid.dims, grid
    matrix = grid.world_from_voxel.clone()
    matrix[:, -1] = grid.world_from_voxel @ torch.tensor([*first, 1], dtype=torch.float64)
    return tuple(first), Grid(tuple(shape), matrix)
