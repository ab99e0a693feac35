"""How lambda, the weight of inverse consistency, changes while a stage trains: four controls of one contract.

A control is what a configuration says and does not change; what it has seen so far is a `Lambda`, small
enough to be stored in every checkpoint. All ranks feed it the same numbers and so agree. Neighbours:
`config.py` (where controls are declared), `stages.py` (which asks them after every step).
"""

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)


@dataclass(frozen=True)
class Lambda:
    """The weight of the next step, and what else the control has to remember."""

    value: float
    memory: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """What a control is told after each step: means over the whole batch, on all ranks."""

    step: int
    """Counted from 1 in every stage."""
    folds: float
    inverse_consistency: float
    """Mean squared round-trip error of both directions, in unit coordinates."""
    voxel: float
    """The mean square of a voxel's size along the axes, in unit coordinates."""


class AbstractControl(BaseModel, abc.ABC):
    """Decides lambda from what has been observed. Lambda is the paper's, of squared vector norms."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abc.abstractmethod
    def first(self) -> Lambda:
        """For the first step."""

    @abc.abstractmethod
    def after(self, previous: Lambda, seen: Observation) -> Lambda:
        """For the step after the one that was observed."""


class FixedLambda(AbstractControl):
    """One lambda throughout, as in the paper's Table 1."""

    kind: Literal["fixed"] = "fixed"
    start: NonNegativeFloat

    def first(self) -> Lambda:
        return Lambda(self.start)

    def after(self, previous: Lambda, seen: Observation) -> Lambda:
        return previous


class GrowingLambda(AbstractControl):
    """Lambda grows by `increment` after every step whose batch folds more than is acceptable.

    The supplement, "Automatic increase of lambda during training": 200 acceptable folds per image, and
    increments of 0.1 at low and 0.8 at high resolution, most likely in the convention of the published
    package, whose lambda is N times ours.
    """

    kind: Literal["growth"] = "growth"
    start: NonNegativeFloat = 0.0
    acceptable_folds: NonNegativeFloat = 200.0
    increment: PositiveFloat

    def first(self) -> Lambda:
        return Lambda(self.start)

    def after(self, previous: Lambda, seen: Observation) -> Lambda:
        return Lambda(previous.value + self.increment) if seen.folds > self.acceptable_folds else previous


class ScheduledLambda(AbstractControl):
    """Lambda follows straight lines between the given steps, and stays where the last one ends.

    `points` are (step, lambda), the steps increasing from 0, before the first step, on.
    """

    kind: Literal["schedule"] = "schedule"
    points: Annotated[tuple[tuple[int, NonNegativeFloat], ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _in_order(self) -> "ScheduledLambda":
        steps = [step for step, _ in self.points]
        if steps[0] != 0 or sorted(set(steps)) != steps:
            raise ValueError(
                f"the steps of a schedule start at 0 and increase, but these are {steps}; write e.g. "
                "`points: [[0, 10], [1000, 500]]`"
            )
        return self

    def first(self) -> Lambda:
        return self._at(0)

    def after(self, previous: Lambda, seen: Observation) -> Lambda:
        return self._at(seen.step)

    def _at(self, step: int) -> Lambda:
        before = max(point for point in self.points if point[0] <= step)
        following = [point for point in self.points if point[0] > step]
        if not following:
            return Lambda(before[1])
        (a, low), (b, high) = before, following[0]
        return Lambda(low + (high - low) * (step - a) / (b - a))


LARGEST_VIOLATION = 3.0
"""Twice the acceptable miss. As g is at least -1, one early excess would otherwise be paid for ever after."""


class AugmentedLagrangian(AbstractControl):
    r"""Inverse consistency as a constraint: no more weight than it takes to meet it.

    Minimises $E[L_{sim}]$ subject to $E[L_{inv}] \le c$ by the method of multipliers for one inequality --
    Nocedal & Wright, "Numerical Optimization", 2nd ed., Sec. 17.4, which ICON's Sec. 5 proposes. There is
    one constraint, on the mean over all pairs, because the maps are a network's and have no unknowns of
    their own. With the relative violation $g = L_{inv} / c - 1$ the gradient is that of
    $L_{sim} + \lambda L_{inv}$ with $\lambda = \max(0, \mu + \rho g)$; g is a running mean, as batches are
    noisy. Every `every` steps the multiplier $\mu$ becomes the $\lambda$ of the mean violation since the last
    time, and the penalty $\rho$ grows by `growth` where that violation did not shrink by a quarter. A g of
    more than 3 counts as 3.

    The constraint is stated as `acceptable_miss`, the root mean square of how far a round trip ends from its
    start, in voxels: $c = 2 \cdot miss^2 \cdot voxel^2$, for two directions.
    """

    kind: Literal["augmented_lagrangian"] = "augmented_lagrangian"
    start: NonNegativeFloat = 0.0
    acceptable_miss: PositiveFloat = 0.5
    penalty: PositiveFloat
    every: PositiveInt = 50
    growth: Annotated[float, Field(ge=1)] = 1.5

    def first(self) -> Lambda:
        memory = dict(multiplier=self.start, penalty=self.penalty, running=0.0, total=0.0)
        return Lambda(self.start, memory)

    def after(self, previous: Lambda, seen: Observation) -> Lambda:
        memory = dict(previous.memory)
        acceptable = 2 * self.acceptable_miss**2 * seen.voxel
        violation = min(seen.inverse_consistency / acceptable - 1, LARGEST_VIOLATION)
        # A mean over about a tenth of the period; over all there is as long as that is less.
        share = max(10 / (self.every + 9), 1 / seen.step)
        memory["running"] += share * (violation - memory["running"])
        memory["total"] += violation
        if seen.step % self.every == 0:
            memory = self._with_new_multiplier(memory, memory["total"] / self.every)
        value = max(0.0, memory["multiplier"] + memory["penalty"] * memory["running"])
        return Lambda(value, memory)

    def _with_new_multiplier(self, memory: dict[str, float], violation: float) -> dict[str, float]:
        multiplier = max(0.0, memory["multiplier"] + memory["penalty"] * violation)
        stuck = "last" in memory and violation > max(0.0, 0.75 * memory["last"])
        penalty = memory["penalty"] * (self.growth if stuck else 1)
        return memory | dict(multiplier=multiplier, penalty=penalty, total=0.0, last=violation)


Control = Annotated[
    FixedLambda | GrowingLambda | ScheduledLambda | AugmentedLagrangian, Field(discriminator="kind")
]
"""Any of them, as a configuration writes it: `{kind: growth, start: 0, increment: 0.1}`."""
