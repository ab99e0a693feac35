"""`Model`: a trained algorithm together with the preparation it needs, so that it registers any two images.

Images may be of any size, spacing and orientation. What comes out is a `Registered`: maps both ways between
the two prepared images, which know where they lie in the world, and so maps between the images as they were
given. Neighbours: `refine.py` (adapts the weights to the pair), `judged.py` (measures the result).
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from roundtrip._shapes import Image, Mask
from roundtrip.algorithms.card import Card, Preparation
from roundtrip.algorithms.objective import both_directions
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.algorithms.saved import load, read_card
from roundtrip.maps.map import Composition, Identity, Map
from roundtrip.pairwise.refine import Refinement, refine
from roundtrip.space.grid import Grid, affine_map
from roundtrip.space.preparation import prepare, prepare_labels
from roundtrip.space.resample import with_grid
from roundtrip.space.volume import Volume, require_contrast


@dataclass(frozen=True, eq=False)
class Scan:
    """An image in the world, and what has to be known to prepare it."""

    image: Volume
    mask: Volume | None = None
    """What belongs to the image, on its grid."""
    mirrored: bool = False
    """Whether it is one of those that the model wants mirrored, such as left knees."""


@dataclass(frozen=True, eq=False)
class Registered:
    """The maps between two prepared images, in unit coordinates of their grids, and what they cost."""

    phi_AB: Map
    """Takes points of `fixed` to points of `moving`."""
    phi_BA: Map
    moving: Grid
    fixed: Grid
    seconds: float
    """From prepared images in memory to both maps."""
    algorithm: AbstractRegistration
    """What found them: the model's, or a copy that was refined on this pair."""

    def between(self, moving: Grid, fixed: Grid) -> "Maps":
        """The same maps in unit coordinates of other grids of the same two worlds."""
        return Maps(
            AB=_framed(self.phi_AB, self.moving, self.fixed, moving, fixed),
            BA=_framed(self.phi_BA, self.fixed, self.moving, fixed, moving),
            start=_framed(Identity(), self.moving, self.fixed, moving, fixed),
        )


@dataclass(frozen=True, eq=False)
class Maps:
    """Both maps between two images in unit coordinates, and where registration began."""

    AB: Map
    BA: Map
    start: Map
    """As AB, of the images as the model first sees them: centre on centre, mirrored ones mirrored."""


@dataclass(frozen=True, eq=False)
class Model:
    """A trained algorithm, ready for images in the world."""

    algorithm: AbstractRegistration
    preparation: Preparation
    card: Card | None = None

    def to(self, *args: Any, **kwargs: Any) -> "Model":
        """The same model on another device; its algorithm itself is moved."""
        return Model(self.algorithm.to(*args, **kwargs), self.preparation, self.card)

    def prepared(self, scan: Scan) -> Volume:
        """The image as the model wants it, where it lies in the world."""
        require_contrast(scan.image, "the image")
        return prepare(scan.image, self.preparation, mask=scan.mask, mirrored=scan.mirrored)

    def __call__(self, moving: Scan, fixed: Scan, *, refinement: Refinement | None = None) -> Registered:
        """Registers one pair, both ways; `refinement` adapts a copy of the weights to it first."""
        scans = (moving, fixed)
        volumes = self._on_common_grid([self.prepared(scan) for scan in scans])
        masks = [self._mask(scan, like=volume) for scan, volume in zip(scans, volumes, strict=True)]
        images = [self._tensor(volume) for volume in volumes]
        start = time.perf_counter()
        phi_AB, phi_BA, algorithm = self._register(images, masks, refinement)
        if images[0].is_cuda:
            torch.cuda.synchronize(images[0].device)
        seconds = time.perf_counter() - start
        return Registered(phi_AB, phi_BA, volumes[0].grid, volumes[1].grid, seconds, algorithm)

    def _on_common_grid(self, volumes: Sequence[Volume]) -> list[Volume]:
        """With as many voxels along each axis as the larger one has: algorithms compare on one grid."""
        shape = [max(sizes) for sizes in zip(*(volume.shape for volume in volumes), strict=True)]
        around = 0.0 if self.preparation.intensities is not None else None
        return [
            with_grid(volume, shape, fill=float(volume.data.min()) if around is None else around)
            for volume in volumes
        ]

    def _register(
        self, images: Sequence[Image], masks: Sequence[Mask | None], refinement: Refinement | None
    ) -> tuple[Map, Map, AbstractRegistration]:
        moving, fixed = images
        if refinement is None:
            with torch.no_grad():
                return *both_directions(self.algorithm, moving, fixed), self.algorithm
        refined = refine(self.algorithm, moving, fixed, refinement, moving_mask=masks[0], fixed_mask=masks[1])
        return refined.phi_AB, refined.phi_BA, refined.algorithm

    def _tensor(self, volume: Volume) -> Image:
        weight = next(self.algorithm.parameters(), volume.data)
        return volume.data[None].to(weight.device, weight.dtype)

    def _mask(self, scan: Scan, *, like: Volume) -> Mask | None:
        if scan.mask is None:
            return None
        mask = prepare_labels(scan.mask, self.preparation, mirrored=scan.mirrored)
        return (with_grid(mask, like.shape).data[None] != 0).to(next(self.algorithm.parameters()).device)


def open_model(folder: str | os.PathLike[str]) -> Model:
    """The model in a folder that `roundtrip train` or `roundtrip convert` wrote, on the CPU."""
    card = read_card(folder)
    if card.preparation is None:
        raise ValueError(
            f"the card of {Path(folder)} does not say how images are prepared for this model, so it "
            "cannot be given images of any size. Write it into `preparation` in card.json, e.g. "
            '{"spacing": [1, 1, 1], "grid": [96, 96, 96], "intensities": {"unit": "percentiles", "lower": 1, '
            '"upper": 99}}, or convert the weights again with --grid and --spacing.'
        )
    return Model(load(folder), card.preparation, card)


def _framed(phi: Map, moving: Grid, fixed: Grid, own_moving: Grid, own_fixed: Grid) -> Map:
    """phi between two grids as a map between the unit coordinates of two others, worlds unchanged."""
    inner = fixed.unit_from_world @ own_fixed.world_from_unit
    outer = own_moving.unit_from_world @ moving.world_from_unit
    like = torch.zeros((), dtype=torch.float64)
    if isinstance(phi, Identity):
        return affine_map(outer @ inner, like=like)
    return Composition(affine_map(outer, like=like), Composition(phi, affine_map(inner, like=like)))
