"""A registered pair as a picture the size of a stamp: fixed, warped, and the difference between them.

Neighbours: `cut.py`, which slices; `overview.py`, which shows thousands of stamps on one page.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from roundtrip._files import write_whole
from roundtrip.reports.cut import PLANES, Cut, middle_of
from roundtrip.reports.display import canonical, window_of
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 96
"""Pixels of one of the three pictures."""

NAME = "thumbnail.jpg"

# As on the page of a pair: orange where the moving image is brighter, blue where the fixed one is.
_MOVING_BRIGHTER, _FIXED_BRIGHTER = np.array([1.0, 0.62, 0.05]), np.array([0.25, 0.65, 1.0])


def write_thumbnail(path: Path, moving: Volume, fixed: Volume, transform: Transform) -> None:
    """A JPEG of the axial slice through the middle of what is bright; of a plane, of all of it."""
    data = as_jpeg(thumbnail(moving, fixed, transform), quality=90)
    write_whole(path, lambda beside: beside.write_bytes(data))


@torch.no_grad()
def thumbnail(moving: Volume, fixed: Volume, transform: Transform) -> "Image":
    """Three squares beside each other, millimetres equally long both ways, black around."""
    from PIL import Image

    windows = window_of(fixed), window_of(moving)
    place = canonical(fixed)
    cut = Cut(PLANES[0], place.grid, middle_of(fixed, windows[0]))
    target = cut.picture(cut.of(place), windows[0])
    warped = cut.picture(transform.warp(moving, onto=cut.slab), windows[1])
    strip = Image.new("RGB", (3 * SIDE, SIDE))
    pictures = (_grey(target), _grey(warped), _difference(warped - target))
    extent = [n * step for n, step in zip(cut.size, cut.spacing, strict=True)]
    size = [max(1, round(SIDE * part / max(extent))) for part in extent]
    for number, picture in enumerate(pictures):
        small = Image.fromarray(picture).resize((size[0], size[1]), Image.Resampling.BOX)
        strip.paste(small, (number * SIDE + (SIDE - size[0]) // 2, (SIDE - size[1]) // 2))
    return strip


def as_jpeg(picture: "Image", *, quality: int) -> bytes:
    """The picture as the bytes of a file."""
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality, optimize=True)
    return file.getvalue()


def _grey(values: np.ndarray) -> np.ndarray:
    return (255 * np.repeat(values[..., None], 3, axis=-1)).round().astype(np.uint8)


def _difference(values: np.ndarray) -> np.ndarray:
    colours = np.where(values[..., None] > 0, _MOVING_BRIGHTER, _FIXED_BRIGHTER)
    return (255 * (2 * np.abs(values)).clip(0, 1)[..., None] * colours).round().astype(np.uint8)
