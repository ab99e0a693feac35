"""One image of a data set, read from the files that a record names, with all that is checked on the way.

Neighbours: `records.py` (which files), `prepared.py` (keeps what was prepared), `space/preparation.py`.
"""

from dataclasses import dataclass
from pathlib import Path

from roundtrip._problems import Problems
from roundtrip._shapes import Float, Tensor
from roundtrip.data.records import Record
from roundtrip.data.sources import Reading
from roundtrip.space.files import read
from roundtrip.space.points import read_points
from roundtrip.space.volume import Volume, require_contrast


@dataclass(frozen=True, eq=False)
class ScanFiles:
    """An image in the world and what belongs to it: labels and mask on its grid, landmarks in LPS mm."""

    image: Volume
    labels: Volume | None = None
    mask: Volume | None = None
    landmarks: Float[Tensor, "P N"] | None = None


def read_scan(record: Record, reading: Reading, problems: Problems) -> ScanFiles | None:
    """The record's files; None where one of them cannot be used, and `problems` says all of why."""
    assert record.image is not None
    before, where = len(problems.lines), record.where
    image = problems.attempt(where, lambda: _image(record, reading))
    labels = problems.attempt(where, lambda: _drawn_on(image, "labels", record, reading))
    mask = problems.attempt(where, lambda: _drawn_on(image, "mask", record, reading))
    landmarks = None
    if record.landmarks is not None:
        path, dims = record.landmarks, 3 if image is None else image.dims
        landmarks = problems.attempt(where, lambda: _landmarks(path, dims))
    if image is None or len(problems.lines) > before:
        return None
    return ScanFiles(image, labels, mask, landmarks)


def _image(record: Record, reading: Reading) -> Volume:
    assert record.image is not None
    image = read(
        record.image,
        volume=reading.volume,
        orientation=reading.orientation,
        replace_nan=reading.replace_nan,
    )
    require_contrast(image, str(record.image))
    return image


def _landmarks(path: Path, dims: int) -> Float[Tensor, "P N"]:
    points = read_points(path, dims=dims).xyz
    if not len(points) or not points.isfinite().all():
        raise ValueError(f"{path} holds no points, or such that are no places: x, y (and z) in LPS mm.")
    return points


def _drawn_on(image: Volume | None, kind: str, record: Record, reading: Reading) -> Volume | None:
    """The label map or the mask, which lies on the grid of its image."""
    path = getattr(record, kind)
    if path is None:
        return None
    drawn = read(path, labels=True, orientation=reading.orientation)
    if drawn.data.shape[0] != 1:
        raise ValueError(f"{path} has {drawn.data.shape[0]} channels; a label map has one.")
    if image is not None and not drawn.grid.same_as(image.grid, tolerance=0.1):
        raise ValueError(
            f"{path} is not on the grid of its image: {drawn.grid!r} instead of {image.grid!r}. Draw it "
            "there, or resample it onto the image by nearest neighbour."
        )
    if not (drawn.data != 0).any() and kind == "mask":
        raise ValueError(f"{path} is empty: no voxel belongs to the image.")
    return drawn
