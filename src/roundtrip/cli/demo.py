"""`roundtrip demo`: two drawn heads, registered as a user's files are, and how far that is from the truth."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from roundtrip.data.phantoms import PhantomPair


SHOWN = (22.0, -8.0, 8.0)
"""Where the picture cuts the fixed head, LPS mm: through the ventricles and nuclei of one side."""


def demo(
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")],
    *,
    effort: Literal["fast", "default", "best"] = "default",
    seed: int = 0,
    threads: int | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Draw two heads of one anatomy, register them, and show how far that is from the known truth.

    The images lie apart, on grids of their own, and are bent against each other by a map that is known.
    Writes them into DIR/images, and into DIR all that `roundtrip register` writes, and demo.png.

    Args:
        output: Folder for the results; made if it is not there.
        effort: How long to search.
        seed: Decides the images and the map between them.
        threads: Processor threads; all unless given.
        json: Print the metrics as one JSON object, alone, on standard output.
        quiet: Print nothing but errors.
    """
    if output.exists() and not output.is_dir():
        raise ValueError(f"{output} is a file; name a folder, e.g. `--output demo`.")
    if not 0 <= seed < 2**63:
        raise ValueError(f"--seed is {seed}; a whole number from 0 to 2^63 - 1 is needed.")

    from roundtrip.cli.chain import use_threads
    from roundtrip.cli.console import announce
    from roundtrip.cli.register import register
    from roundtrip.data.phantoms import draw_pair
    from roundtrip.reports.files import write_figure, write_json
    from roundtrip.reports.volume_figures import volume_pair_figure
    from roundtrip.space.transform import Transform

    use_threads(threads)
    pair = draw_pair(seed=seed)
    files = _written(pair, output / "images")
    register(
        fixed=(files["fixed"],),
        moving=(files["moving"],),
        fixed_labels=files["fixed_labels"],
        moving_labels=files["moving_labels"],
        output=output,
        effort=effort,
        threads=threads,
        quiet=True,
    )
    transform = Transform.load(output / "transform.h5")
    values = _with_truth(output / "metrics.json", pair, transform)
    write_json(output / "metrics.json", values)
    figure = volume_pair_figure(pair.moving.image, pair.fixed.image, transform, at=SHOWN)
    write_figure(output / "demo.png", figure, dpi=130)
    announce([*_lines(values, pair), "", *_where(output)], values, as_json=json, quiet=quiet)


def _written(pair: "PhantomPair", folder: Path) -> dict[str, Path]:
    """The images and labels as files, by the names of the arguments of `roundtrip register`."""
    from roundtrip.space.files import write

    volumes = {
        "fixed": pair.fixed.image,
        "moving": pair.moving.image,
        "fixed_labels": pair.fixed.labels,
        "moving_labels": pair.moving.labels,
    }
    files = {name: folder / f"{name}.nii.gz" for name in volumes}
    for name, volume in volumes.items():
        write(volume, files[name])
    return files


def _with_truth(path: Path, pair: "PhantomPair", transform: Any) -> dict[str, Any]:
    """What metrics.json says, and how far from the truth the files and the transform place the head."""
    import json

    import torch

    from roundtrip.space.transform import Transform

    metrics: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    nothing = Transform.from_affine(torch.eye(4, dtype=torch.float64))
    errors = {"before": pair.errors(nothing), "after": pair.errors(transform)}
    metrics["true_error_mm"] = {
        when: {"mean": float(error.mean()), "p99": float(error.quantile(0.99)), "max": float(error.max())}
        for when, error in errors.items()
    }
    return metrics


def _lines(values: Mapping[str, Any], pair: "PhantomPair") -> Sequence[str]:
    dice, folds, miss = values["dice"], values["folds"], values["roundtrip_error_mm"]
    before, after = values["true_error_mm"]["before"], values["true_error_mm"]["after"]
    sizes = [" x ".join(map(str, one.image.shape)) for one in (pair.fixed, pair.moving)]
    cells = [
        (f"mean Dice of {dice['num_labels']} labels", f"{dice['before']['mean']:.3f}", f"{dice['mean']:.3f}"),
        ("true error in mm, mean", f"{before['mean']:.2f}", f"{after['mean']:.2f}"),
        ("  99th percentile", f"{before['p99']:.2f}", f"{after['p99']:.2f}"),
        ("  largest", f"{before['max']:.2f}", f"{after['max']:.2f}"),
        ("folded voxels", "", str(folds["count"])),
        ("round-trip error in mm, mean", "", f"{miss['mean']:.3f}"),
        ("  largest", "", f"{miss['max']:.2f}"),
    ]
    return [
        f"Two drawn heads, {sizes[0]} and {sizes[1]} voxels, registered in {values['seconds']:.1f} s",
        f"({values['wall_seconds']:.1f} s with drawing, files, measuring and the report).",
        "",
        f"{'':32}{'before':>8}{'after':>8}",
        *(f"{name:32}{first:>8}{second:>8}" for name, first, second in cells),
        *(f"this registration failed: {reason}" for reason in values["reasons"]),
    ]


def _where(output: Path) -> Sequence[str]:
    return [f"look at    {output / 'report.html'}", f"and at     {output / 'demo.png'}"]
