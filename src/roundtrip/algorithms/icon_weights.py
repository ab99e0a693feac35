"""Weights of the published package (`icon_registration`) become ours: same shapes and nesting, other names.

Nothing in a file of weights is executed. Neighbours: `icon_architecture.py` (what such weights belong to),
`saved.py` (the folder they are then kept in).
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from roundtrip._shapes import Tensor
from roundtrip.algorithms.consistent import ConsistentAffine, ConsistentTwoStep, ConsistentVelocity
from roundtrip.algorithms.description import build, describe, outline
from roundtrip.algorithms.from_network import (
    AffineRegistration,
    DisplacementRegistration,
    VelocityRegistration,
)
from roundtrip.algorithms.icon_architecture import as_algorithm, outer_levels, recognised, some
from roundtrip.algorithms.multistep import AtHalfResolution, Frozen, TwoStep
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.networks.affine import AffineNetwork
from roundtrip.networks.conv_only import ConvOnly
from roundtrip.networks.encoder_decoder import EncoderDecoder
from roundtrip.networks.mlp import MLP
from roundtrip.networks.unet import UNet

StateDict = Mapping[str, Any]
"""Names to tensors, as `nn.Module.state_dict` gives them; anything else in it is refused."""

# The package's objectives, DataParallel and torch.compile put a level before the names of what they wrap.
_WRAPPERS = {"regis_net", "module", "_orig_mod"}
# Earlier versions of the package stored these with the weights; they follow from the size of the images.
_GRIDS = {"identity_map", "identityMap"}
_NOT_WEIGHTS = _GRIDS | {"spacing", "input_shape"}


def load_icon_weights(algorithm: nn.Module, state_dict: StateDict) -> None:
    """Copy weights of the published package into `algorithm`, or into a network, of the same making.

    `state_dict` is that of an `FCNet`, `tallAE`, `RegisNet`, `tallUNet2` or `ConvolutionalMatrixNet`, in any
    nesting of the package's two-step, half-resolution and map-making wrappers, with or without the objective
    around it. A step of ours may be `Frozen`. Networks of velocities belong into
    `VelocityRegistration(net, num_steps=8)`, whose maps are not quite the package's: about a thousandth of a
    voxel apart, because ours takes its first short step more exactly.
    """
    given = _own_names(state_dict)
    if isinstance(algorithm, _MAP_MAKERS) and not outer_levels(given) & {"net", "netPhi", "netPsi"}:
        given = {f"net.{name}": tensor for name, tensor in given.items()}
    names = _icon_names(algorithm)
    _require_fit(algorithm, {names[key]: tensor for key, tensor in algorithm.state_dict().items()}, given)
    algorithm.load_state_dict({key: given[name] for key, name in names.items()})


def algorithm_for_icon_weights(state_dict: StateDict) -> AbstractRegistration:
    """The algorithm that weights of the published package were trained in, with them, in eval mode.

    Names and shapes do not tell everything: a network of velocities (`SquaringVelocityField`) is taken for
    one of displacements, and the package's first U-Net (`tallUNet`) for its second. For velocities make the
    algorithm yourself and use `load_icon_weights`.
    """
    # By way of the meta device: no random numbers are drawn for weights that are about to be replaced.
    with torch.device("meta"):
        algorithm = build(describe_icon_weights(state_dict))
    assert isinstance(algorithm, AbstractRegistration)
    algorithm.to_empty(device="cpu")
    load_icon_weights(algorithm, state_dict)
    return algorithm.eval()


def describe_icon_weights(state_dict: StateDict) -> dict[str, Any]:
    """What `algorithm_for_icon_weights` makes of them, as `description.py` puts it."""
    try:
        return as_algorithm(recognised(_shapes(_own_names(state_dict))))
    except ValueError as error:
        raise ValueError(
            f"no algorithm was found for these weights: {error}. If you know what they are, make the "
            "algorithm and use `load_icon_weights(algorithm, state_dict)`."
        ) from error


def grid_of_icon_weights(state_dict: StateDict) -> tuple[int, ...] | None:
    """The spatial shape of the images, where an earlier version of the package stored it with the weights."""
    stored = [tensor.shape[2:] for name, tensor in state_dict.items() if name.rpartition(".")[2] in _GRIDS]
    return max(map(tuple, stored), default=None)


def read_icon_weights(path: str | os.PathLike[str]) -> StateDict:
    """The tensors in a file of weights: `.safetensors`, or what `torch.save(net.state_dict(), path)` wrote.

    No code in the file is executed: one that holds more than tensors is refused.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} is {'a folder' if path.is_dir() else 'not there'}; give a file of weights.")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # Whatever the readers stumble over, the file is not what was promised.
        raise ValueError(
            f"{path} was not read ({_reason(error)}). It is damaged, or not a file of weights, or holds "
            "Python objects beside them, which Roundtrip never executes. If you trust where it comes from, "
            "keep its tensors only, where it loads: `torch.save({k: v for k, v in torch.load(path, "
            'weights_only=False).items() if torch.is_tensor(v)}, "tensors.pt")`.'
        ) from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} holds a {type(content).__name__}; the state dict of a network is needed.")
    return content


