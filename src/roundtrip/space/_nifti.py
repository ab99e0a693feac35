"""NIfTI (and FreeSurfer's MGZ) through nibabel; its world is RAS and is turned into ours, LPS, here.

Neighbours: `_itk.py` for all other formats, `files.py`, which calls both.
"""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import torch

from roundtrip.space._raw import RawVolume, assumed_affine, chosen
from roundtrip.space.grid import Affine
from roundtrip.space.volume import Volume

_MILLIMETRES = {"meter": 1000.0, "mm": 1.0, "micron": 0.001, "unknown": 1.0}


def read_nibabel(path: Path, volume: int | None, orientation: str | None) -> RawVolume:
    # Imported here: half of all commands never read such a file.
    import nibabel as nib

    try:
        image: Any = nib.load(path)
    except Exception as error:
        raise ValueError(
            f"{path} could not be read: {_said(error)} Is it complete, and what its name says?"
        ) from error
    if len(image.shape) < 2:
        raise ValueError(f"{path} holds a line of shape {image.shape}; a plane or a volume is needed.")
    dims = 2 if len(image.shape) == 2 or _is_planar_vector(image.shape) else 3
    affine = _world_from_voxel(path, image, dims, orientation)
    selection = _selection(path, image.shape, volume)
    try:
        values = _plain(_values(path, image, selection))
    except Exception as error:
        raise ValueError(
            f"{path} could not be read to its end: {_said(error)} It may be truncated or damaged."
        ) from error
    # What is left behind the spatial axes are channels; a file without them has one.
    values = values.reshape(*image.shape[:dims], -1)
    return RawVolume(np.moveaxis(values, -1, 0), affine)


def write_nifti(volume: Volume, path: Path) -> None:
    import nibabel as nib

    values = volume.data.detach().cpu().numpy()
    image = nib.Nifti1Image(_with_channels_last(_storable(values)), ras_affine(volume.world_from_voxel))
    if values.shape[0] > 1:
        image.header.set_intent("vector")
    set_affine(image)
    nib.save(image, path)


def ras_affine(world_from_voxel: Affine) -> np.ndarray:
    """The 4 x 4 matrix that NIfTI wants, to RAS; a plane lies at z = 0 and is 1 mm thick."""
    dims = world_from_voxel.shape[0] - 1
    keep = [*range(dims), 3]
    affine = np.eye(4)
    affine[np.ix_(keep, keep)] = world_from_voxel.numpy()
    return _FLIP @ affine


def set_affine(image: Any) -> None:
    """Says where the image is in both of NIfTI's ways; a sheared grid only fits into the first, the sform."""
    affine = image.affine
    image.header.set_xyzt_units("mm")
    image.set_sform(affine, code="scanner")
    axes = affine[:3, :3] / np.linalg.norm(affine[:3, :3], axis=0)
    straight = np.allclose(axes.T @ axes, np.eye(3), atol=1e-4)
    image.set_qform(affine, code="scanner" if straight else "unknown")


def _world_from_voxel(path: Path, image: Any, dims: int, orientation: str | None) -> Affine:
    header = image.header
    codes = [int(header[name]) for name in ("sform_code", "qform_code") if name in header]
    factor = _millimetres(header)
    if (codes and max(codes) == 0) or (not codes and not hasattr(header, "get_affine")):
        spacing = [abs(float(size)) * factor or 1.0 for size in header.get_zooms()[:dims]]
        return assumed_affine(path, spacing, orientation)
    affine = _FLIP @ np.asarray(image.affine, dtype=np.float64)
    affine[:3] *= factor
    if dims == 3:
        return torch.from_numpy(affine)
    if np.abs(affine[2, :2]).max() > 1e-4 * np.linalg.norm(affine[:, :2], axis=0).max():
        raise ValueError(
            f"{path} is a plane that does not lie across the body (its z changes from pixel to pixel). Store "
            "it as a volume of one slice, (nx, ny, 1)."
        )
    return torch.from_numpy(affine[np.ix_([0, 1, 3], [0, 1, 3])])


def _millimetres(header: Any) -> float:
    """How many make one unit of the header; what it calls by a code that NIfTI does not know are some."""
    try:
        return _MILLIMETRES[header.get_xyzt_units()[0]]
    except (AttributeError, KeyError):
        return 1.0


def _values(path: Path, image: Any, selection: tuple[Any, ...]) -> np.ndarray:
    if not path.name.lower().endswith(".nii.gz") or selection != (Ellipsis,):
        return np.asanyarray(image.dataobj[selection])
    with gzip.open(path) as stream:
        values = np.asanyarray(type(image).from_stream(stream).dataobj)
        # Behind the last voxel stands a checksum, which is only looked at when more is asked for.
        stream.read()
    return values


def _selection(path: Path, shape: tuple[int, ...], volume: int | None) -> tuple[Any, ...]:
    """What to read of the file: all of a volume, one volume of a series, all channels of a vector image."""
    if len(shape) < 4:
        chosen(path, volume, 1, "image")
        return (Ellipsis,)
    return (*[slice(None)] * 3, chosen(path, volume, shape[3], "volumes"), Ellipsis)


def _is_planar_vector(shape: tuple[int, ...]) -> bool:
    """Vectors stand on the fifth axis, also those of a plane, whose third and fourth are of one."""
    return len(shape) == 5 and shape[2] == shape[3] == 1


def _plain(values: np.ndarray) -> np.ndarray:
    """Colours, which NIfTI stores as records, as channels on a last axis."""
    if values.dtype.names:
        return np.stack([values[name] for name in values.dtype.names], axis=-1)
    return values


def _storable(values: np.ndarray) -> np.ndarray:
    """In a type that readers of NIfTI know: half precision, truth values and 64-bit integers are not."""
    if values.dtype == np.float16:
        return values.astype(np.float32)
    if values.dtype == np.bool_:
        return values.astype(np.uint8)
    if values.dtype == np.int64:
        if values.size and max(abs(int(values.min())), abs(int(values.max()))) > np.iinfo(np.int32).max:
            raise ValueError(
                "labels beyond 32 bits cannot be stored in NIfTI; write .nrrd, or renumber them."
            )
        return values.astype(np.int32)
    return values


def _with_channels_last(values: np.ndarray) -> np.ndarray:
    """One channel as the grid alone, several on the fifth axis."""
    if values.shape[0] == 1:
        return values[0]
    grid = values.shape[1:]
    return np.moveaxis(values, 0, -1).reshape(*grid, *[1] * (4 - len(grid)), values.shape[0])


def _said(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") + "."


_FLIP = np.diag([-1.0, -1.0, 1.0, 1.0])
