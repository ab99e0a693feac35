"""The symmetric objective of two images and a linear map, and the way down to its minimum.

Neighbours: `linear_fit.py` (one direction of the objective), `linear.py` (which minimum to look for).
"""

import dataclasses
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from roundtrip.pairwise.linear_fit import Fit, fit
from roundtrip.pairwise.linear_levels import Samples, View, pooled, samples_of, smoothed
from roundtrip.pairwise.linear_survey import Survey

# Where less of both foregrounds is within the other image, that counts against a map.
_ENOUGH = 0.7
_LARGEST_GAIN = 6.0


@dataclass(frozen=True, eq=False)
class Group:
    """Directions in which a map can change, each a matrix whose exponential is such a map."""

    directions: np.ndarray
    """K x 4 x 4; a step of 1 moves what lies at the radius of the foreground by about 1 mm."""

    @staticmethod
    def of(kind: Literal["rigid", "similarity", "affine"], dims: int, radius: float) -> "Group":
        unit = np.eye(4)
        pairs = [(a, b) for a in range(dims) for b in range(a + 1, dims)]
        along = [np.outer(unit[a], unit[a]) for a in range(dims)]
        across = [np.outer(unit[a], unit[b]) for a, b in pairs]
        turns = [one - one.T for one in across]
        scales = [sum(along)] if kind != "rigid" else []
        strains = []
        if kind == "affine":
            strains = [*(one + one.T for one in across), *(a - b for a, b in pairwise(along))]
        shifts = [np.outer(unit[a], unit[3]) for a in range(dims)]
        linear = [one / radius for one in (*turns, *scales, *strains)]
        return Group(np.array([*shifts, *linear]))


