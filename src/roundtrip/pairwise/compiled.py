"""The arithmetic of the deformable engine on a CPU, by compiled kernels; `arithmetic.py` says what is true.

Float32 or float64 in, the same out, with the same bits on any number of threads.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from roundtrip._shapes import Float, Tensor
from roundtrip._threads import Team
from roundtrip.pairwise import _field_kernel as kernels
from roundtrip.pairwise.arithmetic import (
    AbstractArithmetic,
    Memory,
    Moments,
    Values,
    Vectors,
    Weights,
)

# Fewer voxels are not worth waking a thread for.
_VOXELS_FOR_A_TEAM = 2**13

# Newton steps towards the inverse of a point.
_ITERATIONS = 30


class CompiledArithmetic(AbstractArithmetic):
    """In kernels that numba compiles at first use."""

    def __init__(self) -> None:
        self._team = Team()

    def __exit__(self, *_: object) -> None:
        self._team.__exit__()

    def read(self, values: Float[Tensor, "C I J K"], u: Vectors, out: Values) -> Values:
        self._run(kernels.read_at, 1, out, values.numpy(), u.numpy(), _scalar(0.0, u), out.numpy())
        return out

    def compose(self, u: Vectors, v: Vectors, out: Vectors) -> Vectors:
        self._run(kernels.read_at, 1, out, u.numpy(), v.numpy(), _scalar(1.0, u), out.numpy())
        return out

    def smooth(self, values: Values, weights: Sequence[Weights], out: Values) -> Values:
        halves = (half.numpy() for half in weights)
        self._run(kernels.smooth, len(values), out, values.numpy(), *halves, out.numpy())
        return out

    def local_forces(
        self,
        A: Values,
        B: Values,
        weights: Sequence[Weights],
        floor: float,
        scale: Sequence[float],
        out_A: Vectors,
        out_B: Vectors,
    ) -> float:
        totals, halved = np.zeros(A.shape[:2]), np.array(scale, dtype=A.numpy().dtype) / 2
        arrays = A.numpy(), B.numpy(), *(half.numpy() for half in weights), _scalar(floor, A), halved
        for c in range(len(A)):
            self._run(kernels.local_forces, 1, A, *arrays, out_A.numpy(), out_B.numpy(), totals, c)
        return float(totals.sum() / A.numel())

    def advance(
        self, u: Vectors, g: Vectors, memory: Memory, how: Moments, share: float, step: float, out: Vectors
    ) -> Vectors:
        numbers = (_scalar(n, u) for n in (how.decay_first, how.decay_second, share, how.floor, step))
        arrays = (t.numpy() for t in (u, g, memory.first, memory.second))
        self._run(kernels.advance, 1, out, *arrays, *numbers, out.numpy())
        return out

    def invert(self, u: Vectors, out: Vectors) -> Vectors:
        self._run(kernels.invert, 1, out, u.numpy(), _scalar(1e-3, u), _ITERATIONS, out.numpy())
        return out

    def growth(self, u: Vectors, out: Float[Tensor, "X Y Z"]) -> Float[Tensor, "X Y Z"]:
        self._run(kernels.growth, 1, u, u.numpy(), out.numpy())
        return out

    def _run(self, kernel: Callable[..., None], batch: int, like: Tensor, *args: Any) -> None:
        planes, *rest = like.shape[1:]
        if planes * rest[0] * rest[1] < _VOXELS_FOR_A_TEAM:
            for b in range(batch):
                kernel(*args, b, 0, planes)
        else:
            self._team.run(kernel, batch, planes, *args)


def _scalar(number: float, like: Tensor) -> Any:
    """In the precision of the arrays: numba would compile, and compute, in another for another."""
    return like.numpy().dtype.type(number)
