"""`UNet`: residual convolutions down to a small grid and up again, with skips. The main network of the paper.

Neighbours: `encoder_decoder.py` (the same without skips), `layers.py` (what the networks share).
"""

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from roundtrip._shapes import Field, Image, Tensor
from roundtrip.networks.batch_norm import BatchNorm, computing_again
from roundtrip.networks.layers import (
    CHANNELS_LAST,
    CONVOLUTION,
    TRANSPOSE_CONVOLUTION,
    require_architecture,
    starting_at_zero,
    together,
)
from roundtrip.networks.residual import beside, step_down, step_up

LARGE = 2**22
"""Features of the finest level, in values, from which on they are computed again instead of kept."""


class UNet(nn.Module):
    """(moving, fixed) -> displacement, on any grid, odd sizes and single voxels included.

    The network the published weights were trained with. It differs from the paper's supplement, which puts
    a batch normalisation before each convolution: here one follows each step up, and none the steps down.
    The output is divided by 10 and starts at zero.

    In training mode each batch normalisation sees the grid before it is cropped, which has at least two
    voxels per axis: a single pair of images can be trained on, down to one voxel. As its statistics cover the
    batch, elements of a batch are independent of each other in eval mode only.
    """

    def __init__(
        self,
        *,
        dims: int,
        channels: int = 1,
        down_features: Sequence[int] = (16, 32, 64, 256, 512),
        up_features: Sequence[int] = (16, 32, 64, 128, 256),
    ) -> None:
        """`channels` of each image; features by depth, from the full grid to the smallest."""
        super().__init__()
        require_architecture(dims, channels)
        _require_as_many(down_features, up_features)
        self.dims, self.channels = dims, channels
        self.down_features, self.up_features = tuple(down_features), tuple(up_features)

        skipped = (2 * channels, *down_features)
        # What arrives from below: the step up from the level underneath, and the skip it was given.
        from_below = [a + b for a, b in zip(down_features, (*up_features[1:], 0), strict=True)]
        self.down = nn.ModuleList(Down(dims, a, b) for a, b in pairwise(skipped))
        self.up = nn.ModuleList(Up(dims, a, b) for a, b in zip(from_below, up_features, strict=True))
        self.last = starting_at_zero(CONVOLUTION[dims](up_features[0] + 2 * channels, dims, 3, padding=1))
        self.to(memory_format=CHANNELS_LAST[dims + 2])  # type: ignore[call-overload]

    def forward(self, moving: Image, fixed: Image) -> Field:
        x = together(moving, fixed, dims=self.dims, channels=self.channels)
        skips = []
        for down in self.down:
            skips.append(x)
            x = down(x)
        for up, skip in zip(reversed(self.up[1:]), reversed(skips[1:]), strict=True):
            x = up(x, skip)
        return self._finest(x, skips[0])

    def _finest(self, x: Tensor, skip: Tensor) -> Field:
        """The level of the images' own grid, where most of a network's memory goes.

        If it is large and trained, it is computed batch by batch, and again when its gradients are asked for:
        a third less memory in 3D, for an eighth more time.
        """
        up = self.up[0]
        assert isinstance(up, Up)
        if not torch.is_grad_enabled() or skip[:, 0].numel() * self.up_features[0] < LARGE:
            return self.last(up(x, skip)) / 10

        def level(x: Tensor, skip: Tensor) -> Field:
            return self.last(up.one_batch(x, skip)) / 10

        across_ranks = up.norm.across_ranks
        fields = [
            checkpoint(
                level,
                *batch,
                use_reentrant=False,
                preserve_rng_state=False,
                context_fn=lambda: (nullcontext(), computing_again(up.norm, across_ranks=across_ranks)),
            )
            for batch in zip(x.chunk(up.norm.batches), skip.chunk(up.norm.batches), strict=True)
        ]
        return torch.cat(fields)


class Down(nn.Module):
    """Half the grid, more features: a strided convolution, added to the input averaged."""

    def __init__(self, dims: int, features_in: int, features_out: int) -> None:
        super().__init__()
        self.convolution = CONVOLUTION[dims](features_in, features_out, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.convolution.weight, self.convolution.bias
        assert bias is not None
        return step_down(x, weight.to(x.dtype), bias.to(x.dtype))


class Up(nn.Module):
    """Twice the grid, fewer features: a transpose convolution, added to the input interpolated.

    `skip`, what the way down saw at this size, is laid beside the result.
    """

    def __init__(self, dims: int, features_in: int, features_out: int) -> None:
        super().__init__()
        self.convolution = TRANSPOSE_CONVOLUTION[dims](features_in, features_out, 4, stride=2, padding=1)
        self.norm = BatchNorm(features_out)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return beside(self.norm.parts(self._step(x)), skip)

    def one_batch(self, x: Tensor, skip: Tensor) -> Tensor:
        """The same where all of `x` is one of the batches that `norm` keeps apart."""
        return beside([self.norm(self._step(x))], skip)

    def _step(self, x: Tensor) -> Tensor:
        weight, bias = self.convolution.weight, self.convolution.bias
        assert bias is not None
        if self.norm.training:
            # What the norm takes away again has gradient 0, and what is computed of it is rounding: Adam, who
            # divides by a gradient's size, would let the bias wander, and the statistics run after it.
            bias = bias.detach() + 0 * bias
        return step_up(x, weight.to(x.dtype), bias.to(x.dtype))


def _require_as_many(down_features: Sequence[int], up_features: Sequence[int]) -> None:
    if len(down_features) != len(up_features) or not down_features:
        raise ValueError(
            f"down_features={tuple(down_features)} makes {len(down_features)} steps down but up_features="
            f"{tuple(up_features)} makes {len(up_features)} up; each step down needs its step up."
        )
