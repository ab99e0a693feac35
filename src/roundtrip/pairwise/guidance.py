"""`Guidance`: what a user gives to steer a registration, besides intensities, and what became of it.

Labels and landmarks of both images pull together what belongs together; a mask on one of them says what must
stay rigid. None of it measures the result: what steered says little about how good it is. Neighbours:
`register.py`, `landmark_pairs.py`, `steering.py` (the same on the grid of a deformation).
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from roundtrip._shapes import Tensor
from roundtrip.evaluation.quality import LabelScores, LandmarkErrors
from roundtrip.pairwise import linear_landmarks
from roundtrip.pairwise.anchors import Landmarks
from roundtrip.pairwise.bodies import Bodies
from roundtrip.pairwise.domain import Domain
from roundtrip.pairwise.label_codes import coded, common_labels
from roundtrip.pairwise.landmark_pairs import LandmarkPairs, PointsOrPath, is_points, paired
from roundtrip.pairwise.outcome import label_scores
from roundtrip.pairwise.rigidity import Rigidity, rigidity
from roundtrip.pairwise.steering import Steering
from roundtrip.space.files import read
from roundtrip.space.grid import Affine, Grid
from roundtrip.space.steps import affine_part
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

Guide = Volume | PointsOrPath
"""A label map, landmarks, or a file of either: points end with .csv."""

Side = Literal["fixed", "moving"]

# Where intensities, which go on from landmarks, leave them farther behind than this many voxels, or this many
# times as far as the linear map that fits them best, landmarks are right.
_WORSE_BY, _WORSE_TIMES = 2.0, 1.5


@dataclass(frozen=True, eq=False)
class Guidance:
    """All of one pair; nothing unless it is given."""

    labels: tuple[Volume, Volume] | None = None
    """Of the fixed and of the moving image, on their grids."""
    landmarks: LandmarkPairs | None = None
    rigid: Volume | None = None
    """Labels of what must stay rigid, on the grid of the image of its side; 0 is free."""
    rigid_side: Side = "fixed"

    @property
    def steers(self) -> bool:
        """Whether anything was given."""
        return not (self.labels is None and self.landmarks is None and self.rigid is None)

    @property
    def bytes_per_voxel(self) -> int:
        """What it needs at most on the grid of a deformation: codes of labels, and corrections."""
        return 150 * (self.labels is not None) + 60 * (self.landmarks is not None or self.rigid is not None)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out."""
        return () if self.landmarks is None else self.landmarks.notes

    def with_channels(self, moving: Volume, fixed: Volume) -> tuple[Volume, Volume]:
        """Both images, with their labels as further channels: so a linear alignment sees them."""
        if self.labels is None:
            return moving, fixed
        codes = [one.data.to(fixed.data) for one in self._codes(*self.labels)]
        return tuple(
            Volume(torch.cat([image.data, code]), image.world_from_voxel)
            for image, code in zip((moving, fixed), codes[::-1], strict=True)
        )  # type: ignore[return-value]

    def start(self, kind: Literal["rigid", "similarity", "affine"]) -> Affine | None:
        """The linear map that the landmarks ask for; None where they are too few to tell one."""
        if self.landmarks is None:
            return None
        points = self.landmarks.fixed.mT
        told = linear_landmarks.determined(points)
        if told == "nothing":
            return None
        return linear_landmarks.fit(
            points, self.landmarks.moving.mT, "rigid" if told == "rigid" and kind == "affine" else kind
        )

    def keeps(self, found: Affine, start: Affine, spacing: float) -> bool:
        """Whether a linear map that intensities found agrees with the landmarks it was to start from."""
        assert self.landmarks is not None
        missed = [
            (self.landmarks.fixed @ m[:-1, :-1].mT + m[:-1, -1] - self.landmarks.moving).norm(dim=1).mean()
            for m in (found, start)
        ]
        return bool(missed[0] <= max(missed[1] + _WORSE_BY * spacing, _WORSE_TIMES * missed[1]))

    def steering(self, domain: Domain, start: Transform, target: Grid) -> Steering | None:
        """The same on the grid where the pair is deformed, after `start`, which lies between the worlds."""
        if not self.steers:
            return None
        return Steering(
            self._labels_on(domain, start, target),
            self._landmarks_on(domain.grid, start),
            self._bodies_on(domain, start, target),
        )

    def outcome(self, transform: Transform) -> "GuidedOutcome":
        """What became of what steered."""
        before = Transform.from_affine(torch.eye(transform.dims + 1)).to(transform.device)
        labels = landmarks = bodies = None
        if self.labels is not None:
            labels = label_scores(transform, before, *self.labels)
        if self.landmarks is not None:
            landmarks = self.landmarks.errors(transform)
        if self.rigid is not None:
            bodies = rigidity(transform if self.rigid_side == "fixed" else transform.inverse(), self.rigid)
        voxel = 0.0 if transform.fixed is None else min(transform.fixed.spacing)
        return GuidedOutcome(labels, landmarks, self.rigid_side, bodies, voxel)

    def _codes(self, fixed: Volume, moving: Volume) -> tuple[Volume, Volume]:
        common = common_labels(*(self.labels or (fixed, moving)))
        return coded(fixed, common), coded(moving, common)

    def _labels_on(self, domain: Domain, start: Transform, target: Grid) -> tuple[Tensor, Tensor] | None:
        if self.labels is None:
            return None
        fixed, moving = self.labels
        laid = start.warp(moving, onto=target, labels=True)
        one, other = self._codes(fixed.to(laid.data.device), laid)
        return domain.of(one).data[None], domain.of(other).data[None]

    def _landmarks_on(self, grid: Grid, start: Transform) -> Landmarks | None:
        if self.landmarks is None:
            return None
        there = start.inverse().points(self.landmarks.moving).cpu()
        unit = [
            points @ grid.unit_from_world[:-1, :-1].mT + grid.unit_from_world[:-1, -1]
            for points in (self.landmarks.fixed, there)
        ]
        inside = torch.stack([((x >= 0) & (x <= 1)).all(dim=1) for x in unit]).all(dim=0)
        fixed, moving = (_three_axes(x[inside]).mT.float().to(start.device) for x in unit)
        return Landmarks(fixed, moving)

    def _bodies_on(self, domain: Domain, start: Transform, target: Grid) -> Bodies | None:
        if self.rigid is None:
            return None
        laid = self.rigid.to(start.device)
        if self.rigid_side == "moving":
            laid = start.warp(self.rigid, onto=target, labels=True)
        labels = domain.of(laid).data[0]
        frame = domain.grid.world_from_unit
        affine = affine_part(start.steps, start.dims)
        return Bodies(
            labels if labels.ndim == 3 else labels.unsqueeze(1),
            self.rigid_side,
            _three_frame(frame),
            _three_frame(affine @ frame),
        )


