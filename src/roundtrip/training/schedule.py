"""The learning rate as a function of the step. Neighbours: `control.py` (that of lambda), `config.py`."""

import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveFloat, model_validator


class LearningRate(BaseModel):
    """A rate that rises in a straight line over `warmup` steps, and then stays or falls like half a cosine.

    A configuration may give the mere number: `learning_rate: 5e-5`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: PositiveFloat
    decay: Literal["constant", "cosine"] = "constant"
    warmup: NonNegativeInt = 0

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, given: Any) -> Any:
        return {"start": given} if isinstance(given, int | float | str) else given

    def at(self, step: int, *, steps: int) -> float:
        """For `step`, which counts from 1 to `steps`; it is never 0."""
        rising = min(1.0, step / (self.warmup + 1))
        if self.decay == "constant":
            return self.start * rising
        done = max(0, step - 1 - self.warmup) / max(1, steps - self.warmup)
        return self.start * rising * (1 + math.cos(math.pi * min(done, 1.0))) / 2
