"""One image as it would look in the contrast of another: each intensity becomes the mean of what lies there.

After this, images of different contrast are compared as if they were of one. Where one intensity of an image
stands for several of the other (dark background and dark bone, say) that way is lost, and the other one may
not be: `Translation` goes the way on which the two correlate more. Neighbours: `contrast.py`, `register.py`.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from roundtrip._shapes import Float, Image, Mask, Tensor
from roundtrip.losses.local import lncc

# Of the range of an image.
_BINS = 64

# So many voxels tell a curve.
_VOXELS = 2**20

# How little bins count that are far from one, beside those that are near.
_FAR = 1e-3


@dataclass(frozen=True, eq=False)
class Curve:
    """What an intensity of one image becomes, straight between bins."""

    low: float
    high: float
    values: Float[Tensor, "_"]

    def __call__(self, image: Tensor) -> Tensor:
        extent = max(self.high - self.low, 1e-12)
        place = ((image - self.low) / extent * (_BINS - 1)).clamp(0, _BINS - 1)
        below = place.floor().clamp(max=_BINS - 2)
        return torch.lerp(self.values[below.long()], self.values[below.long() + 1], place - below)


@dataclass(frozen=True, eq=False)
class Translation:
    """A curve for every channel, of the fixed images or of the moving ones."""

    of_fixed: bool
    curves: tuple[Curve, ...]

    def __call__(self, moving: Image, fixed: Image) -> tuple[Image, Image]:
        """Both in one contrast; of one of them nothing changes."""
        image = fixed if self.of_fixed else moving
        channels = [curve(channel) for curve, channel in zip(self.curves, image[0], strict=True)]
        new = torch.stack(channels)[None]
        return (moving, new) if self.of_fixed else (new, fixed)


@torch.no_grad()
def translation(moving: Image, fixed: Image, mask: Mask | None = None) -> Translation:
    """Found where the two lie on each other, as well as is known."""
    ways = [Translation(True, _curves(fixed, moving, mask)), Translation(False, _curves(moving, fixed, mask))]
    return max(ways, key=lambda way: _alike(*way(moving, fixed)))


def _curves(source: Image, target: Image, mask: Mask | None) -> tuple[Curve, ...]:
    return tuple(_curve(s, t, mask) for s, t in zip(source[0], target[0], strict=True))


def _curve(source: Tensor, target: Tensor, mask: Mask | None) -> Curve:
    # Inside of tissues: at their borders, images that are not yet aligned show different ones.
    weight = 1 / (1 + _roughness(source) + _roughness(target))
    if mask is not None:
        weight = weight * mask[0, 0]
    step = max(1, source.numel() // _VOXELS)
    low, high = source.min(), source.max()
    s, t, w = (values.flatten()[::step] for values in (source, target, weight))
    place = (s - low) / (high - low).clamp(min=1e-12) * (_BINS - 1)
    below = place.floor().clamp(max=_BINS - 2)
    share, index = place - below, below.long()
    count, total = (
        s.new_zeros(_BINS).index_add_(0, index, (1 - share) * w * x).index_add_(0, index + 1, share * w * x)
        for x in (torch.ones_like(t), t)
    )
    # The neighbours of a bin count, too, and far ones where there is nothing near.
    near, far = (
        [F.conv1d(F.pad(x[None, None], (_BINS, _BINS)), _window(width, like=x))[0, 0] for x in (count, total)]
        for width in (1.5, 8.0)
    )
    count, total = (one + _FAR * other for one, other in zip(near, far, strict=True))
    return Curve(float(low), float(high), total / count.clamp(min=1e-20))


def _window(width: float, *, like: Tensor) -> Tensor:
    index = torch.arange(-_BINS, _BINS + 1).to(like)
    return torch.exp(-(index / width).square() / 2)[None, None]


def _roughness(image: Tensor) -> Tensor:
    """The squared slope, in units of its mean."""
    square = torch.zeros_like(image)
    for axis in range(image.ndim):
        if image.shape[axis] > 2:
            inner = square.narrow(axis, 1, image.shape[axis] - 2)
            ahead = image.narrow(axis, 2, image.shape[axis] - 2)
            inner += (ahead - image.narrow(axis, 0, image.shape[axis] - 2)).square()
    return square / square.mean().clamp(min=1e-20)


def _alike(moving: Image, fixed: Image) -> float:
    """Local correlation, of a part of the voxels where there are many."""
    step = max(1, round((fixed[0, 0].numel() / _VOXELS) ** (1 / (fixed.ndim - 2))))
    few = []
    for image in (moving, fixed):
        for axis in range(2, image.ndim):
            image = image.index_select(axis, torch.arange(0, image.shape[axis], step, device=image.device))
        few.append(image)
    return 1 - lncc(*few, sigma=2.0).item()
