"""How a trained model goes on learning from one pair: with the loss of its last stage, as its card says."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from roundtrip.algorithms.card import Card
from roundtrip.algorithms.objective import PairObjective
from roundtrip.maps.grid import inside_image
from roundtrip.pairwise.refine import Refinement
from roundtrip.training.regularity import RegularityConfig
from roundtrip.training.similarity import SimilarityConfig

EXAMPLES = {"similarity": "--refine-similarity lncc", "lambda": "--refine-lambda 10"}

LAMBDA = "lambda"
"""Under this name the card's `training` tells lambda at the end of the last stage."""


def refinement_for(
    card: Card | None,
    *,
    steps: int,
    similarity: str | None = None,
    weight: float | None = None,
    learning_rate: float = 1e-4,
    seed: int = 0,
) -> Refinement:
    """As the model was trained, but for what is given: `similarity` by name, `weight`, the paper's lambda."""
    training = {} if card is None or card.training is None else card.training
    stage = _last_stage(training)
    weight = _number(training.get(LAMBDA)) if weight is None else weight
    asked = similarity if similarity is not None else stage.get("similarity")
    missing = [name for name, value in (("similarity", asked), ("lambda", weight)) if value is None]
    if missing or weight is None:
        raise ValueError(
            f"the model's card does not say with which {' and '.join(missing)} it was trained, so refinement "
            f"has to be told: {' '.join(EXAMPLES[name] for name in missing)}."
        )
    compare = _parsed(SimilarityConfig, asked, "similarity")
    regularity = _parsed(RegularityConfig, stage.get("regularity", "inverse_consistency"), "regularity")
    objective = PairObjective(
        weight=weight,
        similarity=compare.function(),
        regularity=regularity.function(),
        region=inside_image if compare.inside_image else None,
    )
    return Refinement(objective, steps=steps, learning_rate=learning_rate, seed=seed)


def _last_stage(training: Mapping[str, Any]) -> Mapping[str, Any]:
    config = training.get("config")
    stages = config.get("stages") if isinstance(config, Mapping) else None
    last = stages[-1] if isinstance(stages, list) and stages else {}
    return last if isinstance(last, Mapping) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _parsed(kind: Any, given: Any, name: str) -> Any:
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        raise ValueError(f"{name} {given!r}: {error.errors()[0]['msg']}.") from error
