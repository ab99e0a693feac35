"""`ConvOnly`: convolutions on the full grid, each seeing all that came before; no bottleneck.

Neighbours: `encoder_decoder.py` (nothing but a bottleneck), `layers.py` (what the networks share).
"""

import torch
import torch.nn.functional as F
from torch import nn

from roundtrip._shapes import Field, Image
from roundtrip.networks.layers import CONVOLUTION, require_architecture, starting_at_zero, together


class ConvOnly(nn.Module):
    """(moving, fixed) -> displacement, on any grid. The paper's "ConvOnly": it sees 12 voxels far.

    Each 5-wide convolution with ReLU adds `growth` features to the images and the features before it; a last
    one, without ReLU, gives one channel per axis and starts at zero. (The supplement says that all six layers
    give 10 features; the sixth can only give one per axis.)
    """

    def __init__(self, *, dims: int, channels: int = 1, num_layers: int = 5, growth: int = 10) -> None:
        """`channels` of each image; `num_layers` convolutions before the last one."""
        super().__init__()
        require_architecture(dims, channels)
        self.dims, self.channels, self.num_layers, self.growth = dims, channels, num_layers, growth
        convolution = CONVOLUTION[dims]
        features = [2 * channels + growth * layer for layer in range(num_layers + 1)]
        self.layers = nn.ModuleList(convolution(n, growth, 5, padding=2) for n in features[:-1])
        self.last = starting_at_zero(convolution(features[-1], dims, 5, padding=2))

    def forward(self, moving: Image, fixed: Image) -> Field:
        x = together(moving, fixed, dims=self.dims, channels=self.channels)
        for layer in self.layers:
            x = torch.cat([x, F.relu(layer(x))], dim=1)
        return self.last(x)
