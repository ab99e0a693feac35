"""`RawVolume`: what a format gives before it is checked, and how one image is chosen of many.

Between `_nifti.py` and `_itk.py`, which make it, and `files.py`, which turns it into a `Volume`.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from roundtrip.space.grid import Affine, axes_of_code


@dataclass(frozen=True, eq=False)
class RawVolume:
    """Channels first, then the axes in the order of NIfTI; the world is LPS millimetres."""

    values: np.ndarray
    world_from_voxel: Affine


def chosen(path: Path, volume: int | None, count: int, what: str) -> int:
    """The index of the image that is meant of the `count` images in a file."""
    if count == 1 and volume is None:
        return 0
    if volume is None:
        raise ValueError(
            f"{path} holds {count} {what}, and one is needed: choose it with `volume=`, from 0 to "
            f"{count - 1}, on the command line `--volume 0`, in a configuration `reading: {{volume: 0}}`."
        )
    if not 0 <= volume < count:
        raise ValueError(f"{path} holds {count} {what}; `volume` is {volume}, but 0 to {count - 1} exist.")
    return volume


def assumed_affine(path: Path, spacing: list[float], orientation: str | None) -> Affine:
    """world-from-voxel of an image that does not know it, once the user says which way its axes run."""
    dims = len(spacing)
    if orientation is None:
        raise ValueError(
            f"{path} has a header without orientation: nobody can tell left from right in it. If you know "
            f"which way its axes run, say it with `orientation=`, on the command line "
            f"`--orientation {'RAS'[:dims]}`, in a configuration `reading: {{orientation: {'RAS'[:dims]}}}`."
        )
    matrix = torch.zeros(dims + 1, dims + 1, dtype=torch.float64)
    matrix[dims, dims] = 1
    for voxel, (world, negative) in enumerate(axes_of_code(orientation, dims)):
        matrix[world, voxel] = -spacing[voxel] if negative else spacing[voxel]
    return matrix
