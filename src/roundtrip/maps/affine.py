"""`AffineMap`: x -> A x + b, in unit coordinates. Neighbours: `map.py` (the contract), `displacement.py`."""

from dataclasses import dataclass

import torch

from roundtrip._checks import require_broadcastable_batch, require_points, shape_of
from roundtrip._shapes import Float, Points, Tensor
from roundtrip.maps.map import AbstractMap


@dataclass(frozen=True, eq=False, repr=False)
class AffineMap(AbstractMap):
    """x -> A x + b. Row i of A makes coordinate i. Affine maps cost inverse consistency nothing."""

    matrix: Float[Tensor, "B N N"]
    offset: Float[Tensor, "B N"]

    def __post_init__(self) -> None:
        if self.matrix.ndim != 3 or self.matrix.shape[1] != self.matrix.shape[2]:
            raise ValueError(
                f"`matrix` has shape {shape_of(self.matrix)}; a batch of square matrices (batch, N, N) is "
                "needed. One matrix becomes `matrix[None]`."
            )
        if self.offset.shape != self.matrix.shape[:2]:
            raise ValueError(
                f"`offset` has shape {shape_of(self.offset)} but `matrix` {shape_of(self.matrix)}; needed is "
                f"one vector per matrix, {tuple(self.matrix.shape[:2])}."
            )

    def __call__(self, x: Float[Tensor, "#B N *P"]) -> Points:
        require_points(x, self.matrix.shape[1])
        require_broadcastable_batch(self.matrix, x)
        columns = x.reshape(*x.shape[:2], -1)
        moved = _product(self.matrix.to(x.dtype), columns) + self.offset.to(x.dtype)[..., None]
        return moved.reshape(*moved.shape[:2], *x.shape[2:])

    def inverse(self) -> "AffineMap":
        """x -> A^-1 (x - b)."""
        undo = torch.linalg.inv(self.matrix)
        return AffineMap(undo, -_product(undo, self.offset[..., None])[..., 0])


def _product(matrices: Float[Tensor, "#B N N"], columns: Float[Tensor, "#B N P"]) -> Float[Tensor, "b N P"]:
    # Written out: torch's own product may be of a precision that cannot tell voxels apart, in bfloat16 under
    # autocast, in TF32 on a GPU where somebody allowed that.
    N = columns.shape[1]
    terms = [matrices[:, :, j, None] * columns[:, j, None] for j in range(N)]
    return sum(terms[1:], start=terms[0])
