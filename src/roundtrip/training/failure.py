"""A run that cannot go on: how that is recognised, and what is said about it. Neighbour: `stages.py`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from roundtrip._launch import Ranks
from roundtrip.data.subset import AbstractSubset
from roundtrip.training.batches import Portion
from roundtrip.training.records import StepRecord
from roundtrip.training.step import Given, StageObjective

FARTHEST = 100.0
"""Mean squared displacement, in unit coordinates: ten times the size of the image, which no map needs."""
SHOWN = 3
"""So many pairs are named."""


def has_exploded(record: StepRecord) -> bool:
    """Whether the loss is no number, or the maps leave the images far behind."""
    return not math.isfinite(record.total) or not record.magnitude < FARTHEST


@torch.no_grad()
def explosion(
    record: StepRecord,
    objective: StageObjective,
    portions: Sequence[Portion],
    subset: AbstractSubset,
    ranks: Ranks,
) -> FloatingPointError:
    """What to raise: where it happened, with which images, and what to try."""
    objective.eval()
    own = [
        _Costly(_cost(objective, one), *(subset.names[index] for index in one.pairs[0]))
        for portion in portions
        for one in _one_by_one(portion)
    ]
    found = sorted(ranks.gathered(own), key=lambda pair: pair.cost, reverse=True)
    worst = "; ".join(f"{pair.moving} to {pair.fixed} ({pair.cost:.3g})" for pair in found[:SHOWN])
    what = (
        f"the loss became {record.total:.4g}"
        if not math.isfinite(record.total)
        else f"the maps move points by {math.sqrt(record.magnitude):.3g} times the size of the image"
    )
    return FloatingPointError(
        f"{what} at step {record.step} of stage {record.stage} (similarity {record.similarity:.4g}, inverse "
        f"consistency {record.inverse_consistency:.4g}, lambda {record.lambda_:.4g}). Pairs of this step "
        f"with the largest loss: {worst}. Look at these images; if they are right, try a smaller learning "
        f"rate, e.g. {record.learning_rate / 4:.2g}, or a warmup. The last checkpoint is from before."
    )


@dataclass(frozen=True)
class _Costly:
    cost: float
    moving: str
    fixed: str


def _one_by_one(portion: Portion) -> list[Portion]:
    batch = portion.batch
    parts = zip(*(_split(tensor, len(portion.pairs)) for tensor in vars(batch).values()), strict=True)
    return [
        Portion([pair], type(batch)(*tensors), (seed,))
        for pair, tensors, seed in zip(portion.pairs, parts, portion.seeds, strict=True)
    ]


def _split(tensor: torch.Tensor | None, count: int) -> Sequence[torch.Tensor | None]:
    return [None] * count if tensor is None else tensor.split(1)


def _cost(objective: StageObjective, portion: Portion) -> float:
    """The loss; what is no number is the worst."""
    cost: float = objective(Given(portion))["total"].item()
    return math.inf if math.isnan(cost) else cost
