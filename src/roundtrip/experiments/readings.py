"""One trained network judged in every way that the paper's words leave open. Neighbour: `architectures.py`.

Dice: of pixels brighter than 0.5 as printed, or of those brighter than half of the range (0 where images go
from -1 to 1), of the warped image or of the warped mask, averaged over pairs or over all pixels at once.
Folds: forward differences as the published package counts, central ones, or simplices; and how much maps
alternate from pixel to pixel, which central differences do not see. Batch norm: as it is
used (`evaluation`), or with the statistics of the batch that is judged (`training`). Lambda needs no reading
of its own: the grid of Table 1 doubles, and half a lambda is the row above.
"""

import copy
from collections.abc import Sequence

import torch
from torch import nn

from roundtrip._shapes import Bool, Float, Tensor
from roundtrip.algorithms.objective import both_directions
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.data.pairing import Pair
from roundtrip.data.subset import AbstractSubset
from roundtrip.evaluation.round_trip import round_trip_distance
from roundtrip.maps.folds import folds_as_published, folds_central, non_diffeomorphic_volume
from roundtrip.maps.interpolate import interpolate, interpolate_nearest
from roundtrip.maps.map import on_grid_of

BATCH = 100
"""Pairs at once; in training mode a batch norm takes its statistics over them."""


@torch.no_grad()
def judged(
    algorithm: AbstractRegistration, subset: AbstractSubset, pairs: Sequence[Pair], device: torch.device
) -> dict[str, float]:
    """Means over the pairs, by the names of the readings; `dice` and `folds` are those of the paper."""
    algorithm = copy.deepcopy(algorithm).eval()
    numbers = _means([_of_batch(algorithm, batch, subset, device) for batch in _batches(pairs)])
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in algorithm.modules()):
        trains = _means([_of_batch(algorithm.train(), batch, subset, device) for batch in _batches(pairs)])
        numbers |= {f"{name}_training_mode": trains[name] for name in ("dice", "folds")}
    return numbers


def _batches(pairs: Sequence[Pair]) -> list[Sequence[Pair]]:
    """All of one size, but the last."""
    return [pairs[start : start + BATCH] for start in range(0, len(pairs), BATCH)]


def _of_batch(
    algorithm: AbstractRegistration, pairs: Sequence[Pair], subset: AbstractSubset, device: torch.device
) -> tuple[int, dict[str, float]]:
    """How many pairs, and their means."""
    batch = subset.load(pairs, device)
    moving, fixed = batch.moving, batch.fixed
    phi_AB, phi_BA = both_directions(algorithm, moving, fixed)
    points = on_grid_of(phi_AB, fixed)
    warped = interpolate(moving, points)
    middle = (fixed.min() + fixed.max()).item() / 2
    mask = interpolate_nearest(moving > 0.5, points)
    volume = non_diffeomorphic_volume(points)
    numbers = {
        "dice_before": _dice(moving > 0.5, fixed > 0.5),
        "dice": _dice(warped > 0.5, fixed > 0.5),
        "dice_half_range": _dice(warped > middle, fixed > middle),
        "dice_of_masks": _dice(mask, fixed > 0.5),
        "dice_all_pixels": _pooled_dice(warped > 0.5, fixed > 0.5),
        "folds": folds_as_published(points).mean().item(),
        "folds_central": folds_central(points).count.double().mean().item(),
        "folded_cells": volume.cells.double().mean().item(),
        "folded_volume_percent": volume.percent.mean().item(),
        "round_trip_pixels": round_trip_distance(phi_BA, phi_AB, fixed).mean().item(),
        "alternation_pixels": _alternation(points),
        "mse": (warped - fixed).square().mean().item(),
    }
    return len(pairs), numbers


def _dice(first: Bool[Tensor, "B C *S"], second: Bool[Tensor, "B C *S"]) -> float:
    """Mean over pairs; 0 where one of the two is empty, and left out where both are."""
    common, first_size, second_size = (mask.flatten(1).sum(dim=1) for mask in (first & second, first, second))
    return (2 * common / (first_size + second_size)).nanmean().item()


def _pooled_dice(first: Bool[Tensor, "B C *S"], second: Bool[Tensor, "B C *S"]) -> float:
    return (2 * (first & second).sum() / (first.sum() + second.sum())).item()


def _alternation(points: Float[Tensor, "B 2 H W"]) -> float:
    """By how many pixels displacements alternate from pixel to pixel, like a chessboard, on average."""
    corners = points[..., :-1, :-1] - points[..., 1:, :-1] - points[..., :-1, 1:] + points[..., 1:, 1:]
    size = corners.new_tensor([n - 1 for n in points.shape[2:]]).view(2, 1, 1)
    return (corners / 4 * size).abs().mean().item()


def _means(batches: Sequence[tuple[int, dict[str, float]]]) -> dict[str, float]:
    total = sum(count for count, _ in batches)
    return {name: sum(count * numbers[name] for count, numbers in batches) / total for name in batches[0][1]}
