"""Anchors: points of two images that a deformation has to bring together, whatever the intensities say.

`Landmarks` are pairs that somebody marked; `bodies.py` has the points of what must stay rigid. After every
step, both halves of a deformation move the places in the middle that belong to a pair towards each other, by
a smooth displacement that is far too flat to fold. Neighbour: `deformable.py`, which asks after every step.
"""

import abc
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from roundtrip._shapes import Float, Tensor
from roundtrip.maps.grid import unit_from_voxel, voxel_from_unit
from roundtrip.maps.interpolate import interpolate
from roundtrip.pairwise.arithmetic import AbstractArithmetic, Values, Vectors
from roundtrip.pairwise.pyramid import gaussian_weights

Places = Float[Tensor, "3 P"]

# In the finest voxels of the grid at work: how far around a pair its correction reaches, and how far one
# correction goes. A Gaussian of this width and height changes no length by more than a fifth.
_WIDTH, _LONGEST = 3.0, 0.9

# Of the search for where a point of an image lies in the middle: no step of it can lead away unless lengths
# grow by more than 2 / _RELAXED.
_SEARCH_STEPS, _RELAXED = 25, 0.7


class AbstractAnchors(abc.ABC):
    """Points that belong together."""

    tolerance: float
    """In voxels: what is closer than this is left alone."""

    @abc.abstractmethod
    def ends(self, fields: Sequence[Vectors]) -> tuple[Places, Places]:
        """Where the points of the fixed and of the moving image are to be, in unit coordinates of the grid.

        `fields` lead from the middle to the fixed and to the moving image, in voxels.
        """

    def correct(
        self,
        fields: Sequence[Vectors],
        relative: Sequence[float],
        arithmetic: AbstractArithmetic,
        *,
        tolerance: float | None = None,
    ) -> float:
        """Moves the ends closer, both fields in place; how far apart the farthest were, in finest voxels.

        `relative` is the finest spacing over that of each axis.
        """
        shape = fields[0].shape[1:]
        scale = fields[0].new_tensor(relative).view(3, 1)
        fixed, moving = (voxels_of(points, shape) for points in self.ends(fields))
        here, there = (middle_of(points, u) for points, u in zip((fixed, moving), fields, strict=True))
        apart = there - here
        length = (apart / scale).norm(dim=0)
        near = self.tolerance if tolerance is None else tolerance
        if not len(length) or not length.max() > near:
            return float(length.max()) if len(length) else 0.0
        wanted = (length - near).clamp(min=0, max=2 * _LONGEST) / length.clamp(min=1e-6)
        move = spread((here + there) / 2, apart * wanted / 2, shape, relative, arithmetic)
        spare = torch.empty_like(move)
        for u, sign in zip(fields, (-1.0, 1.0), strict=True):
            # u after a step is s(x) + u(x + s(x)): what lay beside the common place now lies in it.
            step = move * sign
            u.copy_(arithmetic.compose(u, step, out=spare))
        return float(length.max())


@dataclass(frozen=True, eq=False)
class Landmarks(AbstractAnchors):
    """Point i of the fixed image belongs to point i of the moving one; unit coordinates of one grid."""

    fixed: Places
    moving: Places
    tolerance: float = 0.5

    def ends(self, fields: Sequence[Vectors]) -> tuple[Places, Places]:
        return self.fixed, self.moving


def voxels_of(points: Places, shape: Sequence[int]) -> Places:
    """Unit coordinates in voxels of a grid; along an axis of one voxel, 0."""
    return voxel_from_unit(points[None], shape)[0]


def read_points(values: Values, at: Places) -> Float[Tensor, "C P"]:
    """Values at places that are given in voxels."""
    return interpolate(values[None], unit_from_voxel(at[None], values.shape[1:]))[0]


def middle_of(points: Places, u: Vectors) -> Places:
    """The places x with x + u(x) = points, in voxels."""
    points = points.to(u)
    x = points - read_points(u, points)
    for _ in range(_SEARCH_STEPS):
        missed = x + read_points(u, x) - points
        x = x - _RELAXED * missed
        if not missed.abs().max() > 1e-3:
            break
    return x


def spread(
    at: Places,
    vectors: Float[Tensor, "3 P"],
    shape: Sequence[int],
    relative: Sequence[float],
    arithmetic: AbstractArithmetic,
) -> Vectors:
    """A smooth field that is about `vectors` at these places, and their mean where they lie close."""
    weights = [gaussian_weights(_WIDTH * r, like=vectors) for r in relative]
    counted = _dropped(at, torch.ones_like(vectors[:1]), shape)
    crowd = read_points(arithmetic.smooth(counted, weights, torch.empty_like(counted)), at)
    dropped = _dropped(at, vectors / crowd.clamp(min=1e-12), shape)
    return arithmetic.smooth(dropped, weights, torch.empty_like(dropped))


def _dropped(at: Places, values: Float[Tensor, "C P"], shape: Sequence[int]) -> Values:
    """Values added to the voxels around each place, the nearer ones getting more."""
    last = at.new_tensor([n - 1 for n in shape]).view(3, 1)
    inside = torch.minimum(at.clamp(min=0), last)
    low = torch.minimum(inside.floor(), (last - 1).clamp(min=0))
    part = inside - low
    grid = values.new_zeros(len(values), shape[0] * shape[1] * shape[2])
    for corner in range(8):
        bits = torch.tensor([corner >> 2 & 1, corner >> 1 & 1, corner & 1]).to(at).view(3, 1)
        share = torch.where(bits > 0, part, 1 - part).prod(dim=0)
        i, j, k = torch.minimum(low + bits, last).long()
        grid.index_add_(1, (i * shape[1] + j) * shape[2] + k, values * share)
    return grid.view(len(values), *shape)
