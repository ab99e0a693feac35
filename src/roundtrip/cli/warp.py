"""`roundtrip warp`: images, label maps and points moved by transforms that are in files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from roundtrip.space.transform import Transform
    from roundtrip.space.volume import Volume


def warp(
    images: Annotated[tuple[Path, ...], tyro.conf.Positional] = (),
    *,
    transform: Annotated[tuple[str, ...], tyro.conf.arg(aliases=["-t"])],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="PATH")],
    labels: Annotated[tuple[Path, ...], tyro.conf.arg(aliases=["-l"])] = (),
    points: Annotated[tuple[Path, ...], tyro.conf.arg(aliases=["-p"])] = (),
    reference: Annotated[Path | None, tyro.conf.arg(aliases=["-r"])] = None,
    interpolation: Literal["linear", "cubic", "nearest"] = "linear",
    label_interpolation: Literal["nearest", "one-hot"] = "nearest",
    points_world: Literal["LPS", "RAS"] = "LPS",
    fill: float = 0.0,
    volume: int | None = None,
    orientation: str | None = None,
    replace_nan: float | None = None,
    device: str = "cpu",
    threads: int | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Lay images and label maps onto a grid by transforms in files, and move points by them.

    A transform takes points of the fixed image to points of the moving one, and lays moving images onto the
    grid of the fixed one. Points of the moving image go to the fixed one by the inverse.

    Args:
        images: Images to warp, each interpolated at once through the whole chain.
        transform: Files in the order in which a point of the fixed image meets them; `inverse:FILE` inverts.
        output: Name of the one result, or a folder, in which results have the names of what they are made of.
        labels: Label maps to warp: whole numbers stay what they are.
        points: CSV tables with columns x, y, z in mm, to move from the fixed to the moving world.
        reference: Image whose grid the results lie on; without it, that of the first displacement.
        interpolation: How images are interpolated.
        label_interpolation: The label of the nearest voxel, or the one with most weight among neighbours.
        points_world: The world of the CSV tables; ITK and ANTs count in LPS, 3D Slicer in RAS.
        fill: Intensity of what the image does not cover.
        volume: Which image of a 4-D file to take, from 0.
        orientation: Which way the axes run where a header does not say, such as RAS.
        replace_nan: Stands in for values that are not numbers, which are refused otherwise.
        device: Where to compute, such as cpu or cuda.
        threads: Processor threads; all unless given.
        json: Print what was written as one JSON object, alone, on standard output.
        quiet: Print nothing but errors.
    """
    targets = _targets((*images, *labels, *points), output)

    from roundtrip.cli.chain import loaded_chain, require_device, use_threads
    from roundtrip.cli.console import announce
    from roundtrip.space.files import read, write
    from roundtrip.space.points import read_points, write_points

    use_threads(threads)
    require_device(device)
    how: dict[str, Any] = {"volume": volume, "orientation": orientation, "replace_nan": replace_nan}
    onto = None if reference is None else read(reference, **{**how, "replace_nan": 0.0})
    moving = read(images[0], **how) if images else None
    chain = loaded_chain(transform, fixed=onto, moving=moving).to(device)
    for path in images:
        write(_laid(chain, read(path, **how), onto, fill, interpolation), targets[path])
    for path in labels:
        map_ = read(path, labels=True, volume=volume, orientation=orientation)
        write(_laid(chain, map_, onto, 0.0, label_interpolation), targets[path])
    for path in points:
        table = read_points(path, dims=chain.dims, world=points_world)
        write_points(table.with_points(chain.points(table.xyz).cpu()), targets[path], world=points_world)
    written = [str(target) for target in targets.values()]
    announce([f"written  {target}" for target in written], {"written": written}, as_json=json, quiet=quiet)


def _laid(chain: "Transform", image: "Volume", onto: "Volume | None", fill: float, rule: str) -> "Volume":
    from roundtrip.maps.interpolate import interpolate, interpolate_cubic, interpolate_nearest
    from roundtrip.space.sampling import interpolate_one_hot

    rules = {
        "linear": interpolate,
        "cubic": interpolate_cubic,
        "nearest": interpolate_nearest,
        "one-hot": interpolate_one_hot,
    }
    return chain.warp(image, onto=onto, interpolation=rules[rule], fill=fill)


def _targets(sources: tuple[Path, ...], output: Path) -> dict[Path, Path]:
    """Where the result of each file goes."""
    if not sources:
        raise ValueError("nothing to warp was given: name images, `--labels` or `--points`.")
    for source in sources:
        if not source.exists():
            raise FileNotFoundError(f"{source} does not exist.")
    is_file = len(sources) == 1 and not output.is_dir() and bool(output.suffix)
    targets = {source: output if is_file else output / _name(source) for source in sources}
    if not is_file and output.exists() and not output.is_dir():
        raise ValueError(f"{output} is a file; for {len(sources)} results name a folder.")
    if len(set(targets.values())) < len(sources):
        raise ValueError("two of the files have the same name: warp them into different folders.")
    for source, target in targets.items():
        if target.exists() and target.samefile(source):
            raise ValueError(f"{target} would overwrite what it is made of; choose another --output.")
    return targets


def _name(source: Path) -> str:
    """That of the source, as NIfTI where we do not write its format."""
    from roundtrip.space.files import can_write, suffix_of

    if source.suffix == ".csv" or can_write(source):
        return source.name
    return source.name[: len(source.name) - len(suffix_of(source))] + ".nii.gz"
