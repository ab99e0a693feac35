"""`align`: the linear map that lays one image onto another, wherever the two lie in the world.

First comes a search at a very low resolution, from the centres of both foregrounds, over rotations and
shifts; the best few are improved, the best of those at higher resolutions. Every step moves both images
half-way, in a group of maps (rigid ones, similarities, affine ones), and the objective is the mean of both
directions: with the images exchanged, the same steps find the inverse. Neighbours: `linear_survey.py` (what
is known of an image before), `linear_starts.py` (where the search begins), `linear_descent.py` (each
improvement).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch

from roundtrip.pairwise.linear_descent import Group, Objective, descend, distinct
from roundtrip.pairwise.linear_starts import starts
from roundtrip.pairwise.linear_survey import Survey, diameter, require_alignable, survey
from roundtrip.space.grid import Affine
from roundtrip.space.volume import Volume

Kind = Literal["none", "rigid", "similarity", "affine"]
Modality = Literal["same", "different"]

# Within a block a change of contrast is nearly a line, bent once.
_LOCAL_KNOTS = 3


@dataclass(frozen=True, eq=False)
class Alignment:
    """A linear map between two worlds, and how it was found."""

    matrix: Affine
    """Takes points of the fixed world to points of the moving world, LPS mm; homogeneous."""
    kind: Kind
    similarity: str
    """What `before` and `after` measure: the share of the variance of either image that the other leaves
    unexplained, 0 for images that determine each other; where the images do not overlap it is 1."""
    before: float
    """As the images lie in the world."""
    after: float
    curved: float
    """The same as `after`, had curves been free to explain what straight lines did."""
    overlap: float
    """The share of one foreground that lies within the other image; of the two, the larger."""
    start: str
    """Which of the places where the search began has won."""
    seconds: float

    def inverse(self) -> Affine:
        """Takes points of the moving world to points of the fixed world."""
        return torch.linalg.inv(self.matrix)


@dataclass(frozen=True)
class _Effort:
    """Resolutions and samples. Lengths are shares of the diameter of what is registered."""

    search: float = 1 / 16
    middle: float = 1 / 40
    fine: float = 1 / 72
    block: float = 1 / 20
    """Within blocks of this size brightness and contrast are free to differ."""
    rough_samples: int = 100
    search_samples: int = 300
    start_samples: int = 1200
    middle_samples: int = 5000
    draft_samples: int = 15000
    draft_steps: int = 6
    fine_samples: int = 60000
    fine_steps: int = 3
    kept: Sequence[int] = (12, 5, 2)
    """How many maps are improved: of the search, with scale, at the middle resolution."""


def align(
    moving: Volume,
    fixed: Volume,
    *,
    kind: Kind = "affine",
    modality: Modality = "same",
    moving_mask: Volume | None = None,
    fixed_mask: Volume | None = None,
    start: Affine | None = None,
) -> Alignment:
    """The linear map of this `kind` that takes points of `fixed` to points of `moving`, both in LPS mm.

    The grids may differ in everything, and the images lie anywhere. Exchanged images give the inverse matrix.
    Images of one `modality` are compared by correlation, others by the correlation ratio, which follows any
    change of contrast. Masks say which voxels count, on the grid of their image. `kind` "none" takes the
    world as it is, and only measures. From a `start` that is known, a matrix as the result's, nothing is
    searched for: it is only improved.
    """
    began = time.perf_counter()
    _require_choices(kind, modality)
    require_alignable(moving, fixed, moving_mask, fixed_mask)
    effort = _Effort()
    seen = survey(moving, moving_mask, "moving", finest=effort.fine)
    target = survey(fixed, fixed_mask, "fixed", finest=effort.fine)
    known = None if start is None else _centred_matrix(start, seen, target)
    G, objective, began_at = _Search(seen, target, modality, effort).find(kind, known)
    header = _header(seen, target)
    costs, overlaps = objective.measure(np.stack([header, G]))
    if kind == "none" and overlaps[0] == 0:
        raise ValueError(
            "`moving` and `fixed` do not overlap in the world, so they cannot be registered as they lie. "
            "Let them be aligned first: `kind='affine'`, or on the command line `--linear affine`."
        )
    return Alignment(
        matrix=torch.from_numpy(_world_matrix(G, seen, target)),
        kind=kind,
        similarity=objective.name,
        before=float(costs[0]),
        after=float(costs[1]),
        curved=float(objective.bent(_LOCAL_KNOTS).measure(G[None])[0][0]),
        overlap=float(overlaps[1]),
        start=began_at,
        seconds=time.perf_counter() - began,
    )


@dataclass(frozen=True, eq=False)
class _Search:
    """Where both images have their foreground's centre at 0: there each map is called G."""

    moving: Survey
    fixed: Survey
    modality: Modality
    effort: _Effort

    @property
    def length(self) -> float:
        """The diameter of what is registered, in mm."""
        return diameter(self.radius)

    @property
    def radius(self) -> float:
        return float(np.sqrt(self.moving.radius * self.fixed.radius))

    def find(self, kind: Kind, known: np.ndarray | None = None) -> tuple[np.ndarray, Objective, str]:
        fine = self.objective(self.effort.fine, self.effort.fine_samples, local=True)
        if kind == "none":
            return _header(self.moving, self.fixed), fine, "as the images lie in the world"
        groups = {name: Group.of(name, self.moving.dims, self.radius) for name in get_args(Kind)[1:]}
        scaled = groups["rigid" if kind == "rigid" else "similarity"]
        if known is not None:
            middle = self.objective(self.effort.middle, self.effort.middle_samples)
            return self._improved(known[None], groups[kind], middle, fine), fine, "as it was given"
        first, second, third = self.effort.kept
        rough, search = (
            self.objective(self.effort.search, n)
            for n in (self.effort.rough_samples, self.effort.search_samples)
        )
        G, names = starts(rough, search, self.length, first, header=_header(self.moving, self.fixed))
        coarse = self.objective(self.effort.search, self.effort.start_samples)
        G, cost = descend(coarse, G, groups["rigid"], steps=6)
        order = distinct(G, cost, self.radius, at_most=second)
        G, names = G[order], [names[i] for i in order]
        G, cost = descend(coarse, G, scaled, steps=5)
        order = distinct(G, cost, self.radius, at_most=third)
        G, names = G[order], [names[i] for i in order]
        middle = self.objective(self.effort.middle, self.effort.middle_samples)
        G, cost = descend(middle, G, scaled, steps=4)
        best = int(np.argmin(cost))
        return self._improved(G[best : best + 1], groups[kind], middle, fine), fine, names[best]

    def _improved(self, G: np.ndarray, group: Group, middle: Objective, fine: Objective) -> np.ndarray:
        G, _ = descend(middle, G, group, steps=8)
        draft = self.objective(self.effort.fine, self.effort.draft_samples, local=True)
        G, _ = descend(draft, G, group, steps=self.effort.draft_steps)
        return np.asarray(descend(fine, G, group, steps=self.effort.fine_steps)[0][0])

    def objective(self, spacing: float, samples: int, *, local: bool = False) -> Objective:
        size = spacing * self.length
        few = spacing == self.effort.search
        knots = 2 if self.modality == "same" else _LOCAL_KNOTS if local else 8 if few else 16
        return Objective.of(
            self.moving,
            self.fixed,
            spacing=size,
            samples=samples,
            knots=knots,
            block=self.effort.block * self.length if local else None,
            smooth=few,
        )


