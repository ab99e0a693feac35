"""Whether ANTs and SimpleITK make of our files the images that we make: the largest difference, both ways.

Needs antspyx beside Roundtrip, as `benchmarks/environment.sh` installs it:

    benchmarks/environment/bin/python benchmarks/exchange.py

Grids are oblique, flipped and anisotropic; the transform is an affine one after a deformation. Differences
are in parts of the intensity range, over the voxels whose source is clear of the border of the moving image,
where programs draw the line differently.
"""

import math
import tempfile
from pathlib import Path

import ants
import SimpleITK as sitk
import torch

import roundtrip as rt
from roundtrip.space.grid import Grid

CENTRE = torch.tensor([12.0, -7.0, 31.0], dtype=torch.float64)


def rotation(angle: float) -> torch.Tensor:
    a = math.radians(angle)
    skew = torch.tensor([[0, -3, 2], [3, 0, -1], [-2, 1, 0]], dtype=torch.float64) / math.sqrt(14)
    return torch.linalg.matrix_exp(a * skew)


def grid(shape: tuple[int, ...], spacing: tuple[float, ...], angle: float, flips: tuple[float, ...]) -> Grid:
    matrix = torch.eye(4, dtype=torch.float64)
    scale = torch.tensor(flips, dtype=torch.float64) * torch.tensor(spacing, dtype=torch.float64)
    matrix[:3, :3] = rotation(angle) * scale
    middle = torch.tensor([(n - 1) / 2 for n in shape], dtype=torch.float64)
    matrix[:3, 3] = CENTRE - matrix[:3, :3] @ middle
    return Grid(shape, matrix)


GRIDS = {
    "straight": grid((40, 50, 36), (1.0, 0.8, 1.3), 0, (1, 1, 1)),
    "anisotropic": grid((44, 40, 20), (0.9, 1.1, 2.4), 0, (1, 1, 1)),
    "flipped": grid((40, 50, 36), (1.0, 0.8, 1.3), 0, (-1, 1, -1)),
    "oblique": grid((46, 52, 30), (1.0, 0.9, 1.6), 33, (1, -1, 1)),
}


def image(place: Grid, seed: int) -> rt.Volume:
    """Smooth noise, so that interpolation is everywhere at work."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, 1, *(n // 3 for n in place.shape), generator=generator)
    values = torch.nn.functional.interpolate(coarse, place.shape, mode="trilinear", align_corners=True)
    return rt.Volume(values[0], place.world_from_voxel)


def transform(fixed: Grid, moving: Grid) -> rt.Transform:
    x = rt.unit_grid(fixed.shape)
    velocity = 0.03 * torch.sin(math.pi * x) * torch.cos(2 * x.flip(1) + 1)
    linear = 1.1 * rotation(12)
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[:3, :3], matrix[:3, 3] = linear, CENTRE - linear @ CENTRE + torch.tensor([2.0, -1, 1])
    maps = rt.exponential(velocity), rt.exponential(-velocity)
    return rt.Transform.from_maps(maps[0], fixed, moving, inverse=maps[1], affine=matrix)


def difference(ours: torch.Tensor, theirs: torch.Tensor, inside: torch.Tensor) -> float:
    return ((ours - theirs).abs()[inside].max() / (ours.max() - ours.min())).item()


def main() -> None:
    print(f"{'fixed':12} {'moving':12} {'direction':10} {'SimpleITK':>10} {'ANTs .h5':>10} {'ANTs .nii':>10}")
    folder = Path(tempfile.mkdtemp())
    for fixed in GRIDS:
        for moving in GRIDS:
            there = transform(GRIDS[fixed], GRIDS[moving])
            for name, one in (("there", there), ("back", there.inverse())):
                numbers = " ".join(f"{value:10.1e}" for value in differences(one, folder))
                print(f"{fixed:12} {moving:12} {name:10} {numbers}", flush=True)


def differences(one: rt.Transform, folder: Path) -> list[float]:
    assert one.fixed is not None and one.moving is not None
    source, target = image(one.moving, 0), image(one.fixed, 1)
    for path, volume in (("moving.nii.gz", source), ("fixed.nii.gz", target)):
        rt.write(volume, folder / path)
    for suffix in (".h5", ".nii.gz"):
        one.save(folder / f"transform{suffix}")
    ours = one.warp(source).data[0]
    # A voxel of 1 all around the image is wanted: elsewhere the border decides.
    whole = rt.Volume(torch.zeros_like(source.data), source.world_from_voxel)
    whole.data[:, 2:-2, 2:-2, 2:-2] = 1
    inside = one.warp(whole).data[0] > 0.999
    itk = sitk.Resample(
        sitk.ReadImage(str(folder / "moving.nii.gz")),
        sitk.ReadImage(str(folder / "fixed.nii.gz")),
        sitk.ReadTransform(str(folder / "transform.h5")),
        sitk.sitkLinear,
        0.0,
    )
    found = [torch.from_numpy(sitk.GetArrayFromImage(itk).transpose().copy())]
    images = [ants.image_read(str(folder / name)) for name in ("fixed.nii.gz", "moving.nii.gz")]
    for suffix in (".h5", ".nii.gz"):
        warped = ants.apply_transforms(*images, [str(folder / f"transform{suffix}")], interpolator="linear")
        found.append(torch.from_numpy(warped.numpy().copy()))
    return [difference(ours, theirs, inside) for theirs in found]


if __name__ == "__main__":
    main()
