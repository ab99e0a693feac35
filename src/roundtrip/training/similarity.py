"""How a configuration names a similarity and its options; each becomes a function of `losses/` here, once.

Neighbours: `config.py` (where one is declared), `stages.py` (where it is used).
"""

import abc
import functools
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveFloat, PositiveInt

from roundtrip.algorithms.objective import Similarity
from roundtrip.losses.information import mutual_information
from roundtrip.losses.local import lncc
from roundtrip.losses.mind import mind_ssc
from roundtrip.losses.similarity import mse, ncc


class AbstractSimilarityConfig(BaseModel, abc.ABC):
    """One similarity and its options."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    inside_image: bool = False
    """Compare only samples that did not leave the moving image, as the paper's knees were trained."""

    @abc.abstractmethod
    def function(self) -> Similarity:
        """(warped, fixed, mask) -> how different they are."""


class MeanSquares(AbstractSimilarityConfig):
    """Mean squared difference, for images whose intensities mean the same."""

    name: Literal["mse"] = "mse"

    def function(self) -> Similarity:
        return mse


class Correlation(AbstractSimilarityConfig):
    """One minus the correlation of the whole images: blind to brightness and contrast."""

    name: Literal["ncc"] = "ncc"

    def function(self) -> Similarity:
        return ncc


class LocalCorrelation(AbstractSimilarityConfig):
    """One minus the correlation in a Gaussian window of `sigma` voxels: blind to slow changes of both."""

    name: Literal["lncc"] = "lncc"
    sigma: PositiveFloat = 5.0

    def function(self) -> Similarity:
        return functools.partial(lncc, sigma=self.sigma)


class MutualInformation(AbstractSimilarityConfig):
    """For images of different contrast, where some function of one intensity is the other."""

    name: Literal["mutual_information"] = "mutual_information"
    bins: Annotated[int, Field(ge=5)] = 32

    def function(self) -> Similarity:
        return functools.partial(mutual_information, bins=self.bins)


class SelfSimilarity(AbstractSimilarityConfig):
    """For images of different contrast, even where no function relates them: MIND-SSC."""

    name: Literal["mind_ssc"] = "mind_ssc"
    radius: PositiveInt = 2
    dilation: PositiveInt = 2

    def function(self) -> Similarity:
        return functools.partial(mind_ssc, radius=self.radius, dilation=self.dilation)


def _from_name(given: Any) -> Any:
    return {"name": given} if isinstance(given, str) else given


SimilarityConfig = Annotated[
    Annotated[
        MeanSquares | Correlation | LocalCorrelation | MutualInformation | SelfSimilarity,
        Field(discriminator="name"),
    ],
    BeforeValidator(_from_name),
]
"""Any of them, as a configuration writes it: `lncc`, or `{name: lncc, sigma: 3}`."""
