"""Which pairs a process works on in a step, loaded while it still works on the step before.

The pairs of a step are drawn by every process alike and dealt out; together the processes see what one
process alone would see. Neighbours: `randomness.py` (draws), `step.py` (works on them).
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from roundtrip._launch import Ranks
from roundtrip._shapes import Tensor
from roundtrip.data.augment import augmented
from roundtrip.data.batch import Batch
from roundtrip.data.config import Augmentation
from roundtrip.data.pairing import Pair
from roundtrip.data.subset import AbstractSubset
from roundtrip.training.config import StageConfig
from roundtrip.training.randomness import generator_of, seeds_of_elements


@dataclass(frozen=True, eq=False)
class Portion:
    """Some pairs of a step, worked on at once by one process."""

    pairs: Sequence[Pair]
    """Indices into the subset, to name the images where something goes wrong."""
    batch: Batch
    seeds: tuple[int, ...]
    """One for the random points of each pair."""


class Batches:
    """The pairs of one stage, step by step, as this process sees them; close it when done."""

    def __init__(
        self,
        subset: AbstractSubset,
        stage: StageConfig,
        ranks: Ranks,
        *,
        seed: int,
        augmentation: Augmentation | None = None,
    ) -> None:
        _require_divisible(stage, ranks.count)
        self._subset, self._stage, self._ranks, self._seed = subset, stage, ranks, seed
        self._augmentation = augmentation
        self._ahead: tuple[int, Future[list[Portion]]] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="batches")

    def of_step(self, step: int) -> list[Portion]:
        """This process' portions of a step, as many as the stage accumulates; begins to load the next."""
        if self._ahead is not None and self._ahead[0] == step:
            portions = self._ahead[1].result()
        else:
            portions = self._load(step)
        if step < self._stage.steps:
            self._ahead = step + 1, self._pool.submit(self._load, step + 1)
        return portions

    def close(self) -> None:
        """Waits for what is still being loaded."""
        self._pool.shutdown(cancel_futures=True)

    def _load(self, step: int) -> list[Portion]:
        where = (self._seed, self._stage.name, step)
        pairs = self._subset.draw(self._stage.batch, generator_of(*where, "pairs"))
        size = self._stage.batch // self._stage.accumulation // self._ranks.count
        first = [
            (part * self._ranks.count + self._ranks.rank) * size for part in range(self._stage.accumulation)
        ]
        return [
            self._portion(pairs[start : start + size], range(start, start + size), where) for start in first
        ]

    def _portion(
        self, pairs: Sequence[Pair], numbers: Sequence[int], where: tuple[int | str, ...]
    ) -> Portion:
        batch = self._subset.load(pairs, self._ranks.device)
        if self._augmentation is not None:
            draws = seeds_of_elements(numbers, *where, "augmentation")
            batch = _augmented(batch, self._augmentation, draws, self._subset.spacing)
        return Portion(pairs, batch, seeds_of_elements(numbers, *where, "points"))


def _require_divisible(stage: StageConfig, processes: int) -> None:
    if stage.batch % (stage.accumulation * processes):
        raise ValueError(
            f"stage {stage.name} has batches of {stage.batch} pairs in {stage.accumulation} part(s), which "
            f"{processes} processes cannot share equally; choose a batch that is a multiple of "
            f"{stage.accumulation * processes}."
        )


def _augmented(
    batch: Batch, how: Augmentation, seeds: Sequence[int], spacing: Sequence[float] | None
) -> Batch:
    """Every pair changed by draws of its own, whichever process does it."""
    ones = zip(*(_split(tensor, len(seeds)) for tensor in vars(batch).values()), strict=True)
    changed = [
        augmented(Batch(*one), how, torch.Generator().manual_seed(seed), spacing=spacing)
        for one, seed in zip(ones, seeds, strict=True)
    ]
    together = zip(*(vars(one).values() for one in changed), strict=True)
    return Batch(*(None if tensors[0] is None else torch.cat(tensors) for tensors in together))  # type: ignore[arg-type]


def _split(tensor: Tensor | None, count: int) -> Sequence[Tensor | None]:
    return [None] * count if tensor is None else tensor.split(1)
