"""What one must know about a model to use it: how its images are prepared, and what was measured on it.

Declarations only, which print, compare and go to JSON. `space/preparation.py` carries a `Preparation` out,
`saved.py` writes the `Card` beside the weights.
"""

from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    FiniteFloat,
    JsonValue,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

OPPOSITES = ("RL", "AP", "SI")


class Intensities(BaseModel):
    """How images are brought to [0, 1]: `lower` becomes 0, `upper` 1, what lies beyond is clamped.

    Both are intensities, e.g. -1000 and 0 for a lung CT, or percentiles of each image, e.g. 1 and 99.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: Literal["values", "percentiles"]
    lower: FiniteFloat
    upper: FiniteFloat

    @model_validator(mode="after")
    def _in_order(self) -> "Intensities":
        if not self.lower < self.upper:
            raise ValueError(f"`lower` is {self.lower} but `upper` {self.upper}; `lower` must be smaller.")
        if self.unit == "percentiles" and (self.lower < 0 or self.upper > 100):
            raise ValueError(
                f"the percentiles {self.lower} and {self.upper} are not between 0 and 100; 1 and 99 are "
                'usual. Intensities are given with `unit: "values"`.'
            )
        return self


class Mirror(BaseModel):
    """Which images are mirrored, so that all show the same side: those with `value` in `column`.

    The paper's left knees: `Mirror(column="side", value="left", axis=0)`, with axes that run left to right
    first. A new image has no column; whoever registers it says whether it is to be mirrored.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str
    value: str
    axis: NonNegativeInt
    """The tensor axis that is flipped, after the axes were brought to `orientation`."""


class Preparation(BaseModel):
    """What is done to an image before a model sees it, in the order of the fields; None leaves it as it is.

    `spacing` and `grid`: resample to the spacing, then crop or pad to the grid, both around the centre.
    `spacing` alone: resample, whatever the size. `grid` alone: the whole field of view on that grid.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    orientation: str | None = None
    """Where the axes point, e.g. "RAS": towards the right, anterior and superior, in this order."""
    mirror: Mirror | None = None
    mask: Literal["intensities", "background"] | None = None
    """What the mask does to the image: "intensities" takes percentiles inside it; "background" does so, and
    makes everything outside it 0. With None it does nothing to the image (the loss uses it anyway)."""
    intensities: Intensities | None = None
    spacing: tuple[PositiveFloat, ...] | None = None
    """Millimetres from voxel to voxel."""
    grid: tuple[PositiveInt, ...] | None = None

    @field_validator("orientation")
    @classmethod
    def _names_every_axis_once(cls, code: str | None) -> str | None:
        if code is not None and not _is_orientation(code):
            raise ValueError(
                f'"{code}" is not an orientation; a letter per axis says where it points, e.g. "RAS": R or L '
                "(right, left), A or P (anterior, posterior), S or I (superior, inferior), each line once."
            )
        return code

    @model_validator(mode="after")
    def _has_one_dimension(self) -> "Preparation":
        given = {"orientation": self.orientation, "spacing": self.spacing, "grid": self.grid}
        sizes = {name: len(value) for name, value in given.items() if value is not None}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"{sizes} axes were given; the numbers must agree.")
        if self.mirror is not None and any(self.mirror.axis >= n for n in sizes.values()):
            raise ValueError(f"mirror.axis is {self.mirror.axis}, but axes are counted from 0.")
        return self


class Card(BaseModel):
    """What one must know about a model before trusting it with an image."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preparation: Preparation | None
    """What was done to the images it was trained on, and is to be done to others; None: not known."""
    data: str
    """What it was trained on, in words."""
    numbers: dict[str, FiniteFloat]
    """What was measured on images it had not seen, by name: `{"dice": 0.69, "folds": 1.2}`."""
    licence: str
    """Under which the weights may be used."""
    training: dict[str, JsonValue] | None = None
    """How it was trained: configuration, seed, versions; None: not known."""


def _is_orientation(code: str) -> bool:
    lines = [next((line for line in OPPOSITES if letter in line), None) for letter in code]
    return 2 <= len(code) <= 3 and None not in lines and len(set(lines)) == len(lines)
