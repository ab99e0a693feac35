"""`TrainingConfig`: all that decides what is learned, apart from the seed.

How fast that happens (devices, processes, precision) is the business of `_launch.py`. Declarations only;
`config_file.py` reads one from YAML, `run.py` carries it out.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from roundtrip.data.config import DataConfig
from roundtrip.training.assembly import Blueprint, Resolution, require_buildable
from roundtrip.training.control import AugmentedLagrangian, Control
from roundtrip.training.regularity import InverseConsistency, RegularityConfig
from roundtrip.training.schedule import LearningRate
from roundtrip.training.similarity import SimilarityConfig


class StageConfig(BaseModel):
    """One stage: an algorithm, made of what earlier stages learned or new, and how it is trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
    algorithm: dict[str, Any]
    """As on a model's card: `{class: DisplacementRegistration, net: {class: UNet, dims: 3}}`, in which
    `{stage: NAME, frozen: true}` is the result of an earlier stage."""
    resolution: Resolution = 1
    """The factor by which images are averaged down along each axis."""
    steps: PositiveInt
    batch: PositiveInt
    """Pairs in a step, over all processes."""
    accumulation: PositiveInt = 1
    """The batch is worked on in so many parts, one after the other, to need less memory. Batch norms take
    their statistics over a part."""
    learning_rate: LearningRate
    similarity: SimilarityConfig
    lambda_: Control = Field(validation_alias=AliasChoices("lambda", "lambda_"), serialization_alias="lambda")
    regularity: RegularityConfig = InverseConsistency()
    label_weight: NonNegativeFloat = 0.0
    """Of one minus the soft Dice of the labels, both ways; 0: labels are for validation alone."""

    @property
    def blueprint(self) -> Blueprint:
        """What it is made of."""
        return Blueprint(algorithm=self.algorithm, resolution=self.resolution)

    @field_validator("lambda_", mode="before")
    @classmethod
    def _from_number(cls, given: Any) -> Any:
        return {"kind": "fixed", "start": given} if isinstance(given, int | float | str) else given

    @model_validator(mode="after")
    def _fits_together(self) -> "StageConfig":
        if self.batch % self.accumulation:
            raise ValueError(
                f"a batch of {self.batch} cannot be worked on in {self.accumulation} equal parts; "
                "`accumulation` has to divide `batch`"
            )
        if isinstance(self.lambda_, AugmentedLagrangian) and self.regularity.name != "inverse_consistency":
            raise ValueError(
                "augmented_lagrangian bounds inverse consistency, so it needs `regularity: "
                f"inverse_consistency`, not {self.regularity.name}"
            )
        return self


class ValidationConfig(BaseModel):
    """When and on how many held-out pairs the algorithm is judged while it trains."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every: PositiveInt
    """Steps; the end of a stage is always judged."""
    pairs: PositiveInt | None = 32
    """None: all there are."""
    result: Literal["last", "best"] = "last"
    """Which weights a stage leaves. Best is by mean Dice, or by similarity without labels: with a lambda that
    grows, early weights may win because they fold."""


class CheckpointConfig(BaseModel):
    """How often a run is written down, to go on from there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every: PositiveInt = 500
    """Steps; the end of a stage is always written."""
    keep: PositiveInt = 3


class TrainingConfig(BaseModel):
    """A training from data to a model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: DataConfig
    stages: Annotated[tuple[StageConfig, ...], Field(min_length=1)]
    """In the order in which they are trained; the last one is the model."""
    validation: ValidationConfig | None = None
    checkpoints: CheckpointConfig = CheckpointConfig()
    about: str = "not stated"
    """What the data is, in words, for the model's card."""
    licence: str = "not stated"
    """Under which the trained weights may be used, for the model's card."""

    @field_validator("stages")
    @classmethod
    def _can_be_built(cls, stages: tuple[StageConfig, ...]) -> tuple[StageConfig, ...]:
        earlier: dict[str, Blueprint] = {}
        for stage in stages:
            if stage.name in earlier:
                raise ValueError(f"two stages are called {stage.name}; a name says which one is meant")
            _require_buildable(stage, earlier)
            earlier[stage.name] = stage.blueprint
        return stages

    def before(self, number: int) -> dict[str, Blueprint]:
        """What the stages before stage `number` are made of, by name."""
        return {stage.name: stage.blueprint for stage in self.stages[:number]}

    def as_plain(self) -> dict[str, Any]:
        """As a configuration file says it."""
        return self.model_dump(mode="json", by_alias=True)


def _require_buildable(stage: StageConfig, earlier: dict[str, Blueprint]) -> None:
    try:
        require_buildable(stage.blueprint, earlier)
    except ValidationError as error:
        raise ValueError(f"the algorithm of stage {stage.name}: {error.errors()[0]['msg']}") from error
    except ValueError as error:
        raise ValueError(f"the algorithm of stage {stage.name}: {error}") from error
