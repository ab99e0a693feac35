"""What a chain of steps does at every voxel of a grid, in millimetres: displacement and growth of volume.

`Transform` offers them as volumes; `steps.py` evaluates the chain.
"""

import torch

from roundtrip._shapes import Float, Tensor
from roundtrip.maps.jacobian import determinant, grid_jacobian
from roundtrip.space.grid import Grid
from roundtrip.space.steps import Steps, follow_grid


def displacement(steps: Steps, grid: Grid, *, like: Tensor) -> Float[Tensor, "1 N *S"]:
    """T(x) - x at every voxel x, in LPS mm."""
    start, end = places((), grid, like=like), places(steps, grid, like=like)
    return end - start


def places(steps: Steps, grid: Grid, *, like: Tensor) -> Float[Tensor, "1 N *S"]:
    """Where a chain takes the voxels of a grid, in LPS mm; the empty chain leaves them where they are."""
    return follow_grid(steps, grid, torch.eye(grid.dims + 1, dtype=torch.float64), like=like)


def places_in_own_frame(steps: Steps, grid: Grid, *, like: Tensor) -> Float[Tensor, "1 N *S"]:
    """Where a chain takes the voxels of a grid, in unit coordinates of that same grid.

    This is what the counts of folds take, with the frame of the grid for both sides.
    """
    return follow_grid(steps, grid, grid.world_from_unit, like=like)


def jacobian_determinant(steps: Steps, grid: Grid, *, like: Tensor) -> Float[Tensor, "1 1 *S"]:
    """By how much volumes in mm grow, by central differences; negative where the chain folds."""
    # In the frame of the grid the units cancel, and an axis of one voxel keeps its thickness.
    return determinant(grid_jacobian(places_in_own_frame(steps, grid, like=like)))
