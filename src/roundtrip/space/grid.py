"""`Grid`: where the voxels of an image lie in the world. Neighbour: `volume.py`, values on such a grid.

The world is LPS millimetres: x grows to the patient's left, y to the back, z to the head. Two-dimensional
images have a world of two axes, of which only the first two letters count. Matrices are float64 on the
CPU, whatever device the values are on: they are tiny, and a world of 200 mm wants every digit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from roundtrip._shapes import Float, Tensor
from roundtrip.maps.affine import AffineMap

Affine = Float[Tensor, "N1 N1"]
"""A homogeneous matrix: N + 1 rows and columns, the last row 0 ... 0 1."""


@dataclass(frozen=True, eq=False, repr=False)
class Grid:
    """How many voxels there are along each axis, and the way from their indices to the world (LPS mm)."""

    shape: tuple[int, ...]
    world_from_voxel: Affine

    def __post_init__(self) -> None:
        matrix = torch.as_tensor(self.world_from_voxel).detach().to("cpu", torch.float64)
        object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))
        object.__setattr__(self, "world_from_voxel", matrix)
        _require_invertible(matrix, len(self.shape))

    @property
    def dims(self) -> int:
        return len(self.shape)

    @property
    def spacing(self) -> tuple[float, ...]:
        """Millimetres from one voxel centre to the next, along each axis."""
        return tuple(self.world_from_voxel[:-1, :-1].norm(dim=0).tolist())

    @property
    def direction(self) -> Float[Tensor, "N N"]:
        """Column j is the unit vector along axis j in the world."""
        return self.world_from_voxel[:-1, :-1] / self.world_from_voxel[:-1, :-1].norm(dim=0)

    @property
    def origin(self) -> Float[Tensor, "N"]:
        """Where the centre of the first voxel lies."""
        return self.world_from_voxel[:-1, -1]

    @property
    def world_from_unit(self) -> Affine:
        """Unit coordinate 1 is the last voxel of an axis. On an axis of one voxel, at 0, a step of 1 is one
        slice thickness: the matrix can always be inverted."""
        steps = torch.tensor([*(max(n - 1, 1) for n in self.shape), 1], dtype=torch.float64)
        return self.world_from_voxel * steps

    @property
    def unit_from_world(self) -> Affine:
        return torch.linalg.inv(self.world_from_unit)

    @property
    def voxel_from_world(self) -> Affine:
        return torch.linalg.inv(self.world_from_voxel)

    def same_as(self, other: "Grid", *, tolerance: float = 1e-3) -> bool:
        """Whether both have the same voxels, in the same places to within `tolerance` of a voxel."""
        if self.shape != other.shape:
            return False
        corners = torch.tensor(_corners(self.shape), dtype=torch.float64)
        apart = (self.voxel_from_world @ other.world_from_voxel - torch.eye(self.dims + 1)) @ corners.mT
        return bool(apart.abs().max() < tolerance)

    def __repr__(self) -> str:
        spacing = " x ".join(f"{size:.4g}" for size in self.spacing)
        return f"Grid({' x '.join(map(str, self.shape))} of {spacing} mm, axes to {orientation_of(self)})"


def orientation_of(grid: Any) -> str:
    """Which way each axis of a grid (or volume) runs, to the nearest: "LPS" grows to the left, back and head.

    Letters as in nibabel: L, R, A, P, S, I for left, right, front, back, head, feet.
    """
    return "".join(_LETTERS[axis][int(negative)] for axis, negative in nearest_axes(grid.world_from_voxel))


def nearest_axes(world_from_voxel: Affine) -> list[tuple[int, bool]]:
    """For every voxel axis, the world axis it runs along most, and whether against it; none twice.

    The steepest pair of axes is matched first, then the steepest of what is left.
    """
    directions = world_from_voxel[:-1, :-1] / world_from_voxel[:-1, :-1].norm(dim=0)
    left = directions.abs().clone()
    found: dict[int, tuple[int, bool]] = {}
    for _ in range(left.shape[0]):
        world, voxel = divmod(int(left.argmax()), left.shape[1])
        found[voxel] = (world, bool(directions[world, voxel] < 0))
        left[world, :], left[:, voxel] = -1, -1
    return [found[axis] for axis in range(len(found))]


def axes_of_code(code: str, dims: int) -> list[tuple[int, bool]]:
    """What an orientation such as "LPS" or "RAS" asks of each voxel axis; see `nearest_axes`."""
    letters = {
        letter: (axis, sign == 1)
        for axis, pair in enumerate(_LETTERS[:dims])
        for sign, letter in enumerate(pair)
    }
    axes = [letters.get(letter) for letter in code.upper()]
    if len(axes) != dims or None in axes or len({axis[0] for axis in axes if axis}) != dims:
        example = "LPS"[:dims]
        raise ValueError(
            f"orientation {code!r} is not one of a {dims}-dimensional image; {dims} letters are needed, one "
            f"of each pair {', '.join('/'.join(pair) for pair in _LETTERS[:dims])}, e.g. {example!r}."
        )
    return [axis for axis in axes if axis]


def affine_map(matrix: Affine, *, like: Tensor) -> AffineMap:
    """A homogeneous matrix as a map of points, on the device of `like` and in at least its precision."""
    moved = matrix.to(like.device, torch.promote_types(like.dtype, torch.float32))[None]
    return AffineMap(moved[:, :-1, :-1], moved[:, :-1, -1])


# World axis by world axis of LPS: the letter of its positive end, then of its negative one.
_LETTERS = (("L", "R"), ("P", "A"), ("S", "I"))


def _corners(shape: Sequence[int]) -> list[list[float]]:
    """The homogeneous indices of the first voxel and of the last along each axis."""
    first = [*[0.0] * len(shape), 1.0]
    return [first, *([*first[:d], float(n - 1), *first[d + 1 :]] for d, n in enumerate(shape))]


def _require_invertible(matrix: Tensor, dims: int) -> None:
    if matrix.shape != (dims + 1, dims + 1):
        raise ValueError(
            f"`world_from_voxel` has shape {tuple(matrix.shape)}, but an image of {dims} axes needs a "
            f"homogeneous matrix of {dims + 1} x {dims + 1}."
        )
    lengths = matrix[:-1, :-1].norm(dim=0)
    volume = torch.linalg.det(matrix[:-1, :-1] / lengths)
    if not torch.isfinite(matrix).all() or not volume.abs() > 1e-6:
        raise ValueError(
            f"the affine matrix of the image, {matrix.tolist()}, cannot be inverted: two axes are parallel, "
            "have no length, or are not numbers. Repair the header, e.g. from the image it was made of."
        )
