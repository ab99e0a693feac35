"""What a coarser grid cannot hold is smoothed away before sampling. Neighbour: `resample.py`."""

import math

import torch

from roundtrip._shapes import Tensor
from roundtrip.space.grid import Grid
from roundtrip.space.volume import Volume

# Where a Gaussian is cut off, in standard deviations.
_REACH = 4


def antialiased(volume: Volume, grid: Grid) -> Volume:
    """`volume`, blurred as much as sampling it on the coarser `grid` needs; unchanged along finer axes.

    A voxel is taken to see the world through a Gaussian as wide at half its height as the voxel. Blurring by
    the difference of the two variances makes a small voxel see what a large one would (Cardoso et al., "Scale
    factor point spread function matching", MICCAI 2015). Along the axes of `volume`; what an oblique `grid`
    asks for across them is left out.
    """
    axes = grid.world_from_voxel[:-1, :-1]
    in_voxels = volume.grid.voxel_from_world[:-1, :-1] @ axes
    wanted = in_voxels.square().sum(dim=1)
    data = volume.data
    for axis, (n, width) in enumerate(zip(volume.shape, wanted.tolist(), strict=True), start=1):
        if width > 1 + 1e-6 and n > 1:
            sigma = math.sqrt((width - 1) / (8 * math.log(2)))
            data = _along(axis, _gaussian(n, sigma, like=data), data)
    return Volume(data, volume.world_from_voxel)


def _along(axis: int, matrix: Tensor, data: Tensor) -> Tensor:
    return torch.tensordot(data, matrix, dims=([axis], [1])).movedim(-1, axis).contiguous()


def _gaussian(n: int, sigma: float, *, like: Tensor) -> Tensor:
    """The matrix that blurs an axis of n voxels. At the border the weights of what is left sum to 1."""
    index = torch.arange(n, device=like.device, dtype=like.dtype)
    apart = (index[:, None] - index) / sigma
    weights = torch.where(apart.abs() <= _REACH, (-apart.square() / 2).exp(), 0)
    return weights / weights.sum(dim=1, keepdim=True)
