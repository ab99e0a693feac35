"""Random pairs of images in one tensor, without end, as `training.engine.fit` takes them."""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from roundtrip._checks import require_image
from roundtrip._shapes import Image


class Pair(NamedTuple):
    """A batch of pairs: element i of `moving` is to be laid onto element i of `fixed`."""

    moving: Image
    fixed: Image


def random_pairs(images: Image, *, batch_size: int, generator: torch.Generator) -> Iterator[Pair]:
    """Endless random pairs of different images; every ordered pair is equally likely.

    The generator lives on the device of the images.
    """
    require_image(images, "images")
    count = len(images)
    if count < 2:
        raise ValueError(
            "`images` holds a single image; pairs need at least two, stacked along the first axis."
        )
    if batch_size < 1:
        raise ValueError(f"`batch_size` is {batch_size}; a batch holds at least one pair.")
    return _endless(images, batch_size, generator)


def _endless(images: Image, batch_size: int, generator: torch.Generator) -> Iterator[Pair]:
    def draw(below: int) -> torch.Tensor:
        return torch.randint(below, (batch_size,), generator=generator, device=images.device)

    while True:
        first = draw(len(images))
        # A random step of 1 ... count - 1 around the circle of all images never comes back to the same one.
        second = (first + 1 + draw(len(images) - 1)) % len(images)
        yield Pair(images[first], images[second])
