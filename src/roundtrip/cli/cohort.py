"""`roundtrip cohort`: `roundtrip register` for thousands of pairs, on as many processes as there are."""

import contextlib
import io
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from roundtrip.pairwise.cohort import FilePair


def cohort(
    *,
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")],
    pairs: Annotated[Path | None, tyro.conf.arg(metavar="CSV")] = None,
    to_template: Annotated[Path | None, tyro.conf.arg(metavar="IMAGE")] = None,
    images: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="[IMAGE|DIR ...]")] = (),
    template_labels: Path | None = None,
    linear: Literal["none", "rigid", "similarity", "affine"] = "affine",
    modality: Literal["same", "different", "auto"] = "auto",
    effort: Literal["fast", "default", "best"] = "default",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    devices: int | None = None,
    nodes: int | None = None,
    threads: int | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Register many pairs, each into a folder of its own, as `roundtrip register` does.

    Writes index.html, a table to sort and look at that opens each pair's report, and summary.csv,
    summary.json and summary.md. A pair that fails does not stop the others, and is listed. Stopped, it goes
    on where it was when the same command is given again. Started by torchrun or SLURM, all processes on all
    machines share the pairs.

    Args:
        output: Folder for the results; pairs that are done there are not done again.
        pairs: A table with the columns fixed and moving, and if there are, fixed_labels, moving_labels,
            fixed_mask, moving_mask and name; files are looked for beside the table.
        to_template: Instead of a table: register every image of `--images` to this one.
        images: Images, or folders of images, for `--to-template`.
        template_labels: Label map of the template.
        linear: How images are aligned before the deformation.
        modality: Whether tissues are equally bright in both images; auto looks.
        effort: How long to search.
        device: What to compute on; a GPU if there is one.
        devices: Processes on this machine, which share the pairs; 1 unless a launcher says more.
        nodes: Machines; started by torchrun or SLURM, this is known.
        threads: Processor threads of each process; unless given, they share all.
        json: Print the summary as one JSON object, alone, on standard output.
        quiet: Print nothing but errors.
    """
    if output.exists() and not output.is_dir():
        raise ValueError(f"{output} is a file; name a folder, e.g. `--output cohort`.")
    if (pairs is None) == (to_template is None):
        raise ValueError(
            "give either `--pairs pairs.csv`, a table with the columns fixed and moving, or `--to-template "
            "IMAGE --images FOLDER`."
        )

    from roundtrip._launch import Resources, is_first_process, launched
    from roundtrip.cli.console import announce, progress
    from roundtrip.pairwise.cohort import register_pairs
    from roundtrip.reports.cohort import write_summary

    chosen = _chosen(pairs, to_template, images, template_labels)
    speaks = is_first_process()
    settings = {"linear": linear, "modality": modality, "effort": effort}
    resources = Resources(devices, nodes, threads=threads or _share(devices), accelerator=device)
    with launched(resources) as ranks:
        register = _registering(settings, str(ranks.device))
        share = len(ranks.own(chosen))
        with progress("registering", share, quiet=quiet or not speaks) as advance:
            marks = register_pairs(
                chosen,
                register,
                output,
                settings=settings,
                ranks=ranks,
                on_pair=lambda pair, error: advance(f"{pair.name}{' failed' if error else ''}"),
            )
    if not speaks:
        return
    values = write_summary(output, [pair.name for pair in chosen], marks, settings)
    announce(
        [*_lines(values), "", f"look at    {output / 'index.html'}", f"written    {output}"],
        values,
        as_json=json,
        quiet=quiet,
    )
    if values["failed"] and not values["pairs"]:
        raise ValueError(
            f"none of the {len(marks)} pairs could be registered: {values['failed'][0]['reason']}"
        )


def _chosen(
    table: Path | None, template: Path | None, images: Sequence[Path], labels: Path | None
) -> "list[FilePair]":
    """The pairs; everything that is wrong with them is said at once."""
    from roundtrip._problems import Problems
    from roundtrip.pairwise.cohort import read_file_pairs, to_template

    problems = Problems()
    if table is not None:
        chosen = read_file_pairs(table, problems)
    else:
        assert template is not None
        found = [image for place in images for image in _images_at(place, problems)]
        for needed in (template, *([labels] if labels else [])):
            if not needed.exists():
                problems.add(str(needed), "does not exist.")
        chosen = to_template(found, template, labels)
    if not chosen and not problems:
        problems.add("--images", "there is no image to register; name images, or a folder of them.")
    problems.raise_any("the pairs")
    return chosen


def _images_at(place: Path, problems: Any) -> list[Path]:
    from roundtrip.space.files import can_read

    if place.is_file():
        return [place]
    if not place.is_dir():
        problems.add(str(place), "does not exist.")
        return []
    found = sorted(path for path in place.iterdir() if can_read(path) and not path.name.startswith("."))
    if not found:
        problems.add(str(place), "there is no image in this folder.")
    return found


def _registering(settings: Mapping[str, Any], device: str) -> "Callable[[FilePair, Path], Mapping[str, Any]]":
    """As the command `register`, which writes its metrics; what it says of a pair is in them."""
    import json

    from roundtrip.cli.register import register
    from roundtrip.reports.files import write_json

    def register_one(pair: "FilePair", folder: Path) -> Mapping[str, Any]:
        began = time.perf_counter()
        files: dict[str, Any] = {name: Path(path) for name, path in pair.as_dict().items() if name != "name"}
        files |= {name: (files[name],) for name in ("fixed", "moving")}
        with contextlib.redirect_stderr(io.StringIO()):
            register(**files, **settings, output=folder, device=device, quiet=True)
        metrics: dict[str, Any] = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        # The command counts from the start of its process, which here has done other pairs before.
        metrics["wall_seconds"] = round(time.perf_counter() - began, 2)
        write_json(folder / "metrics.json", metrics)
        return metrics

    return register_one


def _share(devices: int | None) -> int | None:
    """Threads for each of so many processes of this machine; None leaves all to the only one."""
    known = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("SLURM_NTASKS_PER_NODE")
    count = devices or (int(known) if known and known.isdigit() else 1)
    return None if count <= 1 else max(1, (os.cpu_count() or 1) // count)


def _lines(values: Mapping[str, Any]) -> list[str]:
    """The summary for a terminal."""
    lines = [f"{values['pairs']} pairs registered, {len(values['failed'])} failed"]
    lines += [f"{'':36}{'before':>10}{'mean':>10}{'median':>10}{'min':>10}{'max':>10}"]
    for row in values["measures"]:
        cells = (row["before_mean"], row["mean"], row["median"], row["min"], row["max"])
        lines.append(
            f"{row['measure']:36}" + "".join(f"{'' if c is None else f'{c:.4g}':>10}" for c in cells)
        )
    lines += [f"not to be relied upon: {name}" for name in values["doubtful"]]
    lines += [f"failed: {one['name']}: {one['reason']}" for one in values["failed"]]
    return lines
