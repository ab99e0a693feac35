"""`save_transform` and `load_transform`: a `Transform` in files that other programs read.

ITK composites and NIfTI displacements hold millimetres (LPS); Learn2Reg's arrays hold voxels. Neighbours:
`transform.py`, whose `save` and `load` these are, `_itk_transform.py`, `_parts.py`.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from roundtrip._files import write_whole
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.space._itk_transform import read_itk_transform, write_itk_transform
from roundtrip.space._nifti import write_nifti
from roundtrip.space._parts import Part, parts_of_steps, steps_of_parts, widened
from roundtrip.space.files import read, suffix_of
from roundtrip.space.grid import Grid
from roundtrip.space.measures import places
from roundtrip.space.steps import MapStep, Steps, affine_part
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

ITK_SAVED = (".h5", ".hdf5", ".tfm", ".txt")
ITK_LOADED = (*ITK_SAVED, ".mat")
FIELDS = (".nii", ".nii.gz")
VOXELS = ".npz"


def save_transform(transform: Transform, path: str | os.PathLike[str]) -> None:
    """In the format the name ends with; see `Transform.save`. The file appears whole or not at all."""
    path = Path(path)
    suffix = suffix_of(path)
    if suffix in ITK_SAVED:
        parts = parts_of_steps(_storable(transform), like=_like(transform))
        write_whole(path, lambda beside: write_itk_transform(parts, transform.dims, beside))
    elif suffix in FIELDS:
        displacement = transform.displacement()
        write_whole(path, lambda beside: write_nifti(displacement, beside))
    elif suffix == VOXELS:
        voxels = in_voxels(transform)
        write_whole(path, lambda beside: np.savez_compressed(beside, voxels))
    else:
        raise ValueError(
            f"{path} cannot be written: its name ends with {suffix or 'nothing'}, but transforms are saved "
            f"as {', '.join((*ITK_SAVED, *FIELDS, VOXELS))}, e.g. {path.with_suffix('').name}.h5."
        )


def load_transform(
    path: str | os.PathLike[str], fixed: Volume | Grid | None = None, moving: Volume | Grid | None = None
) -> Transform:
    """What `save_transform` or another program wrote; see `Transform.load`."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    suffix = suffix_of(path)
    if suffix == VOXELS:
        return _from_voxels(path, fixed, moving)
    if suffix in ITK_LOADED:
        parts = read_itk_transform(path)
        steps, dims = steps_of_parts(parts), _dims(path, parts)
    elif suffix in (*FIELDS, ".nrrd", ".mha", ".mhd"):
        displacement = _checked_field(path, read(path))
        steps, dims = steps_of_parts([displacement]), displacement.dims
    else:
        raise ValueError(
            f"{path} is no transform that can be read: {', '.join((*ITK_LOADED, *FIELDS, VOXELS))} are."
        )
    first = steps[0] if steps else None
    known = first.grid if isinstance(first, MapStep) else None
    return Transform(steps, dims, known).between(fixed or known, moving)


def in_voxels(transform: Transform) -> np.ndarray:
    """Learn2Reg's displacement: `map_coordinates(moving, index + displacement)` is the warped image.

    From the voxel index of the fixed to that of the moving image, `(N, *S)`, float16.
    """
    fixed, moving = transform.fixed, transform.moving
    if fixed is None or moving is None:
        raise ValueError(
            "Learn2Reg's .npz counts in voxels of both images, and this transform does not know them: "
            "`transform.between(fixed, moving).save(...)`, or save it as .h5."
        )
    ends = places(transform.steps, fixed, like=_like(transform))
    index = places((), _indices(fixed), like=ends)
    matrix = moving.voxel_from_world.to(ends)
    voxels = (matrix[:-1, :-1] @ ends[0].flatten(1) + matrix[:-1, -1:]).view_as(ends[0])
    return (voxels - index[0]).cpu().numpy().astype(np.float16)


def _from_voxels(path: Path, fixed: Volume | Grid | None, moving: Volume | Grid | None) -> Transform:
    if fixed is None or moving is None:
        raise ValueError(
            f"{path} counts in voxels and does not know of which images: "
            "`Transform.load(path, fixed=fixed, moving=moving)`, on the command line name both."
        )
    try:
        with np.load(path) as archive:
            values = archive[archive.files[0]]
    except Exception as error:
        raise ValueError(f"{path} could not be read: is it complete, and one of Learn2Reg's?") from error
    identity = Transform.from_affine(torch.eye(len(values) + 1, dtype=torch.float64), fixed, moving)
    fixed, moving = identity.fixed, identity.moving
    assert fixed is not None and moving is not None
    if values.shape != (fixed.dims, *fixed.shape):
        raise ValueError(
            f"{path} holds an array of shape {values.shape}, but a fixed image of {fixed.shape} voxels needs "
            f"{(fixed.dims, *fixed.shape)}."
        )
    # A displacement of the fixed grid in itself, and then from its voxels to those of the moving image.
    shift = torch.from_numpy(values.astype(np.float32))
    frame = fixed.world_from_voxel[:-1, :-1].to(shift)
    displacement = Volume((frame @ shift.flatten(1)).view_as(shift), fixed.world_from_voxel)
    across = moving.world_from_voxel @ fixed.voxel_from_world
    return Transform(steps_of_parts([displacement, across]), fixed.dims, fixed, moving)


def _storable(transform: Transform) -> Steps:
    """Steps that a file holds without loss where they are; elsewhere one displacement, then its affine part.

    Outside its grid a displacement of ITK is zero, so the grid has to cover what the fixed image sends there.
    """
    steps, fixed = transform.steps, transform.fixed
    maps = [step for step in steps if isinstance(step, MapStep)]
    if not maps or fixed is None:
        return steps
    if len(maps) == 1 and isinstance(maps[0].map, DisplacementMap):
        number = steps.index(maps[0])
        wider = widened(maps[0], fixed, affine_part(steps[:number], fixed.dims))
        if wider is not None:
            return (*steps[:number], wider, *steps[number + 1 :])
    return transform.resampled().steps


def _checked_field(path: Path, volume: Volume) -> Volume:
    if volume.data.shape[0] != volume.dims:
        raise ValueError(
            f"{path} holds {volume.data.shape[0]} value(s) a voxel, but a displacement of {volume.dims} axes "
            f"has {volume.dims}. Is it an image?"
        )
    return volume


def _dims(path: Path, parts: Sequence[Part]) -> int:
    sizes = {part.dims if isinstance(part, Volume) else len(part) - 1 for part in parts}
    if len(sizes) != 1:
        raise ValueError(f"{path} holds transforms of {sorted(sizes)} dimensions; one, 2 or 3, is needed.")
    return sizes.pop()


def _indices(grid: Grid) -> Grid:
    """The same voxels in a world of voxel indices."""
    return Grid(grid.shape, torch.eye(grid.dims + 1, dtype=torch.float64))


def _like(transform: Transform) -> torch.Tensor:
    return torch.empty(0, dtype=torch.float32, device=transform.device)
