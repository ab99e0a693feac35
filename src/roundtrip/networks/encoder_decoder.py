"""`EncoderDecoder`: convolutions down to a small grid and up again, through a bottleneck.

Neighbours: `unet.py` (with skips), `layers.py` (what the networks share).
"""

from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import nn

from roundtrip._shapes import Field, Image
from roundtrip.networks.layers import (
    CONVOLUTION,
    TRANSPOSE_CONVOLUTION,
    cropped,
    require_architecture,
    starting_at_zero,
    together,
)


class EncoderDecoder(nn.Module):
    """(moving, fixed) -> displacement, on any grid. The paper's "Enc-Dec".

    Strided 3-wide convolutions, then strided 4-wide transpose convolutions, each followed by a ReLU; a
    3-wide convolution to one channel per axis, divided by 10. The output starts at zero.
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
        if len(down_features) != len(up_features) or not down_features:
            raise ValueError(
                f"down_features={tuple(down_features)} makes {len(down_features)} steps down but up_features="
                f"{tuple(up_features)} makes {len(up_features)} up; each step down needs its step up."
            )
        self.dims, self.channels = dims, channels
        self.down_features, self.up_features = tuple(down_features), tuple(up_features)
        down, up = CONVOLUTION[dims], TRANSPOSE_CONVOLUTION[dims]
        self.down = nn.ModuleList(
            down(a, b, 3, stride=2, padding=1) for a, b in pairwise((2 * channels, *down_features))
        )
        self.up = nn.ModuleList(
            up(b, a, 4, stride=2, padding=1) for a, b in pairwise((*up_features, down_features[-1]))
        )
        self.last = starting_at_zero(CONVOLUTION[dims](up_features[0], dims, 3, padding=1))

    def forward(self, moving: Image, fixed: Image) -> Field:
        x = together(moving, fixed, dims=self.dims, channels=self.channels)
        before = []
        for down in self.down:
            before.append(x)
            x = F.relu(down(x))
        for up, like in zip(reversed(self.up), reversed(before), strict=True):
            x = cropped(F.relu(up(x)), like=like)
        return self.last(x) / 10
