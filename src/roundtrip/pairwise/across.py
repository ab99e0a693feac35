"""`deform_across`: as `deform`, for images of different contrast, which are translated into one first.

Coarse levels come first, on coarse images, and once more with the contrast learned anew, where they have laid
the images onto each other. Neighbours: `deformable.py`, `translation.py`.
"""

import dataclasses
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from roundtrip._shapes import Image, Mask, Tensor
from roundtrip.maps.interpolate import warp
from roundtrip.maps.map import Map
from roundtrip.pairwise.deformable import Deformation, deform
from roundtrip.pairwise.pyramid import BLUR, coarse_shape, gaussian_weights
from roundtrip.pairwise.settings import DeformableSettings, LevelSettings
from roundtrip.pairwise.steering import Steering
from roundtrip.pairwise.translation import translation

# How much coarser the images of the coarse levels are: of those that see no more than such images show.
_FACTOR = 2.0

# How often the coarse levels are done, each time with what was learned from the time before.
_ROUNDS = 2


def deform_across(
    moving: Image,
    fixed: Image,
    *,
    spacing: Sequence[float],
    settings: DeformableSettings,
    moving_mask: Mask | None = None,
    fixed_mask: Mask | None = None,
    start: tuple[Map, Map] | None = None,
    steering: Steering | None = None,
) -> Deformation:
    """Registers one pair of images on one grid; everything as in `deform`."""
    both = [mask.to(fixed.dtype) for mask in (moving_mask, fixed_mask) if mask is not None]
    mask = torch.stack(both).prod(dim=0) if both else None
    steers_coarse = steering is not None and (steering.labels is not None or steering.bodies is not None)
    if start is None and not steers_coarse:
        start = _coarse_maps(moving, fixed, mask, spacing, settings, steering)
    seen = moving if start is None else warp(moving, start[0])
    one, other = translation(seen, fixed, mask)(moving, fixed)
    return deform(
        one,
        other,
        spacing=spacing,
        settings=settings,
        moving_mask=moving_mask,
        fixed_mask=fixed_mask,
        start=start,
        steering=steering,
    )


def _coarse_maps(
    moving: Image,
    fixed: Image,
    mask: Mask | None,
    spacing: Sequence[float],
    settings: DeformableSettings,
    steering: Steering | None,
) -> tuple[Map, Map] | None:
    """What the coarse levels find, on images that are coarser themselves; None if there are none."""
    full = tuple(fixed.shape[2:])
    shape = coarse_shape(full, spacing, _FACTOR)
    coarse = [level for level in settings.levels if level.coarser >= _FACTOR]
    if shape == full or not coarse:
        return None
    apart = [s * (n - 1) / max(m - 1, 1) for s, n, m in zip(spacing, full, shape, strict=True)]
    factor = min(apart) / min(spacing)
    masks = None if mask is None else _coarse(mask, shape)
    small, target = _coarse(moving, shape), _coarse(fixed, shape)
    levels = settings.model_copy(update={"levels": tuple(_made_finer(level, factor) for level in coarse)})
    maps = None
    for _ in range(_ROUNDS):
        seen = small if maps is None else warp(small, maps[0])
        one, other = translation(seen, target, masks)(small, target)
        # From the beginning: a curve that was learned amiss has drawn the maps to where it fits.
        found = deform(
            one,
            other,
            spacing=apart,
            settings=levels,
            moving_mask=masks,
            steering=None if steering is None else dataclasses.replace(steering, labels=None, bodies=None),
        )
        maps = found.phi, found.inverse
    return maps


def _made_finer(level: LevelSettings, factor: float) -> LevelSettings:
    """For images whose voxels are that much larger."""
    return LevelSettings(coarser=max(level.coarser / factor, 1.0), steps=level.steps)


def _coarse(image: Tensor, shape: Sequence[int]) -> Tensor:
    """On a coarser grid over the same place, blurred no more than the levels of `deform` are."""
    for axis, (n, m) in enumerate(zip(image.shape[2:], shape, strict=True), start=2):
        ratio = (n - 1) / max(m - 1, 1)
        half = gaussian_weights(BLUR * math.sqrt(max(ratio**2 - 1, 0)), like=image)
        reach, lines = len(half) - 1, image.movedim(axis, -1)
        padded = F.pad(lines.reshape(1, -1, n), (reach, reach), mode="replicate")
        taps = torch.cat([half.flip(0), half[1:]]).view(1, 1, -1)
        smoothed = F.conv1d(padded.view(-1, 1, padded.shape[-1]), taps)
        image = smoothed.reshape(lines.shape).movedim(-1, axis)
    mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[image.ndim - 2]
    return F.interpolate(image, size=tuple(shape), mode=mode, align_corners=True)
