"""What one step computes of a few pairs, as one module, which can be wrapped as a whole for many devices.

Neighbours: `batches.py` (the pairs), `stages.py` (the loop around it).
"""

import dataclasses

import torch
from torch import nn

from roundtrip._shapes import Image, Mask, Scalar, Shaped, Tensor
from roundtrip.algorithms.objective import ObjectiveTerms, PairObjective, both_directions
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.data.batch import Batch
from roundtrip.losses.supervision import soft_dice
from roundtrip.maps.grid import inside_image
from roundtrip.maps.interpolate import warp
from roundtrip.maps.map import Map
from roundtrip.networks.layers import half_size
from roundtrip.training.batches import Portion
from roundtrip.training.config import StageConfig
from roundtrip.training.randomness import PointsOfEach

TERMS = tuple(field.name for field in dataclasses.fields(ObjectiveTerms))


class Given:
    """What the objective is asked about; a plain class, whose tensors keep their precision under Fabric."""

    def __init__(self, portion: Portion) -> None:
        self.batch, self.seeds = portion.batch, portion.seeds


class StageObjective(nn.Module):
    """The loss of a stage, at its resolution; the weight of `terms` is lambda and may be replaced."""

    def __init__(self, algorithm: AbstractRegistration, stage: StageConfig) -> None:
        super().__init__()
        self.algorithm = algorithm
        self.resolution, self.label_weight = stage.resolution, stage.label_weight
        self.terms = PairObjective(
            weight=stage.lambda_.first().value,
            similarity=stage.similarity.function(),
            regularity=stage.regularity.function(),
            region=inside_image if stage.similarity.inside_image else None,
        )

    def with_weight(self, lambda_: float) -> None:
        """Lambda of the next call."""
        self.terms = dataclasses.replace(self.terms, weight=lambda_)

    def forward(self, given: Given) -> dict[str, Scalar]:
        """The terms by name, and `labels` where they have a weight; `total` is what is minimised."""
        batch = at_resolution(given.batch, self.resolution)
        phi_AB, phi_BA = both_directions(self.algorithm, batch.moving, batch.fixed)
        objective = dataclasses.replace(self.terms, points=PointsOfEach(given.seeds))
        terms = objective(
            phi_AB,
            phi_BA,
            batch.moving,
            batch.fixed,
            moving_mask=batch.moving_mask,
            fixed_mask=batch.fixed_mask,
        )
        values = {name: getattr(terms, name) for name in TERMS}
        if self.label_weight:
            values["labels"] = _label_miss(phi_AB, phi_BA, given.batch, self.resolution)
            values["total"] = values["total"] + self.label_weight * values["labels"]
        return values


def at_resolution(batch: Batch, resolution: int) -> Batch:
    """Images and masks averaged down by this factor along each axis; labels cannot be, and are left out."""

    def mask(given: Tensor | None) -> Mask | None:
        return None if given is None else averaged(given.to(batch.moving.dtype), resolution)

    return Batch(
        averaged(batch.moving, resolution),
        averaged(batch.fixed, resolution),
        moving_mask=mask(batch.moving_mask),
        fixed_mask=mask(batch.fixed_mask),
    )


def averaged(image: Tensor, resolution: int) -> Tensor:
    """Means over blocks of so many voxels along each axis, as `AtHalfResolution` takes them."""
    while resolution > 1:
        image, resolution = half_size(image), resolution // 2
    return image


def _label_miss(phi_AB: Map, phi_BA: Map, batch: Batch, resolution: int) -> Scalar:
    """One minus the soft Dice of all labels but 0, both ways added."""
    assert batch.moving_labels is not None and batch.fixed_labels is not None  # Checked before training.
    present = torch.unique(torch.cat([batch.moving_labels.unique(), batch.fixed_labels.unique()]))
    present = present[present != 0]
    moving, fixed = (
        averaged(_one_hot(labels, present, like=batch.moving), resolution)
        for labels in (batch.moving_labels, batch.fixed_labels)
    )
    return soft_dice(warp(moving, phi_AB), fixed) + soft_dice(warp(fixed, phi_BA), moving)


def _one_hot(labels: Shaped[Tensor, "B 1 *S"], present: Tensor, *, like: Tensor) -> Image:
    return (labels == present.view(1, -1, *[1] * (labels.ndim - 2))).to(like.dtype)
