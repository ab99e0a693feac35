"""One part of a data set: images that can be drawn in pairs, and loaded. `dataset.py` opens them.

Neighbours: `pairing.py` (which pairs there are), `batch.py` (what is loaded).
"""

import abc
from collections.abc import Sequence

import torch

from roundtrip._shapes import Image, Points, Shaped, Tensor
from roundtrip.data.batch import Batch
from roundtrip.data.pairing import AbstractPairing, Pair, chosen_pairs
from roundtrip.data.prepared import Prepared
from roundtrip.space.grid import Grid


class AbstractSubset(abc.ABC):
    """The images of training, of validation or of test, all on one grid; may be empty."""

    names: tuple[str, ...]
    """One for each image, for tables and error messages: its file, or its number."""
    grid: tuple[int, ...]
    channels: int
    spacing: tuple[float, ...] | None
    """Millimetres from voxel to voxel, where all images have the same; None: distances are in voxels."""
    pairing: AbstractPairing
    symmetric: bool
    """Whether the fixed list of pairs holds each of them both ways round."""

    def draw(self, count: int, generator: torch.Generator) -> list[Pair]:
        """Random pairs (moving, fixed), each with the same chance, never an image with itself."""
        size = (count,)
        numbers = torch.randint(self.pairing.count, size, generator=generator, device=generator.device)
        return [self.pairing.pair(number) for number in numbers.tolist()]

    def pairs(self, count: int | None) -> list[Pair]:
        """At most `count` pairs to validate or evaluate on, the same at every call; None: all there are."""
        return chosen_pairs(self.pairing, count, symmetric=self.symmetric)

    @abc.abstractmethod
    def load(self, pairs: Sequence[Pair], device: torch.device) -> Batch:
        """The images of some pairs, with their labels and masks where all these images have them."""

    @abc.abstractmethod
    def landmarks(self, index: int) -> Points | None:
        """The landmarks of an image in its unit coordinates `(1, N, P)`, in the same order for all images."""

    @abc.abstractmethod
    def place(self, index: int) -> Grid | None:
        """Where the voxels of an image lie in the world; None for images without a world."""


class InMemorySubset(AbstractSubset):
    """Images that fit into memory, on any device: drawn shapes, digits, or tensors of one's own."""

    def __init__(
        self,
        images: Image,
        pairing: AbstractPairing,
        *,
        names: Sequence[str],
        labels: Shaped[Tensor, "B 1 *S"] | None = None,
        masks: Shaped[Tensor, "B 1 *S"] | None = None,
        symmetric: bool = False,
    ) -> None:
        self.images, self.labels, self.masks = images, labels, masks
        self.names, self.pairing, self.symmetric = tuple(names), pairing, symmetric
        self.channels, self.grid, self.spacing = images.shape[1], tuple(images.shape[2:]), None

    def load(self, pairs: Sequence[Pair], device: torch.device) -> Batch:
        # Both sides in one index: a single copy to the device.
        moving, fixed = torch.tensor(pairs, dtype=torch.long).view(-1, 2).mT.to(self.images.device)
        labels, masks = self.labels, self.masks
        return Batch(
            self.images[moving],
            self.images[fixed],
            moving_labels=None if labels is None else labels[moving].int(),
            fixed_labels=None if labels is None else labels[fixed].int(),
            moving_mask=None if masks is None else masks[moving],
            fixed_mask=None if masks is None else masks[fixed],
        ).to(device)

    def landmarks(self, index: int) -> Points | None:
        return None

    def place(self, index: int) -> Grid | None:
        return None


class PreparedSubset(AbstractSubset):
    """Images in the files of a cache, read by memory map when a pair asks for them."""

    def __init__(
        self,
        images: Sequence[Prepared],
        pairing: AbstractPairing,
        *,
        names: Sequence[str],
        like: Prepared,
        symmetric: bool = False,
    ) -> None:
        """`like`: any image of the data set; a subset may have none."""
        self.images, self.names = tuple(images), tuple(names)
        self.pairing, self.symmetric = pairing, symmetric
        self.channels, self.grid = like.channels, like.grid.shape
        self.spacing = _common_spacing([image.grid for image in images] or [like.grid])

    def load(self, pairs: Sequence[Pair], device: torch.device) -> Batch:
        moving = [self.images[moving] for moving, _ in pairs]
        fixed = [self.images[fixed] for _, fixed in pairs]
        return Batch(
            _stacked(moving, "image"),
            _stacked(fixed, "image"),
            moving_labels=_stacked_if_all(moving, "labels"),
            fixed_labels=_stacked_if_all(fixed, "labels"),
            moving_mask=_stacked_if_all(moving, "mask"),
            fixed_mask=_stacked_if_all(fixed, "mask"),
        ).to(device)

    def landmarks(self, index: int) -> Points | None:
        return self.images[index].landmarks()

    def place(self, index: int) -> Grid | None:
        return self.images[index].grid


def _common_spacing(grids: Sequence[Grid]) -> tuple[float, ...] | None:
    first = grids[0].spacing
    same = all(abs(a - b) <= 1e-3 * b for grid in grids for a, b in zip(grid.spacing, first, strict=True))
    return first if same else None


def _stacked(images: Sequence[Prepared], kind: str) -> Tensor:
    return torch.stack([image.tensor(kind) for image in images])


def _stacked_if_all(images: Sequence[Prepared], kind: str) -> Tensor | None:
    """None where one of the images does not have it."""
    if not images or not all(kind in image.kinds for image in images):
        return None
    stacked = _stacked(images, kind)
    return stacked.bool() if kind == "mask" else stacked.int()
