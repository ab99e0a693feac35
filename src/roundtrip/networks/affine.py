"""`AffineNetwork`: two images to one matrix and one offset, for the linear step before a deformable one.

Neighbours: `unet.py` and the others give displacements instead; `layers.py` (what the networks share).
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from roundtrip._shapes import Float, Image, Tensor
from roundtrip.networks.layers import (
    CONVOLUTION,
    half_size,
    require_architecture,
    starting_at_zero,
    together,
)


class AffineNetwork(nn.Module):
    """(moving, fixed) -> [matrix | offset] of x -> matrix x + offset in unit coordinates, from any grid.

    Convolutions, each followed by halving the grid, a mean over what is left of it, and two dense layers. The
    matrix acts about the centre of the image, where a small change of it moves the image least. It starts as
    the identity. Not in the paper; the published package has the same network (`ConvolutionalMatrixNet`),
    except that it cannot see intensities below zero: it sets them to zero first.
    """

    def __init__(
        self,
        *,
        dims: int,
        channels: int = 1,
        features: Sequence[int] = (16, 32, 64, 128, 256, 512),
        hidden_features: int = 300,
    ) -> None:
        """`channels` of each image; `features` of each convolution, `hidden_features` of the dense layer."""
        super().__init__()
        require_architecture(dims, channels)
        self.dims, self.channels = dims, channels
        self.features, self.hidden_features = tuple(features), hidden_features
        self.convolutions = nn.ModuleList(
            CONVOLUTION[dims](a, b, 3, padding=1) for a, b in pairwise((2 * channels, *features))
        )
        self.hidden = nn.Linear(features[-1], hidden_features)
        self.last = starting_at_zero(nn.Linear(hidden_features, dims * (dims + 1)))

    def forward(self, moving: Image, fixed: Image) -> Float[Tensor, "B N N+1"]:
        x = together(moving, fixed, dims=self.dims, channels=self.channels)
        first, *others = self.convolutions
        x = half_size(first(x))
        for convolution in others:
            x = half_size(convolution(F.relu(x)))
        seen = x.flatten(2).mean(dim=2)
        change = self.last(F.relu(self.hidden(seen))).reshape(-1, self.dims, self.dims + 1)
        return _about_the_centre(change.to(torch.promote_types(change.dtype, torch.float32)))


def _about_the_centre(change: Float[Tensor, "B N N+1"]) -> Float[Tensor, "B N N+1"]:
    """[L | b] becomes the affine map x -> x + L (x - 1/2) + b."""
    linear, shift = change[..., :-1], change[..., -1:]
    identity = torch.eye(linear.shape[1], dtype=change.dtype, device=change.device)
    return torch.cat([identity + linear, shift - linear.sum(dim=2, keepdim=True) / 2], dim=2)
