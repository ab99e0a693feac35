"""Sample points of a grid, and the way between voxel indices and unit coordinates.

Voxel i of an axis of n voxels lies at i / (n - 1): the first and last voxel *centres* are 0 and 1. The only
voxel of an axis of one lies at 0. `interpolate.py` samples at such points, `map.py` evaluates maps on them.
"""

from collections.abc import Sequence

import torch

from roundtrip._shapes import Bool, Float, Points, Tensor


def unit_grid(shape: Sequence[int], *, like: Tensor | None = None) -> Float[Tensor, "1 N *S"]:
    """The unit coordinates of every voxel of a grid, as one set of points.

    `like` gives device and precision (at least float32: half a bfloat16 has voxels it cannot tell apart).
    """
    dtype, device = (torch.float32, None) if like is None else (point_dtype(like), like.device)
    axes = [torch.linspace(0, 1 if n > 1 else 0, n, dtype=dtype, device=device) for n in shape]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"))[None]


def voxel_size(shape: Sequence[int], *, like: Tensor | None = None) -> Float[Tensor, "N"]:
    """The step from one voxel to the next along each axis, in unit coordinates."""
    dtype, device = (torch.float32, None) if like is None else (point_dtype(like), like.device)
    return torch.tensor([1 / max(n - 1, 1) for n in shape], dtype=dtype, device=device)


def unit_from_voxel(index: Points, shape: Sequence[int]) -> Points:
    """Unit coordinates of (fractional) voxel indices."""
    return index * along_channels(voxel_size(shape, like=index), index)


def voxel_from_unit(x: Points, shape: Sequence[int]) -> Points:
    """(Fractional) voxel indices of unit coordinates."""
    steps = torch.tensor([n - 1 for n in shape], dtype=x.dtype, device=x.device)
    return x * along_channels(steps, x)


def inside_image(x: Points) -> Bool[Tensor, "B 1 *P"]:
    """Which points lie within the image: between the first and the last voxel centre of every axis."""
    return ((x >= 0) & (x <= 1)).all(dim=1, keepdim=True)


def along_channels(per_axis: Float[Tensor, "N"], x: Points) -> Tensor:
    """One number per axis, shaped to act on the coordinate channels of `x`."""
    return per_axis.view(1, -1, *[1] * (x.ndim - 2))


def point_dtype(like: Tensor) -> torch.dtype:
    """The precision of coordinates that go with `like`: its own, but at least float32."""
    return torch.promote_types(like.dtype, torch.float32)
