"""How a similarity pulls two images towards each other: what turns a number to lower into vectors to follow.

Both images are deformed, so both are pulled, each along its own slope. A similarity is named by a
configuration (`LocalCorrelation`, `MeanSquares`, ...), whose `forces()` does the work. Neighbours:
`settings.py`, `arithmetic.py`.
"""

import abc
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveFloat, PositiveInt

from roundtrip._shapes import Image, Tensor
from roundtrip.losses.information import mutual_information
from roundtrip.losses.mind import self_similarity
from roundtrip.losses.similarity import mse, ncc
from roundtrip.pairwise.arithmetic import AbstractArithmetic, Values, Vectors, pull
from roundtrip.pairwise.pyramid import gaussian_weights


class AbstractForces(abc.ABC):
    """One similarity at work."""

    def features(self, image: Image) -> Tensor:
        """What is compared of an image; the image itself, unless there is more to see."""
        return image

    @abc.abstractmethod
    def __call__(
        self,
        images: Sequence[Values],
        weight: Tensor | None,
        scale: Sequence[float],
        arithmetic: AbstractArithmetic,
        out: Sequence[Vectors],
    ) -> float:
        """How alike two images are, higher is better; into `out`: where that pulls the voxels of each.

        Each force is the derivative of the similarity by the image, times the number of voxels, times the
        image's slope along each axis times its `scale`. `weight` says which voxels count, none means all.
        """


@dataclass(frozen=True)
class LocalForces(AbstractForces):
    """Of the local correlation in a Gaussian window.

    As Avants et al., MedIA 2008, each voxel follows the correlation in the window around itself alone, which
    costs half of what the windows around its neighbours would, and serves as well.
    """

    sigma: float
    floor: float

    def __call__(
        self,
        images: Sequence[Values],
        weight: Tensor | None,
        scale: Sequence[float],
        arithmetic: AbstractArithmetic,
        out: Sequence[Vectors],
    ) -> float:
        half = _window(self.sigma, images[0].dtype, images[0].device)
        # What does not count must not be seen through the windows of what does: it becomes the mean, 0.
        (A, B), (out_A, out_B) = images if weight is None else [weight * image for image in images], out
        value = arithmetic.local_forces(A, B, (half, half, half), self.floor, scale, out_A, out_B)
        if weight is not None:
            for pulled in out:
                pulled.mul_(weight)
        return value


@dataclass(frozen=True)
class LossForces(AbstractForces):
    """Of any loss `(warped, fixed, mask) -> Scalar` of `losses/`, by automatic differentiation."""

    loss: Callable[..., Tensor]
    of_features: Callable[[Image], Image] | None = None

    def features(self, image: Image) -> Tensor:
        return image if self.of_features is None else self.of_features(image)

    @torch.enable_grad()
    def __call__(
        self,
        images: Sequence[Values],
        weight: Tensor | None,
        scale: Sequence[float],
        arithmetic: AbstractArithmetic,
        out: Sequence[Vectors],
    ) -> float:
        pair = [image.detach()[None].clone().requires_grad_(True) for image in images]
        loss = self.loss(*pair, None if weight is None else weight[None])
        derivatives = torch.autograd.grad(-loss * images[0][0].numel(), pair)
        for image, by, pulled in zip(images, derivatives, out, strict=True):
            pulled.copy_(pull(image, by[0], scale))
        return -float(loss.detach())


@functools.lru_cache(maxsize=8)
def _window(sigma: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    return gaussian_weights(sigma, like=torch.empty(0, dtype=dtype, device=device))


class AbstractSimilarity(BaseModel, abc.ABC):
    """A similarity and its options, as a configuration names them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abc.abstractmethod
    def forces(self) -> AbstractForces:
        """What pulls."""


class LocalCorrelation(AbstractSimilarity):
    """Correlation in a Gaussian window of `sigma` voxels: blind to slow changes of both images."""

    name: Literal["lncc"] = "lncc"
    sigma: PositiveFloat = 1.5
    floor: PositiveFloat = 1e-3
    """Added to the variance in every window, in units of that of the image: less counts as flat."""

    def forces(self) -> AbstractForces:
        return LocalForces(self.sigma, self.floor)


class Correlation(AbstractSimilarity):
    """Correlation of the whole images."""

    name: Literal["ncc"] = "ncc"

    def forces(self) -> AbstractForces:
        return LossForces(ncc)


class MeanSquares(AbstractSimilarity):
    """Mean squared difference, for images whose intensities mean the same."""

    name: Literal["mse"] = "mse"

    def forces(self) -> AbstractForces:
        return LossForces(mse)


class MutualInformation(AbstractSimilarity):
    """For images of different contrast, where some function of one intensity is the other."""

    name: Literal["mutual_information"] = "mutual_information"
    bins: Annotated[int, Field(ge=5)] = 32

    def forces(self) -> AbstractForces:
        return LossForces(functools.partial(mutual_information, bins=self.bins))


class SelfSimilarity(AbstractSimilarity):
    """For images of different contrast, even where no function relates them: MIND-SSC, compared by squares.

    The self-similarities are computed once for each image and level, and deform with it.
    """

    name: Literal["mind_ssc"] = "mind_ssc"
    radius: PositiveInt = 1
    dilation: PositiveInt = 2

    def forces(self) -> AbstractForces:
        contexts = functools.partial(self_similarity, radius=self.radius, dilation=self.dilation)
        return LossForces(mse, lambda image: contexts(image).flatten(1, 2))


def _from_name(given: Any) -> Any:
    return {"name": given} if isinstance(given, str) else given


SimilarityConfig = Annotated[
    Annotated[
        LocalCorrelation | Correlation | MeanSquares | MutualInformation | SelfSimilarity,
        Field(discriminator="name"),
    ],
    BeforeValidator(_from_name),
]
"""Any of them, as a configuration writes it: `lncc`, or `{name: lncc, sigma: 2}`."""
