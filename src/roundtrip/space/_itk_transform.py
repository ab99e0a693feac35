"""Transforms in ITK's files (.h5, .tfm, .mat). Neighbours: `transform_files.py`, `_hdf5.py`.

ITK's world is LPS millimetres as ours is, and its transforms take points of the fixed to the moving world as
ours do. A composite lists its parts against the order in which they act: the last one meets the point first.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from roundtrip.space._hdf5 import Node, write_hdf5
from roundtrip.space._itk import from_itk, place, said, silent
from roundtrip.space._parts import Part
from roundtrip.space.grid import Affine
from roundtrip.space.volume import Volume

# Of the smallest side of a voxel: to this displacements are rounded where that makes files small.
_ROUNDED_TO = 2.0**-13

# A B-spline of ITK is read at so many places from one control point to the next, but at most at so many
# along an axis; between them it becomes linear.
_PER_KNOT, _AT_MOST = 8, 256


def write_itk_transform(parts: Sequence[Part], dims: int, path: Path) -> None:
    """As HDF5 (.h5, .hdf5), else as text."""
    parts = parts or [torch.eye(dims + 1, dtype=torch.float64)]
    if path.suffix in (".h5", ".hdf5"):
        write_hdf5(_composite(parts, dims), path)
    else:
        _write_text(parts, dims, path)


def _composite(parts: Sequence[Part], dims: int) -> dict[str, Node]:
    """ITK's composite as the groups and arrays of its HDF5 files; the part that acts first is the last."""
    kind = f"double_{dims}_{dims}"
    group: dict[str, Node] = {"0": {"TransformType": f"CompositeTransform_{kind}"}}
    for number, part in enumerate(reversed(parts), start=1):
        if isinstance(part, Volume):
            name, values, frame = "DisplacementFieldTransform", _rounded(part), _frame(part)
        else:
            linear, shift = part[:-1, :-1].flatten(), part[:-1, -1]
            name, values, frame = "AffineTransform", torch.cat([linear, shift]).numpy(), np.zeros(dims)
        group[str(number)] = {
            "TransformType": f"{name}_{kind}",
            "TransformFixedParameters": frame,
            "TransformParameters": values,
        }
    versions = {"HDFVersion": "1.8", "ITKVersion": "5.4.0", "OSName": "any", "OSVersion": "any"}
    return {**versions, "TransformGroup": group}


def _rounded(displacement: Volume) -> np.ndarray:
    """Each voxel's vector after the other, in single precision, rounded far below a voxel: zeros compress."""
    step = 2.0 ** math.floor(math.log2(min(displacement.spacing) * _ROUNDED_TO))
    values = displacement.data.detach().cpu().numpy().transpose().astype(np.float32)
    return np.rint(values / np.float32(step)).ravel() * np.float32(step)


def _frame(displacement: Volume) -> np.ndarray:
    """Size, origin, spacing and direction, as ITK lists them."""
    grid = displacement.grid
    lists = (grid.shape, grid.origin.tolist(), grid.spacing, grid.direction.flatten().tolist())
    return np.array([number for numbers in lists for number in numbers], dtype=np.float64)


def _write_text(parts: Sequence[Part], dims: int, path: Path) -> None:
    # Imported here: it takes a third of a second, and nothing else needs it.
    import SimpleITK as sitk

    composite = sitk.CompositeTransform(dims)
    for part in reversed(parts):
        composite.AddTransform(_field(part) if isinstance(part, Volume) else _affine(part))
    try:
        sitk.WriteTransform(composite, str(path))
    except RuntimeError as error:
        raise OSError(f"{path.name} could not be written: {said(error)} Is the disk full?") from error


def read_itk_transform(path: Path) -> list[Part]:
    """Affine matrices and displacements, the one that acts first in front."""
    import SimpleITK as sitk

    try:
        with silent():
            transform = sitk.ReadTransform(str(path))
    except RuntimeError as error:
        raise ValueError(
            f"{path} could not be read as a transform: {said(error)} Is it complete, and a transform of ITK?"
        ) from error
    return [_part(single, path) for single in reversed(_singles(transform.Downcast()))]


def _affine(matrix: Affine) -> Any:
    import SimpleITK as sitk

    dims = len(matrix) - 1
    affine = sitk.AffineTransform(dims)
    affine.SetMatrix(matrix[:-1, :-1].flatten().tolist())
    affine.SetTranslation(matrix[:-1, -1].tolist())
    return affine


def _field(displacement: Volume) -> Any:
    import SimpleITK as sitk

    # ITK knows displacements of double precision only.
    values = displacement.data.detach().cpu().numpy().transpose().astype(np.float64)
    image = sitk.GetImageFromArray(values, isVector=True)
    place(image, displacement.grid)
    return sitk.DisplacementFieldTransform(image)


def _singles(transform: Any) -> list[Any]:
    """What a composite is made of, however deep, in its own order."""
    if "CompositeTransform" not in type(transform).__name__:
        return [transform]
    count = transform.GetNumberOfTransforms()
    nested = (_singles(transform.GetNthTransform(index).Downcast()) for index in range(count))
    return [single for singles in nested for single in singles]


def _part(transform: Any, path: Path) -> Part:
    """A matrix of anything that is affine, whatever ITK calls it; a displacement of the others."""
    if transform.IsLinear():
        return _matrix(transform)
    name = type(transform).__name__
    if name == "DisplacementFieldTransform":
        return _volume(transform.GetDisplacementField())
    if name == "BSplineTransform":
        return _sampled_spline(transform)
    raise ValueError(
        f"{path} holds a {name}, which is not understood; affine, displacement and B-spline transforms are. "
        "Turn it into a displacement with SimpleITK's TransformToDisplacementFieldFilter."
    )


def _matrix(transform: Any) -> Affine:
    """Of where it takes the origin and a point on each axis: true whatever its parameters mean."""
    dims = transform.GetDimension()
    points = torch.cat([torch.zeros(1, dims, dtype=torch.float64), torch.eye(dims, dtype=torch.float64)])
    ends = torch.tensor([transform.TransformPoint(point) for point in points.tolist()], dtype=torch.float64)
    matrix = torch.eye(dims + 1, dtype=torch.float64)
    matrix[:-1, :-1] = (ends[1:] - ends[0]).mT
    matrix[:-1, -1] = ends[0]
    return matrix


def _sampled_spline(transform: Any) -> Volume:
    import SimpleITK as sitk

    size = [min(_PER_KNOT * mesh + 1, _AT_MOST) for mesh in transform.GetTransformDomainMeshSize()]
    extent = transform.GetTransformDomainPhysicalDimensions()
    spacing = [length / (n - 1) for length, n in zip(extent, size, strict=True)]
    return _volume(
        sitk.TransformToDisplacementField(
            transform,
            sitk.sitkVectorFloat64,
            size,
            transform.GetTransformDomainOrigin(),
            spacing,
            transform.GetTransformDomainDirection(),
        )
    )


def _volume(image: Any) -> Volume:
    raw = from_itk(image)
    return Volume(torch.from_numpy(np.ascontiguousarray(raw.values, dtype=np.float32)), raw.world_from_voxel)
