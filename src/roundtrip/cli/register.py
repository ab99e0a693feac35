"""`roundtrip register`: two images in files, and everything about how one lies on the other in a folder."""

import os
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from roundtrip.pairwise.registration import Registration
    from roundtrip.space.volume import Volume

STAGES = ("reading", "aligning", "deforming", "measuring", "writing")


def register(
    *,
    fixed: Annotated[Path, tyro.conf.arg(aliases=["-f"], metavar="IMAGE")],
    moving: Annotated[Path, tyro.conf.arg(aliases=["-m"], metavar="IMAGE")],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")],
    linear: Literal["none", "rigid", "similarity", "affine"] = "affine",
    modality: Literal["same", "different", "auto"] = "auto",
    effort: Literal["fast", "default", "best"] = "default",
    fixed_labels: Path | None = None,
    moving_labels: Path | None = None,
    fixed_mask: Path | None = None,
    moving_mask: Path | None = None,
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
        fixed: The image that stays: results lie on its grid.
        moving: The image that is laid onto it.
        output: Folder for the results; made if it is not there, older results in it are replaced.
        linear: How the images are aligned before the deformation.
        modality: Whether tissues are equally bright in both images; auto looks.
        effort: How long to search.
        fixed_labels: Label map of the fixed image, to measure overlap with.
        moving_labels: Label map of the moving image, which is warped too.
        fixed_mask: Where intensities of the fixed image count: not 0.
        moving_mask: Where those of the moving image count.
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
    for path in (fixed, moving, fixed_labels, moving_labels, fixed_mask, moving_mask, model):
        if path is not None and not path.exists():
            raise FileNotFoundError(f"{path} does not exist.")

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
        result = registered(
            moving=_image(moving, "moving", moving_volume, how),
            fixed=_image(fixed, "fixed", fixed_volume, how),
            moving_labels=_map(moving_labels, orientation),
            fixed_labels=_map(fixed_labels, orientation),
            moving_mask=_map(moving_mask, orientation),
            fixed_mask=_map(fixed_mask, orientation),
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
        pair = ReportedPair.of(result, fixed_name=fixed.name, moving_name=moving.name, command=command)
        write_report(folder / "report.html", pair)
        write_thumbnail(folder / NAME, result.moving, result.fixed, result.transform)
        metrics = {"ok": metrics["ok"], "wall_seconds": round(_seconds_since_start(), 2), **metrics}
        write_json(folder / "metrics.json", metrics)
    for reason in result.reasons:
        print(f"roundtrip: this registration failed: {reason}", file=sys.stderr)
    announce(_lines(result, metrics, output), metrics, as_json=json, quiet=quiet)


def _image(path: Path, name: str, volume: int | None, how: Mapping[str, Any]) -> "Volume":
    from roundtrip.space.files import read

    try:
        return read(path, volume=volume, **how)
    except ValueError as error:
        raise ValueError(str(error).replace("`--volume 0`", f"`--{name}-volume 0`")) from error


def _map(path: Path | None, orientation: str | None) -> "Volume | None":
    from roundtrip.space.files import read

    return None if path is None else read(path, labels=True, orientation=orientation)


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
    cells += [
        ("folded voxels", f"{folds.count}, {folds.non_diffeomorphic_volume_percent:.4f} % of the volume"),
        ("a round trip misses by", f"{miss.mean:.3f} mm on average, {miss.max:.3f} mm at most"),
        *(("note", note) for note in result.notes),
        ("written", str(output)),
    ]
    return [f"{name:33}{value}" for name, value in cells]


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
