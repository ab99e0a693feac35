"""Transforms named on a command line, and what the commands about them share."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roundtrip.space.transform import Transform
    from roundtrip.space.volume import Volume

INVERSE = "inverse:"


def loaded_chain(
    names: Sequence[str], *, fixed: "Volume | None" = None, moving: "Volume | None" = None
) -> "Transform":
    """The transforms one after the other, the first one met first by a point of the fixed image.

    `inverse:NAME` is the inverse of what is in the file NAME.
    """
    chain: Transform | None = None
    for name in names:
        one = _loaded(name, fixed, moving)
        if chain is not None and one.dims != chain.dims:
            raise ValueError(
                f"{name} is a transform of {one.dims} dimensions, but those before it are of {chain.dims}."
            )
        chain = one if chain is None else one @ chain
    if chain is None:
        raise ValueError("no transform was given: name at least one file, such as transform.h5.")
    return chain


def use_threads(threads: int | None) -> None:
    """As many processor threads as were asked for; all unless told."""
    import torch

    if threads is not None and threads < 1:
        raise ValueError(f"--threads is {threads}; at least one thread is needed.")
    if threads is not None:
        torch.set_num_threads(threads)


def require_device(device: str) -> None:
    """The device is one that torch knows and has here."""
    import torch

    try:
        torch.empty(0, device=device)
    except Exception as error:
        raise ValueError(
            f"--device {device} cannot be used here; `cpu` always can, `cuda` with a GPU."
        ) from error


def _loaded(name: str, fixed: "Volume | None", moving: "Volume | None") -> "Transform":
    from roundtrip.space.transform import Transform

    inverted = name.startswith(INVERSE)
    path = Path(name.removeprefix(INVERSE))
    # Only Learn2Reg's arrays need their images; what a file knows itself is not overruled.
    known = {"fixed": fixed, "moving": moving} if path.suffix == ".npz" else {}
    one = Transform.load(path, **known)
    return one.inverse() if inverted else one
