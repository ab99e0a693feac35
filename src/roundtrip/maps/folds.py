"""Where a map folds, counted in three ways, each of a map that was evaluated on a grid.

`folds_as_published` is cheap and comparable with the paper's tables, `folds_central` is what the field
reports, and `non_diffeomorphic_volume` sees every fold of the grid. All take the points `(B, N, *S)` to
which a map sends the voxels, e.g. `on_grid_of(phi, fixed)`, and answer for each element of the batch. None
can be differentiated. Neighbour: `jacobian.py`.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from roundtrip._shapes import Float, Shaped, Tensor
from roundtrip.maps.jacobian import (
    Frame,
    checked_points,
    determinant,
    determinant_of_rows,
    grid_jacobian,
    require_frame,
)

# Cells whose determinants are computed together: few enough that all that is needed stays in the cache.
_CELLS_AT_ONCE = 2**17

Corner = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Folds:
    """How many voxels fold, in each element of a batch."""

    count: Shaped[Tensor, "B"]
    percent: Float[Tensor, "B"]
    """Of all voxels."""


@dataclass(frozen=True, eq=False)
class NonDiffeomorphicVolume:
    """How much volume is folded over, in each element of a batch."""

    volume: Float[Tensor, "B"]
    """Of the folded simplices after the map: in unit coordinates, or in those of the moving frame."""
    percent: Float[Tensor, "B"]
    """Of the volume of the fixed grid. Repeated folding over one place counts each time."""
    cells: Shaped[Tensor, "B"]
    """Cells of the grid with at least one simplex that is folded or has no volume left."""


@torch.no_grad()
def folds_as_published(points_on_grid: Float[Tensor, "B N *S"]) -> Float[Tensor, "B"]:
    """The number of cells whose finite-difference determinant is negative, as the published package counts.

    One determinant per cell of 2^N voxels, from the N edges that meet in one of its corners: the lowest in 1D
    and 2D (forward differences), the highest in 3D (backward differences). A determinant of exactly zero does
    not count, nor does one that is not a number; an axis of one voxel has no cells. Unit coordinates. The
    package gives the mean of this over the batch. The paper counts pixels where the volume form is negative.
    """
    points = checked_points(points_on_grid)
    B, N, depth, *rest = points.shape
    corner = (1,) * N if N == 3 else (0,) * N
    planes = max(1, _CELLS_AT_ONCE // (B * math.prod(rest)))
    count = points.new_zeros(B)
    for first in range(0, depth - 1, planes):
        edges = _edges_at(corner, points[:, :, first : first + planes + 1])
        count += (determinant_of_rows(edges) < 0).flatten(1).sum(dim=1)
    return count


@torch.no_grad()
def folds_central(
    points_on_grid: Float[Tensor, "B N *S"],
    *,
    fixed_frame: Frame | None = None,
    moving_frame: Frame | None = None,
) -> Folds:
    """The voxels where the determinant of the Jacobian by central differences is not positive.

    One determinant per voxel, border included, where the differences are one-sided (see `grid_jacobian`).
    With the linear parts of world-from-unit as frames it is the Jacobian of the map between the two worlds,
    in physical units: spacing does not change the sign of a determinant, but a mirrored frame does. Not a
    number counts as folded. Central differences skip the voxel in the middle, and so miss folds between
    neighbours.
    """
    determinants = determinant(grid_jacobian(points_on_grid))
    N = points_on_grid.shape[1]
    determinants = determinants * (_volume(moving_frame, N, "moving") / _volume(fixed_frame, N, "fixed"))
    folded = ~(determinants > 0).flatten(1)
    return Folds(folded.sum(dim=1), 100 * folded.to(determinants.dtype).mean(dim=1))


@torch.no_grad()
def non_diffeomorphic_volume(
    points_on_grid: Float[Tensor, "B N *S"],
    *,
    fixed_frame: Frame | None = None,
    moving_frame: Frame | None = None,
) -> NonDiffeomorphicVolume:
    """The volume on which a map of a grid is not a digital diffeomorphism.

    Liu et al., "On finite difference Jacobian computation in deformable image registration", IJCV 2024
    (arXiv 2212.06060). Each cell is cut into simplices in the two ways there are, which differ in the corners
    they cut off: in 1D the cell itself (twice), in 2D two triangles, in 3D four tetrahedra at corners and one
    in the middle. The map is taken to be linear in each simplex. Counted are the volumes of those that come
    out with negative orientation, averaged over the two ways; where all are positive, no one-sided difference
    of the grid sees a fold, nor does the central one. Frames as for `folds_central`: without them a volume of
    1 is that of the whole grid. An axis of one voxel is left out, and counts as thick as its frame says.
    """
    fixed_volume = _volume(fixed_frame, points_on_grid.shape[1], "fixed")
    moving_volume = _volume(moving_frame, points_on_grid.shape[1], "moving")
    orientation = math.copysign(1, moving_volume * fixed_volume)
    points = _without_flat_axes(checked_points(points_on_grid))
    B, N, *shape = points.shape
    cells = [n - 1 for n in shape]
    folded, any_folded = points.new_zeros(B), torch.zeros(B, *cells, dtype=torch.bool, device=points.device)
    for growth, parallelepiped in _growths(points):
        growth = growth * orientation
        any_folded |= ~(growth > 0)
        folded += growth.clamp(max=0).flatten(1).sum(dim=1) * (-abs(parallelepiped) / math.factorial(N) / 2)
    volume = folded * abs(moving_volume)
    return NonDiffeomorphicVolume(volume, 100 * volume / abs(fixed_volume), any_folded.flatten(1).sum(dim=1))


@torch.no_grad()
def worst_growth(points_on_grid: Float[Tensor, "B N *S"]) -> Float[Tensor, "B *cells"]:
    """The determinant of the map in the worst simplex of every cell; not positive where the cell folds.

    Simplices as in `non_diffeomorphic_volume`. In units of the cell: points given as voxel indices make it 1
    for the identity. An axis of one voxel is left out, of the result too.
    """
    points = _without_flat_axes(checked_points(points_on_grid))
    worst, *others = (growth for growth, _ in _growths(points))
    for growth in others:
        worst = torch.minimum(worst, growth)
    return worst


def _growths(points: Tensor) -> Iterator[tuple[Tensor, float]]:
    """For every simplex of a cell: its determinant in all cells, and its own volume, as a parallelepiped."""
    for simplex in _simplices(points.shape[1]):
        parallelepiped = _parallelepiped(simplex)
        start, *ends = (points[(..., *_corners(corner))] for corner in simplex)
        # For the identity, the volume of a cell: dividing by the simplex as it was leaves the growth alone.
        yield determinant_of_rows([end - start for end in ends]) / parallelepiped, parallelepiped


def _edges_at(corner: Corner, points: Tensor) -> list[Tensor]:
    """Along each axis, the edge of every cell that ends in its `corner`, from lower to higher index."""
    edges = []
    for axis in range(len(corner)):
        slices = _corners(corner)
        slices[axis] = slice(None)
        edges.append(points.diff(dim=axis + 2)[(..., *slices)])
    return edges


def _corners(corner: Corner) -> list[Any]:
    """Selects from a grid of voxels the `corner` (0 the lower, 1 the higher, of each axis) of every cell."""
    return [slice(1, None) if high else slice(None, -1) for high in corner]


def _simplices(N: int) -> Iterator[tuple[Corner, ...]]:
    """The corners of every simplex of both ways to cut a cube."""
    cube = list(itertools.product((0, 1), repeat=N))
    for corner in cube:
        neighbours = (tuple(c ^ (d == axis) for d, c in enumerate(corner)) for axis in range(N))
        yield (corner, *neighbours)
    for parity in (0, 1):
        # Every other corner is cut off; in three dimensions a tetrahedron remains, in fewer nothing.
        left = tuple(corner for corner in cube if sum(corner) % 2 == parity)
        if len(left) == N + 1:
            yield left


def _parallelepiped(simplex: tuple[Corner, ...]) -> float:
    """Signed volume spanned by the edges of a simplex that leave its first corner, for a cube of 1."""
    start, *ends = torch.tensor(simplex, dtype=torch.float64)
    return torch.linalg.det(torch.stack([end - start for end in ends])).round().item()


def _without_flat_axes(points: Tensor) -> Tensor:
    """A map of the axes that have more than one voxel only."""
    axes = [axis for axis, n in enumerate(points.shape[2:]) if n > 1] or [0]
    flat = [axis + 2 for axis, n in enumerate(points.shape[2:]) if axis not in axes]
    return points[:, axes].squeeze(flat)


def _volume(frame: Tensor | None, N: int, name: str) -> float:
    """Signed volume of the unit cube of a frame in its world; 1 without one."""
    if frame is None:
        return 1.0
    require_frame(frame, N, f"{name}_frame")
    return torch.linalg.det(frame.double()).item()
