"""A stage's algorithm, made of a description and of what earlier stages learned.

A description is that of `algorithms/description.py`, in which `{stage: NAME, frozen: true}` stands for the
result of an earlier stage. Where that stage saw coarser images, its result goes on seeing them: it is wrapped
in `AtHalfResolution` as often as it takes. Neighbours: `config.py` (declares), `stages.py` (trains).
"""

import copy
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import nn

from roundtrip._shapes import Tensor
from roundtrip.algorithms.description import build
from roundtrip.algorithms.multistep import AtHalfResolution, Frozen
from roundtrip.algorithms.registration import AbstractRegistration

Weights = Mapping[str, Tensor]
Resolution = Literal[1, 2, 4, 8, 16]


class Reference(BaseModel):
    """The result of the stage of that name; frozen, its weights and statistics stay as they are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: str
    frozen: bool = False


class Blueprint(BaseModel):
    """What an algorithm is made of, and at which resolution it was meant to be used."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    algorithm: dict[str, Any]
    resolution: Resolution = 1
    """The factor by which images are averaged down along each axis."""


def require_buildable(blueprint: Blueprint, earlier: Mapping[str, Blueprint]) -> None:
    """`ValueError` where a class, an argument or a reference is not what it should be; takes no memory."""
    algorithm = skeleton(blueprint, earlier)
    if not isinstance(algorithm, AbstractRegistration):
        raise ValueError(
            f"{type(algorithm).__name__} is a network, but a stage trains an algorithm made of it: write "
            "`{class: DisplacementRegistration, net: {...}}`."
        )


def skeleton(blueprint: Blueprint, earlier: Mapping[str, Blueprint]) -> nn.Module:
    """All modules of the algorithm, with weights that have shapes but no values."""
    with torch.device("meta"):
        return build(_plain(blueprint, earlier))


def assembled(
    blueprint: Blueprint, earlier: Mapping[str, Blueprint], results: Mapping[str, Weights], *, seed: int
) -> AbstractRegistration:
    """The algorithm with new weights, which the seed decides, but those of its references as in `results`."""
    # The first weights come from torch's global generator, which is given back as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        algorithm = build(_plain(blueprint, earlier))
    for path, reference in _references(blueprint.algorithm):
        inside = [*path, *["inner"] * reference.frozen]
        inside += ["inner"] * _halvings(earlier[reference.stage].resolution, blueprint.resolution)
        algorithm.get_submodule(".".join(inside)).load_state_dict(results[reference.stage])
    assert isinstance(algorithm, AbstractRegistration)
    return algorithm


def at_full_resolution(algorithm: AbstractRegistration, resolution: int) -> AbstractRegistration:
    """For images as the data has them, what was trained on images averaged down by `resolution`."""
    for _ in range(_halvings(resolution, 1)):
        algorithm = AtHalfResolution(algorithm)
    return algorithm


def thawed(algorithm: AbstractRegistration) -> AbstractRegistration:
    """A copy in which nothing is frozen, as a finished model is used, and refined on a pair."""
    whole = nn.ModuleDict({"algorithm": copy.deepcopy(algorithm)})
    for parent in list(whole.modules()):
        for name, child in list(parent.named_children()):
            while isinstance(child, Frozen):
                child = child.inner
            parent._modules[name] = child
    thawed = whole["algorithm"].requires_grad_(True).eval()
    assert isinstance(thawed, AbstractRegistration)
    return thawed


def _plain(blueprint: Blueprint, earlier: Mapping[str, Blueprint]) -> Any:
    """The description with every reference replaced by what it stands for."""

    def replaced(part: Any) -> Any:
        if isinstance(part, Mapping) and "stage" in part:
            return _referred(Reference.model_validate(part), blueprint, earlier)
        if isinstance(part, Mapping):
            return {key: replaced(value) for key, value in part.items()}
        return part

    return replaced(blueprint.algorithm)


def _referred(reference: Reference, by: Blueprint, earlier: Mapping[str, Blueprint]) -> Any:
    if reference.stage not in earlier:
        known = ", ".join(earlier) or "there is none"
        raise ValueError(f"{{stage: {reference.stage}}} is no earlier stage; earlier stages: {known}.")
    source = earlier[reference.stage]
    if source.resolution < by.resolution:
        raise ValueError(
            f"{{stage: {reference.stage}}} was trained at resolution {source.resolution} and cannot be part "
            f"of a coarser stage, of resolution {by.resolution}; stages go from coarse to fine."
        )
    names = list(earlier)
    description = _plain(source, {name: earlier[name] for name in names[: names.index(reference.stage)]})
    for _ in range(_halvings(source.resolution, by.resolution)):
        description = {"class": "AtHalfResolution", "inner": description}
    return {"class": "Frozen", "inner": description} if reference.frozen else description


def _references(part: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Reference]]:
    """Where in a description there are references: the attributes that lead to them."""
    if not isinstance(part, Mapping):
        return []
    if "stage" in part:
        return [(path, Reference.model_validate(part))]
    return [found for key, value in part.items() for found in _references(value, (*path, key))]


def _halvings(coarse: int, fine: int) -> int:
    return (coarse // fine).bit_length() - 1
