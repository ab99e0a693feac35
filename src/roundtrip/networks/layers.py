"""What the networks share: layers by dimension, two images as one input, layers that start at zero.

Neighbours: `unet.py`, `encoder_decoder.py`, `conv_only.py`, `mlp.py`, `affine.py`, one network each.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from roundtrip._checks import shape_of
from roundtrip._shapes import Image, Tensor

Convolution = nn.modules.conv._ConvNd
CONVOLUTION: dict[int, Callable[..., Convolution]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSE_CONVOLUTION: dict[int, Callable[..., Convolution]] = {
    1: nn.ConvTranspose1d,
    2: nn.ConvTranspose2d,
    3: nn.ConvTranspose3d,
}
BATCH_NORM: dict[int, type[nn.Module]] = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
LINEAR_MODE = {1: "linear", 2: "bilinear", 3: "trilinear"}
CHANNELS_LAST = {3: torch.contiguous_format, 4: torch.channels_last, 5: torch.channels_last_3d}
"""The memory format in which convolutions are fastest, by the number of tensor axes."""
_AVERAGE_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def together(moving: Image, fixed: Image, *, dims: int, channels: int) -> Tensor:
    """Both images as the channels of one, the moving image first, ready for convolutions.

    Channels last, and in the precision of autocast from the start: by itself it casts at each layer.
    """
    for name, image in (("moving", moving), ("fixed", fixed)):
        if image.ndim != dims + 2 or image.shape[1] != channels:
            raise ValueError(
                f"`{name}` has shape {shape_of(image)}, but this network was made for images of {channels} "
                f"channel(s) and {dims} spatial axes, (batch, {channels}, {', '.join('n' * dims)}). Make one "
                "for your images with `dims=` and `channels=`, or select channels and slices."
            )
    x = torch.cat([moving, fixed], dim=1)
    if torch.is_autocast_enabled(x.device.type):
        x = x.to(torch.get_autocast_dtype(x.device.type))
    return x.contiguous(memory_format=CHANNELS_LAST[x.ndim])


def half_size(x: Tensor) -> Tensor:
    """Means of blocks of two voxels per axis; an odd axis ends with a block of one."""
    # torch refuses to pool an axis that is shorter than the window.
    window = [min(n, 2) for n in x.shape[2:]]
    return _AVERAGE_POOL[x.ndim - 2](x, window, ceil_mode=True)


def double_size(x: Tensor) -> Tensor:
    """Linear interpolation at twice as many voxels, each half as large (the corners of the image stay)."""
    return F.interpolate(x, scale_factor=2, mode=LINEAR_MODE[x.ndim - 2], align_corners=False)


def cropped(x: Tensor, *, like: Tensor) -> Tensor:
    """The leading part of `x` that has the grid of `like`: undoes the rounding up of halved odd sizes."""
    return x[(slice(None), slice(None), *(slice(n) for n in like.shape[2:]))]


def with_channels(x: Tensor, channels: int) -> Tensor:
    """The first `channels` channels of `x`; where it has fewer, zeros stand in front."""
    missing = max(channels - x.shape[1], 0)
    return F.pad(x[:, :channels], [0, 0] * (x.ndim - 2) + [missing, 0]) if missing else x[:, :channels]


def starting_at_zero(layer: nn.Module) -> nn.Module:
    """`layer`, with weight and bias zero, so that what it ends predicts no displacement at first."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


def require_architecture(dims: int, channels: int) -> None:
    """`dims` is 1, 2 or 3 and `channels` counts at least one."""
    if dims not in (1, 2, 3):
        raise ValueError(f"dims={dims!r}: networks are made for 1, 2 or 3 spatial axes, e.g. `UNet(dims=3)`.")
    if not isinstance(channels, int) or channels < 1:
        raise ValueError(f"channels={channels!r}: each image needs at least one channel, e.g. `channels=1`.")
