"""One slice of a volume as a picture: as a radiologist looks at it, and only what is in it is computed.

Neighbours: `volume_figures.py`, `plots.py` and `thumbnail.py` draw such slices.
"""

from dataclasses import dataclass

import numpy as np
import torch

from roundtrip._shapes import Float, Shaped, Tensor
from roundtrip.reports.display import Window, foreground
from roundtrip.space.grid import Affine, Grid
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

GRID_LINES = 20
"""Lines of a deformed grid along the longest side of a slice."""


@dataclass(frozen=True)
class Plane:
    """Which axes of a canonical volume run across the picture and down it, and whether down is turned up."""

    axis: int
    across: int
    down: int
    up: bool
    ends: str


PLANES = (Plane(2, 0, 1, False, "RL"), Plane(1, 0, 2, True, "RL"), Plane(0, 1, 2, True, "AP"))
"""Axial, coronal, sagittal; of an image of two axes, the first."""


class Cut:
    """One slice of a canonical grid, and the two beside it, for derivatives."""

    def __init__(self, plane: Plane, grid: Grid, at: Tensor) -> None:
        self.plane, self.dims = plane, grid.dims
        index = grid.voxel_from_world @ torch.cat([at, torch.ones(1, dtype=torch.float64)])
        shape, self.first, self.middle = list(grid.shape), [0] * grid.dims, 0
        if plane.axis < grid.dims:
            here = int(index[plane.axis].round().clamp(0, grid.shape[plane.axis] - 1))
            start, end = max(here - 1, 0), min(here + 2, grid.shape[plane.axis])
            self.first[plane.axis], shape[plane.axis], self.middle = start, end - start, here - start
        matrix = grid.world_from_voxel.clone()
        matrix[:, -1] = matrix @ torch.tensor([*self.first, 1.0], dtype=torch.float64)
        self.slab = Grid(tuple(shape), matrix)
        self.size = shape[plane.across], shape[plane.down]
        self.spacing = grid.spacing[plane.across], grid.spacing[plane.down]

    def picture(self, slab: Volume, window: Window) -> np.ndarray:
        """The slice between black, 0, and white, 1."""
        values = self.rows(slab.data[0].float().nan_to_num(window.low))
        return ((values - window.low) / (window.high - window.low)).clip(0, 1)

    def rows(self, values: Shaped[Tensor, "*S"]) -> np.ndarray:
        """The middle slice of values on the slab, the first row on top."""
        plane = values.movedim(self.plane.axis, 0)[self.middle] if self.dims == 3 else values
        picture = plane.mT.cpu().numpy()
        return picture[::-1] if self.plane.up else picture

    def of(self, volume: Volume) -> Volume:
        """The slab of a volume on the whole grid."""
        data = volume.data[:1]
        for axis, (start, size) in enumerate(zip(self.first, self.slab.shape, strict=True), start=1):
            data = data.narrow(axis, start, size)
        return Volume(data, self.slab.world_from_voxel)

    def deformed_lines(self, transform: Transform, linear: Affine) -> list[np.ndarray]:
        """Where the grid goes but for the linear part, in this plane: columns and rows of the picture."""
        lines = self._lines()
        to_world, to_voxel = self.slab.world_from_voxel, self.slab.voxel_from_world @ torch.linalg.inv(linear)
        x = torch.cat(lines) @ to_world[:-1, :-1].mT + to_world[:-1, -1]
        moved = transform.points(x).cpu() @ to_voxel[:-1, :-1].mT + to_voxel[:-1, -1]
        seen = moved[:, [self.plane.across, self.plane.down]]
        if self.plane.up:
            seen[:, 1] = self.size[1] - 1 - seen[:, 1]
        return [part.numpy() for part in seen.split([len(line) for line in lines])]

    def _lines(self) -> list[Tensor]:
        """Lines of a regular grid in the slice, each `(points, dims)` in voxels of the slab."""
        lengths = [(n - 1) * step for n, step in zip(self.size, self.spacing, strict=True)]
        apart = max(*lengths, 1e-6) / GRID_LINES
        counts = [max(2, round(length / apart) + 1) for length in lengths]
        found = []
        for along, line_axis in ((0, self.plane.across), (1, self.plane.down)):
            fixed_axis = (self.plane.across, self.plane.down)[1 - along]
            steps = torch.linspace(0, self.slab.shape[line_axis] - 1, 4 * counts[along], dtype=torch.float64)
            for place in torch.linspace(0, self.slab.shape[fixed_axis] - 1, counts[1 - along]).tolist():
                line = torch.full((len(steps), self.dims), float(self.middle), dtype=torch.float64)
                line[:, line_axis], line[:, fixed_axis] = steps, place
                found.append(line)
        return found


def middle_of(fixed: Volume, window: Window) -> Float[Tensor, "N"]:
    """The point of the world in the middle of what is bright."""
    inside = foreground(fixed, window).cpu()
    middle = [_mean_index(inside.movedim(axis, 0).flatten(1).sum(dim=1)) for axis in range(inside.ndim)]
    return (fixed.world_from_voxel @ torch.tensor([*middle, 1.0], dtype=torch.float64))[:-1]


def _mean_index(counts: Shaped[Tensor, "S"]) -> float:
    indices = torch.arange(len(counts), dtype=torch.float64)
    return float((indices * counts).sum() / counts.sum())
