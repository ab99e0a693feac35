"""The files of a registration: what `roundtrip register` writes into its folder, the report aside.

Neighbour: `registration.py`, what is written.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from roundtrip.pairwise.registration import Registration
from roundtrip.space.files import write
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

_PART = 2.0**-13


def write_volumes_and_transforms(registration: Registration, folder: Path) -> None:
    """warped, warped_labels where there are labels, jacobian, roundtrip_error and displacement (all .nii.gz),
    transform.h5 and inverse.h5; several at once, for compressing takes long."""
    outcome, transform = registration.outcome, registration.transform
    warped = outcome.warped
    voxel = min(warped.spacing)
    volumes = {
        "warped": _rounded(warped, float(warped.data.max() - warped.data.min()) or 1.0),
        "warped_labels": outcome.warped_labels,
        "jacobian": _rounded(outcome.jacobian, 1.0),
        "roundtrip_error": _rounded(outcome.roundtrip_error, voxel),
        "displacement": _rounded(transform.displacement(), voxel),
    }
    work = [
        # The largest first, so that all are done at about one time.
        _saving(transform, folder / "transform.h5"),
        _saving(registration.inverse, folder / "inverse.h5"),
        *(_writing(volume, folder / f"{name}.nii.gz") for name, volume in volumes.items() if volume),
    ]
    with ThreadPoolExecutor(max(torch.get_num_threads(), 1)) as pool:
        for done in [pool.submit(task) for task in work]:
            done.result()


def _rounded(volume: Volume, extent: float) -> Volume:
    """To a small part of `extent`, far below what anything is exact to: zeros in the last digits compress."""
    step = 2.0 ** math.floor(math.log2(extent * _PART))
    return Volume((volume.data / step).round() * step, volume.world_from_voxel)


def _saving(transform: Transform, path: Path) -> Callable[[], None]:
    return lambda: transform.save(path)


def _writing(volume: Volume, path: Path) -> Callable[[], None]:
    return lambda: write(volume.to("cpu"), path)
