"""The last step of every registration: what is left of folds is taken out of a displacement, provably.

Neighbours: `deformable.py`; `maps/folds.py`, which judges by the same simplices.
"""

import torch

from roundtrip._shapes import Tensor
from roundtrip.pairwise.arithmetic import AbstractArithmetic, Vectors
from roundtrip.pairwise.pyramid import gaussian_weights

# No simplex of any cell may shrink to less than this share of its volume. More than rounding can undo: in
# float32, a map stays free of folds when it is written in millimetres and composed with affine maps.
SMALLEST_GROWTH = 0.02

_ROUNDS = 40
_HALVINGS = 32


def unfold(u: Vectors, arithmetic: AbstractArithmetic) -> Vectors:
    """u, smoothed around every cell that folds, further and further until none is left.

    Should smoothing not get there, the whole field is halved until it does, at the latest when nothing is
    left of it: at u = 0 every simplex keeps its volume, and growth is continuous in u. Where all is well u
    is returned as it is; nothing is left of a u that is not finite.
    """
    if not torch.isfinite(u).all():
        return torch.zeros_like(u)
    growth = torch.empty_like(u[0])
    for attempt in range(_ROUNDS):
        folded = ~(arithmetic.growth(u, growth) >= SMALLEST_GROWTH)
        if not folded.any():
            return u
        near = _neighbourhood(folded.to(u), 2 + attempt // 2, arithmetic)
        half = gaussian_weights(1 + attempt / 4, like=u)
        u = torch.lerp(u, arithmetic.smooth(u, (half, half, half), torch.empty_like(u)), near)
    for _ in range(_HALVINGS):
        if (arithmetic.growth(u, growth) >= SMALLEST_GROWTH).all():
            return u
        u = u / 2
    return torch.zeros_like(u)


def _neighbourhood(cells: Tensor, reach: int, arithmetic: AbstractArithmetic) -> Tensor:
    """1 within `reach` of the cells, which are named by their lowest corner, and softly 0 beyond."""
    wide, soft = torch.ones(reach + 1).to(cells), gaussian_weights(1.0, like=cells)
    summed = arithmetic.smooth(cells[None], (wide, wide, wide), torch.empty_like(cells[None]))
    return arithmetic.smooth((summed > 0).to(cells), (soft, soft, soft), summed)
