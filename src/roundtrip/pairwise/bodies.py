"""Regions that must stay rigid: while a deformation is sought they move as bodies, and in the end they are.

A body is the voxels of one label of a mask, drawn on the fixed image or on the moving one. Neighbours:
`anchors.py` (how its points are kept in their places), `deformable.py` (makes the final maps rigid there).
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F

from roundtrip._shapes import Float, Shaped, Tensor
from roundtrip.maps.grid import unit_from_voxel, unit_grid, voxel_from_unit
from roundtrip.pairwise.anchors import AbstractAnchors, Places, middle_of, read_points, voxels_of
from roundtrip.pairwise.arithmetic import Vectors
from roundtrip.pairwise.linear_landmarks import fit
from roundtrip.space.grid import Affine

# Voxels around a body that move with it: a cell of the other image that shows some of the body has its
# corners no farther away.
_AROUND = 2

# So many points of each body tell how it moves.
_POINTS = 20000


@dataclass(frozen=True, eq=False)
class Bodies(AbstractAnchors):
    """What must stay rigid on one `side`, and the frames in which that is meant."""

    labels: Shaped[Tensor, "X Y Z"]
    """On the grid of both images, of three axes; 0 is free."""
    side: Literal["fixed", "moving"]
    fixed_frame: Affine
    """From unit coordinates of the grid, of three axes, to millimetres of the fixed world."""
    moving_frame: Affine
    """The same, to the moving world."""
    tolerance: float = 0.0

    @functools.cached_property
    def wide(self) -> Shaped[Tensor, "X Y Z"]:
        """The bodies and what is around them: a cell is rigid where all its corners are, both ways."""
        near = self.labels.float()[None, None]
        for axis in range(3):
            reach = [_AROUND * int(axis == other and near.shape[2 + other] > 1) for other in range(3)]
            near = F.max_pool3d(near, [1 + 2 * r for r in reach], stride=1, padding=reach)
        return torch.where(self.labels > 0, self.labels, near[0, 0].to(self.labels.dtype))

    @functools.cached_property
    def points(self) -> dict[int, Float[Tensor, "3 P"]]:
        """Some points of every body, spread evenly, in unit coordinates."""
        x = unit_grid(tuple(self.wide.shape), like=torch.empty(0, dtype=torch.float64))[0].flatten(1)
        wide, found = self.wide.flatten().cpu(), {}
        for body in wide.unique().tolist():
            if body:
                own = x[:, wide == body]
                found[body] = own[:, :: max(1, own.shape[1] // _POINTS)]
        return found

    def ends(self, fields: Sequence[Vectors]) -> tuple[Places, Places]:
        """The points of every body, and where the rigid motion that is nearest to theirs takes them."""
        start, end = fields if self.side == "fixed" else fields[::-1]
        own, other = [], []
        for points in self.points.values():
            x = middle_of(voxels_of(points.to(start), start.shape[1:]), start)
            there = unit_from_voxel((x + read_points(end, x))[None], end.shape[1:])[0]
            own.append(points.to(start))
            other.append(_moved(self._motion(points, there), points).to(start))
        pair = torch.cat(own, dim=1), torch.cat(other, dim=1)
        return pair if self.side == "fixed" else pair[::-1]

    def made_rigid(self, u: Vectors) -> Vectors:
        """`u`, from this side's image to the other, with bodies on the rigid motions nearest to their own."""
        shape, u = u.shape[1:], u.clone()
        wide = self.wide.to(u.device)
        for body, points in self.points.items():
            at = voxels_of(points.to(u), shape)
            motion = self._motion(points, unit_from_voxel((at + read_points(u, at))[None], shape)[0])
            index = (wide == body).nonzero().mT
            x = unit_from_voxel(index.double().cpu()[None], shape)[0]
            u[:, *index] = voxel_from_unit((_moved(motion, x) - x)[None], shape)[0].to(u)
        return u

    def _motion(self, points: Float[Tensor, "3 P"], there: Places) -> Affine:
        """The rigid motion in millimetres that is nearest to points -> there, in unit coordinates."""
        frames = (self.fixed_frame, self.moving_frame)
        own, other = frames if self.side == "fixed" else frames[::-1]
        rigid = fit(_moved(own, points), _moved(other, there.double().cpu()), "rigid")
        return torch.linalg.inv(other) @ rigid @ own


def _moved(matrix: Affine, points: Float[Tensor, "3 P"]) -> Float[Tensor, "3 P"]:
    return matrix[:-1, :-1] @ points + matrix[:-1, -1:]
