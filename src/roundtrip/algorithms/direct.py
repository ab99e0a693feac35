"""Registration of one pair without a network: the two displacement fields are the unknowns.

What Sec. 4.3 of ICON compares networks with (Fig. 4). Without noise in the loss the result is irregular;
with it, or with the closed form of its expectation, it is regular. Neighbours: `objective.py`.
"""

from dataclasses import dataclass

import torch

from roundtrip._checks import require_pair
from roundtrip._shapes import Image
from roundtrip.algorithms.objective import ObjectiveTerms, PairObjective
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.grid import point_dtype


@dataclass(frozen=True)
class DirectResult:
    """Both maps of the pair, and the terms of the loss at the last step."""

    phi_AB: DisplacementMap
    phi_BA: DisplacementMap
    terms: ObjectiveTerms


class DirectOptimisation(AbstractRegistration):
    """Minimises a `PairObjective` over the two displacement fields of one batch of pairs by Adam.

    The same seed gives the same bits; every call starts anew from the identity.
    """

    def __init__(
        self, objective: PairObjective, *, steps: int, learning_rate: float = 1e-3, seed: int = 0
    ) -> None:
        super().__init__()
        if steps < 1:
            raise ValueError(f"`steps` is {steps}; at least one step is needed.")
        self.objective = objective
        self.steps = steps
        self.learning_rate = learning_rate
        self.seed = seed

    def forward(self, moving: Image, fixed: Image) -> DisplacementMap:
        return self.both(moving, fixed).phi_AB

    def both(self, moving: Image, fixed: Image) -> DirectResult:
        """Both maps: phi_AB from fixed to moving points, phi_BA back."""
        require_pair(moving, fixed)
        shape = (len(moving), moving.ndim - 2, *moving.shape[2:])
        unknowns = [
            torch.zeros(shape, dtype=point_dtype(moving), device=moving.device, requires_grad=True)
            for _ in range(2)
        ]
        optimizer = torch.optim.Adam(unknowns, lr=self.learning_rate)
        generator = torch.Generator(moving.device).manual_seed(self.seed)
        phi_AB, phi_BA = (DisplacementMap(field) for field in unknowns)
        with torch.enable_grad():
            for _ in range(self.steps):
                terms = self.objective(phi_AB, phi_BA, moving, fixed, generator)
                optimizer.zero_grad()
                # The loss is a mean over the batch; Adam's epsilon must not see how many pairs there are.
                (len(moving) * terms.total).backward()
                optimizer.step()
        return DirectResult(phi_AB.detach(), phi_BA.detach(), terms)