@dataclass(frozen=True, eq=False)
class GuidedOutcome:
    """How well what steered was followed; None where nothing of the kind did."""

    labels: LabelScores | None = None
    landmarks: LandmarkErrors | None = None
    rigid_side: Side = "fixed"
    rigid: Mapping[int, Rigidity] | None = None
    voxel: float = 0.0
    """The smallest side of one of the fixed image, in mm."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Where it was not."""
        said = []
        if self.landmarks is not None and self.landmarks.mean > self.landmarks.before + self.voxel:
            said.append(
                "the landmarks that steered are farther apart than before: on average "
                f"{self.landmarks.before:.2f} mm, now {self.landmarks.mean:.2f} mm."
            )
        for body, found in (self.rigid or {}).items():
            if not found.is_rigid:
                said.append(
                    f"region {body} of the {self.rigid_side} image did not stay rigid: it is off by up to "
                    f"{found.max:.2f} mm."
                )
        return tuple(said)

    def as_dict(self) -> dict[str, Any]:
        """The parts `guidance` and `rigid` of metrics.json."""
        values: dict[str, Any] = {}
        guided: dict[str, Any] = {}
        if self.labels is not None:
            guided["dice"] = self.labels.as_dict()
        if self.landmarks is not None:
            guided["landmark_error_mm"] = vars(self.landmarks)
        if guided:
            values["guidance"] = guided
        if self.rigid is not None:
            values["rigid"] = {
                "side": self.rigid_side,
                "regions": {str(body): found.as_dict() for body, found in self.rigid.items()},
            }
        return values


