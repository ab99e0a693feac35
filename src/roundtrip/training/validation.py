"""How good an algorithm is on held-out pairs, at the resolution of the images. Neighbour: `run.py`."""

import math
import time
from collections.abc import Sequence

import torch

from roundtrip._launch import Ranks
from roundtrip.algorithms.objective import both_directions
from roundtrip.algorithms.registration import AbstractRegistration
from roundtrip.data.pairing import Pair
from roundtrip.data.subset import AbstractSubset
from roundtrip.evaluation.judge import Side, Similarity, judge_sides
from roundtrip.evaluation.lengths import frame_of
from roundtrip.evaluation.quality import PairQuality
from roundtrip.evaluation.summary import summary_rows
from roundtrip.training.records import ValidationRecord
from roundtrip.training.watch import Example


def validate(
    algorithm: AbstractRegistration,
    subset: AbstractSubset,
    *,
    pairs: int | None,
    similarity: Similarity,
    ranks: Ranks,
    stage: str,
    step: int,
) -> tuple[ValidationRecord, Example]:
    """Means over the fixed list of pairs, which all processes share out among them, and the first pair.

    `algorithm` takes images as the data has them. It is left in evaluation mode.
    """
    start, chosen = time.perf_counter(), subset.pairs(pairs)
    algorithm.eval()
    own = [_judged(algorithm, subset, pair, similarity, ranks.device) for pair in ranks.own(chosen)]
    qualities = ranks.gathered(own)
    numbers = _numbers(qualities)
    record = ValidationRecord(
        stage=stage,
        step=step,
        score=_score(qualities),
        numbers=numbers,
        seconds=round(time.perf_counter() - start, 3),
    )
    return record, _example(algorithm, subset, chosen[0], ranks.device)


@torch.no_grad()
def _judged(
    algorithm: AbstractRegistration,
    subset: AbstractSubset,
    pair: Pair,
    similarity: Similarity,
    device: torch.device,
) -> PairQuality:
    batch = subset.load([pair], device)
    phi_AB, phi_BA = both_directions(algorithm, batch.moving, batch.fixed)
    frame = frame_of(batch.fixed, subset.spacing)
    landmarks = [_on(device, subset.landmarks(index)) for index in pair]
    moving = Side(batch.moving, frame, batch.moving_labels, landmarks[0], batch.moving_mask)
    fixed = Side(batch.fixed, frame, batch.fixed_labels, landmarks[1], batch.fixed_mask)
    unit = "voxels" if subset.spacing is None else "mm"
    return judge_sides(phi_AB, phi_BA, moving, fixed, unit=unit, similarity=similarity)  # type: ignore[arg-type]


@torch.no_grad()
def _example(
    algorithm: AbstractRegistration, subset: AbstractSubset, pair: Pair, device: torch.device
) -> Example:
    batch = subset.load([pair], device)
    return Example(batch.moving, batch.fixed, *both_directions(algorithm, batch.moving, batch.fixed))


def _numbers(qualities: Sequence[PairQuality]) -> dict[str, float]:
    """Means by the names of the tables, `dice`, `dice_before`, `folds`, ...; of what could be measured."""
    numbers = {}
    for row in summary_rows(qualities):
        for name, value in ((f"{row['measure']}_before", row["before_mean"]), (row["measure"], row["mean"])):
            if value is not None:
                numbers[name] = value
    return numbers


def _score(qualities: Sequence[PairQuality]) -> float:
    """Mean Dice, or how alike the images became where there are no labels; higher is better."""
    overlaps = [quality.dice.mean for quality in qualities if quality.dice is not None]
    overlaps = [overlap for overlap in overlaps if not math.isnan(overlap)]
    if overlaps:
        return sum(overlaps) / len(overlaps)
    return -sum(quality.similarity.after for quality in qualities) / len(qualities)


def _on(device: torch.device, points: torch.Tensor | None) -> torch.Tensor | None:
    return None if points is None else points.to(device)
