"""The U-Net's two residual steps, each as one operation that keeps little and writes in place.

`step_down` and `step_up` compute what their docstrings say. As single operations they store only their input
for the backward pass, compute the activation again, and add the shortcut in place.
Averaging and interpolating are matrices along each axis: with channels last that is faster on a CPU than
torch's own kernels, and the transposed matrices are their gradients. Neighbours: `unet.py`, `layers.py`.
"""

from typing import Any

import torch
import torch.nn.functional as F

from roundtrip._shapes import Float, Tensor
from roundtrip.networks.layers import CHANNELS_LAST, cropped, double_size, half_size, with_channels
from roundtrip.networks.strided import convolution, convolution_gradients

_SLOPE = 0.01


def step_down(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Half the grid: a strided convolution of leaky_relu(x), plus x averaged.

    The shortcut stands in the last channels where the convolution makes more than `x` has.
    """
    return _Residual.apply(x, weight, bias, False)


def step_up(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Twice the grid: a transpose convolution of leaky_relu(x), plus the first channels of x interpolated."""
    return _Residual.apply(x, weight, bias, True)


def beside(parts: list[Tensor], skip: Tensor) -> Tensor:
    """`parts`, consecutive pieces of a batch, cropped to the grid of `skip` and laid beside its channels.

    A concatenation whose gradients come back in the memory format in which the next operation is fast.
    """
    return _Beside.apply(skip, *parts)


def plain_residual(x: Tensor, weight: Tensor, bias: Tensor, up: bool) -> Tensor:
    """`step_up` or `step_down` in torch's own operations: slow, obvious, differentiable twice."""
    convolve = (
        (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d) if up else (F.conv1d, F.conv2d, F.conv3d)
    )
    convolved = convolve[x.ndim - 3](F.leaky_relu(x, _SLOPE), weight, bias, stride=2, padding=1)
    shortcut = double_size(x) if up else half_size(x)
    return convolved + with_channels(shortcut, convolved.shape[1])


class _Residual(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, up: bool) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.up = up
        out = convolution(F.leaky_relu(x, _SLOPE), weight, bias, up)
        out = out.contiguous(memory_format=CHANNELS_LAST[x.ndim])
        shared = min(x.shape[1], out.shape[1])
        _add_resized(out[:, -shared:], x[:, :shared], [_resizing(n, up, x) for n in x.shape[2:]])
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        if torch.is_grad_enabled():
            inputs = [t for t in (x, weight, bias) if t.requires_grad]
            out = plain_residual(x, weight, bias, ctx.up)
            grads = iter(torch.autograd.grad(out, inputs, grad, create_graph=True))
            return (*(next(grads) if t.requires_grad else None for t in (x, weight, bias)), None)

        grad = grad.contiguous(memory_format=CHANNELS_LAST[grad.ndim])
        grad_x, grad_weight, grad_bias = convolution_gradients(
            grad, F.leaky_relu(x, _SLOPE), weight, ctx.up, list(ctx.needs_input_grad[:3])
        )
        if grad_x is not None:
            torch.ops.aten.leaky_relu_backward.grad_input(grad_x, x, _SLOPE, False, grad_input=grad_x)
            shared = min(x.shape[1], grad.shape[1])
            _add_resized(
                grad_x[:, :shared], grad[:, -shared:], [_resizing(n, ctx.up, x).mT for n in x.shape[2:]]
            )
        return grad_x, grad_weight, grad_bias, None


class _Beside(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, skip: Tensor, *parts: Tensor) -> Tensor:
        ctx.shapes = [part.shape for part in parts]
        batch, features = skip.shape[0], parts[0].shape[1]
        size = (batch, features + skip.shape[1], *skip.shape[2:])
        out = torch.empty(size, dtype=skip.dtype, device=skip.device, memory_format=CHANNELS_LAST[skip.ndim])
        for piece, part in zip(out.split([len(part) for part in parts]), parts, strict=True):
            piece[:, :features] = cropped(part, like=skip)
        out[:, features:] = skip
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        features = ctx.shapes[0][1]
        pieces = grad[:, :features].split([shape[0] for shape in ctx.shapes])
        grads = (_uncropped(piece, shape) for piece, shape in zip(pieces, ctx.shapes, strict=True))
        return (grad[:, features:] if ctx.needs_input_grad[0] else None, *grads)


def _uncropped(grad: Tensor, shape: torch.Size) -> Tensor:
    """The gradient of cropping: zeros where voxels were cut off."""
    if grad.shape == shape:
        return grad.contiguous(memory_format=CHANNELS_LAST[grad.ndim])
    missing = [n - have for n, have in zip(shape[2:], grad.shape[2:], strict=True)]
    padded = F.pad(grad, [pad for m in reversed(missing) for pad in (0, m)])
    return padded.contiguous(memory_format=CHANNELS_LAST[grad.ndim])


def _add_resized(out: Tensor, x: Tensor, matrices: list[Tensor]) -> None:
    """out += x, resized by one matrix along each spatial axis; in place."""
    lines, target = x.movedim(1, -1), out.movedim(1, -1)
    for axis in range(len(matrices), 1, -1):
        size = list(lines.shape)
        lines = _product(matrices[axis - 1], lines.reshape(*size[:axis], size[axis], -1))
        lines = lines.reshape(*size[:axis], -1, *size[axis + 1 :])
    # The first axis last: it is the costliest, and takes the addition along where the memory allows it.
    size, matrix = list(lines.shape), matrices[0]
    lines = lines.reshape(*size[:2], -1)
    if target.is_contiguous():
        flat = target.view(target.shape[0], target.shape[1], -1)
        torch.baddbmm(flat, matrix.expand(len(flat), -1, -1), lines, out=flat)
    else:
        target += torch.matmul(matrix, lines).reshape(target.shape)


def _product(matrix: Tensor, lines: Tensor) -> Tensor:
    """matrix @ lines, for any number of lines `(..., from, columns)`.

    With few columns torch spends its time on the many small products, and in low precision on writing the
    matrix out for every one of them; as a single product of all rows that is two to fifty times faster.
    """
    few = 16 if lines.element_size() < 4 else 4
    if lines.shape[-1] > few:
        return torch.matmul(matrix, lines)
    *count, n, columns = lines.shape
    rows = lines.mT.reshape(-1, n) @ matrix.mT
    return rows.view(*count, columns, -1).mT


def _resizing(n: int, up: bool, like: Tensor) -> Float[Tensor, "to from"]:
    """What `double_size` or `half_size` does along an axis of n voxels."""
    line = torch.eye(n, dtype=torch.promote_types(like.dtype, torch.float32), device=like.device)[None]
    return (double_size(line) if up else half_size(line))[0].mT.to(like.dtype)
