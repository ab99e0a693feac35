"""Volumes on other grids of the same world: turned, cropped, padded, coarser, finer, or like another volume.

Everything stays where it was in the world. Neighbours: `sampling.py`, `smoothing.py`; `transform.py` is for
moving things.
"""

from collections.abc import Sequence

import torch

from roundtrip.maps.interpolate import Interpolation
from roundtrip.space.grid import Affine, Grid, axes_of_code, nearest_axes
from roundtrip.space.sampling import default_interpolation, keeps_labels, sample, unit_points_of
from roundtrip.space.smoothing import antialiased
from roundtrip.space.volume import Volume, grid_of


def reoriented(volume: Volume, code: str) -> Volume:
    """`volume` with its axes in the order and direction of `code`, to the nearest: "LPS", "RAS", "LP".

    The letters say where each axis grows to, as in nibabel: first to the left, then back, then to the head.
    Voxels are only renamed, never interpolated.
    """
    target = axes_of_code(code, volume.dims)
    now = {
        world: (axis, negative)
        for axis, (world, negative) in enumerate(nearest_axes(volume.world_from_voxel))
    }
    order = [now[world][0] for world, _ in target]
    flips = [now[world][1] != negative for world, negative in target]

    old_from_new = torch.zeros_like(volume.world_from_voxel)
    old_from_new[-1, -1] = 1
    for new, (old, flip) in enumerate(zip(order, flips, strict=True)):
        old_from_new[old, new] = -1 if flip else 1
        old_from_new[old, -1] = volume.shape[old] - 1 if flip else 0
    data = volume.data.permute(0, *(axis + 1 for axis in order))
    data = data.flip([axis for axis, flip in enumerate(flips, start=1) if flip])
    return Volume(data.contiguous(), volume.world_from_voxel @ old_from_new)


def with_grid(volume: Volume, shape: Sequence[int], *, fill: float = 0.0) -> Volume:
    """`volume` cropped or padded about its centre to `shape` voxels; an odd one left over goes last."""
    if len(shape) != volume.dims or min(shape, default=0) < 1:
        raise ValueError(
            f"`shape` is {tuple(shape)}; a volume of {volume.dims} axes needs {volume.dims} sizes from 1."
        )
    data = volume.data.new_full((volume.data.shape[0], *shape), fill)
    first = [
        (old - new) // 2 if old > new else -((new - old) // 2)
        for old, new in zip(volume.shape, shape, strict=True)
    ]
    source, target = [slice(None)], [slice(None)]
    for start, old, new in zip(first, volume.shape, shape, strict=True):
        source.append(slice(max(start, 0), min(start + new, old)))
        target.append(slice(max(-start, 0), min(-start + old, new)))
    data[tuple(target)] = volume.data[tuple(source)]
    return Volume(data, _shifted(volume.world_from_voxel, first))


def resampled(
    volume: Volume,
    *,
    spacing: float | Sequence[float] | None = None,
    like: Volume | Grid | None = None,
    interpolation: Interpolation | None = None,
    fill: float = 0.0,
) -> Volume:
    """`volume` with another `spacing` (one number or one per axis, in mm), or on the grid of `like`.

    With `spacing` axes and field of view stay, to the voxel, about the same centre. Images are interpolated
    linearly, after blurring them as far as coarser voxels ask (see `antialiased`); labels come from the
    nearest voxel. What `volume` does not cover becomes `fill`.
    """
    if (spacing is None) == (like is None):
        raise ValueError(
            "give either `spacing`, e.g. `resampled(volume, spacing=2.0)`, or `like`, another volume."
        )
    grid = grid_of(like) if like is not None else grid_with_spacing(volume, spacing)  # type: ignore[arg-type]
    require_same_dims(volume, grid)
    if grid.same_as(volume.grid, tolerance=1e-6):
        return Volume(volume.data, grid.world_from_voxel)
    interpolation = interpolation or default_interpolation(volume)
    if not keeps_labels(interpolation):
        floating = volume if volume.data.is_floating_point() else volume.to(torch.float32)
        volume = antialiased(floating, grid)
    x = unit_points_of(grid, volume.grid, like=volume.data.float())
    return Volume(sample(volume, x, interpolation=interpolation, fill=fill), grid.world_from_voxel)


def grid_with_spacing(place: Volume | Grid, spacing: float | Sequence[float]) -> Grid:
    """The grid of other voxels in the same box of the world, with as many as fit to the nearest, centred."""
    grid = grid_of(place)
    sizes = [float(spacing)] * grid.dims if isinstance(spacing, int | float) else [float(s) for s in spacing]
    if len(sizes) != grid.dims or not all(0 < size < float("inf") for size in sizes):
        raise ValueError(
            f"`spacing` is {spacing}; an image of {grid.dims} axes needs one positive number of "
            f"millimetres, or {grid.dims}."
        )
    shape = [
        max(1, round(n * old / new)) for n, old, new in zip(grid.shape, grid.spacing, sizes, strict=True)
    ]
    old_from_new = torch.eye(grid.dims + 1, dtype=torch.float64)
    for axis, (n_old, n_new) in enumerate(zip(grid.shape, shape, strict=True)):
        ratio = sizes[axis] / grid.spacing[axis]
        old_from_new[axis, axis] = ratio
        old_from_new[axis, -1] = (n_old - 1) / 2 - ratio * (n_new - 1) / 2
    return Grid(tuple(shape), grid.world_from_voxel @ old_from_new)


def require_same_dims(volume: Volume | Grid, other: Volume | Grid) -> None:
    if volume.dims != other.dims:
        raise ValueError(
            f"one image has {volume.dims} axes and the other {other.dims}; a slice goes with a slice, a "
            "volume with a volume."
        )


def _shifted(world_from_voxel: Affine, first: Sequence[int]) -> Affine:
    """The affine once voxel `first` is the new voxel 0."""
    matrix = world_from_voxel.clone()
    matrix[:, -1] = world_from_voxel @ torch.tensor([*first, 1], dtype=torch.float64)
    return matrix
