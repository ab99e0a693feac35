"""Instance optimisation: a trained algorithm goes on learning, from the one pair it is to register.

The weights that were given stay as they are: a copy learns, and its maps are the result. Beyond the paper:
GradICON and uniGradICON are used like this. Neighbour: `model.py`, which offers it for images in the world.
"""

import copy
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from roundtrip._checks import require_pair
from roundtrip._shapes import Image, Mask
from roundtrip.algorithms.objective import ObjectiveTerms, PairObjective, both_directions
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.maps.map import Map


@dataclass(frozen=True, eq=False)
class Refinement:
    """How an algorithm adapts to a pair."""

    objective: PairObjective
    """As in training; lambda included."""
    steps: int
    learning_rate: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 < self.learning_rate < math.inf:
            raise ValueError(
                f"`steps` is {self.steps} and `learning_rate` {self.learning_rate}; at least one step and a "
                "positive rate are needed. Without refinement, call the algorithm itself."
            )


@dataclass(frozen=True, eq=False)
class Refined:
    """An algorithm that has adapted to one pair, its maps of that pair, and what that brought."""

    algorithm: AbstractRegistration
    """In eval mode; `phi_AB` and `phi_BA` are what it finds for this pair."""
    phi_AB: Map
    phi_BA: Map
    before: ObjectiveTerms
    """Of the algorithm as it was given; at the same random points as `after`."""
    after: ObjectiveTerms


def refine(
    algorithm: AbstractRegistration,
    moving: Image,
    fixed: Image,
    how: Refinement,
    *,
    moving_mask: Mask | None = None,
    fixed_mask: Mask | None = None,
) -> Refined:
    """A copy of `algorithm` after some steps of Adam on the objective of this batch of pairs.

    Everything learns that has weights, what was frozen in training too; statistics of batch norms stand
    still. The same seed gives the same bits on the same CPU.
    """
    require_pair(moving, fixed)
    _require_weights(algorithm)
    # Frozen parts keep their statistics in eval mode, as everything does here; their weights are freed.
    refined = copy.deepcopy(algorithm).requires_grad_(True).eval()
    masks = {"moving_mask": moving_mask, "fixed_mask": fixed_mask}
    measure = functools.partial(_measured, refined, moving, fixed, how.objective, masks)
    generator = torch.Generator(moving.device).manual_seed(how.seed)
    with torch.no_grad():
        before = measure(generator)[2]
    _learn(refined, lambda: measure(generator)[2], how)
    refined.requires_grad_(False)
    with torch.no_grad():
        phi_AB, phi_BA, after = measure(generator.manual_seed(how.seed))
    _require_finite(after, how.steps, how)
    return Refined(refined, phi_AB, phi_BA, before, after)


@torch.enable_grad()
def _learn(refined: AbstractRegistration, measure: Callable[[], ObjectiveTerms], how: Refinement) -> None:
    optimizer = torch.optim.Adam(refined.parameters(), lr=how.learning_rate)
    for step in range(1, how.steps + 1):
        terms = measure()
        _require_finite(terms, step, how)
        optimizer.zero_grad()
        terms.total.backward()
        optimizer.step()


def _measured(
    algorithm: AbstractRegistration,
    moving: Image,
    fixed: Image,
    objective: PairObjective,
    masks: Mapping[str, Mask | None],
    generator: torch.Generator,
) -> tuple[Map, Map, ObjectiveTerms]:
    phi_AB, phi_BA = both_directions(algorithm, moving, fixed)
    return phi_AB, phi_BA, objective(phi_AB, phi_BA, moving, fixed, generator, **masks)


def _require_weights(algorithm: AbstractRegistration) -> None:
    if not any(True for _ in algorithm.parameters()):
        raise ValueError(
            f"{type(algorithm).__name__} has no weights, so there is nothing to refine; refinement is for "
            "trained networks."
        )


def _require_finite(terms: ObjectiveTerms, step: int, how: Refinement) -> None:
    if not torch.isfinite(terms.total):
        raise FloatingPointError(
            f"the loss became {terms.total.item()} at step {step} of the refinement. Try a learning rate of "
            f"{how.learning_rate / 4:.2g}, and look at the two images."
        )
