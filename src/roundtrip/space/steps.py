"""The steps a transform is made of: affine ones, exact in millimetres, and maps in the unit coordinates of a
grid.

A chain of steps acts on points of the world (LPS mm), the first step first. `transform.py` gives the chain
its two images; here is how it is evaluated, inverted, and put together from maps.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from roundtrip._shapes import Float, Points, Tensor
from roundtrip.maps.affine import AffineMap
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.inverse import inverse_at
from roundtrip.maps.map import AbstractMap, Composition, Identity, Map, on_grid_of
from roundtrip.space.grid import Affine, Grid, affine_map

# Two frames are one if no coordinate differs by more, in unit coordinates: a ten-thousandth of a voxel.
_SAME_FRAME = 1e-7


@dataclass(frozen=True, eq=False)
class AffineStep:
    """x -> A x, in millimetres, by a homogeneous matrix in float64."""

    matrix: Affine

    def __repr__(self) -> str:
        return "affine"


@dataclass(frozen=True, eq=False)
class MapStep:
    """A map from the unit coordinates of a grid to themselves, applied to the world."""

    map: Map
    grid: Grid

    def __repr__(self) -> str:
        return f"{self.map!r} in unit coordinates of {self.grid!r}"


Step: TypeAlias = AffineStep | MapStep
Steps: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True, eq=False, repr=False)
class NumericalInverse(AbstractMap):
    """The inverse of `forward`, searched for at each point it is asked for; see `maps/inverse.py`."""

    forward: Map

    def __call__(self, x: Float[Tensor, "#B N *P"]) -> Points:
        return inverse_at(self.forward, x, tolerance=1e-6).points.to(x.dtype)


def steps_of_map(phi: Map, source: Grid, target: Grid) -> Steps:
    """The steps of a map from unit coordinates of `source` to those of `target`.

    Affine parts of a composition become affine steps, so that they stay exact.
    """
    _require_single(phi, source.dims)
    across = () if same_frame(source, target) else (AffineStep(_across(source, target)),)
    return joined(*(_step(part, source) for part in _parts(phi)), *across)


def joined(*steps: Step) -> Steps:
    """The same chain with neighbouring affine steps made one, and those that do nothing left out."""
    kept: list[Step] = []
    for step in steps:
        last = kept[-1] if kept else None
        if isinstance(step, AffineStep) and isinstance(last, AffineStep):
            kept[-1] = AffineStep(step.matrix @ last.matrix)
        else:
            kept.append(step)
    return tuple(step for step in kept if not _does_nothing(step))


def inverse_steps(steps: Steps) -> Steps:
    """The chain that undoes `steps`: exact for affine steps, searched for at each point for the others."""
    return tuple(_inverse(step) for step in reversed(steps))


def affine_part(steps: Steps, dims: int) -> Affine:
    """All affine steps of a chain, one after the other, as if there were no others."""
    matrix = torch.eye(dims + 1, dtype=torch.float64)
    for step in steps:
        matrix = step.matrix @ matrix if isinstance(step, AffineStep) else matrix
    return matrix


def follow(steps: Steps, x: Points, frame: Affine, target: Affine) -> Points:
    """Where a chain takes points given in a `frame` (world-from-coordinates), in the frame `target`."""
    for step in steps:
        if isinstance(step, AffineStep):
            frame = step.matrix @ frame
        else:
            x = step.map(_in_frame(x, step.grid.unit_from_world @ frame))
            frame = step.grid.world_from_unit
    return _in_frame(x, torch.linalg.inv(target) @ frame)


def follow_grid(steps: Steps, grid: Grid, target: Affine, *, like: Tensor) -> Points:
    """Where a chain takes the voxels of `grid`, in the frame `target`.

    A map that is stored on that very grid is read off without interpolation. `like` gives device and dtype.
    """
    first = steps[0] if steps else None
    if isinstance(first, MapStep) and same_frame(first.grid, grid):
        image = like.new_empty(()).expand(1, 1, *grid.shape)
        return follow(steps[1:], on_grid_of(first.map, image), first.grid.world_from_unit, target)
    return follow(steps, unit_grid(grid.shape, like=like), grid.world_from_unit, target)


def moved_to(steps: Steps, *args: Any, **kwargs: Any) -> Steps:
    """The same chain with every tensor of its maps moved or converted as `Tensor.to` does it."""
    return tuple(
        dataclasses.replace(step, map=step.map.to(*args, **kwargs))
        if isinstance(step, MapStep) and isinstance(step.map, AbstractMap)
        else step
        for step in steps
    )


def device_of(steps: Steps) -> torch.device:
    """Where the maps of a chain hold their tensors; the CPU if they have none."""
    for step in steps:
        for tensor in _tensors(step.map) if isinstance(step, MapStep) else []:
            return tensor.device
    return torch.device("cpu")


def _across(source: Grid, target: Grid) -> Affine:
    """From where unit coordinates lie in one grid to where the same ones lie in another."""
    return target.world_from_unit @ source.unit_from_world


def _parts(phi: Map) -> list[Map]:
    """What a map is composed of, the part that acts first in front."""
    if isinstance(phi, Composition):
        return [*_parts(phi.inner), *_parts(phi.outer)]
    return [] if isinstance(phi, Identity) else [phi]


def _step(phi: Map, grid: Grid) -> Step:
    if not isinstance(phi, AffineMap):
        return MapStep(phi, grid)
    N = grid.dims
    matrix = torch.eye(N + 1, dtype=torch.float64)
    matrix[:N, :N], matrix[:N, N] = phi.matrix[0].detach().cpu(), phi.offset[0].detach().cpu()
    return AffineStep(grid.world_from_unit @ matrix @ grid.unit_from_world)


def _require_single(phi: Map, dims: int) -> None:
    """One map, of as many dimensions as its grid has axes."""
    for tensor in _tensors(phi):
        if len(tensor) != 1 or tensor.shape[1] != dims:
            raise ValueError(
                f"a transform between images of {dims} axes is made of one map of {dims} dimensions, but "
                f"{phi!r} "
                "was given; select one of a batch, e.g. `phi[:1]`."
            )


def _inverse(step: Step) -> Step:
    if isinstance(step, AffineStep):
        return AffineStep(torch.linalg.inv(step.matrix))
    if isinstance(step.map, NumericalInverse):
        return MapStep(step.map.forward, step.grid)
    return MapStep(NumericalInverse(step.map), step.grid)


def _in_frame(x: Points, matrix: Affine) -> Points:
    """`x` in other coordinates; as it is where they are the same."""
    if (matrix - torch.eye(len(matrix), dtype=matrix.dtype)).abs().max() < _SAME_FRAME:
        return x
    return affine_map(matrix, like=x)(x)


def same_frame(one: Grid, other: Grid) -> bool:
    """Whether both grids mean the same by unit coordinates, with as many voxels as they like."""
    apart = one.unit_from_world @ other.world_from_unit - torch.eye(one.dims + 1, dtype=torch.float64)
    return bool(apart.abs().max() < _SAME_FRAME)


def _does_nothing(step: Step) -> bool:
    return isinstance(step, AffineStep) and step.matrix.equal(
        torch.eye(len(step.matrix), dtype=torch.float64)
    )


def _tensors(phi: Any) -> Sequence[Tensor]:
    if isinstance(phi, Tensor):
        return [phi]
    fields = dataclasses.fields(phi) if isinstance(phi, AbstractMap) else ()  # type: ignore[arg-type]
    return [tensor for f in fields for tensor in _tensors(getattr(phi, f.name))]
