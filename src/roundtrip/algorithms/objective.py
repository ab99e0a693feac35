"""What training minimises: similarity of the warped images plus lambda times irregularity of the maps.

`PairObjective` judges two maps of one pair, `InverseConsistent` an algorithm, by the two maps it finds. The
terms they add up come from the room `losses`. Neighbours: `registration.py`, and `direct.py`, which minimises
a `PairObjective` without any network.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from roundtrip._checks import require_pair
from roundtrip._shapes import Image, Mask, Points, Scalar, Tensor
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.losses.regularity import inverse_consistency, points_off_grid
from roundtrip.losses.similarity import mse
from roundtrip.maps.folds import folds_as_published
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.interpolate import interpolate
from roundtrip.maps.map import AbstractMap, Map, on_grid_of
from roundtrip.networks.batch_norm import BatchNorm, batches_apart

Similarity = Callable[..., Scalar]
"""(warped, fixed, mask) -> how different they are."""

Regularity = Callable[[Map, Map, Points], Scalar]
"""(phi_AB, phi_BA, points) -> how irregular the pair of maps is."""

Sampler = Callable[[Tensor, torch.Generator | None], Points]
"""(image, generator) -> where the regularity is evaluated."""

Region = Callable[[Points], Tensor]
"""Points of the moving image -> the mask of those whose intensities are compared."""


@dataclass(frozen=True)
class ObjectiveTerms:
    """`total` is what is minimised; the rest says what it is made of. All are means over the batch."""

    total: Scalar
    similarity: Scalar
    inverse_consistency: Scalar
    """The regularity term, without its weight."""
    folds: Scalar
    """Folded cells per image of phi_BA, as the published package counts them."""
    magnitude: Scalar
    """Mean squared length of the displacements, in unit coordinates."""


@dataclass(frozen=True)
class PairObjective:
    """L_sim(AB) + L_sim(BA) + lambda * L_inv -- ICON, Eqs. (12) and (13).

    `weight` is the paper's lambda, of squared vector norms. The published package averages over the N
    components too: its lambda is N times ours. `region` restricts the comparison of intensities, e.g. to
    `inside_image`, the samples that did not leave the moving image; so do masks of the two images, where
    both count.
    """

    weight: float
    similarity: Similarity = mse
    regularity: Regularity = inverse_consistency
    points: Sampler = points_off_grid
    region: Region | None = None

    def __post_init__(self) -> None:
        if not self.weight >= 0:
            raise ValueError(
                f"`weight` is {self.weight}; it is the paper's lambda, a number from 0, e.g. 1024.0."
            )
        for name in ("similarity", "regularity", "points"):
            if not callable(getattr(self, name)):
                raise ValueError(
                    f"`{name}` is {getattr(self, name)!r}, which is no function; give one, e.g. "
                    "`similarity=rt.mse`."
                )

    def __call__(
        self,
        phi_AB: Map,
        phi_BA: Map,
        moving: Image,
        fixed: Image,
        generator: torch.Generator | None = None,
        *,
        moving_mask: Mask | None = None,
        fixed_mask: Mask | None = None,
    ) -> ObjectiveTerms:
        AB, BA = on_grid_of(phi_AB, fixed), on_grid_of(phi_BA, moving)
        similarity = self._compare(moving, AB, fixed, moving_mask, fixed_mask)
        similarity = similarity + self._compare(fixed, BA, moving, fixed_mask, moving_mask)
        irregularity = self.regularity(phi_AB, phi_BA, self.points(fixed, generator))
        with torch.no_grad():
            folds = folds_as_published(BA).mean()
            magnitude = (AB - unit_grid(fixed.shape[2:], like=AB)).square().sum(dim=1).mean()
        return ObjectiveTerms(
            total=similarity + self.weight * irregularity,
            similarity=similarity,
            inverse_consistency=irregularity,
            folds=folds,
            magnitude=magnitude,
        )

    def _compare(
        self, moving: Image, at: Points, fixed: Image, moving_mask: Mask | None, fixed_mask: Mask | None
    ) -> Scalar:
        masks = [] if self.region is None else [self.region(at)]
        masks += [] if fixed_mask is None else [fixed_mask]
        masks += [] if moving_mask is None else [interpolate(moving_mask.to(at.dtype), at.detach())]
        mask = functools.reduce(torch.mul, masks) if masks else None
        return self.similarity(interpolate(moving, at), fixed, mask)


class InverseConsistent(nn.Module):
    """How well an algorithm registers a batch of pairs, and how consistently, both ways.

    A module, so that a whole step can be wrapped, e.g. for distributed training. The arguments after
    `algorithm` are those of `PairObjective`; `objective` may be replaced between steps, as when lambda grows:
    `objective.terms = dataclasses.replace(objective.terms, weight=...)`.
    """

    def __init__(
        self,
        algorithm: AbstractRegistration,
        *,
        weight: float,
        similarity: Similarity = mse,
        regularity: Regularity = inverse_consistency,
        points: Sampler = points_off_grid,
        region: Region | None = None,
    ) -> None:
        super().__init__()
        self.algorithm = algorithm
        self.terms = PairObjective(weight, similarity, regularity, points, region)

    def forward(
        self, moving: Image, fixed: Image, generator: torch.Generator | None = None
    ) -> ObjectiveTerms:
        require_pair(moving, fixed)
        phi_AB, phi_BA = both_directions(self.algorithm, moving, fixed)
        return self.terms(phi_AB, phi_BA, moving, fixed, generator)


def both_directions(algorithm: AbstractRegistration, moving: Image, fixed: Image) -> tuple[Map, Map]:
    """phi_AB and phi_BA, in one pass of twice the batch where that cannot change the result.

    It would where a batch norm that is not ours learns its statistics, of one direction at a time.
    """
    if not any(_learns_of_the_batch(module) for module in algorithm.modules()):
        with batches_apart(algorithm, 2):
            phi = algorithm(torch.cat([moving, fixed]), torch.cat([fixed, moving]))
        if isinstance(phi, AbstractMap):
            return phi[: len(moving)], phi[len(moving) :]
    return algorithm(moving, fixed), algorithm(fixed, moving)


def _learns_of_the_batch(module: nn.Module) -> bool:
    return (
        isinstance(module, nn.modules.batchnorm._BatchNorm)
        and module.training
        and not isinstance(module, BatchNorm)
    )
