"""The values of a volume at any points, and what is outside it. Neighbours: `resample.py`, `transform.py`.

A voxel is a box: up to half a voxel beyond the outermost centres a point sees the nearest edge, farther out
the `fill`. ITK's resampler draws the line in the same place, but counts of the points on it only those on the
lower side as inside; here all are, to rounding noise.
"""

import torch

from roundtrip._shapes import Bool, Float, Points, Shaped, Tensor
from roundtrip.maps.grid import along_channels, unit_grid, voxel_size
from roundtrip.maps.interpolate import Interpolation, interpolate, interpolate_nearest
from roundtrip.space.grid import Grid, affine_map
from roundtrip.space.volume import Volume

# Rounding noise of a coordinate, in voxels: halfway between two voxels is common, and must not be a lottery.
_NOISE = 1e-4


def sample(
    volume: Volume, x: Points, *, interpolation: Interpolation | None = None, fill: float = 0.0
) -> Shaped[Tensor, "C *P"]:
    """The values of `volume` at unit coordinates `x`; unless told, labels' nearest, images' linear."""
    interpolation = interpolation or default_interpolation(volume)
    data = volume.data[None]
    if not (keeps_labels(interpolation) or data.is_floating_point()):
        data = data.float()
    if keeps_labels(interpolation):
        x = x + along_channels(_NOISE * voxel_size(volume.shape, like=x), x)
    values = interpolation(data, x)
    return torch.where(inside_boxes(x, volume.grid), values, torch.full_like(values[:1, :1], fill))[0]


def default_interpolation(volume: Volume) -> Interpolation:
    return interpolate_nearest if volume.is_labels else interpolate


def keeps_labels(interpolation: Interpolation) -> bool:
    """Whether it only gives values that are in the image, and so takes labels as they are."""
    return interpolation in (interpolate_nearest, interpolate_one_hot)


def interpolate_one_hot(
    values: Shaped[Tensor, "#B C *S"], at: Float[Tensor, "#B N *P"]
) -> Shaped[Tensor, "b C *P"]:
    """The label with the most weight among the neighbouring voxels: smoother borders than the nearest voxel.

    Each label is interpolated linearly as an image of 0 and 1, one after the other to save memory; of equal
    weights the smallest label wins.
    """
    most, winner = None, None
    for label in values.unique():
        weight = interpolate((values == label).to(at.dtype), at)
        if most is None or winner is None:
            most, winner = weight, label.expand_as(weight).clone()
        else:
            # More than rounding noise: at a tie the order decides.
            more = weight > most + 1e-6
            most, winner = torch.where(more, weight, most), torch.where(more, label, winner)
    assert winner is not None
    return winner


def inside_boxes(x: Points, grid: Grid) -> Bool[Tensor, "B 1 *P"]:
    """Which unit coordinates lie within the box of some voxel of `grid`."""
    margin = along_channels((0.5 + _NOISE) * voxel_size(grid.shape, like=x), x)
    return ((x >= -margin) & (x <= 1 + margin) & ~_beyond_single_voxel(x, grid)).all(dim=1, keepdim=True)


def unit_points_of(grid: Grid, source: Grid, *, like: Tensor) -> Points:
    """Where the voxels of `grid` lie in the unit coordinates of `source`, the world being the same."""
    return affine_map(source.unit_from_world @ grid.world_from_unit, like=like)(
        unit_grid(grid.shape, like=like)
    )


def _beyond_single_voxel(x: Points, grid: Grid) -> Tensor:
    """The only voxel of an axis lies at 0 and is 1 thick: its box ends at 1/2, not at 3/2."""
    single = torch.tensor([n == 1 for n in grid.shape], device=x.device)
    return (x > 0.5 + _NOISE) & single.view(1, -1, *[1] * (x.ndim - 2))
