"""The arithmetic of the deformable engine on a CPU, by compiled kernels; `arithmetic.py` says what is true.

Float32 or float64 in, the same out, with the same bits on any number of threads.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from roundtrip._shapes import Float, Tensor
from roundtrip._threads import Team
from roundtrip.pairwise import _field_kernel, _plane_kernel
from roundtrip.pairwise.arithmetic import (
    AbstractArithmetic,
    Memory,
    Moments,
    Pair,
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

    def read_both(self, values: Pair, u: Pair, out: Pair) -> None:
        self._run(
            _field_kernel.read_at, 2, out[0], _arrays(values), _arrays(u), _scalar(0.0, u[0]), _arrays(out)
        )

    def read(self, values: Float[Tensor, "C I J K"], u: Vectors, out: Values) -> Values:
        return self._read(values, u, 0.0, out)

    def compose(self, u: Vectors, v: Vectors, out: Vectors) -> Vectors:
        return self._read(u, v, 1.0, out)

    def _read(self, values: Float[Tensor, "C I J K"], u: Vectors, add: float, out: Values) -> Values:
        # Twice the same, so that numba compiles one kernel for two images and for one.
        self._run(_field_kernel.read_at, 1, out, _twice(values), _twice(u), _scalar(add, u), _twice(out))
        return out

    def smooth(self, values: Values, weights: Sequence[Weights], out: Values) -> Values:
        halves = (half.numpy() for half in weights)
        self._run(_plane_kernel.smooth, len(values), out, _twice(values), *halves, _twice(out))
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
            self._run(_plane_kernel.local_forces, 1, A, *arrays, out_A.numpy(), out_B.numpy(), totals, c)
        return float(totals.sum() / A.numel())

    def step(
        self,
        u: Pair,
        gradients: Pair,
        memories: Sequence[Memory],
        how: Moments,
        count: int,
        step: float,
        fluid: Sequence[Weights],
        elastic: Sequence[Weights],
        spare: Pair,
    ) -> None:
        share, length = how.unbiased(count, step)
        arrays = (
            _arrays(u),
            _arrays(gradients),
            *(_arrays(m) for m in zip(*map(_moments, memories), strict=True)),
        )
        numbers = (_scalar(n, u[0]) for n in (how.decay_first, how.decay_second, share, how.floor, length))
        first, last = ([half.numpy() for half in weights] for weights in (fluid, elastic))
        self._run(_plane_kernel.advance, 2, u[0], *arrays, *first, *numbers, _arrays(spare))
        self._run(_plane_kernel.smooth, 6, u[0], _arrays(spare), *last, _arrays(u))

    def invert(self, u: Vectors, out: Vectors) -> Vectors:
        self._run(_field_kernel.invert, 1, out, u.numpy(), _scalar(1e-3, u), _ITERATIONS, out.numpy())
        return out

    def growth(self, u: Vectors, out: Float[Tensor, "X Y Z"]) -> Float[Tensor, "X Y Z"]:
        self._run(_field_kernel.growth, 1, u, u.numpy(), out.numpy())
        return out

    def _run(self, kernel: Callable[..., None], batch: int, like: Tensor, *args: Any) -> None:
        planes, *rest = like.shape[1:]
        if planes * rest[0] * rest[1] < _VOXELS_FOR_A_TEAM:
            for b in range(batch):
                kernel(*args, b, 0, planes)
        else:
            self._team.run(kernel, batch, planes, *args)


def _arrays(pair: Sequence[Tensor]) -> tuple[Any, Any]:
    one, other = pair
    return one.numpy(), other.numpy()


def _twice(tensor: Tensor) -> tuple[Any, Any]:
    return _arrays((tensor, tensor))


def _moments(memory: Memory) -> tuple[Tensor, Tensor]:
    return memory.first, memory.second


def _scalar(number: float, like: Tensor) -> Any:
    """In the precision of the arrays: numba would compile, and compute, in another for another."""
    return like.numpy().dtype.type(number)
