"""Any function of points is a map: warp with it, compose it, differentiate it, look where it folds.

python examples/your_own_map.py
"""

import math

import torch

import roundtrip as rt


def swirl(x: torch.Tensor, strength: float = 2.0) -> torch.Tensor:
    """Turns points about the middle of the image, most where they are near it. x is (batch, 2, *layout)."""
    centre = torch.tensor([0.5, 0.5], dtype=x.dtype).view(1, 2, *[1] * (x.ndim - 2))
    from_centre = x - centre
    angle = strength * torch.exp(-8 * from_centre.square().sum(dim=1))
    cos, sin = angle.cos(), angle.sin()
    rows, columns = from_centre.unbind(1)
    return centre + torch.stack([cos * rows - sin * columns, sin * rows + cos * columns], dim=1)


# A chessboard of 65 x 65 pixels. Coordinates run from 0, the first pixel's centre, to 1, the last one's.
grid = rt.unit_grid((65, 65)).double()
board = ((8 * grid).floor().sum(dim=1, keepdim=True) % 2).double()

warped = rt.warp(board, swirl)
print(f"the swirl changes {(warped - board).abs().gt(0.5).double().mean():.0%} of the pixels")

growth = rt.jacobian(swirl, grid).movedim((1, 2), (-2, -1)).det()
print(f"it only turns, so areas stay: det J is between {growth.min():.4f} and {growth.max():.4f}")

# Ours compose with `@`, whatever stands on the other side: (zoom @ swirl)(x) is zoom(swirl(x)).
zoom = rt.AffineMap(torch.eye(2)[None].double() / 2, torch.tensor([[0.25, 0.25]]).double())
both = zoom @ swirl
growth = rt.jacobian(both, grid).movedim((1, 2), (-2, -1)).det()
print(f"after the zoom areas are a quarter: det J is {growth.mean():.4f}")
print(f"ours say what they are: {zoom}")


def crumple(x: torch.Tensor) -> torch.Tensor:
    """Runs back and forth along every axis."""
    return x + 0.2 * torch.sin(4 * math.pi * x)


for name, phi in [("swirl", swirl), ("zoom @ swirl", both), ("crumple", crumple)]:
    folds = rt.folds_central(rt.on_grid_of(phi, board))
    print(f"{name:13} folds at {folds.count.item():4d} of {board.numel()} pixels")
