"""Random changes of a batch while training, where the batch is: affine maps, flips, intensities.

The generator decides all of them; it may live on another device than the batch. Neighbour: `config.py` (which
changes, and how large).
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch

from roundtrip._shapes import Float, Image, Shaped, Tensor
from roundtrip.data.batch import Batch
from roundtrip.data.config import Augmentation
from roundtrip.maps.affine import AffineMap
from roundtrip.maps.interpolate import interpolate_nearest, warp
from roundtrip.maps.map import on_grid_of


def augmented(
    batch: Batch, config: Augmentation, generator: torch.Generator, *, spacing: Sequence[float] | None = None
) -> Batch:
    """The pairs of a batch, each changed at random; labels and masks move as their images do.

    Angles are right in the unit of `spacing`, the distance of voxels along each axis; without it, in voxels.
    Where an image is turned out of its field of view, its border goes on, and its mask ends.
    """
    draw = _Draw(generator, batch.moving.device)
    batch = _flipped(batch, config, draw)
    moving = _Side(batch.moving, batch.moving_labels, batch.moving_mask)
    fixed = _Side(batch.fixed, batch.fixed_labels, batch.fixed_mask)
    moving, fixed = (_side(side, config, draw, spacing) for side in (moving, fixed))
    return Batch(moving.image, fixed.image, moving.labels, fixed.labels, moving.mask, fixed.mask)


@dataclasses.dataclass(frozen=True, eq=False)
class _Side:
    """The moving or the fixed images of a batch."""

    image: Image
    labels: Shaped[Tensor, "B 1 *S"] | None
    mask: Shaped[Tensor, "B 1 *S"] | None


@dataclasses.dataclass(frozen=True, eq=False)
class _Draw:
    """Random numbers for a device."""

    generator: torch.Generator
    device: torch.device

    def uniform(self, *shape: int) -> Tensor:
        """Between -1 and 1."""
        unit = torch.rand(shape, generator=self.generator, device=self.generator.device)
        return (2 * unit - 1).to(self.device)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.generator.device).to(self.device)


def _flipped(batch: Batch, config: Augmentation, draw: _Draw) -> Batch:
    """Along each of the axes every second pair, both its images alike."""
    count, dims = len(batch.moving), batch.moving.ndim - 2
    for axis in config.flip_axes:
        if axis >= dims:
            raise ValueError(
                f"augmentation.flip_axes names axis {axis}, but images have axes 0 to {dims - 1}."
            )
        chosen = draw.uniform(count).view(count, *[1] * (dims + 1)) > 0
        flipped: dict[str, Any] = {
            name: None if part is None else torch.where(chosen, part.flip(2 + axis), part)
            for name, part in vars(batch).items()
        }
        batch = Batch(**flipped)
    return batch


def _side(side: _Side, config: Augmentation, draw: _Draw, spacing: Sequence[float] | None) -> _Side:
    if config.rotation_degrees or config.scaling or config.shear or config.translation:
        side = _moved(side, _affine(side.image, config, draw, spacing))
    return dataclasses.replace(side, image=_recoloured(side.image, config, draw))


def _affine(image: Image, config: Augmentation, draw: _Draw, spacing: Sequence[float] | None) -> AffineMap:
    """Maps about the centre of the field of view, one for each image, in unit coordinates."""
    B, N = len(image), image.ndim - 2
    angle, scaling = math.radians(config.rotation_degrees), math.log1p(config.scaling)
    upper = torch.ones(N, N, device=image.device).triu(1)
    turn = angle * upper * draw.uniform(B, N, N)
    stretch = torch.diag_embed((scaling * draw.uniform(B, N)).exp())
    shear = torch.eye(N, device=image.device) + config.shear * upper * draw.uniform(B, N, N)
    linear = torch.linalg.matrix_exp(turn - turn.mT) @ stretch @ shear
    extent = [max(n - 1, 1) * size for n, size in zip(image.shape[2:], spacing or [1.0] * N, strict=True)]
    frame = torch.tensor(extent, device=image.device)
    # Turned in millimetres, then said in unit coordinates.
    matrix = linear * frame / frame[:, None]
    offset = 0.5 - matrix.sum(dim=2) / 2 + config.translation * draw.uniform(B, N)
    return AffineMap(matrix, offset)


def _moved(side: _Side, phi: AffineMap) -> _Side:
    labels, mask = (
        None if part is None else warp(part, phi, interpolation=interpolate_nearest)
        for part in (side.labels, side.mask)
    )
    if mask is not None:
        at = on_grid_of(phi, side.image)
        mask = mask * ((at >= 0) & (at <= 1)).all(dim=1, keepdim=True)
    return _Side(warp(side.image, phi).to(side.image.dtype), labels, mask)


def _recoloured(image: Image, config: Augmentation, draw: _Draw) -> Image:
    """Gamma, contrast, brightness and noise, in this order, relative to the range of each image."""
    if not (config.gamma or config.contrast or config.brightness or config.noise):
        return image
    B, spatial = len(image), tuple(range(1, image.ndim))

    def factor(size: float) -> Float[Tensor, "B ..."]:
        return (math.log1p(size) * draw.uniform(B)).exp().view(B, *[1] * len(spatial)).to(image.dtype)

    lowest, highest = image.amin(spatial, keepdim=True), image.amax(spatial, keepdim=True)
    extent = (highest - lowest).clamp(min=torch.finfo(image.dtype).tiny)
    values = ((image - lowest) / extent).clamp(0, 1)
    if config.gamma:
        values = values ** factor(config.gamma)
    if config.contrast:
        mean = values.mean(spatial, keepdim=True)
        values = mean + factor(config.contrast) * (values - mean)
    if config.brightness:
        values = values + config.brightness * draw.uniform(B).to(image.dtype).view(B, *[1] * len(spatial))
    if config.noise:
        values = values + config.noise * draw.normal(*image.shape).to(image.dtype)
    return lowest + extent * values
