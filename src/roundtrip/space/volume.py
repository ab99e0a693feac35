"""`Volume`: an image or a label map in the world. Neighbours: `grid.py` (where voxels lie), `files.py`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from roundtrip._checks import shape_of
from roundtrip._shapes import Float, Shaped, Tensor
from roundtrip.space.grid import Affine, Grid


@dataclass(frozen=True, eq=False, repr=False)
class Volume:
    """Values on a grid in the world. `data` is `(C, *S)`: channels, then the axes in the order of NIfTI.

    `world_from_voxel` takes the index (i, j, k, 1) of a voxel to its place in LPS millimetres, in float64.
    Whole numbers are labels, floating-point numbers are intensities: that decides how they are warped.
    """

    data: Shaped[Tensor, "C *S"]
    world_from_voxel: Affine

    def __post_init__(self) -> None:
        if not 2 <= self.data.ndim <= 4 or 0 in self.data.shape:
            raise ValueError(
                f"`data` has shape {shape_of(self.data)}; needed is (channels, *grid) with 1, 2 or 3 grid "
                "axes, none of them empty. Add the axis of one channel in front: `data[None]`."
            )
        grid = Grid(tuple(self.data.shape[1:]), self.world_from_voxel)
        object.__setattr__(self, "world_from_voxel", grid.world_from_voxel)

    @property
    def grid(self) -> Grid:
        return Grid(self.shape, self.world_from_voxel)

    @property
    def dims(self) -> int:
        return self.data.ndim - 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Voxels along each axis, without the channels."""
        return tuple(self.data.shape[1:])

    @property
    def is_labels(self) -> bool:
        """Whole numbers are labels."""
        return not self.data.is_floating_point()

    @property
    def spacing(self) -> tuple[float, ...]:
        """Millimetres from one voxel centre to the next, along each axis."""
        return self.grid.spacing

    @property
    def direction(self) -> Float[Tensor, "N N"]:
        """Column j is the unit vector along axis j in the world."""
        return self.grid.direction

    @property
    def origin(self) -> Float[Tensor, "N"]:
        """Where the centre of the first voxel lies, in LPS millimetres."""
        return self.grid.origin

    @property
    def world_from_unit(self) -> Affine:
        """From unit coordinates, voxel i of n at i / (n - 1), to LPS millimetres."""
        return self.grid.world_from_unit

    @property
    def unit_from_world(self) -> Affine:
        """From LPS millimetres to unit coordinates."""
        return self.grid.unit_from_world

    def to(self, *args: Any, **kwargs: Any) -> "Volume":
        """The same volume with its values moved or converted as `Tensor.to` does it."""
        return Volume(self.data.to(*args, **kwargs), self.world_from_voxel)

    def __repr__(self) -> str:
        kind = str(self.data.dtype).removeprefix("torch.")
        return f"Volume({self.data.shape[0]} channel(s) of {kind} on {self.data.device}, {self.grid!r})"


def grid_of(place: "Volume | Grid") -> Grid:
    """The grid of a volume, or the grid itself."""
    return place.grid if isinstance(place, Volume) else place


def stacked(volumes: Sequence[Volume], names: Sequence[str]) -> Volume:
    """Several images of one thing as the channels of one volume, on the grid of the first.

    `names` are those that an error speaks of.
    """
    first = volumes[0]
    for volume, name in zip(volumes, names, strict=True):
        if not volume.grid.same_as(first.grid, tolerance=0.1):
            raise ValueError(
                f"{name} lies on another grid than {names[0]}: {volume.grid!r} instead of {first.grid!r}. "
                "Several images of one person are compared voxel by voxel; resample them onto the first: "
                "`roundtrip.space.resample.resampled(image, like=first)`."
            )
    if len(volumes) == 1:
        return first
    return Volume(torch.cat([volume.data.float() for volume in volumes]), first.world_from_voxel)


def require_contrast(volume: Volume, name: str) -> None:
    """There is something in the image to register: it holds at least two different, finite values."""
    data = volume.data
    if data.is_floating_point() and not torch.isfinite(data).all():
        bad = int((~torch.isfinite(data)).sum())
        raise ValueError(
            f"{name} holds {bad} values that are NaN or infinite. Replace them, e.g. "
            f"`rt.read(path, replace_nan=0)`."
        )
    if data.min() == data.max():
        raise ValueError(
            f"every voxel of {name} is {data.flatten()[0].item():g}: there is nothing to register. Check "
            "that it is the right file, and of a 4-D file the right volume."
        )
