"""The training loop: pairs in, gradient steps on the objective's weights, what happened out.

It knows no file and prints nothing; whoever wants to watch passes `on_step`. Which images it sees is decided
in `data/`.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

import torch

from roundtrip._shapes import Tensor
from roundtrip.algorithms.objective import InverseConsistent, ObjectiveTerms


@dataclass(frozen=True)
class Step:
    """The objective's terms at one step, before its update; `number` counts from 1."""

    number: int
    total: float
    similarity: float
    inverse_consistency: float
    folds: float
    magnitude: float


@dataclass(frozen=True)
class History:
    """Every step of a training run, in order."""

    steps: tuple[Step, ...]


def fit(
    objective: InverseConsistent,
    pairs: Iterable[tuple[Tensor, Tensor]],
    *,
    steps: int,
    learning_rate: float | Callable[[int], float] = 1e-4,
    generator: torch.Generator | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> History:
    """Changes the weights of the objective's algorithm, in place, by `steps` steps of Adam.

    `pairs` yields batches (moving, fixed). `learning_rate` may be a function of the step's number, from 1 on.
    `generator` draws the objective's random points; together with a seeded `pairs` it makes a run repeat
    itself. The algorithm is left in evaluation mode, ready for use.
    """
    rate_at = learning_rate if callable(learning_rate) else lambda number: learning_rate
    weights = [weight for weight in objective.parameters() if weight.requires_grad]
    _require_trainable(weights, steps, rate_at(1))
    optimizer = torch.optim.Adam(weights, fused=True)
    history = []
    objective.train()
    try:
        for number, (moving, fixed) in enumerate(itertools.islice(pairs, steps), start=1):
            terms = objective(moving, fixed, generator)
            step = _as_step(number, terms)
            _require_finite(step, rate_at(number))
            for group in optimizer.param_groups:
                group["lr"] = rate_at(number)
            optimizer.zero_grad()
            terms.total.backward()
            optimizer.step()
            history.append(step)
            if on_step is not None:
                on_step(step)
    finally:
        objective.eval()
    if len(history) < steps:
        raise ValueError(
            f"`pairs` ended after {len(history)} batches but {steps} steps were asked for; give an endless "
            "iterator such as `random_pairs(images, batch_size=..., generator=...)`."
        )
    return History(tuple(history))


def _as_step(number: int, terms: ObjectiveTerms) -> Step:
    """The terms as numbers, fetched from their device all at once."""
    names = [field.name for field in fields(terms)]
    values = torch.stack([getattr(terms, name).detach().double() for name in names]).tolist()
    return Step(number, **dict(zip(names, values, strict=True)))


def _require_trainable(weights: Sequence[Tensor], steps: int, learning_rate: float) -> None:
    if not weights:
        raise ValueError(
            "the objective has no weight that asks for a gradient, so there is nothing to train; is the "
            "whole algorithm wrapped in `Frozen`?"
        )
    if steps < 1 or not learning_rate > 0:
        raise ValueError(
            f"`steps` is {steps} and `learning_rate` {learning_rate}; at least one step and a positive rate "
            "are needed."
        )


def _require_finite(step: Step, learning_rate: float) -> None:
    if not math.isfinite(step.total):
        raise FloatingPointError(
            f"the loss became {step.total} at step {step.number} (similarity {step.similarity:.4g}, inverse "
            f"consistency {step.inverse_consistency:.4g}); training stopped before that step changed the "
            f"weights. Try `learning_rate={learning_rate / 4:.2g}`, and look at the images of this batch."
        )