@dataclass(frozen=True, eq=False)
class Objective:
    """What is left unexplained, seen from both images; maps are between worlds centred on their foregrounds.

    A map takes points of the fixed world to points of the moving world. Only what overlaps is compared, and
    the less of either foreground overlaps, the more counts as unexplained: shrinking the overlap never pays.
    """

    moving: View
    fixed: View
    moving_samples: Samples
    fixed_samples: Samples
    spacing: float
    dims: int
    local: bool

    @staticmethod
    def of(
        moving: Survey,
        fixed: Survey,
        *,
        spacing: float,
        samples: int,
        knots: int,
        block: float | None,
        smooth: bool,
    ) -> "Objective":
        A, B = (_view(survey, spacing, smooth) for survey in (moving, fixed))
        how: dict[str, Any] = {"at_most": samples, "knots": knots, "block": block}
        A_samples = samples_of(A, _region(A, moving), **how)
        B_samples = samples_of(B, _region(B, fixed), **how)
        return Objective(A, B, A_samples, B_samples, spacing, moving.dims, block is not None)

    @property
    def name(self) -> str:
        if self.fixed_samples.knots > 2:
            return "1 - local correlation ratio" if self.local else "1 - correlation ratio"
        return "1 - squared local correlation" if self.local else "1 - squared correlation"

    def bent(self, knots: int) -> "Objective":
        """The same, with curves of so many knots."""
        fixed, moving = (samples.with_knots(knots) for samples in (self.fixed_samples, self.moving_samples))
        return dataclasses.replace(self, fixed_samples=fixed, moving_samples=moving)

    def measure(self, G: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The value for each of a batch of maps, and the overlap."""
        terms = self._both(G, differentiate=False)
        return self._value(*terms), self._overlap(*terms)

    def differentiate(self, G: np.ndarray, group: Group) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The value, the gradient and the Gauss-Newton matrix along the directions of a group."""
        terms = self._both(G, differentiate=True)
        back, E = np.linalg.inv(G)[:, None], group.directions
        G = G[:, None]
        # Half a step on either side: with the images exchanged it is the same step backwards.
        ways = (
            _voxels(self.moving) @ (E @ G + G @ E) @ self.fixed.world_from_voxel,
            -_voxels(self.fixed) @ (E @ back + back @ E) @ self.moving.world_from_voxel,
        )
        inside = np.minimum(self._overlap(*terms) / _ENOUGH, 1) / 2
        gradient, hessian = np.zeros(()), np.zeros(())
        for way, term in zip(ways, terms, strict=True):
            by_matrix = way[:, :, :3].reshape(*way.shape[:2], 12) / 2
            gradient = gradient + inside[:, None] * np.einsum("bki,bi->bk", by_matrix, term.gradient)
            curved = by_matrix @ term.hessian @ by_matrix.transpose(0, 2, 1)
            hessian = hessian + inside[:, None, None] * curved
        return self._value(*terms), gradient, hessian

    def _both(self, G: np.ndarray, *, differentiate: bool) -> tuple[Fit, Fit]:
        there = _voxels(self.moving) @ G @ self.fixed.world_from_voxel
        back = _voxels(self.fixed) @ np.linalg.inv(G) @ self.moving.world_from_voxel
        how = {"local": self.local, "differentiate": differentiate}
        return (
            fit(self.fixed_samples, self.moving, there, **how),
            fit(self.moving_samples, self.fixed, back, **how),
        )

    def _value(self, one: Fit, other: Fit) -> np.ndarray:
        inside = np.minimum(self._overlap(one, other) / _ENOUGH, 1)
        return 1 + inside * ((one.unexplained + other.unexplained) / 2 - 1)

    def _overlap(self, one: Fit, other: Fit) -> np.ndarray:
        return np.maximum(one.overlap, other.overlap)


def descend(
    objective: Objective, G: np.ndarray, group: Group, *, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Each of a batch of maps improved by Levenberg and Marquardt's steps, and the value it reached."""
    cost, gradient, hessian = objective.differentiate(G, group)
    # What one image has and the other has not bends the Gauss-Newton model too: its steps are too short.
    damping, gain = np.full(len(G), 1e-3), np.ones(len(G))
    for _ in range(steps):
        step = _step(gradient, hessian, damping, gain, longest=3 * objective.spacing)
        tried = _moved(G, step, group)
        new = objective.differentiate(tried, group)
        better = new[0] < cost
        G = np.where(better[:, None, None], tried, G)
        still = (np.linalg.norm(step, axis=1) < 0.01 * objective.spacing) | (~better & (damping > 10))
        cost = np.where(better, new[0], cost)
        gradient = np.where(better[:, None], new[1], gradient)
        hessian = np.where(better[:, None, None], new[2], hessian)
        damping = np.where(better, damping / 5, np.where(gain > 1, damping, damping * 8)).clip(1e-5, 1e3)
        gain = np.where(better, gain * 2, gain / 4).clip(1, _LARGEST_GAIN)
        if still.all():
            break
    return G, cost


def distinct(G: np.ndarray, cost: np.ndarray, radius: float, *, at_most: int) -> list[int]:
    """The best maps, the best first, leaving out those that do nearly the same as a better one."""
    kept: list[int] = []
    for i in np.argsort(cost, kind="stable"):
        apart = [np.abs((G[i] - G[j]) * [radius, radius, radius, 1]).max() for j in kept]
        if all(distance > radius / 20 for distance in apart):
            kept.append(int(i))
    return kept[:at_most]


def _step(
    gradient: np.ndarray, hessian: np.ndarray, damping: np.ndarray, gain: np.ndarray, longest: float
) -> np.ndarray:
    K = gradient.shape[1]
    diagonal = np.einsum("bii->bi", hessian)
    added = damping[:, None] * (diagonal + diagonal.mean(axis=1, keepdims=True) + 1e-12)
    step = (
        -gain[:, None] * np.linalg.solve(hessian + added[:, :, None] * np.eye(K), gradient[..., None])[..., 0]
    )
    length = np.linalg.norm(step, axis=1, keepdims=True)
    return step * np.minimum(1, longest / np.maximum(length, 1e-9))


def _moved(G: np.ndarray, step: np.ndarray, group: Group) -> np.ndarray:
    generator = np.einsum("bk,kij->bij", step, group.directions)
    half = exponential(generator / 2)
    return half @ G @ half


def exponential(generators: np.ndarray) -> np.ndarray:
    """Of small square matrices, as a batch: by a series for a part of each, squared."""
    halvings = 8
    term = result = np.broadcast_to(np.eye(generators.shape[-1]), generators.shape)
    for n in range(1, 9):
        term = term @ generators / (n * 2**halvings)
        result = result + term
    for _ in range(halvings):
        result = result @ result
    return result


def _voxels(view: View) -> np.ndarray:
    return np.linalg.inv(view.world_from_voxel)


def _view(survey: Survey, spacing: float, smooth: bool) -> View:
    data, matrix = pooled(survey.data, survey.world_from_voxel, spacing)
    weight = (
        None if survey.mask is None else pooled(survey.mask[None], survey.world_from_voxel, spacing)[0][0]
    )
    matrix[:3, 3] -= survey.centre
    return View(smoothed(data) if smooth else data, weight, matrix)


def _region(view: View, survey: Survey) -> np.ndarray:
    """The box that holds all corners of the surveyed one, in voxels: low and high."""
    corners = survey.corners.copy()
    corners[:3] -= survey.centre[:, None]
    index = (_voxels(view) @ corners)[:3]
    return np.stack([index.min(axis=1), index.max(axis=1)])
