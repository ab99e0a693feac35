"""Every format but NIfTI, through SimpleITK, whose world is LPS as ours is. Neighbour: `_nifti.py`.

ITK names the axes in our order, (i, j, k), but its arrays come as (k, j, i): nothing outside this file knows.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from roundtrip.space._raw import RawVolume, assumed_affine, chosen
from roundtrip.space.grid import Grid
from roundtrip.space.volume import Volume


def read_itk(path: Path, volume: int | None, orientation: str | None) -> RawVolume:
    # Imported here: it takes a third of a second, and NIfTI does not need it.
    import SimpleITK as sitk

    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    try:
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

    series = sitk.ImageSeriesReader.GetGDCMSeriesIDs(str(folder))
    if not series:
        raise ValueError(
            f"{folder} is a folder without a DICOM series. Name an image file, or the series' folder."
        )
    name = series[chosen(folder, volume, len(series), "DICOM series")]
    try:
        image = sitk.ReadImage(sitk.ImageSeriesReader.GetGDCMSeriesFileNames(str(folder), name))
    except RuntimeError as error:
        raise ValueError(f"the DICOM series in {folder} could not be read: {said(error)}") from error
    return from_itk(image)


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
    words = " ".join(str(error).split()).rsplit("): ", 1)[-1]
    return words.rstrip(".") + "."
