r"""`deform`: the pair of maps that lays two images of one grid onto each other, found from coarse to fine.

Both images are deformed to meet half-way: with phi_A, phi_B from the middle to the fixed and to the moving
image, phi = phi_B o phi_A^-1 and its inverse phi_A o phi_B^-1 undo each other, so that of the paper's
approximate inverse consistency only the second part is left, $\epsilon^2 E [|d\phi|^2 |\det d\phi|]$ -- ICON,
Eq. (10). Diffusion lowers it: every step ends in a little smoothing of the displacements. Swapping the images
swaps the maps. Neighbours: `settings.py`, `forces.py` (what pulls), `unfold.py` (why there are no folds).
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from roundtrip._checks import require_pair
from roundtrip._shapes import Image, Mask, Tensor
from roundtrip.maps.displacement import DisplacementMap, displacement_of
from roundtrip.maps.grid import unit_from_voxel, voxel_from_unit
from roundtrip.maps.map import Map
from roundtrip.pairwise.arithmetic import (
    AbstractArithmetic,
    Memory,
    Moments,
    TorchArithmetic,
    Values,
    Vectors,
)
from roundtrip.pairwise.pyramid import coarse_image, coarse_shape, fine_field, gaussian_weights
from roundtrip.pairwise.regular import regular_sample
from roundtrip.pairwise.settings import DeformableSettings, LevelSettings
from roundtrip.pairwise.steering import Steering
from roundtrip.pairwise.unfold import unfold

# Of a final correction of both maps: so many at least, and at most; how many voxels a round trip may miss by,
# on average, to be left at that.
_SWEEPS, _MOST_SWEEPS, _MISS = 4, 16, 0.05


@dataclass(frozen=True)
class LevelReport:
    """What one level did."""

    shape: tuple[int, ...]
    steps: int
    undeformed: float
    """Similarity of the images as they were given; higher is better."""
    before: float
    """The same at the level's first step, and at its last."""
    after: float
    stopped: str
    """`"done"`: all steps were taken; `"no gain"`: the last ones brought too little."""


@dataclass(frozen=True, eq=False)
class Deformation:
    """Two maps that undo each other, and how they were found."""

    phi: DisplacementMap
    """Points of the fixed image -> points of the moving image; on the grid of both."""
    inverse: DisplacementMap
    """Points of the moving image -> points of the fixed image."""
    seconds: float
    levels: tuple[LevelReport, ...]
    before: float
    """Similarity of the images as given, at the finest level that was worked on; higher is better."""
    after: float
    """The same, of the images deformed to meet half-way."""