def _header(moving: Survey, fixed: Survey) -> np.ndarray:
    """The identity of the world, between worlds whose origin is the foreground's centre."""
    G = np.eye(4)
    G[:3, 3] = fixed.centre - moving.centre
    return G


def _centred_matrix(matrix: Affine, moving: Survey, fixed: Survey) -> np.ndarray:
    """As G: what `_world_matrix` makes this matrix of."""
    whole, to_fixed, from_moving = np.eye(4), np.eye(4), np.eye(4)
    kept = [*range(moving.dims), 3]
    whole[np.ix_(kept, kept)] = matrix.numpy()
    to_fixed[:3, 3], from_moving[:3, 3] = fixed.centre, -moving.centre
    return from_moving @ whole @ to_fixed


def _world_matrix(G: np.ndarray, moving: Survey, fixed: Survey) -> np.ndarray:
    to_moving, from_fixed = np.eye(4), np.eye(4)
    to_moving[:3, 3], from_fixed[:3, 3] = moving.centre, -fixed.centre
    matrix = to_moving @ G @ from_fixed
    kept = [*range(moving.dims), 3]
    matrix = matrix[np.ix_(kept, kept)]
    matrix[-1] = np.eye(len(kept))[-1]
    return matrix


def _require_choices(kind: str, modality: str) -> None:
    for name, value, choices in (("kind", kind, Kind), ("modality", modality, Modality)):
        if value not in get_args(choices):
            raise ValueError(
                f"`{name}` is {value!r}; it is one of {', '.join(map(repr, get_args(choices)))}."
            )
