"""`MLP`: all voxels of both images into one vector, and dense layers; the only network bound to one grid.

Neighbours: `conv_only.py` and the others, which take any grid; `layers.py` (what the networks share).
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import nn

from roundtrip._shapes import Field, Image
from roundtrip.networks.layers import require_architecture, starting_at_zero, together


class MLP(nn.Module):
    """(moving, fixed) -> displacement, on the one grid it was made for. The paper's "MLP".

    Dense layers of 8000 and 3000 features with ReLU, then one value per voxel and axis, starting at zero. The
    weights grow with the number of voxels: 43 million for 28 x 28.
    """

    def __init__(
        self, shape: Sequence[int], *, channels: int = 1, hidden_features: Sequence[int] = (8000, 3000)
    ) -> None:
        """`shape` of the grid, of 1, 2 or 3 axes; `channels` of each image."""
        super().__init__()
        require_architecture(len(shape), channels)
        self.shape, self.channels, self.hidden_features = tuple(shape), channels, tuple(hidden_features)
        voxels = math.prod(shape)
        self.hidden = nn.ModuleList(
            nn.Linear(a, b) for a, b in pairwise((2 * channels * voxels, *hidden_features))
        )
        self.last = starting_at_zero(nn.Linear(hidden_features[-1], len(shape) * voxels))

    def forward(self, moving: Image, fixed: Image) -> Field:
        x = together(moving, fixed, dims=len(self.shape), channels=self.channels)
        if x.shape[2:] != self.shape:
            raise ValueError(
                f"the images have the grid {tuple(x.shape[2:])}, but this MLP was made for {self.shape}. Use "
                f"`MLP({tuple(x.shape[2:])})`, or a network that takes any grid: `UNet(dims={x.ndim - 2})`."
            )
        x = x.flatten(1)
        for layer in self.hidden:
            x = F.relu(layer(x))
        return self.last(x).reshape(-1, len(self.shape), *self.shape)
