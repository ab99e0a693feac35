"""Which images may be paired, as a numbered list that is never written out.

Ten thousand images make a hundred million pairs: a pairing only knows how many there are and which is the
n-th. Drawing a number then draws a pair, each with the same chance. `subset.py` does so.
"""

import abc
import itertools
import random
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

Pair = tuple[int, int]
"""Indices of the moving and of the fixed image."""


class AbstractPairing(abc.ABC):
    """All ordered pairs (moving, fixed) of different images that may be registered to each other."""

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """How many there are."""

    @abc.abstractmethod
    def pair(self, number: int) -> Pair:
        """One of them, numbered from 0."""


@dataclass(frozen=True)
class ListedPairing(AbstractPairing):
    """Exactly these pairs, in this order."""

    pairs: tuple[Pair, ...]

    @property
    def count(self) -> int:
        return len(self.pairs)

    def pair(self, number: int) -> Pair:
        return self.pairs[number]


@dataclass(frozen=True, eq=False)
class BlockPairing(AbstractPairing):
    """Images in an order in which the partners of each are one run of neighbours with one hole in it."""

    order: tuple[int, ...]
    runs: tuple[range, ...]
    """For each place of the order, the places of its partners and of those it must not meet."""
    holes: tuple[range, ...]
    """Those it must not meet, itself among them; within the run."""
    ends: tuple[int, ...]
    """Up to and including each place, how many pairs there are."""

    @property
    def count(self) -> int:
        return self.ends[-1] if self.ends else 0

    def pair(self, number: int) -> Pair:
        place = bisect_right(self.ends, number)
        left = number - (self.ends[place - 1] if place else 0)
        run, hole = self.runs[place], self.holes[place]
        partner = run.start + left
        if partner >= hole.start:
            partner += len(hole)
        return self.order[place], self.order[partner]


def across_subjects(subjects: Sequence[str], groups: Sequence[str] | None = None) -> BlockPairing:
    """Every image with every image of another subject; with `groups`, of the same group."""
    return _pairing(alike=groups or [""] * len(subjects), different=subjects)


def within_subject(subjects: Sequence[str], groups: Sequence[str] | None = None) -> BlockPairing:
    """Every image with every other image of its subject; with `groups`, of the same group."""
    alike = list(zip(subjects, groups or [""] * len(subjects), strict=True))
    return _pairing(alike=alike, different=range(len(subjects)))


def chosen_pairs(pairing: AbstractPairing, count: int | None, *, symmetric: bool) -> list[Pair]:
    """`count` pairs spread over all of them at random, the same at every call; None: all.

    `symmetric`: each is followed by the same pair the other way round, and counts as two.
    """
    few = count is not None and count < pairing.count
    numbers = range(pairing.count)
    if few:
        # Drawn from a range, which is not written out; of both ways round one may be drawn twice.
        numbers = random.Random(0).sample(numbers, count)  # type: ignore[assignment, arg-type]
    pairs = [pairing.pair(number) for number in sorted(numbers)]
    if symmetric:
        either = dict.fromkeys((min(pair), max(pair)) for pair in pairs)
        pairs = [way for a, b in either for way in ((a, b), (b, a))]
    return pairs[:count]


def _pairing(alike: Sequence[Hashable], different: Sequence[Hashable]) -> BlockPairing:
    """All pairs that agree in `alike` but not in `different`."""
    outer, inner = _rank(alike), _rank(different)
    keys = [(outer[a], inner[d]) for a, d in zip(alike, different, strict=True)]
    order = sorted(range(len(keys)), key=lambda index: (*keys[index], index))
    runs = _blocks([keys[index][0] for index in order])
    holes = _blocks([keys[index] for index in order])
    partners = (len(run) - len(hole) for run, hole in zip(runs, holes, strict=True))
    return BlockPairing(tuple(order), tuple(runs), tuple(holes), tuple(itertools.accumulate(partners)))


def _rank(keys: Sequence[Hashable]) -> dict[Hashable, int]:
    """A number for each different key, in the order of their first appearance."""
    return {key: number for number, key in enumerate(dict.fromkeys(keys))}


def _blocks(keys: Sequence[Hashable]) -> list[range]:
    """For each place, all places with the same key; equal keys stand side by side."""
    blocks: list[range] = []
    for _, same in itertools.groupby(keys):
        size = len(list(same))
        blocks += [range(len(blocks), len(blocks) + size)] * size
    return blocks
