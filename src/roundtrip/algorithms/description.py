"""What an algorithm is made of, as plain data, and back: the classes and their arguments, without weights.

`{"class": "DisplacementRegistration", "net": {"class": "UNet", "dims": 3}}`. Building never imports or
executes what a description says: class names are looked up in a fixed table. Neighbours: `saved.py` (such a
description beside the weights), `icon_weights.py` (finds one in the names and shapes of weights).
"""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from roundtrip.algorithms.consistent import ConsistentAffine, ConsistentTwoStep, ConsistentVelocity
from roundtrip.algorithms.from_network import (
    AffineRegistration,
    DisplacementRegistration,
    VelocityRegistration,
)
from roundtrip.algorithms.multistep import AtHalfResolution, Frozen, TwoStep
from roundtrip.networks.affine import AffineNetwork
from roundtrip.networks.conv_only import ConvOnly
from roundtrip.networks.encoder_decoder import EncoderDecoder
from roundtrip.networks.mlp import MLP
from roundtrip.networks.unet import UNet

# The one condition on a class here: it keeps each argument of its constructor as an attribute of the same
# name, which is a module of this table, a number, a string, or a list of these.
DESCRIBABLE: dict[str, type[nn.Module]] = {
    kind.__name__: kind
    for kind in (
        *(DisplacementRegistration, VelocityRegistration, AffineRegistration),
        *(TwoStep, AtHalfResolution, Frozen),
        *(ConsistentVelocity, ConsistentAffine, ConsistentTwoStep),
        *(UNet, EncoderDecoder, ConvOnly, MLP, AffineNetwork),
    )
}


def describe(module: nn.Module) -> dict[str, Any]:
    """The class of `module` and the arguments of its constructor by name, as JSON can hold them."""
    kind = type(module)
    if DESCRIBABLE.get(kind.__name__) is not kind:
        raise ValueError(
            f"{kind.__name__} cannot be described, so not be saved as a model: only {', '.join(DESCRIBABLE)} "
            "and what is made of them can. Save its weights yourself: `safetensors.torch.save_model(...)`."
        )
    return {"class": kind.__name__, **{name: _plain(getattr(module, name)) for name in _parameters(kind)}}


def build(description: Any) -> nn.Module:
    """What `describe` described, with new weights."""
    if not isinstance(description, Mapping) or "class" not in description:
        raise ValueError(f"{description!r} describes none of our classes: needed is {{'class': ..., ...}}.")
    name, arguments = description["class"], {k: v for k, v in description.items() if k != "class"}
    kind = DESCRIBABLE.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(
            f"the class {name!r} is not one that a model may be made of: {', '.join(DESCRIBABLE)}. A newer "
            "version of Roundtrip may know it."
        )
    parameters = _parameters(kind)
    required = {p.name for p in parameters.values() if p.default is p.empty}
    if not required <= arguments.keys() <= parameters.keys():
        raise ValueError(
            f"{name} is described with {', '.join(sorted(arguments)) or 'nothing'}; its arguments are "
            f"{', '.join(parameters)}, of which {', '.join(sorted(required)) or 'none'} must be given."
        )
    given = {key: _argument(value, parameters[key], name) for key, value in arguments.items()}
    try:
        return kind(**given)
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"{outline(description)} cannot be made: {error}") from error


def outline(description: Mapping[str, Any]) -> str:
    """A description as one would type it: `AtHalfResolution(DisplacementRegistration(UNet(dims=3)))`.

    Arguments that have their default value are left out.
    """
    kind, parts = description["class"], []
    for name, parameter in _parameters(DESCRIBABLE[kind]).items():
        value = _listless(description.get(name, parameter.default))
        if isinstance(value, Mapping):
            parts.append(outline(value))
        elif value != parameter.default:
            by_name = parameter.kind is parameter.KEYWORD_ONLY
            parts.append(f"{name}={value!r}" if by_name else repr(value))
    return f"{kind}({', '.join(parts)})"


def _parameters(kind: type[nn.Module]) -> Mapping[str, inspect.Parameter]:
    """The constructor's arguments."""
    return inspect.signature(kind).parameters


def _plain(value: Any) -> Any:
    """A constructor's argument as JSON has it."""
    if isinstance(value, nn.Module):
        return describe(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, int | float | str):
        return value
    raise ValueError(f"{value!r} cannot be written into a model's card; only numbers, strings and lists can.")


def _argument(value: Any, parameter: inspect.Parameter, owner: str) -> Any:
    """The inverse of `_plain`, for one argument of the class named `owner`."""
    wanted = parameter.annotation
    if not (isinstance(wanted, type) and issubclass(wanted, nn.Module)):
        return _listless(value)
    module = build(value)
    if not isinstance(module, wanted):
        raise ValueError(f"{owner}({parameter.name}=...) needs a {wanted.__name__}, not {value['class']}.")
    return module


def _listless(value: Any) -> Any:
    """JSON knows no tuples, our constructors' defaults are nothing else."""
    return tuple(value) if isinstance(value, list) else value
