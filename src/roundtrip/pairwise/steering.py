"""What else than intensities steers a deformation: labels that pull, and anchors that hold.

Neighbours: `deformable.py`, which asks at every level and step; `label_codes.py`, `anchors.py`, `bodies.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from roundtrip._shapes import Image, Tensor
from roundtrip.pairwise.anchors import AbstractAnchors, Landmarks
from roundtrip.pairwise.arithmetic import AbstractArithmetic, Values, Vectors, Weights, pull
from roundtrip.pairwise.bodies import Bodies
from roundtrip.pairwise.pyramid import coarse_image, fine_field, gaussian_weights
from roundtrip.pairwise.unfold import SMALLEST_GROWTH, unfold

# How much stronger than intensities labels pull where they disagree.
_STRENGTH = 20.0

# In voxels of the level: how far the pull of a border of a label reaches.
_BLUR = 0.8

# On the full grid in the end: corrections, and the distance that is left alone.
_LAST_CORRECTIONS, _LEFT_ALONE = 30, 0.2

_ROUNDS = 8


@dataclass(frozen=True, eq=False)
class Steering:
    """Everything that steers a pair on one grid; nothing unless it is given."""

    labels: tuple[Image, Image] | None = None
    """Of the fixed and of the moving image, coded; (1, codes, *grid)."""
    landmarks: Landmarks | None = None
    bodies: Bodies | None = None

    @property
    def anchors(self) -> tuple[AbstractAnchors, ...]:
        return tuple(one for one in (self.landmarks, self.bodies) if one is not None)

    def at_level(
        self, shape: Sequence[int], relative: Sequence[float], arithmetic: AbstractArithmetic
    ) -> "SteeredLevel":
        """For fields of this shape; `relative` is the finest spacing over that of each axis."""
        images: tuple[Values, ...] = ()
        if self.labels is not None:
            half = [gaussian_weights(_BLUR * r, like=self.labels[0]) for r in relative]
            images = tuple(_blurred(image, shape, half, arithmetic) for image in self.labels)
        return SteeredLevel(images, self.anchors, tuple(relative), arithmetic)

    def finish(
        self,
        fields: Sequence[Tensor],
        shape: Sequence[int],
        relative: Sequence[float],
        arithmetic: AbstractArithmetic,
    ) -> list[Tensor]:
        """Both halves on the full grid, where what is anchored comes as close as it may."""
        fine = [fine_field(u, shape, arithmetic) for u in fields]
        for _ in range(_LAST_CORRECTIONS):
            left = [
                one.correct(fine, relative, arithmetic, tolerance=min(one.tolerance, _LEFT_ALONE))
                for one in self.anchors
            ]
            if max(left) <= 1.05 * _LEFT_ALONE:
                break
        return fine

    def made_rigid(
        self, phi: Vectors, inverse: Vectors, arithmetic: AbstractArithmetic
    ) -> tuple[Vectors, Vectors]:
        """Both maps with bodies that are rigid, without folds; as they are where there are none."""
        if self.bodies is None:
            return phi, inverse
        own = phi if self.bodies.side == "fixed" else inverse
        growth = torch.empty_like(own[0])
        for _ in range(_ROUNDS):
            rigid = self.bodies.made_rigid(own)
            if (arithmetic.growth(rigid, growth) >= SMALLEST_GROWTH).all():
                break
            own = unfold(rigid, arithmetic)
        else:
            rigid = own
        back = unfold(arithmetic.invert(rigid, torch.empty_like(rigid)), arithmetic)
        return (rigid, back) if self.bodies.side == "fixed" else (back, rigid)


@dataclass(frozen=True, eq=False)
class SteeredLevel:
    """Steering at one resolution."""

    images: tuple[Values, ...]
    anchors: tuple[AbstractAnchors, ...]
    relative: tuple[float, ...]
    arithmetic: AbstractArithmetic

    def pull(self, fields: Sequence[Vectors], pulls: Sequence[Vectors]) -> float:
        """Adds how labels pull to how images do; how well the labels agree, at most 0."""
        if not self.images:
            return 0.0
        A, B = (
            self.arithmetic.read(image, u, torch.empty_like(image))
            for image, u in zip(self.images, fields, strict=True)
        )
        apart, scale = B - A, [r**2 for r in self.relative]
        pulls[0].add_(pull(A, apart, scale), alpha=_STRENGTH)
        pulls[1].sub_(pull(B, apart, scale), alpha=_STRENGTH)
        return -float(apart.square().mean())

    def correct(self, fields: Sequence[Vectors]) -> bool:
        """Brings what is anchored closer; whether there was anything to do."""
        left = [
            one.correct(fields, self.relative, self.arithmetic) - max(one.tolerance, 0.5)
            for one in self.anchors
        ]
        return max(left, default=0.0) > 0


def _blurred(
    image: Image, shape: Sequence[int], half: Sequence[Weights], arithmetic: AbstractArithmetic
) -> Values:
    values = image[0] if image.ndim == 5 else image[0].unsqueeze(2)
    coarse = coarse_image(values, shape, arithmetic)
    return arithmetic.smooth(coarse, half, torch.empty_like(coarse))
