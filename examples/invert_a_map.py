"""The inverse of any map, found numerically, with a report of how far it misses; and where there is none.

python examples/invert_a_map.py
"""

import math

import torch

import roundtrip as rt
from roundtrip.evaluation.round_trip import round_trip_statistics

image = torch.zeros(1, 1, 65, 65, dtype=torch.float64)
voxel = 1 / 64


def wave(x: torch.Tensor, height: float = 0.05) -> torch.Tensor:
    """Shakes each coordinate by the other; points at the border stay on it."""
    return x + height * torch.sin(2 * math.pi * x.flip(1)) * torch.sin(math.pi * x)


# For an affine map, a flow and a pair of trained networks there are better ways; this one takes any map.
inverse = rt.invert(wave, like=image)
print(f"found in {inverse.iterations} iterations at {inverse.converged.item():.1%} of the voxels")
print(f"at the voxels it misses by at most {inverse.residual.max() / voxel:.4f} voxels")

miss = round_trip_statistics(wave, inverse.map, image)
print(f"both ways, it misses by {miss.mean:.4f} voxels on average and {miss.max:.4f} at most")

# A point of the moving image, and where it lies in the fixed one.
in_moving = torch.tensor([0.3, 0.6], dtype=torch.float64).view(1, 2, 1)
in_fixed = inverse.map(in_moving)
print(f"{in_moving.flatten().tolist()} comes from {[round(v, 4) for v in in_fixed.flatten().tolist()]}")

# A flow knows its inverse: run it backwards.
grid = rt.unit_grid((65, 65), like=image)
velocity = wave(grid) - grid
there, back = rt.exponential(velocity), rt.exponential(-velocity)
print(f"flow and backward flow miss by {round_trip_statistics(there, back, image).max:.4f} voxels at most")


def fold(x: torch.Tensor) -> torch.Tensor:
    """Lays one half of the image over the other."""
    return torch.cat([(x[:, :1] - 0.5).abs() + 0.5, x[:, 1:]], dim=1)


stuck = rt.invert(fold, like=image)
print(f"a fold has no inverse: {stuck.converged.item():.0%} of the voxels are reached")
