"""Every format but NIfTI, through SimpleITK, whose world is LPS as ours is. Neighbour: `_nifti.py`.

ITK names the axes in our order, (i, j, k), but its arrays come as (k, j, i): nothing outside this file knows.
"""

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from roundtrip.space._raw import RawVolume, assumed_affine, chosen
from roundtrip.space.grid import Affine, Grid
from roundtrip.space.volume import Volume


def read_itk(path: Path, volume: int | None, orientation: str | None) -> RawVolume:
    # Imported here: it takes a third of a second, and NIfTI does not need it.
    import SimpleITK as sitk

    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    try:
        with silent():
            reader.ReadImageInformation()
            size = list(reader.GetSize())
            if len(size) == 4:
                index = chosen(path, volume, size[3], "volumes")
                # ITK drops an axis that is extracted with size 0.
                reader.SetExtractIndex([0, 0, 0, index])
                reader.SetExtractSize([*size[:3], 0])
            image = reader.Execute()
    except RuntimeError as error:
        raise ValueError(
            f"{path} could not be read: {said(error)} Is it complete, and what its name says?"
        ) from error
    if len(size) < 4:
        chosen(path, volume, 1, "image")
    raw = from_itk(image)
    if _knows_no_orientation(path, reader, image.GetDimension()):
        return RawVolume(raw.values, assumed_affine(path, list(image.GetSpacing()), orientation))
    return raw


def read_dicom_series(folder: Path, volume: int | None) -> RawVolume:
    """The slices of one series, sorted by where they are."""
    import SimpleITK as sitk

    reader = sitk.ImageSeriesReader()
    reader.MetaDataDictionaryArrayUpdateOn()
    with silent():
        series = reader.GetGDCMSeriesIDs(str(folder))
    if not series:
        raise ValueError(
            f"{folder} is a folder without a DICOM series. Name an image file, or the series' folder."
        )
    name = series[chosen(folder, volume, len(series), "DICOM series")]
    try:
        with silent():
            reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(folder), name))
            raw = from_itk(reader.Execute())
    except RuntimeError as error:
        raise ValueError(f"the DICOM series in {folder} could not be read: {said(error)}") from error
    places = [
        [float(number) for number in reader.GetMetaData(k, _POSITION).split("\\")]
        for k in range(raw.values.shape[-1])
        if reader.HasMetaDataKey(k, _POSITION)
    ]
    return RawVolume(raw.values, _stacked(raw.world_from_voxel, places, folder))


def _stacked(world_from_voxel: Affine, places: Sequence[Sequence[float]], folder: Path) -> Affine:
    """The affine of slices whose first voxels lie at `places`, which ITK only knows for slices right above
    each other, all of them there: neither for a scanner that was tilted, nor where one is missing."""
    if len(places) < 2:
        return world_from_voxel
    at = torch.tensor(places, dtype=torch.float64)
    gaps = at.diff(dim=0)
    if (gaps - gaps.mean(dim=0)).norm(dim=1).max() > 0.1 * gaps.mean(dim=0).norm():
        nearest, farthest = gaps.norm(dim=1).aminmax()
        raise ValueError(
            f"the slices of the DICOM series in {folder} do not lie evenly, but {nearest:.4g} to "
            f"{farthest:.4g} mm apart. Is one missing or damaged, or does it hold several volumes?"
        )
    matrix = world_from_voxel.clone()
    matrix[:-1, 2] = gaps.mean(dim=0)
    return matrix


def write_itk(volume: Volume, path: Path) -> None:
    import SimpleITK as sitk

    picture = path.suffix.lower() in (".png", ".tif", ".tiff")
    if picture and volume.dims != 2:
        raise ValueError(
            f"{path.name} is for planes; a volume of {volume.dims} axes needs .nii.gz, .nrrd or .mha."
        )
    if path.suffix.lower() == ".png":
        volume = _as_whole_numbers(volume)
    try:
        sitk.WriteImage(to_itk(volume), str(path), useCompression=not picture)
    except RuntimeError as error:
        raise OSError(f"{path.name} could not be written: {said(error)}") from error


def from_itk(image: Any) -> RawVolume:
    import SimpleITK as sitk

    values = sitk.GetArrayFromImage(image)
    if image.GetNumberOfComponentsPerPixel() == 1:
        values = values[..., None]
    dims = image.GetDimension()
    matrix = torch.eye(dims + 1, dtype=torch.float64)
    direction = torch.tensor(image.GetDirection(), dtype=torch.float64).view(dims, dims)
    matrix[:-1, :-1] = direction * torch.tensor(image.GetSpacing(), dtype=torch.float64)
    matrix[:-1, -1] = torch.tensor(image.GetOrigin(), dtype=torch.float64)
    return RawVolume(values.transpose(), matrix)


def to_itk(volume: Volume) -> Any:
    """The volume as a SimpleITK image, in the same place."""
    import SimpleITK as sitk

    values = volume.data.detach().cpu().numpy()
    if values.dtype == np.bool_:
        values = values.astype(np.uint8)
    values = values.astype(np.float32) if values.dtype == np.float16 else values
    several = values.shape[0] > 1
    image = sitk.GetImageFromArray(values.transpose() if several else values[0].transpose(), isVector=several)
    place(image, volume.grid)
    return image


def place(image: Any, grid: Grid) -> None:
    """Puts a SimpleITK image where `grid` is."""
    image.SetSpacing(grid.spacing)
    image.SetOrigin(grid.origin.tolist())
    image.SetDirection(grid.direction.flatten().tolist())


def _knows_no_orientation(path: Path, reader: Any, dims: int) -> bool:
    """An NRRD volume without a space. A picture needs none, and every other format has one."""
    nrrd = path.suffix.lower() in (".nrrd", ".nhdr")
    return nrrd and dims == 3 and "NRRD_space" not in reader.GetMetaDataKeys()


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """What ITK's libraries write to the standard error of the process, whatever Python does, is not seen.

    Each of their complaints comes as an error too, or is looked for here.
    """
    # One at a time: of two threads the second would take the silence of the first for what to put back.
    with _ONE_AT_A_TIME:
        try:
            kept = os.dup(2)
        except OSError:
            yield
            return
        try:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _as_whole_numbers(volume: Volume) -> Volume:
    """Rounded to 8 bits, or 16 where they are needed."""
    data = volume.data.round() if volume.data.is_floating_point() else volume.data
    lowest, highest = data.min().item(), data.max().item()
    if lowest < 0 or highest > 65535:
        raise ValueError(
            f"PNG holds whole numbers from 0 to 65535, but the values run from {lowest:g} to {highest:g}: "
            "write .tiff or .nii.gz."
        )
    return volume.to(torch.uint8 if highest < 256 else torch.uint16)


def said(error: Exception) -> str:
    """The last thing ITK says, which is what went wrong; before it stands where in ITK's sources."""
    words = re.split(r"\): |ERROR: |\.hxx:\d+: ", " ".join(str(error).split()))[-1]
    # It counts all that it tried; and of a file that is there it says that there is none.
    words = re.split(r" Tried to create | Reason: No such file", words)[0]
    return words.rstrip(".") + "."


_ONE_AT_A_TIME = threading.RLock()
_POSITION = "0020|0032"
