"""The linear map of a kind that lays points onto their partners, in closed form.

Neighbours: `linear.py`, which goes on from there by intensities; `bodies.py`, whose motions it finds.
"""

from typing import Literal

import torch

from roundtrip._shapes import Float, Tensor
from roundtrip.space.grid import Affine

Kind = Literal["rigid", "similarity", "affine"]

# Of the spread of the points: where they tell nothing about an affine map, it stays a similarity.
_STIFFNESS = 1e-3


def fit(fixed: Float[Tensor, "N P"], moving: Float[Tensor, "N P"], kind: Kind) -> Affine:
    """The homogeneous matrix that takes the fixed points nearest to the moving ones, in least squares.

    Rigid and similar ones after Umeyama, PAMI 1991; never a reflection. Of an affine map, what the points
    leave open stays as in the similarity.
    """
    N = len(fixed)
    x, y = fixed.double(), moving.double()
    middle_x, middle_y = x.mean(dim=1, keepdim=True), y.mean(dim=1, keepdim=True)
    x, y = x - middle_x, y - middle_y
    left, size, right = torch.linalg.svd(y @ x.mT)
    sign = torch.ones(N, dtype=x.dtype)
    sign[-1] = torch.linalg.det(left @ right)
    linear = left * sign @ right
    if kind != "rigid":
        spread = x.square().sum()
        linear = linear * ((size * sign).sum() / spread if spread > 0 else 1.0)
    if kind == "affine":
        second = x @ x.mT
        stiff = _STIFFNESS * second.trace() / N * torch.eye(N, dtype=x.dtype)
        linear = (y @ x.mT + linear @ stiff) @ torch.linalg.pinv(second + stiff)
    matrix = torch.eye(N + 1, dtype=x.dtype)
    matrix[:N, :N], matrix[:N, -1:] = linear, middle_y - linear @ middle_x
    return matrix


def determined(points: Float[Tensor, "N P"]) -> Literal["nothing", "rigid", "affine"]:
    """What so many points in such places tell: at least a rotation, or an affine map with some to spare."""
    N, P = points.shape
    if P < 2:
        return "nothing"
    apart = torch.linalg.svdvals(points - points.mean(dim=1, keepdim=True))
    rank = int((apart > 0.02 * apart[0]).sum()) if apart[0] > 0 else 0
    if rank == N and P > 2 * N:
        return "affine"
    return "rigid" if rank >= N - 1 else "nothing"
