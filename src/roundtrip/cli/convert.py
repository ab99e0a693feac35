"""`roundtrip convert`: weights of the published package become a model that Roundtrip loads."""

from pathlib import Path
from typing import Annotated

import tyro


def convert(
    weights: Annotated[Path, tyro.conf.Positional],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="MODEL")],
    *,
    grid: tuple[int, ...] | None = None,
    spacing: tuple[float, ...] | None = None,
    data: str = "not stated",
    licence: str = "not stated",
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Turn weights of `icon_registration` into a model: a folder with the weights and a card.

    Says what was recognised in the names and shapes of the weights. No code in the file is executed.

    Args:
        weights: A .safetensors file, or a state dict written by torch.save (.pt, .pth, .trch).
        output: Folder for the model; a model that is there is replaced.
        grid: Spatial shape of the images it was trained on, e.g. 80 192 192.
        spacing: Millimetres between the voxels of that grid; without it, a whole image goes onto the grid.
        data: What it was trained on, in words.
        licence: Under which the weights may be used.
        json: Print what was recognised as one JSON object, alone, on standard output.
        quiet: Print nothing but errors.
    """
    from roundtrip.algorithms.card import Card, Preparation
    from roundtrip.algorithms.description import describe, outline
    from roundtrip.algorithms.icon_weights import (
        algorithm_for_icon_weights,
        grid_of_icon_weights,
        read_icon_weights,
    )
    from roundtrip.algorithms.saved import save
    from roundtrip.cli.console import announce

    state_dict = read_icon_weights(weights)
    algorithm = algorithm_for_icon_weights(state_dict)
    # Their grid is all that a file of weights knows about the images.
    grid = grid or grid_of_icon_weights(state_dict)
    preparation = Preparation(grid=grid, spacing=spacing) if grid or spacing else None
    card = Card(preparation=preparation, data=data, numbers={}, licence=licence)
    save(algorithm, output, card=card)

    description = describe(algorithm)
    parameters = sum(parameter.numel() for parameter in algorithm.parameters())
    values = {"model": str(output), "architecture": description, "parameters": parameters}
    lines = [f"recognised  {outline(description)}", f"parameters  {parameters:,}", f"written     {output}"]
    announce(lines, values, as_json=json, quiet=quiet)
