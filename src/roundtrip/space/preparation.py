"""Carries out what a model's card declares: any image becomes one that the model can see.

The declaration is `Preparation` (`algorithms/card.py`). What comes out is a `Volume` that still knows where
its voxels lie in the world, mirrored ones included: a map between two prepared images is a map between two
worlds, and nothing about the preparation has to be undone.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from roundtrip._shapes import Float, Points, Tensor
from roundtrip.algorithms.card import Intensities, Preparation
from roundtrip.space.grid import Affine, affine_map, axes_of_code, nearest_axes
from roundtrip.space.volume import Volume


def prepare(
    volume: Volume, preparation: Preparation, *, mask: Volume | None = None, mirrored: bool = False
) -> Volume:
    """An image as the model wants it: float32 on the grid that `preparation` declares, intensities adapted.

    Intensities are measured on the whole image, before anything is cut off or added. What is added around it
    is 0, or the image's minimum where intensities are left as they are. `mirrored`: whether this is one of
    the images that are mirrored.
    """
    _require_dims(volume, preparation)
    data = volume.data.float()
    inside = None if preparation.mask is None else _inside(volume, mask)
    if preparation.intensities is not None:
        data = _rescaled(data, preparation.intensities, inside)
    if preparation.mask == "background":
        assert inside is not None
        data = torch.where(inside, data, data.new_zeros(()))
    around = 0.0 if preparation.intensities is not None else float(data.min())
    return _on_grid(Volume(data, volume.world_from_voxel), preparation, mirrored=mirrored, around=around)


def prepare_labels(labels: Volume, preparation: Preparation, *, mirrored: bool = False) -> Volume:
    """A label map or a mask on the grid that `prepare` gives its image: nearest voxels, 0 around them."""
    _require_dims(labels, preparation)
    if not labels.is_labels:
        raise ValueError(
            f"a label map holds whole numbers, but this one is {labels.data.dtype}; read it with "
            "`rt.read(path, labels=True)`."
        )
    return _on_grid(labels, preparation, mirrored=mirrored, around=0.0)


def prepare_points(points: Float[Tensor, "P N"], prepared: Volume) -> Points:
    """Points in LPS millimetres, one to a row, as unit coordinates of a prepared image `(1, N, P)`."""
    return affine_map(prepared.unit_from_world, like=points)(points.mT[None])


def _require_dims(volume: Volume, preparation: Preparation) -> None:
    given = (preparation.orientation, preparation.spacing, preparation.grid)
    wanted = next((len(value) for value in given if value is not None), volume.dims)
    if volume.dims != wanted:
        raise ValueError(
            f"it has {volume.dims} spatial axes (shape {volume.shape}), but the preparation is for images of "
            f"{wanted}. Give images of {wanted} dimensions."
        )


def _inside(volume: Volume, mask: Volume | None) -> Tensor:
    if mask is None:
        raise ValueError(
            "its preparation uses a mask, but no mask was given. Give the mask that shows what belongs to "
            "the image."
        )
    if not mask.grid.same_as(volume.grid, tolerance=0.1):
        raise ValueError(
            f"its mask lies on another grid: {mask.grid!r} instead of {volume.grid!r}. Resample the mask "
            "onto the image, or draw it there."
        )
    inside = (mask.data[:1] != 0).to(volume.data.device)
    if not inside.any():
        raise ValueError("its mask is empty: no voxel belongs to the image.")
    return inside


def _rescaled(data: Tensor, rule: Intensities, inside: Tensor | None) -> Tensor:
    """Channel by channel: `lower` becomes 0, `upper` 1."""
    channels = [_rescaled_channel(channel, rule, inside) for channel in data]
    return torch.stack(channels)


def _rescaled_channel(channel: Tensor, rule: Intensities, inside: Tensor | None) -> Tensor:
    lower, upper = rule.lower, rule.upper
    if rule.unit == "percentiles":
        # torch's own quantile refuses more than 16 million values.
        measured = (channel if inside is None else channel[inside[0]]).cpu().numpy()
        lower, upper = np.percentile(measured, [rule.lower, rule.upper]).tolist()
        if lower == upper:
            raise ValueError(
                f"its percentiles {rule.lower:g} and {rule.upper:g} are both {lower:g}: nearly all voxels "
                "are the same. Choose percentiles further apart, or a mask, or check the file."
            )
    return ((channel - lower) / (upper - lower)).clamp(0, 1)


def _on_grid(volume: Volume, preparation: Preparation, *, mirrored: bool, around: float) -> Volume:
    if preparation.orientation is not None:
        volume = _oriented(volume, preparation.orientation)
    if mirrored:
        if preparation.mirror is None:
            raise ValueError("`mirrored` was asked for, but the preparation does not say along which axis.")
        volume = _flipped(volume, preparation.mirror.axis)
    if preparation.spacing is not None:
        volume = _resampled(volume, _shape_at(volume, preparation.spacing), preparation.spacing)
        if preparation.grid is not None:
            volume = _cropped_or_padded(volume, preparation.grid, around)
    elif preparation.grid is not None:
        extents = [n * size for n, size in zip(volume.shape, volume.spacing, strict=True)]
        spacing = [extent / n for extent, n in zip(extents, preparation.grid, strict=True)]
        volume = _resampled(volume, preparation.grid, spacing)
    return volume


def _oriented(volume: Volume, code: str) -> Volume:
    """The axes in the order, and running in the directions, that are nearest to `code`."""
    here, wanted = nearest_axes(volume.world_from_voxel), axes_of_code(code, volume.dims)
    axes = [next(a for a, (world, _) in enumerate(here) if world == w) for w, _ in wanted]
    columns = [*axes, volume.dims]
    data = volume.data.permute(0, *(1 + axis for axis in axes))
    turned = Volume(data, volume.world_from_voxel[:, columns])
    for axis, (old, (_, negative)) in enumerate(zip(axes, wanted, strict=True)):
        if here[old][1] != negative:
            turned = _flipped(turned, axis)
    return turned


def _flipped(volume: Volume, axis: int) -> Volume:
    """The voxels of an axis in the opposite order, each where it was in the world."""
    flip = torch.eye(volume.dims + 1, dtype=torch.float64)
    flip[axis, axis], flip[axis, -1] = -1, volume.shape[axis] - 1
    return Volume(volume.data.flip(1 + axis), volume.world_from_voxel @ flip)


def _shape_at(volume: Volume, spacing: Sequence[float]) -> list[int]:
    """How many voxels of `spacing` cover the field of view."""
    old = zip(volume.shape, volume.spacing, spacing, strict=True)
    return [max(1, round(n * size / new)) for n, size, new in old]


def _resampled(volume: Volume, shape: Sequence[int], spacing: Sequence[float]) -> Volume:
    """On another number of voxels per axis, around the same centre."""
    data, change = volume.data, torch.eye(volume.dims + 1, dtype=torch.float64)
    for axis, (n, m, size, new) in enumerate(zip(volume.shape, shape, volume.spacing, spacing, strict=True)):
        step = new / size
        if n == m and abs(step - 1) * n < 1e-3:
            continue
        first = (n - 1) / 2 - step * (m - 1) / 2
        change[axis, axis], change[axis, -1] = step, first
        data = _resampled_axis(data, 1 + axis, first + step * torch.arange(m, dtype=torch.float64), step)
    return Volume(data, volume.world_from_voxel @ change)


def _resampled_axis(data: Tensor, axis: int, at: Float[Tensor, "m"], step: float) -> Tensor:
    """The values at fractional indices `at` of one axis, `step` apart: nearest for labels, else linear.

    Where voxels become larger, each is the mean of as many samples, side by side, as it replaces.
    """
    n, samples = data.shape[axis], max(1, math.ceil(step - 1e-3))
    if not data.is_floating_point():
        nearest = (at + 0.5).floor().long().clamp(0, n - 1)
        return data.index_select(axis, nearest.to(data.device))
    offsets = step * ((torch.arange(samples, dtype=torch.float64) + 0.5) / samples - 0.5)
    places = (at[:, None] + offsets).clamp(0, n - 1)
    distance = (places[..., None] - torch.arange(n, dtype=torch.float64)).abs()
    weights = (1 - distance).clamp(min=0).mean(dim=1).to(data)
    return (data.movedim(axis, -1) @ weights.mT).movedim(-1, axis)


def _cropped_or_padded(volume: Volume, grid: Sequence[int], around: float) -> Volume:
    """As many voxels off or on at both ends of every axis; of an odd number, one more at the far end."""
    before = [_half(m - n) for n, m in zip(volume.shape, grid, strict=True)]
    data = volume.data.new_full((volume.data.shape[0], *grid), around)
    target, source = [slice(None)], [slice(None)]
    for n, m, first in zip(volume.shape, grid, before, strict=True):
        target.append(slice(max(first, 0), min(first + n, m)))
        source.append(slice(max(-first, 0), min(-first + m, n)))
    data[tuple(target)] = volume.data[tuple(source)]
    return Volume(data, volume.world_from_voxel @ _shift([-first for first in before]))


def _half(added: int) -> int:
    """Half of the voxels, rounded towards 0: cropping undoes padding."""
    return added // 2 if added >= 0 else -(-added // 2)


def _shift(voxels: Sequence[int]) -> Affine:
    matrix = torch.eye(len(voxels) + 1, dtype=torch.float64)
    matrix[:-1, -1] = torch.tensor(voxels, dtype=torch.float64)
    return matrix
