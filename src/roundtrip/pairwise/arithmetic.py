"""What the deformable engine does to fields on one grid, written so that it can be read, for any device.

`TorchArithmetic` is the obvious version; `compiled.py` does the same on a CPU in a fraction of the time, and
is tested against it. Tensors are `(C, *S)` without a batch, always of three axes: a plane has one of one
voxel. Displacements are in voxels of their grid, and results are written into `out`.
"""

import abc
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from roundtrip._shapes import Float, Tensor
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.folds import worst_growth
from roundtrip.maps.grid import unit_from_voxel, unit_grid, voxel_from_unit, voxel_size
from roundtrip.maps.interpolate import interpolate
from roundtrip.maps.inverse import invert

Values = Float[Tensor, "C X Y Z"]
Vectors = Float[Tensor, "3 X Y Z"]

Pair = Sequence[Tensor]
"""One for the fixed and one for the moving image."""

Weights = Float[Tensor, "_"]
"""Of a symmetric window along an axis: entry k is the weight of the two voxels k away."""


@dataclass(frozen=True)
class Moments:
    """How Adam (Kingma and Ba, ICLR 2015) remembers: decay rates, and what keeps quiet voxels quiet."""

    decay_first: float = 0.9
    decay_second: float = 0.99
    floor: float = 1e-3

    def unbiased(self, count: int, step: float) -> tuple[float, float]:
        """What undoes the bias of the second moment after `count` steps; a step without that of the first."""
        return 1 / (1 - self.decay_second**count), step / (1 - self.decay_first**count)


@dataclass(frozen=True, eq=False)
class Memory:
    """Running means of one field's gradient, and of its squared length."""

    first: Vectors
    second: Float[Tensor, "X Y Z"]


class AbstractArithmetic(abc.ABC):
    """Reading, smoothing, comparing and composing on one grid. A context: it may hold threads."""

    @abc.abstractmethod
    def read(self, values: Float[Tensor, "C I J K"], u: Vectors, out: Values) -> Values:
        """values(x + u(x)), linear between the voxels; a place outside sees the nearest edge."""

    def read_both(self, values: Pair, u: Pair, out: Pair) -> None:
        """`read`, of both images."""
        for one in zip(values, u, out, strict=True):
            self.read(*one)

    @abc.abstractmethod
    def compose(self, u: Vectors, v: Vectors, out: Vectors) -> Vectors:
        """The displacement of (id + u) o (id + v): v(x) + u(x + v(x))."""

    @abc.abstractmethod
    def smooth(self, values: Values, weights: Sequence[Weights], out: Values) -> Values:
        """The weighted sum around every voxel. The edge repeats."""

    @abc.abstractmethod
    def local_forces(
        self,
        A: Values,
        B: Values,
        weights: Sequence[Weights],
        floor: float,
        scale: Sequence[float],
        out_A: Vectors,
        out_B: Vectors,
    ) -> float:
        """Mean local correlation of two images; the forces are its ascent, see `forces.LocalForces`."""

    @abc.abstractmethod
    def step(
        self,
        u: Pair,
        gradients: Pair,
        memories: Sequence[Memory],
        how: Moments,
        count: int,
        step: float,
        fluid: Sequence[Weights],
        elastic: Sequence[Weights],
        spare: Pair,
    ) -> None:
        """u after step number `count` of Adam up smoothed gradients; both fields, in place, `spare` used up.

        The second moment is that of the length of a gradient: a step turns with the axes. It is composed, to
        first order in s: s(x) + u(x) + the way s(x) along u's slope towards the voxels it goes to. The
        gradient is smoothed by `fluid`, and u, afterwards, by `elastic`.
        """

    @abc.abstractmethod
    def invert(self, u: Vectors, out: Vectors) -> Vectors:
        """The displacement w with w(x) + u(x + w(x)) = 0, to a thousandth of a voxel where there is one."""

    @abc.abstractmethod
    def growth(self, u: Vectors, out: Float[Tensor, "X Y Z"]) -> Float[Tensor, "X Y Z"]:
        """By what id + u multiplies the worst simplex of every cell, at the cell's lowest voxel.

        Of both ways to cut a cell, as in `maps.folds.non_diffeomorphic_volume`. An axis of one voxel is left
        out; where no cell begins, at the upper end of an axis, it is 1.
        """

    def __enter__(self) -> "AbstractArithmetic":
        return self

    def __exit__(self, *_: object) -> None:
        return None