def deform(
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
    """Registers one pair of images on one grid, whose voxels are `spacing` apart along each axis.

    Masks say which voxels are compared. `start` is a pair of maps to begin from, in the order of the result;
    coarse levels are then left out. `steering` is what has a say besides intensities. Neither map has a fold:
    no simplex of any cell of the grid loses its orientation, see `unfold.py`.
    """
    began = time.perf_counter()
    _require_deformable(moving, fixed, spacing)
    with torch.no_grad(), _arithmetic(moving) as arithmetic:
        halves = (
            _Half(_without_outliers(fixed), fixed_mask),
            _Half(_without_outliers(moving), moving_mask),
        )
        if start is not None:
            _begin(halves, start, arithmetic)
        levels = [
            _Level(halves, level, settings, tuple(spacing), arithmetic, steering or Steering()).run()
            for level in settings.levels
            if start is None or level.coarser <= max(2, settings.levels[-1].coarser)
        ]
        if steering is not None and steering.anchors:
            _anchor(halves, tuple(spacing), steering, arithmetic)
        phi, inverse = _whole(*halves, arithmetic), _whole(*halves[::-1], arithmetic)
        _reconcile(phi, inverse, arithmetic)
        phi, inverse = unfold(phi, arithmetic), unfold(inverse, arithmetic)
        if steering is not None:
            phi, inverse = steering.made_rigid(phi, inverse, arithmetic)
    return Deformation(
        phi=_as_map(phi, fixed.ndim - 2),
        inverse=_as_map(inverse, fixed.ndim - 2),
        seconds=time.perf_counter() - began,
        levels=tuple(levels),
        before=levels[-1].undeformed,
        after=levels[-1].after,
    )


@dataclass(eq=False)
class _Half:
    """One image, and the way to it from the middle as far as it is known."""

    image: Image
    mask: Mask | None
    u: Vectors | None = None


class _Level:
    """Two halves at one resolution, with all the memory that its steps need."""

    def __init__(
        self,
        halves: tuple[_Half, _Half],
        level: LevelSettings,
        settings: DeformableSettings,
        spacing: tuple[float, ...],
        arithmetic: AbstractArithmetic,
        steering: Steering,
    ) -> None:
        self.halves, self.level, self.settings, self.arithmetic = halves, level, settings, arithmetic
        self.forces = settings.similarity.forces()
        full = halves[0].image.shape[2:]
        shape = coarse_shape(full, spacing, level.coarser)
        relative = _relative(spacing, full, shape)
        self.shape, self._scale = shape, [r**2 for r in relative]
        self.images = [self._image(half.image, shape) for half in halves]
        self.masks = [self._mask(half.mask, shape) for half in halves]
        self._fluid, self._elastic = (
            [gaussian_weights(sigma * r, like=self.images[0]) for r in relative]
            for sigma in (settings.fluidity, settings.smoothness)
        )
        self.fields = [
            self._field(half.u, like=image) for half, image in zip(halves, self.images, strict=True)
        ]
        self.steering = steering.at_level(self.images[0].shape[1:], relative, arithmetic)

    def run(self) -> LevelReport:
        values: list[float] = []
        like = self.fields[0]
        warped = [torch.empty_like(image) for image in self.images]
        pulls, spare = ([torch.empty_like(like) for _ in "AB"] for _ in range(2))
        memories = [Memory(torch.zeros_like(like), torch.zeros_like(like[0])) for _ in "AB"]
        stopped, undeformed, held = "done", self._undeformed(pulls), False
        while len(values) < self.level.steps:
            values.append(self._pull(warped, pulls))
            if self._without_gain(values) and not held:
                stopped = "no gain"
                break
            self._step(pulls, memories, len(values), spare)
            held = self.steering.correct(self.fields)
        for half, u in zip(self.halves, self.fields, strict=True):
            half.u = u
        return LevelReport(self.shape, len(values), undeformed, values[0], values[-1], stopped)

    def _undeformed(self, pulls: list[Vectors]) -> float:
        weight = None
        for mask in self.masks:
            if mask is not None:
                weight = mask if weight is None else weight * mask
        return self.forces(self.images, weight, self._scale, self.arithmetic, pulls)

    def _pull(self, warped: list[Values], pulls: list[Vectors]) -> float:
        self.arithmetic.read_both(self.images, self.fields, warped)
        alike = self.forces(warped, self._weight(), self._scale, self.arithmetic, pulls)
        return alike + self.steering.pull(self.fields, pulls)

    def _step(self, pulls: list[Vectors], memories: list[Memory], count: int, spare: list[Vectors]) -> None:
        """Both fields after one step; `spare` is used up."""
        smoothing = self._fluid, self._elastic
        self.arithmetic.step(
            self.fields, pulls, memories, Moments(), count, self.settings.step, *smoothing, spare
        )

    def _without_gain(self, values: list[float]) -> bool:
        patience = self.settings.patience
        return len(values) > patience and values[-1] - values[-1 - patience] < self.settings.gain * patience

    def _weight(self) -> Tensor | None:
        """Which voxels of the middle count: those that lie in both masks."""
        weight = None
        for mask, u in zip(self.masks, self.fields, strict=True):
            if mask is not None:
                there = self.arithmetic.read(mask, u, torch.empty_like(mask))
                weight = there if weight is None else weight * there
        return weight

    def _image(self, image: Image, shape: Sequence[int]) -> Tensor:
        coarse = coarse_image(_three_axes(image), _three(shape, 1), self.arithmetic)
        features = _three_axes(self.forces.features(_as_image(coarse, image.ndim - 2)))
        return _standardised(features).contiguous()

    def _mask(self, mask: Mask | None, shape: Sequence[int]) -> Tensor | None:
        if mask is None:
            return None
        return coarse_image(_three_axes(mask.to(self.images[0])), _three(shape, 1), self.arithmetic)

    def _field(self, u: Tensor | None, like: Values) -> Tensor:
        if u is None:
            return like.new_zeros(3, *like.shape[1:])
        return fine_field(u, like.shape[1:], self.arithmetic)


def _begin(halves: tuple[_Half, _Half], start: tuple[Map, Map], arithmetic: AbstractArithmetic) -> None:
    """The middle lies where each map has gone half its way: one place for both if they undo each other."""
    for half, phi in zip(halves, start, strict=True):
        u = _as_vectors(displacement_of(phi, half.image)) / 2
        half.u = arithmetic.invert(unfold(u, arithmetic), torch.empty_like(u))


def _anchor(
    halves: tuple[_Half, _Half], spacing: Sequence[float], steering: Steering, arithmetic: AbstractArithmetic
) -> None:
    """Both halves on the full grid, with what is anchored in its place."""
    full = halves[0].image.shape[2:]
    fields = [half.u for half in halves if half.u is not None]
    fine = steering.finish(fields, _three(full, 1), _relative(spacing, full, full), arithmetic)
    for half, u in zip(halves, fine, strict=True):
        half.u = u


def _whole(start: _Half, end: _Half, arithmetic: AbstractArithmetic) -> Vectors:
    """From the image of one half through the middle to that of the other, on the full grid."""
    assert start.u is not None and end.u is not None
    shape = _three_axes(start.image).shape[1:]
    first, second = fine_field(start.u, shape, arithmetic), fine_field(end.u, shape, arithmetic)
    back = arithmetic.invert(first, torch.empty_like(first))
    return arithmetic.compose(second, back, out=first)


def _reconcile(phi: Vectors, inverse: Vectors, arithmetic: AbstractArithmetic) -> None:
    """Takes a share of what a round trip misses out of both maps, a few times, in place.

    Where the maps leave the grid, beyond which both are continued, the middle did not hold them together.
    With a share of a quarter the errors shrink wherever the maps stretch by less than seven in any direction.
    """
    trip, other = torch.empty_like(phi), torch.empty_like(phi)
    for sweep in range(_MOST_SWEEPS):
        arithmetic.compose(phi, inverse, out=trip)
        arithmetic.compose(inverse, phi, out=other)
        if sweep >= _SWEEPS and max(float(miss.norm(dim=0).mean()) for miss in (trip, other)) < _MISS:
            break
        inverse.sub_(trip.clamp_(-1, 1), alpha=0.25)
        phi.sub_(other.clamp_(-1, 1), alpha=0.25)


def _arithmetic(like: Tensor) -> AbstractArithmetic:
    if like.device.type == "cpu":
        from roundtrip.pairwise.compiled import CompiledArithmetic

        return CompiledArithmetic()
    return TorchArithmetic()


def _without_outliers(image: Image) -> Image:
    """Each channel between its 0.1th and 99.9th percentile, of a regular sample of its voxels."""
    low, high = torch.quantile(regular_sample(image, 2**15), image.new_tensor([0.001, 0.999]), dim=2)
    ones = [1] * (image.ndim - 2)
    return image.clamp(low.view(*low.shape, *ones), high.view(*high.shape, *ones))


def _standardised(image: Values) -> Values:
    """Every channel with mean 0 and variance 1; a constant one is 0."""
    mean = image.mean(dim=(1, 2, 3), keepdim=True)
    deviation = image.std(dim=(1, 2, 3), keepdim=True, correction=0)
    return (image - mean) / torch.where(deviation > 0, deviation, 1)


def _relative(spacing: Sequence[float], full: Sequence[int], shape: Sequence[int]) -> tuple[float, ...]:
    """Of a level: how many of its finest voxels fit into one along each axis, the other way round.

    Lengths are in the finest voxels; times this they are in voxels along an axis.
    """
    apart = [s * (n - 1) / max(m - 1, 1) for s, n, m in zip(spacing, full, shape, strict=True)]
    finest = min(a for a, m in zip(apart, shape, strict=True) if m > 1)
    relative: tuple[float, ...] = _three([finest / a if a > 0 else 1.0 for a in apart], 1.0)
    return relative


# Planes become volumes of one slice, which lies in the middle so that planes can be shared among threads.


def _three(sizes: Sequence[Any], one: Any) -> Any:
    return tuple(sizes) if len(sizes) == 3 else (sizes[0], one, sizes[1])


def _three_axes(image: Tensor) -> Values:
    return image[0] if image.ndim == 5 else image[0].unsqueeze(2)


def _as_image(values: Values, N: int) -> Tensor:
    return values[None] if N == 3 else values.squeeze(2)[None]


def _as_vectors(field: Tensor) -> Vectors:
    """A displacement in unit coordinates, in voxels."""
    u = _three_axes(voxel_from_unit(field, field.shape[2:]))
    return u if len(u) == 3 else torch.stack([u[0], torch.zeros_like(u[0]), u[1]])


def _as_map(u: Vectors, N: int) -> DisplacementMap:
    """In unit coordinates, of N axes."""
    field = _as_image(u if N == 3 else u[[0, 2]], N)
    return DisplacementMap(unit_from_voxel(field, field.shape[2:]))


def _require_deformable(moving: Image, fixed: Image, spacing: Sequence[float]) -> None:
    require_pair(moving, fixed)
    N = fixed.ndim - 2
    if len(fixed) != 1 or N == 1:
        raise ValueError(
            f"`fixed` has shape {tuple(fixed.shape)}: needed is one pair of planes or volumes, of shape "
            "(1, channels, *grid). Register the pairs of a batch one by one."
        )
    if len(spacing) != N or not all(0 < s < math.inf for s in spacing):
        raise ValueError(
            f"`spacing` is {tuple(spacing)}; needed are {N} positive lengths, one per axis of the grid."
        )
