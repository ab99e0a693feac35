"""What a deformable registration may be told, and the three efforts that need not be told anything.

Lengths are in voxels of the level at work, and fit any image: levels are made as isotropic as the image
allows. Neighbours: `deformable.py`, which does it; `forces.py`, which makes a similarity pull.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from roundtrip.pairwise.forces import LocalCorrelation, SimilarityConfig


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LevelSettings(_Settings):
    """One resolution."""

    coarser: PositiveFloat
    """How many times the finest spacing of the image its voxels are apart; 1 is the image's own grid."""
    steps: PositiveInt
    """At most so many."""


class DeformableSettings(_Settings):
    """How two images are deformed onto each other, from coarse to fine."""

    similarity: SimilarityConfig = LocalCorrelation()
    levels: Annotated[tuple[LevelSettings, ...], Field(min_length=1)]
    step: Annotated[float, Field(gt=0, le=0.25)] = 0.25
    """The length of a step, where the images pull steadily."""
    fluidity: PositiveFloat = 1.4
    """The standard deviation by which forces are smoothed before a step."""
    smoothness: PositiveFloat = 0.7
    """The standard deviation by which displacements are smoothed after a step: the epsilon of Eq. (10)."""
    patience: PositiveInt = 10
    gain: Annotated[float, Field(ge=0)] = 1e-4
    """A level ends when `patience` steps gained less than `gain` of similarity per step."""


Effort = Literal["fast", "default", "best"]


def effort(name: Effort) -> DeformableSettings:
    """The settings of an effort: the same method, with more steps and finer levels."""
    return DeformableSettings(
        similarity=LocalCorrelation(sigma=_WINDOWS[name]),
        levels=tuple(LevelSettings(coarser=c, steps=n) for c, n in _LEVELS[name]),
    )


_LEVELS: dict[str, tuple[tuple[int, int], ...]] = {
    "fast": ((8, 30), (4, 30), (2, 30)),
    "default": ((8, 40), (4, 40), (2, 40), (1, 15)),
    "best": ((8, 100), (4, 100), (2, 100), (1, 40)),
}

# In voxels of each level: where the finest level is coarse, a wide window sees too little.
_WINDOWS = {"fast": 1.5, "default": 2.0, "best": 2.0}
