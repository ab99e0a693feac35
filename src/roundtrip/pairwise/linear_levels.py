"""Images at lower resolutions, and the samples at which they are compared.

Neighbours: `linear_survey.py` (which part of an image is worth it), `linear_fit.py` (compares them).
"""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import torch

from roundtrip._shapes import Tensor


@dataclass(frozen=True, eq=False)
class View:
    """An image at some resolution, always of three axes; a missing one has a single voxel."""

    data: Tensor
    """Channels x three axes, in float32."""
    weight: Tensor | None
    """How much each voxel counts; all of them do where there is no mask."""
    world_from_voxel: np.ndarray
    """4 x 4, from the voxels to a world whose origin is the centre of the foreground."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Voxels of a view, in chunks that lie together."""

    points: Tensor
    """3 x samples, in voxels."""
    knot: Tensor
    """Channels x samples: each intensity lies between this knot and the next, ..."""
    fraction: Tensor
    """... this share of the way."""
    weights: Tensor
    edges: Tensor
    """Chunk i is from edge i to the next."""
    knots: int
    total: float
    """Of the weights."""

    def with_knots(self, knots: int) -> "Samples":
        """The same samples, explained by a curve with so many knots."""
        values = (self.knot + self.fraction) * ((knots - 1) / (self.knots - 1))
        knot = values.long().clamp(0, knots - 2)
        return dataclasses.replace(self, knot=knot, fraction=values - knot, knots=knots)


def pooled(data: Tensor, world_from_voxel: np.ndarray, spacing: float) -> tuple[Tensor, np.ndarray]:
    """Means over blocks of voxels about as large as `spacing`; what is left over at the end is cut off.

    At least four voxels are left along each axis that has them.
    """
    matrix = world_from_voxel.copy()
    for axis in range(3):
        n = data.shape[axis + 1]
        size = np.linalg.norm(world_from_voxel[:3, axis])
        factor = max(1, min(round(spacing / size), n // 4))
        if factor > 1:
            kept = data.narrow(axis + 1, 0, n // factor * factor)
            # Sums of planes: several times as fast as a mean over a short axis.
            first, *others = kept.unflatten(axis + 1, (n // factor, factor)).unbind(axis + 2)
            data = sum(others, start=first) / factor
            matrix[:3, 3] += matrix[:3, axis] * (factor - 1) / 2
            matrix[:3, axis] *= factor
    return data.contiguous(), matrix


def smoothed(data: Tensor) -> Tensor:
    """By a quarter of each neighbour, along every axis."""
    for axis in range(1, 4):
        n = data.shape[axis]
        if n > 1:
            first, last = data.narrow(axis, 0, 1), data.narrow(axis, n - 1, 1)
            wide = torch.cat([first, data, last], dim=axis)
            data = (wide.narrow(axis, 0, n) + wide.narrow(axis, 2, n)) / 4 + data / 2
    return data


def samples_of(view: View, region: np.ndarray, *, at_most: int, knots: int, block: float | None) -> Samples:
    """About `at_most` voxels within the `region` (low and high, in voxels), evenly spread, those that count.

    Chunks are blocks of the world of the size `block`, in mm; without it, they have no meaning.
    """
    axes = _axes(region, view.data.shape[1:])
    if block is None:
        index = _spread(axes, at_most)
        index = _counting(index, view.weight)
        edges = np.linspace(0, index.shape[1], min(16, index.shape[1]) + 1).astype(np.int64)
    else:
        spacing = np.linalg.norm(view.world_from_voxel[:3, :3], axis=0)
        index = _counting(_whole_blocks(axes, spacing, at_most, block), view.weight)
        key = index[3]
        edges = np.concatenate([[0], np.flatnonzero(np.diff(key)) + 1, [len(key)]])
    device = view.data.device
    i, j, k = (torch.from_numpy(axis).to(device) for axis in index[:3])
    values = view.data[:, i, j, k] * (knots - 1)
    knot = values.long().clamp(0, knots - 2)
    weights = torch.ones_like(values[0]) if view.weight is None else view.weight[i, j, k].float()
    return Samples(
        points=torch.stack([i, j, k]).float(),
        knot=knot,
        fraction=values - knot,
        weights=weights,
        edges=torch.from_numpy(edges),
        knots=knots,
        total=float(weights.sum(dtype=torch.float64)),
    )


def _axes(region: np.ndarray, shape: torch.Size) -> list[np.ndarray]:
    return [
        np.arange(max(0, min(math.ceil(low), n - 1)), max(0, min(math.floor(high), n - 1)) + 1)
        for low, high, n in zip(*region, shape, strict=True)
    ]


def _spread(axes: list[np.ndarray], at_most: int) -> np.ndarray:
    """The indices of voxels, 3 x samples."""
    kept = np.nonzero(_places(axes) < at_most / math.prod(map(len, axes)))
    return np.stack([axis[index] for axis, index in zip(axes, kept, strict=True)])


def _whole_blocks(axes: list[np.ndarray], spacing: np.ndarray, at_most: int, block: float) -> np.ndarray:
    """The indices of all voxels in some blocks, and the number of the block: 4 x samples, block by block."""
    # In smaller blocks a curve could follow anything.
    block = max(block, 3.5 * spacing.max())
    cells = [((a - a[0]) * s // block).astype(np.int64) for a, s in zip(axes, spacing, strict=True)]
    counts = [int(cell[-1]) + 1 for cell in cells]
    chosen = _places([np.arange(n) for n in counts]) < at_most / math.prod(map(len, axes))
    if not chosen.any():
        chosen[tuple(n // 2 for n in counts)] = True
    kept = np.nonzero(chosen[np.ix_(*cells)])
    number = np.ravel_multi_index([cell[i] for cell, i in zip(cells, kept, strict=True)], counts)
    order = np.argsort(number, kind="stable")
    return np.stack([*(a[i] for a, i in zip(axes, kept, strict=True)), number])[:, order]


def _places(axes: list[np.ndarray]) -> np.ndarray:
    """A number from 0 to 1 for each point of a lattice: even along every axis and across them.

    By powers of the plastic constant's inverse (Roberts, 2018).
    """
    i, j, k = np.ix_(*axes)
    return np.asarray((0.8191725133961645 * i + 0.6710436067037893 * j + 0.5497004779019703 * k) % 1)


def _counting(index: np.ndarray, weight: Tensor | None) -> np.ndarray:
    """Those of the voxels that count; all of them where none does."""
    if weight is None:
        return index
    counts = weight.cpu().numpy()[tuple(index[:3])] > 0
    return index[:, counts] if counts.any() else index
