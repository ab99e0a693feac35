"""What weights of the published package belong to, found from their names and shapes.

The names are those that are left when the wrappers around the algorithm are gone. Neighbours:
`icon_weights.py` (takes them off, and copies the weights), `description.py` (how we write down what we find).
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Shapes = Mapping[str, tuple[int, ...]]
"""The shape of each weight, by its name in the package."""


def recognised(shapes: Shapes) -> dict[str, Any]:
    """The description of the algorithm, or the network alone, that has weights of these names and shapes.

    A ValueError, beginning with "it", says what the weights are if not that.
    """
    levels = outer_levels(shapes)
    if levels == {"netPhi", "netPsi"}:
        first, second = (as_algorithm(recognised(_below(shapes, name))) for name in ("netPhi", "netPsi"))
        return {"class": "TwoStep", "first": first, "second": second}
    if levels == {"net"}:
        inner = recognised(_below(shapes, "net"))
        algorithm = as_algorithm(inner)
        # Around a network this level makes a map of its output, around an algorithm it halves the images.
        return algorithm if algorithm is not inner else {"class": "AtHalfResolution", "inner": inner}
    return _recognised_network(shapes, levels)


def as_algorithm(description: dict[str, Any]) -> dict[str, Any]:
    """A network becomes the algorithm that makes a map of its output; an algorithm stays what it is."""
    wrappers = {"AffineNetwork": "AffineRegistration"}
    wrappers |= dict.fromkeys(("UNet", "EncoderDecoder", "ConvOnly", "MLP"), "DisplacementRegistration")
    wrapper = wrappers.get(description["class"])
    return description if wrapper is None else {"class": wrapper, "net": description}


def outer_levels(names: Iterable[str]) -> set[str]:
    """The outermost level of each name."""
    return {name.partition(".")[0] for name in names}


def some(names: Iterable[str]) -> str:
    """The first few names, in order, for a message."""
    ordered = sorted(names)
    rest = len(ordered) - 4
    return ", ".join(ordered[:4]) + (f" and {rest} more" if rest > 0 else "")


def _recognised_network(shapes: Shapes, levels: set[str]) -> dict[str, Any]:
    for marker, what in _NOT_OURS.items():
        if marker in levels:
            raise ValueError(f"it holds {what}, which Roundtrip does not have")
    for typical, describe_network in _NETWORKS.items():
        if levels == set(typical):
            return describe_network(shapes)
    if levels and levels == {f"conv{i + 1}" for i in range(len(levels))}:
        return _conv_only(shapes, len(levels))
    raise ValueError(f"it holds {some(levels) or 'nothing'}, which is none of the published networks")


def _unet(shapes: Shapes) -> dict[str, Any]:
    return {"class": "UNet"} | _down_and_up(shapes)


def _encoder_decoder(shapes: Shapes) -> dict[str, Any]:
    return {"class": "EncoderDecoder"} | _down_and_up(shapes)


def _down_and_up(shapes: Shapes) -> dict[str, Any]:
    down, up = _series(shapes, "downConvs.{}.weight"), _series(shapes, "upConvs.{}.weight")
    return {
        **_dims_and_channels(down[0]),
        "down_features": [shape[0] for shape in down],
        # Transpose convolutions keep their input features first.
        "up_features": [shape[1] for shape in up],
    }


def _conv_only(shapes: Shapes, count: int) -> dict[str, Any]:
    first = _shape(shapes, "conv1.weight")
    return {"class": "ConvOnly", **_dims_and_channels(first), "num_layers": count - 1, "growth": first[0]}


def _affine(shapes: Shapes) -> dict[str, Any]:
    convolutions = _series(shapes, "convs.{}.weight")
    return {
        "class": "AffineNetwork",
        **_dims_and_channels(convolutions[0]),
        "features": [shape[0] for shape in convolutions],
        "hidden_features": _shape(shapes, "dense2.weight")[0],
    }


def _mlp(shapes: Shapes) -> dict[str, Any]:
    """Two images of n voxels go in, N values per voxel come out; the package knows equal sides only."""
    layers = [_shape(shapes, f"dense{i}.weight") for i in (1, 2, 3)]
    given, made = layers[0][1], layers[2][0]
    for dims in (1, 2, 3):
        side = round((given / 2) ** (1 / dims))
        if 2 * side**dims == given and dims * side**dims == made:
            hidden = [shape[0] for shape in layers[:2]]
            return {"class": "MLP", "shape": [side] * dims, "hidden_features": hidden}
    raise ValueError(
        f"it holds dense layers from {given} values to {made}, which are not two images of equal sides and "
        "one displacement per voxel"
    )


_NETWORKS: dict[tuple[str, ...], Callable[[Shapes], dict[str, Any]]] = {
    ("downConvs", "upConvs", "batchNorms", "lastConv"): _unet,
    ("downConvs", "upConvs", "lastConv"): _encoder_decoder,
    ("dense1", "dense2", "dense3"): _mlp,
    ("convs", "dense2", "dense3"): _affine,
}
_NOT_OURS = {
    "middle_dense": "the U-Net with dense layers in its middle (`UNet2ChunkyMiddle`, bound to 40 x 96 x 96)",
    "groupNorms": "the U-Net with group normalisation (`tallUNet3`)",
    "dense4": "the dense network for volumes (`FCNet3D`)",
}


def _dims_and_channels(first_convolution: tuple[int, ...]) -> dict[str, int]:
    return {"dims": len(first_convolution) - 2, "channels": first_convolution[1] // 2}


def _series(shapes: Shapes, name: str) -> list[tuple[int, ...]]:
    """The shapes of a numbered weight, for as many numbers as there are, at least one."""
    names = itertools.takewhile(shapes.__contains__, (name.format(i) for i in itertools.count()))
    return [_shape(shapes, each) for each in names] or [_shape(shapes, name.format(0))]


def _shape(shapes: Shapes, name: str) -> tuple[int, ...]:
    if name not in shapes:
        raise ValueError(f"it lacks {name}")
    if len(shapes[name]) < 2:  # No weight of a layer has.
        raise ValueError(f"it has a {name} of shape {shapes[name]}")
    return shapes[name]


def _below(shapes: Shapes, level: str) -> Shapes:
    """What is inside the outermost level of this name."""
    prefix = f"{level}."
    return {name.removeprefix(prefix): shape for name, shape in shapes.items() if name.startswith(prefix)}
