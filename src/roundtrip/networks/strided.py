"""The strided convolutions of the U-Net and their gradients, by the faster of two ways.

On a grid of a few voxels a convolution is a matrix product with a large weight, but a CPU's convolution
library spends its time rearranging that weight: there we write the product ourselves, two to five times
faster. Everywhere else, and on other devices, torch's own. Neighbours: `residual.py`, the only caller.
"""

import itertools
from typing import Any

import torch
import torch.nn.functional as F

from roundtrip._shapes import Tensor

FEW_VOXELS = 20
"""Up to so many voxels of the smaller grid the product is faster (measured: 18 in 3D, 1 to 16 in 2D)."""


def convolution(x: Tensor, weight: Tensor, bias: Tensor, up: bool) -> Tensor:
    """Stride 2, padding 1: up by a transpose convolution 4 wide, or down by a convolution 3 wide."""
    small = x.shape[2:] if up else [(n + 1) // 2 for n in x.shape[2:]]
    if not _is_few(x, small):
        return torch.convolution(x, weight, bias, *_how(x, up))
    if up:
        columns = x.movedim(1, -1) @ _matrix(weight)
        out = _overlapped(columns, weight.shape[2:], [2 * n for n in small])
    else:
        out = (_windows(x, weight.shape[2:], small) @ _matrix(weight).mT).movedim(-1, 1)
    return out + bias.view(1, -1, *[1] * (x.ndim - 2))


def convolution_gradients(
    grad: Tensor, x: Tensor, weight: Tensor, up: bool, wanted: list[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of x, weight and bias, of those that are wanted."""
    small = x.shape[2:] if up else grad.shape[2:]
    if not _is_few(x, small):
        arguments = [weight.shape[1] if up else weight.shape[0]], *_how(x, up), wanted
        return torch.ops.aten.convolution_backward(grad, x, weight, *arguments)
    grad_x = grad_weight = None
    if up:
        columns = _windows(grad, weight.shape[2:], small)
        if wanted[0]:
            grad_x = (columns @ _matrix(weight).mT).movedim(-1, 1)
        if wanted[1]:
            grad_weight = _gradient_matrix(x.movedim(1, -1), columns, weight)
    else:
        rows = grad.movedim(1, -1)
        if wanted[0]:
            grad_x = _overlapped(rows @ _matrix(weight), weight.shape[2:], x.shape[2:])
        if wanted[1]:
            grad_weight = _gradient_matrix(rows, _windows(x, weight.shape[2:], small), weight)
    return grad_x, grad_weight, grad.sum(dim=[0, *range(2, grad.ndim)]) if wanted[2] else None


def _is_few(x: Tensor, small: list[int] | torch.Size) -> bool:
    return x.device.type == "cpu" and torch.Size(small).numel() <= FEW_VOXELS


def _how(x: Tensor, up: bool) -> tuple:
    """Stride, padding, dilation, transposed, output padding, groups."""
    two, one, zero = ([k] * (x.ndim - 2) for k in (2, 1, 0))
    return two, one, one, up, zero, 1


def _matrix(weight: Tensor) -> Tensor:
    """`(features of the small grid, kernel * features of the large one)`: no copy with channels last."""
    return weight.movedim(1, -1).flatten(1)


def _gradient_matrix(rows: Tensor, columns: Tensor, weight: Tensor) -> Tensor:
    """The gradient of the weight, from the small grid's features and what their kernels saw."""
    matrix = rows.flatten(0, -2).mT @ columns.flatten(0, -2)
    return matrix.view(weight.shape[0], *weight.shape[2:], weight.shape[1]).movedim(-1, 1)


def _windows(x: Tensor, kernel: torch.Size, count: list[int] | torch.Size) -> Tensor:
    """`(B, *count, kernel * C)`: what each of `count` kernels sees of x, two voxels apart, from voxel -1."""
    # The last window ends at voxel 2 (count - 1) - 1 + kernel, which may lie before or beyond the end.
    missing = [2 * (m - 1) - 1 + k - n for m, k, n in zip(count, kernel, x.shape[2:], strict=True)]
    windows = F.pad(x, [side for end in reversed(missing) for side in (1, end)])
    for axis, k in enumerate(kernel, start=2):
        windows = windows.unfold(axis, k, 2)
    return windows.movedim(1, -1).flatten(len(count) + 1)


def _overlapped(columns: Tensor, kernel: torch.Size, shape: list[int] | torch.Size) -> Tensor:
    """The adjoint of `_windows`: columns `(B, *count, kernel * C)` summed where they overlap, on `shape`."""
    batch, *count, _ = columns.shape
    columns = columns.unflatten(-1, (*kernel, -1))
    # Voxels -1 to 2 (count - 1) - 1 + kernel of the grid, of which `shape` keeps those from 0.
    size = [max(2 * (m - 1) + k, n + 1) for m, k, n in zip(count, kernel, shape, strict=True)]
    out = columns.new_zeros(batch, *size, columns.shape[-1])
    for taps in itertools.product(*map(range, kernel)):
        steps = tuple(slice(tap, tap + 2 * m - 1, 2) for tap, m in zip(taps, count, strict=True))
        seen: Any = (slice(None), *[slice(None)] * len(count), *taps)
        out[(slice(None), *steps)] += columns[seen]
    return out[(slice(None), *(slice(1, 1 + n) for n in shape))].movedim(-1, 1)
