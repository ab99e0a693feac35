"""`roundtrip inspect`: how regular a transform is, and how far a round trip through a pair of them misses."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from roundtrip.evaluation.inspection import Inspection


def inspect(
    transform: Annotated[tuple[str, ...], tyro.conf.Positional],
    *,
    inverse: Annotated[tuple[str, ...], tyro.conf.arg(aliases=["-i"])] = (),
    fixed: Annotated[Path | None, tyro.conf.arg(aliases=["-f"])] = None,
    moving: Annotated[Path | None, tyro.conf.arg(aliases=["-m"])] = None,
    threads: int | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Say what a transform does to space: folds, growth of volumes, and with its inverse, round trips.

    All in millimetres of the world, at every voxel of the fixed image. Folds are counted by central
    differences, and as the volume on which the transform is no digital diffeomorphism (Liu et al., 2024),
    which sees every fold of the grid.

    Args:
        transform: Files in the order in which a point of the fixed image meets them; `inverse:FILE` inverts.
        inverse: The way back, likewise, of which round trips are made.
        fixed: The fixed image, at whose voxels to look; without it, those of the displacement.
        moving: The moving image, from whose voxels round trips start too.
        threads: Processor threads; all unless given.
        json: Print the numbers as one JSON object, alone, on standard output.
        quiet: Print nothing but errors.
    """
    from roundtrip.cli.chain import loaded_chain, use_threads
    from roundtrip.cli.console import announce
    from roundtrip.evaluation.inspection import inspect as inspected
    from roundtrip.space.files import read

    use_threads(threads)
    images = [None if path is None else read(path, replace_nan=0.0) for path in (fixed, moving)]
    there = loaded_chain(transform, fixed=images[0], moving=images[1])
    there = there.between(images[0] or there.fixed, images[1] or there.moving)
    back = loaded_chain(inverse, fixed=images[1], moving=images[0]) if inverse else None
    if back is not None:
        back = back.between(images[1] or back.fixed, images[0] or back.moving)
    result = inspected(there, back)
    announce(_lines(result), result.as_dict(), as_json=json, quiet=quiet)


def _lines(result: "Inspection") -> list[str]:
    growth, folds = result.jacobian, result.folds
    moved = f"{result.moved_mm_mean:.3f} mm on average, {result.moved_mm_max:.3f} mm at most"
    lines = [
        f"{'grid':28}{result.grid!r}",
        f"{'moves a voxel by':28}{moved}",
        f"{'folded voxels':28}{folds.count} ({folds.percent:.4f} %)",
        f"{'non-diffeomorphic volume':28}{folds.non_diffeomorphic_volume_percent:.4f} %",
        f"{'Jacobian determinant':28}{growth.min:.3f} to {growth.max:.3f}, mean {growth.mean:.3f}",
        f"{'  1 %, half, 99 % are below':28}{growth.p1:.3f}, {growth.median:.3f}, {growth.p99:.3f}",
    ]
    if growth.log_std is not None:
        lines.append(f"{'  spread of its logarithm':28}{growth.log_std:.4f}")
    miss = result.roundtrip_error_mm
    if miss is not None:
        lines.append(
            f"{'a round trip misses by':28}{miss.mean:.4f} mm on average, 99 % {miss.p99:.4f}, "
            f"at most {miss.max:.4f}"
        )
    return lines
