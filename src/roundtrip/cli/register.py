"""`roundtrip register`: two images in files, and everything about how one lies on the other in a folder."""

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from roundtrip.evaluation.quality import LandmarkErrors
    from roundtrip.pairwise.registration import Registration
    from roundtrip.space.points import PointTable
    from roundtrip.space.volume import Volume

STAGES = ("reading", "aligning", "deforming", "measuring", "writing")


def register(
    *,
    fixed: Annotated[tuple[Path, ...], tyro.conf.arg(aliases=["-f"], metavar="IMAGE [IMAGE ...]")],
    moving: Annotated[tuple[Path, ...], tyro.conf.arg(aliases=["-m"], metavar="IMAGE [IMAGE ...]")],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")],
    linear: Literal["none", "rigid", "similarity", "affine"] = "affine",
    modality: Literal["same", "different", "auto"] = "auto",
    effort: Literal["fast", "default", "best"] = "default",
    fixed_labels: Path | None = None,
    moving_labels: Path | None = None,
    fixed_landmarks: Annotated[Path | None, tyro.conf.arg(metavar="CSV")] = None,
    moving_landmarks: Annotated[Path | None, tyro.conf.arg(metavar="CSV")] = None,
    fixed_guide: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="[LABELS|CSV ...]")] = (),
    moving_guide: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="[LABELS|CSV ...]")] = (),
    points_world: Literal["LPS", "RAS"] = "LPS",
    fixed_mask: Path | None = None,
    moving_mask: Path | None = None,
    fixed_rigid: Path | None = None,
    moving_rigid: Path | None = None,
    model: Path | None = None,
    fixed_volume: int | None = None,
    moving_volume: int | None = None,
    orientation: str | None = None,
    replace_nan: float | None = None,
    device: str = "cpu",
    threads: int | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Lay one image onto another, both ways, in millimetres; nothing has to be prepared or trained.

    Images may have any orientation, spacing and size and lie anywhere: NIfTI, NRRD, MHA, a folder with a
    DICOM series, or pictures in two dimensions. Writes the warped image, transforms for ITK, ANTs and
    Slicer, maps of growth and of round-trip error, a report to look at, and metrics.json, which says in "ok"
    whether to trust them.

    Args:
        fixed: The image that stays: results lie on its grid. Several of one grid, such as a T1 and a T2, are
            compared each with its partner, in order.
        moving: The image that is laid onto it; as many as there are fixed ones.
        output: Folder for the results; made if it is not there, older results in it are replaced.
        linear: How the images are aligned before the deformation.
        modality: Whether tissues are equally bright in both images; auto looks.
        effort: How long to search.
        fixed_labels: Label map of the fixed image, to measure overlap with; it does not steer.
        moving_labels: Label map of the moving image, which is warped too.
        fixed_landmarks: Points of the fixed image, to measure by: a table with columns x, y, z in mm; paired
            by a column name, or by order. They do not steer.
        moving_landmarks: Their partners in the moving image.
        fixed_guide: What steers, besides intensities: a label map, a table of landmarks, or both.
        moving_guide: The same of the moving image.
        points_world: The world of the tables; ITK and ANTs count in LPS, 3D Slicer in RAS.
        fixed_mask: Where intensities of the fixed image count: not 0.
        moving_mask: Where those of the moving image count.
        fixed_rigid: Label map of what must stay rigid in the fixed image, such as bones: each label a body.
        moving_rigid: Instead, what must stay rigid in the moving image.
        model: Folder of a trained model, from whose map to start instead of an alignment.
        fixed_volume: Which image of a 4-D fixed file to take, from 0.
        moving_volume: Which image of a 4-D moving file to take, from 0.
        orientation: Which way the axes run where a header does not say, such as RAS.
        replace_nan: Stands in for values that are not numbers, which are refused otherwise.
        device: Where to compute, such as cpu or cuda.
        threads: Processor threads; all unless given.
        json: Print metrics.json, alone, on standard output.
        quiet: Print nothing but errors.
    """
    if output.exists() and not output.is_dir():
        raise ValueError(f"{output} is a file; name a folder for the results, e.g. `--output {output}.d`.")
    _require_paths(
        *(*fixed, *moving, *fixed_guide, *moving_guide),
        *(fixed_labels, moving_labels, fixed_landmarks, moving_landmarks),
        *(fixed_mask, moving_mask, fixed_rigid, moving_rigid, model),
    )
    _require_as_many(fixed, moving)

    from roundtrip._files import whole_folder
    from roundtrip.cli.chain import require_device, use_threads
    from roundtrip.cli.console import announce, progress
    from roundtrip.pairwise.outputs import write_volumes_and_transforms
    from roundtrip.pairwise.register import register as registered
    from roundtrip.reports.files import write_json
    from roundtrip.reports.page import write_report
    from roundtrip.reports.pair import ReportedPair
    from roundtrip.reports.thumbnail import NAME, write_thumbnail

    use_threads(threads)
    require_device(device)
    if not quiet and _compiles_first():
        print("roundtrip: compiling for this machine, once; it takes about 20 s", file=sys.stderr)
    how = {"orientation": orientation, "replace_nan": replace_nan}
    with whole_folder(output) as folder, progress("reading", len(STAGES), quiet=quiet) as advance:
        source = _images(moving, "moving", moving_volume, how)
        target = _images(fixed, "fixed", fixed_volume, how)
        table: dict[str, Any] = {"dims": target[0].dims, "world": points_world}
        result = registered(
            moving=source,
            fixed=target,
            moving_labels=_map(moving_labels, orientation),
            fixed_labels=_map(fixed_labels, orientation),
            moving_landmarks=_table(moving_landmarks, table),
            fixed_landmarks=_table(fixed_landmarks, table),
            moving_guide=[_guide(path, orientation, table) for path in moving_guide],
            fixed_guide=[_guide(path, orientation, table) for path in fixed_guide],
            moving_mask=_map(moving_mask, orientation),
            fixed_mask=_map(fixed_mask, orientation),
            moving_rigid=_map(moving_rigid, orientation),
            fixed_rigid=_map(fixed_rigid, orientation),
            linear=linear,
            modality=modality,
            effort=effort,
            model=model,
            device=device,
            on_stage=advance,
        )
        advance("measuring")
        metrics = result.metrics
        advance("writing")
        write_volumes_and_transforms(result, folder)
        command = shlex.join(["roundtrip", *sys.argv[1:]])
        names = {"fixed_name": fixed[0].name, "moving_name": moving[0].name}
        write_report(folder / "report.html", ReportedPair.of(result, **names, command=command))
        write_thumbnail(folder / NAME, result.moving, result.fixed, result.transform)
        metrics = {"ok": metrics["ok"], "wall_seconds": round(_seconds_since_start(), 2), **metrics}
        write_json(folder / "metrics.json", metrics)
    for reason in result.reasons:
        print(f"roundtrip: this registration failed: {reason}", file=sys.stderr)
    announce(_lines(result, metrics, output), metrics, as_json=json, quiet=quiet)


def _require_paths(*paths: Path | None) -> None:
    for path in paths:
        if path is not None and not path.exists():
            raise FileNotFoundError(f"{path} does not exist.")


def _require_as_many(fixed: Sequence[Path], moving: Sequence[Path]) -> None:
    if not fixed or len(fixed) != len(moving):
        raise ValueError(
            f"there are {len(fixed)} fixed images but {len(moving)} moving ones; each is compared with its "
            "partner, e.g. `--fixed t1.nii.gz t2.nii.gz --moving other_t1.nii.gz other_t2.nii.gz`."
        )


def _images(paths: Sequence[Path], name: str, volume: int | None, how: Mapping[str, Any]) -> "list[Volume]":
    from roundtrip.space.files import read

    try:
        return [read(path, volume=volume, **how) for path in paths]
    except ValueError as error:
        raise ValueError(str(error).replace("`--volume 0`", f"`--{name}-volume 0`")) from error


def _map(path: Path | None, orientation: str | None) -> "Volume | None":
    from roundtrip.space.files import read

    return None if path is None else read(path, labels=True, orientation=orientation)


def _table(path: Path | None, how: Mapping[str, Any]) -> "PointTable | None":
    from roundtrip.space.points import read_points

    return None if path is None else read_points(path, **how)


def _guide(path: Path, orientation: str | None, how: Mapping[str, Any]) -> "Volume | PointTable":
    from roundtrip.pairwise.landmark_pairs import is_points
    from roundtrip.space.files import read

    if is_points(path):
        from roundtrip.space.points import read_points

        return read_points(path, **how)
    return read(path, labels=True, orientation=orientation)


def _lines(result: "Registration", metrics: Mapping[str, Any], output: Path) -> list[str]:
    outcome = result.outcome
    change, folds, miss = outcome.similarity, outcome.folds, outcome.roundtrip_error_mm
    seconds = f"{result.seconds:.1f} s, {metrics['wall_seconds']:.1f} s with files and measuring"
    cells = [
        ("registered in", seconds),
        (f"similarity ({change.name})", f"{change.before:.3f} before, {change.after:.3f} after"),
    ]
    if outcome.dice is not None:
        scores = outcome.dice
        name = f"mean Dice of {scores.num_labels} labels"
        cells.append((name, f"{scores.mean_before:.3f} before, {scores.mean:.3f} after"))
    cells += _guided_lines(result)
    cells += [
        ("folded voxels", f"{folds.count}, {folds.non_diffeomorphic_volume_percent:.4f} % of the volume"),
        ("a round trip misses by", f"{miss.mean:.3f} mm on average, {miss.max:.3f} mm at most"),
        *(("note", note) for note in result.notes),
        ("written", str(output)),
    ]
    return [f"{name:33}{value}" for name, value in cells]


def _guided_lines(result: "Registration") -> list[tuple[str, str]]:
    """Landmarks that measure, and what became of what steered."""
    cells, guided = [], result.guided
    if result.landmarks is not None:
        cells.append(("landmarks apart by", _distances(result.landmarks.errors(result.transform))))
    if guided.labels is not None:
        scores = guided.labels
        cells.append(
            ("labels that steered, mean Dice", f"{scores.mean_before:.3f} before, {scores.mean:.3f} after")
        )
    if guided.landmarks is not None:
        cells.append(("landmarks that steered, apart by", _distances(guided.landmarks)))
    for body, found in (guided.rigid or {}).items():
        turned = f"turned by {found.rotation_degrees:.1f} degrees, off by {found.max:.1g} mm at most"
        cells.append((f"rigid region {body}", turned))
    return cells


def _distances(errors: "LandmarkErrors") -> str:
    return f"{errors.before:.2f} mm before, {errors.mean:.2f} mm after ({errors.max:.2f} mm at most)"


def _compiles_first() -> bool:
    """Whether no kernel of the deformation was compiled here before, as far as numba tells."""
    from roundtrip.pairwise import _field_kernel

    try:
        folder = Path(_field_kernel.read_at._cache.cache_path)
    except AttributeError:
        return False
    return not any(folder.glob("_field_kernel.*.nbi"))


def _seconds_since_start() -> float:
    """Since this process began, starting Python included, where the system tells."""
    try:
        with open("/proc/self/stat", encoding="ascii") as stat:
            ticks = int(stat.read().rsplit(")", 1)[1].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return time.process_time()
