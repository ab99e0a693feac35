"""Volumes as a screen wants them: axes in one order, bytes instead of numbers, no more voxels than needed.

Everything keeps its place in the world. Neighbours: `packing.py`, which writes such volumes into a page.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from roundtrip._shapes import Bool, Float, Shaped, Tensor
from roundtrip.space.grid import Affine, Grid
from roundtrip.space.resample import reoriented
from roundtrip.space.volume import Volume

# Enough values to know a percentile by, few enough to sort at once.
_SAMPLES = 100_000


@dataclass(frozen=True)
class Window:
    """The intensities that become black and white."""

    low: float
    high: float


def canonical(volume: Volume) -> Volume:
    """Axes to the patient's left, back and head, to the nearest, whatever the order in the file."""
    return reoriented(volume, "LPS"[: volume.dims])


def with_nothing_on(grid: Grid) -> Volume:
    """A volume on a grid that takes next to no memory."""
    nothing = torch.zeros((), dtype=torch.uint8).expand(1, *grid.shape)
    return Volume(nothing, grid.world_from_voxel)


def window_of(volume: Volume) -> Window:
    """From the lowest intensities to those that one in two hundred of the others exceeds.

    The others: half of many images is background, all of one value, which says nothing about tissue.
    """
    values = volume.data[0].flatten()
    sample = values[:: max(1, values.numel() // _SAMPLES)].float().cpu().numpy()
    sample = sample[np.isfinite(sample)]
    if not sample.size:
        return Window(0.0, 1.0)
    low = float(np.percentile(sample, 0.5))
    above = sample[sample > low]
    high = float(np.percentile(above, 99.5)) if above.size else low + 1.0
    return Window(low, high)


def foreground(volume: Volume, window: Window) -> Bool[Tensor, "*S"]:
    """Where the first channel is clearly brighter than black; everywhere if that is nowhere."""
    inside = volume.data[0] > window.low + 0.1 * (window.high - window.low)
    return inside if bool(inside.any()) else torch.ones_like(inside)


def as_bytes(volume: Volume, window: Window) -> Volume:
    """The first channel, black 0 and white 255; what is not a number is black."""
    scaled = (volume.data[:1].float() - window.low) * (255 / (window.high - window.low))
    return Volume(scaled.nan_to_num(0.0).clamp(0, 255).round().to(torch.uint8), volume.world_from_voxel)


def factor_for(shape: Sequence[int], most: int) -> int:
    """Into cubes of how many voxels a side a grid is binned, so that at most `most` are left."""
    factor = 1
    while math.prod(-(-n // factor) for n in shape) > most:
        factor += 1
    return factor


def binned(volume: Volume, factor: int, *, largest: bool = False) -> Volume:
    """The mean, or the `largest` value, of every cube of `factor` voxels a side; those at the end are cut."""
    if factor == 1:
        return volume
    matrix = world_from_bin(volume.world_from_voxel, factor)
    pool = _POOLS[volume.dims][int(largest)]
    data = pool(volume.data.float()[None], factor, ceil_mode=True, padding=0)[0]
    return Volume(data if volume.data.is_floating_point() else data.round().to(volume.data.dtype), matrix)


def every(volume: Volume, factor: int) -> Volume:
    """The middle voxel of every cube of `factor` voxels a side: labels cannot be averaged."""
    if factor == 1:
        return volume
    # Cubes at the end may be cut so short that their middle is missing: their last voxel stands in.
    picks = [
        (torch.arange(-(-n // factor)) * factor + factor // 2).clamp(max=n - 1).to(volume.data.device)
        for n in volume.shape
    ]
    data = volume.data
    for axis, pick in enumerate(picks, start=1):
        data = data.index_select(axis, pick)
    return Volume(data, world_from_bin(volume.world_from_voxel, factor))


def world_from_bin(world_from_voxel: Affine, factor: int) -> Affine:
    """A cube of `factor` voxels a side has its centre in the middle of them."""
    voxel_from_bin = torch.eye(len(world_from_voxel), dtype=torch.float64) * factor
    voxel_from_bin[:-1, -1] = (factor - 1) / 2
    voxel_from_bin[-1, -1] = 1
    return world_from_voxel @ voxel_from_bin


def nodes_over(grid: Grid, most: int) -> Grid:
    """At most about `most` nodes, the outermost ones on the outermost voxels of `grid`."""
    factor = factor_for(grid.shape, most)
    shape = tuple(1 if n == 1 else max(2, (n - 1) // factor + 1) for n in grid.shape)
    steps = [max(old - 1, 1) / max(new - 1, 1) for old, new in zip(grid.shape, shape, strict=True)]
    return Grid(shape, grid.world_from_voxel * torch.tensor([*steps, 1.0], dtype=torch.float64))


def linear_part(displacement: Volume) -> Affine:
    """The affine map of the world that is closest, in least squares, to x -> x + displacement(x)."""
    N = displacement.dims
    step = factor_for(displacement.shape, 20_000)
    axes = [torch.arange(0, n, step, dtype=torch.float64) for n in displacement.shape]
    voxels = torch.cartesian_prod(*axes).view(-1, N)
    x = torch.cat([voxels, torch.ones(len(voxels), 1, dtype=torch.float64)], dim=1)
    x = x @ displacement.world_from_voxel.mT
    some = displacement.data[(slice(None), *[slice(None, None, step)] * N)]
    moved = some.flatten(1).mT.cpu().double().nan_to_num(0.0)
    centre = x.mean(dim=0)
    centre[-1] = 0
    from_centre = x - centre
    # The pseudo-inverse: an axis of one voxel says nothing about growth along it.
    normal = torch.linalg.pinv(from_centre.mT @ from_centre, rtol=1e-12, hermitian=True)
    slope = normal @ (from_centre.mT @ moved)
    matrix = torch.eye(N + 1, dtype=torch.float64)
    matrix[:-1, :-1] += slope[:-1].mT
    matrix[:-1, -1] = slope[-1] - slope[:-1].mT @ centre[:-1]
    return matrix


def in_three(matrix: Affine) -> Float[Tensor, "4 4"]:
    """A world of two axes as a plane of one of three."""
    if len(matrix) == 4:
        return matrix
    full = torch.eye(4, dtype=torch.float64)
    for new, old in ((0, 0), (1, 1), (3, 2)):
        full[new, [0, 1, 3]] = matrix[old]
    return full


def slices_of(data: Shaped[Tensor, "*S"]) -> np.ndarray:
    """Axis 0 becomes the last and fastest, and a plane the only slice of a volume."""
    values = data if data.ndim == 3 else data[..., None]
    return values.permute(2, 1, 0).contiguous().cpu().numpy()


_POOLS = {
    2: (functional.avg_pool2d, functional.max_pool2d),
    3: (functional.avg_pool3d, functional.max_pool3d),
}
