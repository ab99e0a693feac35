"""From unit coordinates to millimetres: the frame of a grid, and the length of a vector in it.

A frame is the linear part of world-from-unit, as in `maps/jacobian.py`. Everything in this room that is a
distance is measured by `lengths`.
"""

from collections.abc import Sequence

import torch

from roundtrip._shapes import Float, Points, Tensor
from roundtrip.maps.grid import point_dtype
from roundtrip.maps.jacobian import Frame


def frame_of(image: Tensor, spacing: Sequence[float] | None = None) -> Frame:
    """The frame of the grid of `image`: in the unit of `spacing`, or counted in voxels without it."""
    shape = image.shape[2:]
    sizes = checked_spacing(spacing, len(shape))
    # The only voxel of an axis of one has no neighbour; it is as thick as its spacing says.
    extent = [size * max(n - 1, 1) for size, n in zip(sizes, shape, strict=True)]
    return torch.diag(torch.tensor(extent, dtype=point_dtype(image), device=image.device))


def spacing_of(frame: Frame, image: Tensor) -> list[float]:
    """The distance between neighbouring voxels of `image` along each axis, in the unit of its frame."""
    extent = frame.double().square().sum(dim=0).sqrt().tolist()
    return [length / max(n - 1, 1) for length, n in zip(extent, image.shape[2:], strict=True)]


def lengths(vectors: Points, frame: Frame) -> Float[Tensor, "B 1 *P"]:
    """How long vectors in unit coordinates are in the unit of `frame`."""
    columns = frame.to(vectors) @ vectors.flatten(2)
    # Tensor.norm along channels is an order of magnitude slower on a CPU.
    return columns.square().sum(dim=1, keepdim=True).sqrt().reshape(len(vectors), 1, *vectors.shape[2:])


def checked_spacing(spacing: Sequence[float] | None, dims: int) -> list[float]:
    """One positive number per axis; 1 for each without `spacing`."""
    sizes = [1.0] * dims if spacing is None else [float(size) for size in spacing]
    if len(sizes) != dims or not all(0 < size < float("inf") for size in sizes):
        raise ValueError(
            f"`spacing` is {spacing}; {dims} positive numbers are needed, the millimetres between the voxels "
            "along each axis of the grid."
        )
    return sizes