_MAP_MAKERS = (DisplacementRegistration, VelocityRegistration, AffineRegistration)


def _icon_names(module: nn.Module) -> dict[str, str]:
    """The package's name of each of our weights; a module that is not ours keeps its names."""
    levels = _icon_levels(module)
    if levels is None:
        return {key: key for key in module.state_dict()}
    names = {}
    for ours, theirs in levels.items():
        for key, name in _icon_names(module.get_submodule(ours)).items():
            names[f"{ours}.{key}"] = f"{theirs}.{name}" if theirs else name
    return names


def _icon_levels(module: nn.Module) -> dict[str, str] | None:
    """Our submodules and the package's names of them, empty where it has no such level; None: not ours."""
    match module:
        case TwoStep():
            return {"first": "netPhi", "second": "netPsi"}
        case AtHalfResolution():
            return {"inner": "net"}
        case Frozen():
            return {"inner": ""}
        case DisplacementRegistration() | VelocityRegistration() | AffineRegistration():
            return {"net": "net"}
        case UNet():
            return {
                **_numbered("down.{}.convolution", "downConvs.{}", module.down),
                **_numbered("up.{}.convolution", "upConvs.{}", module.up),
                **_numbered("up.{}.norm", "batchNorms.{}", module.up),
                "last": "lastConv",
            }
        case EncoderDecoder():
            return {
                **_numbered("down.{}", "downConvs.{}", module.down),
                **_numbered("up.{}", "upConvs.{}", module.up),
                "last": "lastConv",
            }
        case ConvOnly():
            inner = _numbered("layers.{}", "conv{}", module.layers, first=1)
            return {**inner, "last": f"conv{len(inner) + 1}"}
        case MLP():
            inner = _numbered("hidden.{}", "dense{}", module.hidden, first=1)
            return {**inner, "last": f"dense{len(inner) + 1}"}
        case AffineNetwork():
            inner = _numbered("convolutions.{}", "convs.{}", module.convolutions)
            return {**inner, "hidden": "dense2", "last": "dense3"}
        case ConsistentVelocity() | ConsistentAffine() | ConsistentTwoStep():
            raise ValueError(
                f"{type(module).__name__} uses its network in another way than the published package, whose "
                "weights mean nothing in it. Load them into e.g. `DisplacementRegistration(net)`."
            )
    return None


def _numbered(ours: str, theirs: str, layers: nn.ModuleList, *, first: int = 0) -> dict[str, str]:
    return {ours.format(i): theirs.format(i + first) for i in range(len(layers))}


def _own_names(state_dict: StateDict) -> dict[str, Tensor]:
    """The weights by the names they have in the algorithm itself, without wrappers around it."""
    weights: dict[str, Tensor] = {}
    for key, tensor in state_dict.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(
                f"`state_dict[{key!r}]` is a {type(tensor).__name__}, not a tensor. Of a training checkpoint "
                "give only the entry that holds the weights."
            )
        levels = [level for level in key.split(".") if level not in _WRAPPERS]
        name = ".".join(levels)
        if levels and levels[-1] in _NOT_WEIGHTS:
            continue
        if name in weights:
            raise ValueError(
                f"`state_dict` holds {name} twice, once as {key}: give the weights of one network."
            )
        weights[name] = tensor
    return weights


def _require_fit(algorithm: nn.Module, wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Every weight is given, none is left over, and each has its shape."""
    misshaped = [
        f"{name} (is {tuple(given[name].shape)}, needed {tuple(wanted[name].shape)})"
        for name in sorted(wanted.keys() & given.keys())
        if given[name].shape != wanted[name].shape
    ]
    problems = {
        "missing": wanted.keys() - given.keys(),
        "surplus": given.keys() - wanted.keys(),
        "of another shape": misshaped,
    }
    if any(problems.values()):
        listed = "; ".join(f"{len(names)} {kind}: {some(names)}" for kind, names in problems.items() if names)
        raise ValueError(
            f"these weights do not fit {_own_outline(algorithm)}. {listed}. They seem to be those of "
            f"{_their_outline(given)}; `algorithm_for_icon_weights(state_dict)` makes what fits."
        )


def _own_outline(algorithm: nn.Module) -> str:
    try:
        return outline(describe(algorithm))
    except ValueError:
        return type(algorithm).__name__


def _their_outline(given: Mapping[str, Tensor]) -> str:
    try:
        return outline(recognised(_shapes(given)))
    except ValueError as error:
        return f"nothing we know ({error})"


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in weights.items()}


def _reason(error: Exception) -> str:
    """What stopped the reader, without torch's advice to execute the file after all."""
    unsupported = re.search(r"Unsupported (global: GLOBAL \S+|\w+ \w+)", str(error))
    return unsupported[0] if unsupported else (str(error).strip().partition(". ")[0] or type(error).__name__)