def guidance(
    *,
    fixed: Volume,
    moving: Volume,
    fixed_guide: Guide | Sequence[Guide] | None,
    moving_guide: Guide | Sequence[Guide] | None,
    fixed_rigid: Volume | str | os.PathLike[str] | None,
    moving_rigid: Volume | str | os.PathLike[str] | None,
) -> Guidance:
    """Everything that was given, read and checked."""
    guides = [_listed(one) for one in (fixed_guide, moving_guide)]
    points = [[one for one in many if is_points(one)] for many in guides]
    maps = [[one for one in many if not is_points(one)] for many in guides]
    for kind, given in (("tables of landmarks", points), ("label maps", maps)):
        if len(given[0]) != len(given[1]) or len(given[0]) > 1:
            raise ValueError(
                f"the fixed guide has {len(given[0])} {kind}, the moving guide {len(given[1])}. At "
                "most one can steer, and it needs its partner in the other image, e.g. `--fixed-guide "
                "labels.nii.gz points.csv --moving-guide other_labels.nii.gz other_points.csv`."
            )
    if fixed_rigid is not None and moving_rigid is not None:
        raise ValueError(
            "what must stay rigid was given for both images; give it for one: what lies there in the other "
            "moves with it."
        )
    labels = None
    if maps[0]:
        labels = (
            _labels(maps[0][0], fixed, "the guide of the fixed image"),
            _labels(maps[1][0], moving, "the guide of the moving image"),
        )
        if not common_labels(*labels):
            raise ValueError(
                "the labels of the fixed and of the moving guide have none in common, so that nothing says "
                "what belongs together. Equal numbers mean equal structures."
            )
    landmarks = None
    if points[0]:
        landmarks = paired(points[0][0], points[1][0], fixed_grid=fixed.grid, moving_grid=moving.grid)
    side: Side = "fixed" if moving_rigid is None else "moving"
    rigid = fixed_rigid if side == "fixed" else moving_rigid
    return Guidance(
        labels,
        landmarks,
        None if rigid is None else _region(rigid, fixed if side == "fixed" else moving, side),
        side,
    )


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _region(given: Any, image: Volume, side: Side) -> Volume:
    what = f"the rigid region of the {side} image"
    labels = _labels(given, image, what)
    if not labels.data.any():
        raise ValueError(f"{what} is empty: no voxel is in it.")
    return labels


def _labels(given: Any, image: Volume, what: str) -> Volume:
    volume = given if isinstance(given, Volume) else read(given, labels=True)
    if not volume.is_labels:
        raise ValueError(f"{what} holds {volume.data.dtype}; read it with `rt.read(path, labels=True)`.")
    if not volume.grid.same_as(image.grid, tolerance=0.1):
        raise ValueError(
            f"{what} lies on another grid than its image: {volume.grid!r} instead of {image.grid!r}. Draw it "
            "on the image, or resample it: `roundtrip.space.resample.resampled(labels, like=image)`."
        )
    return Volume(volume.data[:1], image.world_from_voxel)


# Planes become volumes of one slice, which lies in the middle, as in `deformable.py`.


def _three_axes(points: Tensor) -> Tensor:
    """Points, one a row, of three coordinates."""
    if points.shape[1] == 3:
        return points
    return torch.stack([points[:, 0], torch.zeros_like(points[:, 0]), points[:, 1]], dim=1)


def _three_frame(matrix: Tensor) -> Tensor:
    if len(matrix) == 4:
        return matrix
    frame = torch.eye(4, dtype=torch.float64)
    kept = torch.tensor([0, 2, 3])
    frame[kept[:, None], kept] = matrix
    return frame
