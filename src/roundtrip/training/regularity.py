"""How a configuration names what keeps maps regular; each becomes a function of `losses/` here, once.

Neighbours: `config.py` (where one is declared), `similarity.py` (the other half of the loss), `control.py`
(its weight).
"""

import abc
import functools
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveFloat

from roundtrip._shapes import Points, Scalar
from roundtrip.algorithms.objective import Regularity
from roundtrip.losses.regularity import bending_energy, diffusion, gradicon, inverse_consistency
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.map import Map


class AbstractRegularityConfig(BaseModel, abc.ABC):
    """One term that lambda weighs, and its options."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @abc.abstractmethod
    def function(self) -> Regularity:
        """(phi_AB, phi_BA, points) -> how irregular the two maps are."""


class InverseConsistency(AbstractRegularityConfig):
    """The paper's: both round trips come home, also between the voxels."""

    name: Literal["inverse_consistency"] = "inverse_consistency"

    def function(self) -> Regularity:
        return inverse_consistency


class InverseConsistencyOnGrid(AbstractRegularityConfig):
    """Round trips come home at the voxels alone: to show that two of them may then change places (Fig. 2)."""

    name: Literal["inverse_consistency_on_grid"] = "inverse_consistency_on_grid"

    def function(self) -> Regularity:
        return _inverse_consistency_on_grid


class GradICON(AbstractRegularityConfig):
    """The round trip may be off by a translation; its derivative is to be the identity."""

    name: Literal["gradicon"] = "gradicon"
    step: PositiveFloat = 0.001

    def function(self) -> Regularity:
        return functools.partial(gradicon, step=self.step)


class Diffusion(AbstractRegularityConfig):
    """Squared gradients of both displacements: what inverse consistency is compared with."""

    name: Literal["diffusion"] = "diffusion"

    def function(self) -> Regularity:
        return _diffusion_of_both


class Bending(AbstractRegularityConfig):
    """Squared second derivatives of both displacements: affine maps cost nothing."""

    name: Literal["bending_energy"] = "bending_energy"

    def function(self) -> Regularity:
        return _bending_of_both


def _inverse_consistency_on_grid(phi_AB: Map, phi_BA: Map, x: Points) -> Scalar:
    # The points lie one to a voxel.
    return inverse_consistency(phi_AB, phi_BA, unit_grid(x.shape[2:], like=x))


def _diffusion_of_both(phi_AB: Map, phi_BA: Map, x: Points) -> Scalar:
    # The points have the shape of the grid, and that is all that is asked.
    return diffusion(phi_AB, x) + diffusion(phi_BA, x)


def _bending_of_both(phi_AB: Map, phi_BA: Map, x: Points) -> Scalar:
    return bending_energy(phi_AB, x) + bending_energy(phi_BA, x)


def _from_name(given: Any) -> Any:
    return {"name": given} if isinstance(given, str) else given


RegularityConfig = Annotated[
    Annotated[
        InverseConsistency | InverseConsistencyOnGrid | GradICON | Diffusion | Bending,
        Field(discriminator="name"),
    ],
    BeforeValidator(_from_name),
]
"""Any of them, as a configuration writes it: `gradicon`, or `{name: gradicon, step: 0.001}`."""
