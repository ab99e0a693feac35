"""Measures what a model made of a pair, at the resolution of the images themselves.

Maps are evaluated at the voxels of the image as it was given, and labels compared on the grid on which they
were drawn, by the nearest voxel: what the model's own grid is too coarse for counts against it. Intensities
are compared as the model's preparation adapts them. Neighbours: `model.py` (makes the maps),
`evaluation/judge.py` (measures them).
"""

from dataclasses import dataclass
from typing import Literal

from roundtrip._shapes import Float, Tensor
from roundtrip.algorithms.card import Preparation
from roundtrip.evaluation.judge import Side, Similarity, judge_sides
from roundtrip.evaluation.quality import PairQuality
from roundtrip.losses.similarity import ncc
from roundtrip.pairwise.model import Registered, Scan
from roundtrip.space.preparation import prepare, prepare_points
from roundtrip.space.volume import Volume


@dataclass(frozen=True, eq=False)
class Case:
    """One image of a pair, and what its registration is judged by."""

    name: str
    scan: Scan
    labels: Volume | None = None
    """On the grid of the image."""
    landmarks: Float[Tensor, "P N"] | None = None
    """In LPS millimetres, one to a row; row i of one image belongs to row i of the other."""


def judge_registered(
    registered: Registered,
    moving: Case,
    fixed: Case,
    preparation: Preparation,
    *,
    unit: Literal["mm", "voxels"] = "mm",
    similarity: Similarity = ncc,
) -> PairQuality:
    """All that can be measured of the pair, on the images' own grids; "before" is `Maps.start`."""
    maps = registered.between(moving.scan.image.grid, fixed.scan.image.grid)
    sides = [_side(case, preparation) for case in (moving, fixed)]
    return judge_sides(maps.AB, maps.BA, *sides, unit=unit, similarity=similarity, before=maps.start)


def _side(case: Case, preparation: Preparation) -> Side:
    scan = case.scan
    image = prepare(scan.image, _intensities_alone(preparation), mask=scan.mask)
    frame = image.world_from_unit[:-1, :-1].clone()
    if scan.mirrored:
        # Seen in a mirror, as the model sees it: a map to an image that is not mirrored does not fold.
        frame[0] = -frame[0]
    return Side(
        image=image.data[None],
        frame=frame,
        labels=None if case.labels is None else case.labels.data[None],
        landmarks=None if case.landmarks is None else prepare_points(case.landmarks, image),
        mask=None if scan.mask is None else scan.mask.data[None] != 0,
    )


def _intensities_alone(preparation: Preparation) -> Preparation:
    """The part of a preparation that does not move a voxel."""
    return preparation.model_copy(update={"orientation": None, "mirror": None, "spacing": None, "grid": None})
