"""What a configuration says about data: how images are prepared, split, paired and augmented.

Declarations only; `dataset.py` carries them out. Neighbour: `sources.py` (where images come from).
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

from roundtrip.algorithms.card import Preparation
from roundtrip.data.sources import Source


class Counts(BaseModel):
    """So many subjects, chosen by the seed, in each part; more than there are is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["counts"] = "counts"
    train: PositiveInt
    validation: NonNegativeInt = 0
    test: NonNegativeInt = 0
    seed: NonNegativeInt = 0


class Fractions(BaseModel):
    """Shares of the subjects, chosen by the seed; together at most 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["fractions"] = "fractions"
    train: Annotated[float, Field(gt=0, le=1)]
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    test: Annotated[float, Field(ge=0, lt=1)] = 0.0
    seed: NonNegativeInt = 0

    @model_validator(mode="after")
    def _is_at_most_all(self) -> "Fractions":
        total = self.train + self.validation + self.test
        if total > 1 + 1e-9:
            raise ValueError(f"the fractions add up to {total:g}; together they may be 1 at most.")
        return self


class ByColumn(BaseModel):
    """As a column of the manifest says: its values in each part. A line that leaves it empty is not used."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["column"] = "column"
    column: str = "part"
    train: tuple[str, ...] = ("train",)
    validation: tuple[str, ...] = ("validation",)
    test: tuple[str, ...] = ("test",)

    @model_validator(mode="after")
    def _names_a_value_once(self) -> "ByColumn":
        values = [*self.train, *self.validation, *self.test]
        if twice := sorted({value for value in values if values.count(value) > 1}):
            raise ValueError(f"{', '.join(twice)} cannot mean two parts; give each value to one of them.")
        return self


class AcrossSubjects(BaseModel):
    """Every image with every image of another subject, within its group where there are groups."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["across_subjects"] = "across_subjects"
    symmetric: bool = False
    """Whether the list for validation and test holds every pair both ways round."""


class WithinSubject(BaseModel):
    """Every image with every other of its subject, within its group where there are groups."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["within_subject"] = "within_subject"
    symmetric: bool = False
    """Whether the list for validation and test holds every pair both ways round."""


class ListedPairs(BaseModel):
    """Exactly the pairs of a CSV with columns `moving` and `fixed`, which name images as the source does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["listed"] = "listed"
    path: Path


class Augmentation(BaseModel):
    """Random changes of the images while training; sizes are largest ones, drawn evenly up to them.

    Both images of a pair are flipped together, and all else happens to each on its own. An image goes through
    one affine map about its centre, and its labels and mask with it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    flip_axes: tuple[NonNegativeInt, ...] = ()
    """Tensor axes that are flipped every second time: those along which the mirrored anatomy could be too."""
    rotation_degrees: Annotated[float, Field(ge=0, le=180)] = 0.0
    """About every axis (in a plane: in it), in millimetres where the spacing is known, else in voxels."""
    scaling: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Of each axis by a factor from 1 / (1 + scaling) to 1 + scaling."""
    shear: NonNegativeFloat = 0.0
    translation: NonNegativeFloat = 0.0
    """As a share of the field of view."""
    gamma: NonNegativeFloat = 0.0
    """Intensities between the image's least and greatest to a power from 1 / (1 + gamma) to 1 + gamma."""
    brightness: NonNegativeFloat = 0.0
    """Added to all intensities, as a share of the image's range."""
    contrast: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Intensities about their mean times a factor from 1 / (1 + contrast) to 1 + contrast."""
    noise: NonNegativeFloat = 0.0
    """Standard deviation of normal noise, as a share of the image's range."""


class DataConfig(BaseModel):
    """All about the images a network is trained on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Source
    preparation: Preparation = Preparation()
    split: Annotated[Counts | Fractions | ByColumn, Field(discriminator="kind")]
    pairs: Annotated[AcrossSubjects | WithinSubject | ListedPairs, Field(discriminator="kind")] = (
        AcrossSubjects()
    )
    augmentation: Augmentation | None = None