class TorchArithmetic(AbstractArithmetic):
    """In torch's own operations, on any device and in any precision."""

    def read(self, values: Float[Tensor, "C I J K"], u: Vectors, out: Values) -> Values:
        at = unit_from_voxel(_places(u), values.shape[1:])
        return out.copy_(interpolate(values[None], at)[0])

    def compose(self, u: Vectors, v: Vectors, out: Vectors) -> Vectors:
        return out.copy_(v + self.read(u, v, torch.empty_like(v)))

    def smooth(self, values: Values, weights: Sequence[Weights], out: Values) -> Values:
        smoothed = values
        for axis, half in enumerate(weights, start=1):
            smoothed = _smooth_along(smoothed, axis, half)
        return out.copy_(smoothed)

    def local_forces(
        self,
        A: Values,
        B: Values,
        weights: Sequence[Weights],
        floor: float,
        scale: Sequence[float],
        out_A: Vectors,
        out_B: Vectors,
    ) -> float:
        mean_A, mean_B, AA, BB, AB = (
            self.smooth(moment, weights, torch.empty_like(moment)) for moment in (A, B, A * A, B * B, A * B)
        )
        variance_A = (AA - mean_A.square()).clamp(min=0) + floor
        variance_B = (BB - mean_B.square()).clamp(min=0) + floor
        spread = (variance_A * variance_B).sqrt()
        correlation = (AB - mean_A * mean_B) / spread
        p, q = A - mean_A, B - mean_B
        by_A, by_B = q / spread - correlation / variance_A * p, p / spread - correlation / variance_B * q
        out_A.copy_(pull(A, by_A, scale))
        out_B.copy_(pull(B, by_B, scale))
        return float(correlation.mean())

    def step(
        self,
        u: Pair,
        gradients: Pair,
        memories: Sequence[Memory],
        how: Moments,
        count: int,
        step: float,
        fluid: Sequence[Weights],
        elastic: Sequence[Weights],
        spare: Pair,
    ) -> None:
        share, longest = how.unbiased(count, step)
        for field, gradient, memory, other in zip(u, gradients, memories, spare, strict=True):
            g = self.smooth(gradient, fluid, other)
            memory.first.lerp_(g, 1 - how.decay_first)
            memory.second.lerp_(g.square().sum(dim=0), 1 - how.decay_second)
            length = longest / ((share * memory.second).sqrt() + how.floor)
            self.smooth(_followed(field, length * memory.first), elastic, field)

    def invert(self, u: Vectors, out: Vectors) -> Vectors:
        phi = DisplacementMap(unit_from_voxel(u[None], u.shape[1:]))
        tolerance = 1e-3 * float(voxel_size(u.shape[1:], like=u).min())
        found = invert(phi, like=u[None], tolerance=tolerance).map.displacement
        return out.copy_(voxel_from_unit(found, u.shape[1:])[0])

    def growth(self, u: Vectors, out: Float[Tensor, "X Y Z"]) -> Float[Tensor, "X Y Z"]:
        return out.copy_(_worst_growth(u))


def pull(image: Values, by: Values, scale: Sequence[float]) -> Vectors:
    """by times the slope of the image, in central differences and summed over channels, each axis scaled."""
    slopes = [_slope(image, axis) for axis in (1, 2, 3)]
    return torch.stack([s * (by * slope).sum(dim=0) for s, slope in zip(scale, slopes, strict=True)])


def _slope(image: Values, axis: int) -> Values:
    """(image(x + 1) - image(x - 1)) / 2 along an axis; the edge repeats."""
    n = image.shape[axis]
    index = torch.arange(n, device=image.device)
    ahead, behind = (index + 1).clamp(max=n - 1), (index - 1).clamp(min=0)
    return (image.index_select(axis, ahead) - image.index_select(axis, behind)) / 2


def _followed(u: Vectors, s: Vectors) -> Vectors:
    """s + u(x + s) for steps s of less than a voxel, by the slope of u towards the voxels they point to."""
    gained = s + u
    for axis, along in enumerate(s, start=1):
        index, last = torch.arange(u.shape[axis], device=u.device), u.shape[axis] - 1
        ahead = u.index_select(axis, (index + 1).clamp(max=last)) - u
        behind = u - u.index_select(axis, (index - 1).clamp(min=0))
        gained = gained + along.clamp(min=0) * ahead + along.clamp(max=0) * behind
    return gained


def _smooth_along(values: Values, axis: int, half: Weights) -> Values:
    lines = values.movedim(axis, -1)
    reach, shape = len(half) - 1, lines.shape
    padded = F.pad(lines.reshape(1, -1, shape[-1]), (reach, reach), mode="replicate")
    taps = torch.cat([half.flip(0), half[1:]])
    smoothed = F.conv1d(padded.reshape(-1, 1, padded.shape[-1]), taps.view(1, 1, -1))
    return smoothed.reshape(shape).movedim(-1, axis)


def _worst_growth(u: Vectors) -> Tensor:
    worst = torch.ones_like(u[0])
    cells = tuple(slice(None, -1) if n > 1 else slice(None) for n in u.shape[1:])
    if worst.numel() > 1:
        worst[cells] = worst_growth(_places(u)).reshape(worst[cells].shape)
    return worst


def _places(u: Vectors) -> Tensor:
    """Where every voxel goes, in voxels."""
    return voxel_from_unit(unit_grid(u.shape[1:], like=u), u.shape[1:]) + u[None]
