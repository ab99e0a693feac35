"""Local means, owned here: sums over a window around every voxel, at a cost that does not grow with it.

A window is one box along each axis (`box`) or three in a row, which comes close to a Gaussian
(`gaussian`); each box is a running sum. The fast kernel for a CPU lives in `_window_kernel.py`. Used by
`local.py` and `mind.py`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from roundtrip._shapes import Float, Tensor

Voxels = int | float | Sequence[int] | Sequence[float]
"""A length in voxels: one number for all axes, or one per axis."""


@dataclass(frozen=True)
class Window:
    """`passes` boxes in a row along every axis, with weights that sum to 1.

    A half width of 2.3 voxels is a box over the offsets -2 to 2, and those at -3 and 3 by 0.3 of a voxel.
    One half width per axis, or a single one for all.
    """

    half_widths: tuple[float, ...]
    passes: int

    def along(self, shape: Sequence[int]) -> tuple[float, ...]:
        """The half width for every axis of a grid."""
        if len(self.half_widths) not in (1, len(shape)):
            raise ValueError(
                f"the window has {len(self.half_widths)} sizes, one per axis, but the image {len(shape)} "
                "spatial axes; give one size per axis, or one number for all."
            )
        return self.half_widths * (len(shape) // len(self.half_widths))


def box(radius: Voxels) -> Window:
    """All voxels within `radius` voxels along every axis, with one weight."""
    return Window(_per_axis(radius, "radius"), passes=1)


def gaussian(sigma: Voxels) -> Window:
    """Three boxes in a row, of exactly the standard deviation `sigma` in voxels along every axis.

    Their weights lie within 7 percent of the Gaussian's largest, and end three to four sigma from the middle,
    or three voxels if that is more.
    """
    return Window(tuple(_half_width(s**2 / 3) for s in _per_axis(sigma, "sigma")), passes=3)


def window_sum(values: Float[Tensor, "B C *S"], window: Window) -> Float[Tensor, "B C *S"]:
    """The weighted sum over the window around every voxel; beyond the border there is nothing to add.

    As a matrix it is symmetric, so that its gradient is itself.
    """
    if values.device.type == "cpu" and not torch.compiler.is_compiling():
        return _WindowSum.apply(values, window)
    return window_sum_by_torch(values, window)


def window_mean(
    values: Float[Tensor, "B C *S"], window: Window, mask: Tensor | None = None
) -> Float[Tensor, "B C *S"]:
    """The mean over the window around every voxel, of the voxels that exist and count; 0 where none does."""
    if mask is None:
        return window_sum(values, window) / window_weight(values, window)
    mask = mask.to(values.dtype)
    weight = window_sum(mask, window)
    # Where no voxel counts, a running sum may leave its last digits behind.
    empty = weight <= 1e-10 * mask.amax()
    return torch.where(empty, 0, window_sum(values * mask, window) / torch.where(empty, 1, weight))


def window_weight(image: Tensor, window: Window) -> Float[Tensor, "1 1 *S"]:
    """How much of the window around every voxel lies within the image."""
    weight = torch.ones((), dtype=image.dtype, device=image.device)
    for n, half_width in zip(image.shape[2:], window.along(image.shape[2:]), strict=True):
        line = torch.ones(1, 1, n, dtype=image.dtype, device=image.device)
        weight = (
            weight[..., None] * _sum_along(line.double(), 2, half_width, window.passes).to(image.dtype)[0, 0]
        )
    return weight[None, None]


def window_sum_by_torch(values: Tensor, window: Window) -> Tensor:
    """`window_sum` in torch's own operations: for any device, and differentiable as often as one likes.

    Running sums carry their rounding errors along the line: in float64 these are none of float32's concern.
    """
    total = values.double()
    for axis, half_width in enumerate(window.along(values.shape[2:]), start=2):
        total = _sum_along(total, axis, half_width, window.passes)
    return total.to(values.dtype)


class _WindowSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, window: Window) -> Tensor:
        from roundtrip.losses._window_kernel import sum_in_place

        ctx.window = window
        total = values.detach().clone(memory_format=torch.contiguous_format)
        sum_in_place(total, window.along(values.shape[2:]), window.passes)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _WindowSum.apply(grad, ctx.window), None


def _sum_along(values: Tensor, axis: int, half_width: float, passes: int) -> Tensor:
    whole, rim = int(half_width), half_width % 1
    length, reach = 2 * whole + 1, passes * (whole + 1)
    line = F.pad(values.movedim(axis, -1), (reach, reach))
    for _ in range(passes):
        until = F.pad(line.cumsum(-1), (1, 0))
        middle = (until[..., length:] - until[..., :-length])[..., 1:-1]
        ends = line[..., : -length - 1] + line[..., length + 1 :]
        line = (middle + rim * ends) / (length + 2 * rim)
    return line.movedim(-1, axis)


def _half_width(variance: float) -> float:
    """Of the box with this variance: whole voxels, and the rest as a share of the next ones."""
    # A box over -w..w has the variance w (w + 1) / 3.
    whole = int((math.sqrt(1 + 12 * variance) - 1) / 2)
    lacking = (2 * whole + 1) * (3 * variance - whole * (whole + 1))
    return whole + lacking / (6 * ((whole + 1) ** 2 - variance))


def _per_axis(size: Voxels, name: str) -> tuple[float, ...]:
    sizes = tuple(float(s) for s in size) if isinstance(size, Sequence) else (float(size),)
    if not all(0 < s < math.inf for s in sizes):
        raise ValueError(f"`{name}` is {size}; a positive number of voxels is needed, or one per axis.")
    return sizes
