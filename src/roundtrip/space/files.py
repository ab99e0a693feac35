"""`read` and `write`: images and label maps in files. The formats themselves: `_nifti.py` and `_itk.py`.

Whatever a file says is turned once, here, into LPS millimetres and the axis order of NIfTI.
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from roundtrip._files import write_whole
from roundtrip.space._itk import read_dicom_series, read_itk, write_itk
from roundtrip.space._nifti import read_nibabel, write_nifti
from roundtrip.space._raw import RawVolume
from roundtrip.space.volume import Volume

NIBABEL = (".nii", ".nii.gz", ".hdr", ".img", ".mgz", ".mgh")
ITK = (".nrrd", ".nhdr", ".mha", ".mhd", ".dcm", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp")

_WRITERS: dict[str, Callable[[Volume, Path], None]] = {
    **dict.fromkeys((".nii", ".nii.gz"), write_nifti),
    **dict.fromkeys((".nrrd", ".mha", ".png", ".tif", ".tiff"), write_itk),
}


def read(
    path: str | os.PathLike[str],
    *,
    volume: int | None = None,
    labels: bool = False,
    orientation: str | None = None,
    replace_nan: float | None = None,
) -> Volume:
    """The image in a file: NIfTI, NRRD, MHA/MHD, MGZ, PNG, JPEG, TIFF, or a folder with one DICOM series.

    Intensities come as float32, with the scaling of the header applied; with `labels` the values have to be
    whole numbers and come as int32 (int64 where they are larger). Vectors and colours become channels.

    `volume` chooses one image of a 4-D file, or one of several DICOM series, counted from 0. `orientation`,
    such as "LPS", says which way the axes run where the header does not know (and only there); the first
    voxel is then at 0. `replace_nan` stands in for values that are NaN or infinite, which are refused
    otherwise. NIfTI: the sform is used where it is set, else the qform, as nibabel does.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(
            f"the name of a file is needed, not a {type(path).__name__}. An array is an image when it is "
            "told where its voxels lie, in LPS millimetres: `rt.Volume(torch.as_tensor(array)[None], "
            "world_from_voxel)`."
        )
    path = Path(path)
    raw = _read_raw(path, volume, orientation)
    try:
        return Volume(_tensor(raw.values, path, labels=labels, replace_nan=replace_nan), raw.world_from_voxel)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def write(volume: Volume, path: str | os.PathLike[str]) -> None:
    """Writes NIfTI (.nii, .nii.gz), NRRD, MHA; 2-D also PNG and TIFF. The file appears whole or not at all.

    Channels become a vector image. PNG holds whole numbers from 0 to 65535: values are rounded to them.
    """
    path = Path(path)
    writer = _WRITERS.get(suffix_of(path))
    if writer is None:
        raise ValueError(
            f"{path} cannot be written: its name ends with {suffix_of(path) or 'nothing'}, but one of "
            f"{', '.join(_WRITERS)} is needed, e.g. {path.with_suffix('').name}.nii.gz."
        )
    write_whole(path, lambda beside: writer(volume, beside))


def can_write(path: Path) -> bool:
    """Whether `write` knows the format that the name ends with."""
    return suffix_of(path) in _WRITERS


def can_read(path: Path) -> bool:
    """Whether `path` is a file in a format that `read` knows, by its name."""
    return suffix_of(path) in (*NIBABEL, *ITK) and path.is_file()


def suffix_of(path: Path) -> str:
    """The end of a name that tells the format: ".nii.gz" is one."""
    name = path.name.lower()
    return ".nii.gz" if name.endswith(".nii.gz") else Path(name).suffix


def _read_raw(path: Path, volume: int | None, orientation: str | None) -> RawVolume:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    if path.is_dir():
        return read_dicom_series(path, volume)
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty: it holds no bytes at all.")
    if suffix_of(path) in NIBABEL:
        return read_nibabel(path, volume, orientation)
    if suffix_of(path) in ITK:
        return read_itk(path, volume, orientation)
    raise ValueError(
        f"{path} is of no known format. Readable are {', '.join(NIBABEL + ITK)} and a folder with a DICOM "
        "series."
    )


def _tensor(values: np.ndarray, path: Path, *, labels: bool, replace_nan: float | None) -> torch.Tensor:
    if values.size == 0:
        raise ValueError(f"it has shape {values.shape}, which holds no voxels.")
    if values.dtype.kind not in "biuf":
        raise ValueError(f"it holds values of type {values.dtype}; real numbers are needed.")
    if values.dtype.kind == "f":
        values = _finite(values, replace_nan)
    values = whole_numbers(values) if labels else values.astype(np.float32, copy=False)
    # Files come in either byte order, and in an order of axes that torch can only hold as a copy.
    return torch.from_numpy(np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("=")))


def _finite(values: np.ndarray, replace_nan: float | None) -> np.ndarray:
    # What does not fit into float32 is infinite there.
    bad = ~np.isfinite(values) | (np.abs(values) > np.finfo(np.float32).max)
    if not bad.any():
        return values
    if replace_nan is None:
        raise ValueError(
            f"{int(bad.sum())} of {values.size} values are NaN or infinite. Read it with "
            "`rt.read(path, replace_nan=0)`, on the command line `--replace-nan 0`, in a configuration "
            "`reading: {replace_nan: 0}`, or repair the file."
        )
    return np.where(bad, np.asarray(replace_nan, dtype=values.dtype), values)


def whole_numbers(values: np.ndarray) -> np.ndarray:
    """The values as labels: in 32 bits where they fit, refused where one is not a whole number."""
    if values.dtype.kind == "f":
        odd = values != np.rint(values)
        if odd.any():
            raise ValueError(
                f"it was asked for as labels, which are whole numbers, but {int(odd.sum())} values are not, "
                f"such as {float(values[odd][0]):g}. Is it an image?"
            )
    small = max(abs(int(values.min())), abs(int(values.max()))) <= np.iinfo(np.int32).max
    return values.astype(np.int32 if small else np.int64, copy=False)
