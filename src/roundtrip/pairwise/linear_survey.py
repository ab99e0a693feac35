"""What is known of an image before it is aligned: where its foreground lies, and the range of its values.

Neighbours: `linear.py`, and `linear_levels.py`, which draws the image at lower resolutions.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from roundtrip._shapes import Tensor
from roundtrip.pairwise.linear_levels import pooled
from roundtrip.space.resample import require_same_dims
from roundtrip.space.volume import Volume, require_contrast

# The foreground is measured on about this many voxels along each axis.
_LOOK = 48


@dataclass(frozen=True, eq=False)
class Survey:
    """An image of three axes, a missing one having a single voxel, at the highest resolution needed."""

    data: Tensor
    """Channels x three axes; the robust range of each channel is from 0 to 1."""
    mask: Tensor | None
    world_from_voxel: np.ndarray
    """4 x 4."""
    dims: int
    centre: np.ndarray
    """Of the foreground, in mm."""
    radius: float
    """The root mean square distance of the foreground from its centre, in mm."""
    corners: np.ndarray
    """4 x 8: of a box, in the world, that holds the foreground with some margin."""


def survey(volume: Volume, mask: Volume | None, name: str, *, finest: float) -> Survey:
    """Looks at an image; it keeps voxels of about `finest` times its diameter."""
    whole, whole_matrix = _three_axes(volume)
    inside = None if mask is None else (_three_axes(mask)[0] != 0).float()
    sizes = np.array(whole.shape[1:]) * np.linalg.norm(whole_matrix[:3, :3], axis=0)
    look = float(sizes[: volume.dims].max()) / _LOOK
    # Every level is drawn from this one, so that all voxels are read once.
    data, matrix = pooled(whole, whole_matrix, look / 2)
    weight = None if inside is None else pooled(inside, whole_matrix, look / 2)[0]
    seen, seen_matrix = pooled(data, matrix, look)
    seen_weight = None if weight is None else pooled(weight, matrix, look)[0][0].cpu().numpy()
    seen_values = seen.cpu().numpy()
    foreground = _foreground(seen_values, volume.dims)
    if seen_weight is not None:
        foreground = foreground * seen_weight
    if not foreground.sum() > 0:
        raise ValueError(
            f"within its mask, `{name}` has no foreground: nothing there differs from its border. Check that "
            "mask and image belong together."
        )
    centre, radius, box = _moments(foreground, seen_matrix)
    low, high = _ranges(seen_values, seen_weight)
    wanted = finest * diameter(radius) / 1.5
    if wanted < look / 3:
        # A small foreground in a large field of view deserves a closer look.
        data, matrix = pooled(whole, whole_matrix, wanted)
        weight = None if inside is None else pooled(inside, whole_matrix, wanted)[0]
    bounds = np.stack([low, high - low])[..., None, None, None]
    start, extent = torch.as_tensor(bounds, dtype=torch.float32, device=data.device)
    data = ((data - start) / extent).clamp(0, 1)
    return Survey(
        data,
        None if weight is None else weight[0],
        matrix,
        volume.dims,
        centre,
        radius,
        seen_matrix @ box,
    )


def diameter(radius: float) -> float:
    """Of a ball whose points lie this far from its middle, in the root mean square."""
    return 2 * math.sqrt(5 / 3) * radius


def _foreground(values: np.ndarray, dims: int) -> np.ndarray:
    """How clearly each voxel differs from what lies along the border of the image, from 0 to 1."""
    total = np.zeros(values.shape[1:])
    for channel in values:
        border = np.concatenate([channel.take([0, -1], axis=axis).ravel() for axis in range(dims)])
        apart = np.abs(channel - np.median(border))
        usual = np.percentile(apart, 98)
        if usual <= 0:
            usual = apart.max()
        if usual > 0:
            total += np.where(apart > 0.1 * usual, np.minimum(apart / (0.3 * usual), 1), 0)
    return total


def _moments(foreground: np.ndarray, matrix: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """Centre and radius in the world, and the corners of a box around nearly all of it, in voxels."""
    share, spacing = foreground / foreground.sum(), np.linalg.norm(matrix[:3, :3], axis=0)
    along = [share.sum(axis=tuple(a for a in range(3) if a != axis)) for axis in range(3)]
    index = [np.arange(len(part)) for part in along]
    middle = np.array([i @ part for i, part in zip(index, along, strict=True)])
    spread = [np.square(i - m) @ part for i, m, part in zip(index, middle, along, strict=True)]
    radius = math.sqrt(np.square(spacing) @ spread)
    ends = []
    for part in along:
        within = np.cumsum(part)
        low, high = np.searchsorted(within, 0.002), np.searchsorted(within, 0.998)
        margin = 1 + 0.08 * (high - low)
        ends.append((low - margin, high + margin))
    corners = np.stack([c.ravel() for c in np.meshgrid(*ends, indexing="ij")] + [np.ones(8)])
    return (matrix @ [*middle, 1])[:3], max(radius, spacing.min()), corners


def _ranges(values: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Of each channel, the smallest and largest value but for outliers."""
    rows = values.reshape(len(values), -1)
    if weight is not None:
        rows = rows[:, weight.ravel() > 0]
    low, high = np.percentile(rows, [0.5, 99.5], axis=1)
    narrow = high <= low
    low, high = np.where(narrow, rows.min(axis=1), low), np.where(narrow, rows.max(axis=1), high)
    return low, np.where(high > low, high, low + 1)


def _three_axes(volume: Volume) -> tuple[Tensor, np.ndarray]:
    dims, matrix = volume.dims, np.eye(4)
    given = volume.world_from_voxel.numpy()
    matrix[:dims, :dims], matrix[:dims, 3] = given[:dims, :dims], given[:dims, dims]
    data = volume.data.detach()
    # Larger intensities than float32 holds stay finite.
    data = data.clamp(-3e38, 3e38) if data.dtype == torch.float64 else data
    return data.float().reshape(data.shape[0], *volume.shape, *[1] * (3 - dims)), matrix


def require_alignable(
    moving: Volume, fixed: Volume, moving_mask: Volume | None, fixed_mask: Volume | None
) -> None:
    """All that aligning two images asks of them."""
    require_same_dims(moving, fixed)
    if moving.dims < 2:
        raise ValueError("both images have 1 axis; images of 2 or 3 axes can be aligned.")
    if len(moving.data) != len(fixed.data):
        raise ValueError(
            f"`moving` has {len(moving.data)} channels but `fixed` {len(fixed.data)}; channel i is compared "
            "with channel i. Pick the common ones, e.g. `rt.Volume(v.data[:1], v.world_from_voxel)`."
        )
    for image, mask, name in ((moving, moving_mask, "moving"), (fixed, fixed_mask, "fixed")):
        require_contrast(image, f"`{name}`")
        if mask is not None:
            _require_mask(mask, image, name)


def _require_mask(mask: Volume, image: Volume, name: str) -> None:
    if len(mask.data) != 1 or not mask.grid.same_as(image.grid):
        raise ValueError(
            f"`{name}_mask` is {mask!r}, but `{name}` is {image!r}; a mask has one channel, on the grid of "
            f"its image. Put it there: `rt.resampled({name}_mask, like={name})`."
        )
    counts = mask.data[0] != 0
    if not counts.any():
        raise ValueError(
            f"`{name}_mask` is 0 everywhere, so that no voxel counts. Leave it out, or check it."
        )
    inside = image.data[:, counts]
    if bool((inside == inside[:, :1]).all()):
        raise ValueError(
            f"within `{name}_mask`, `{name}` has the same value everywhere: there is nothing to register. "
            "Check that mask and image belong together."
        )
