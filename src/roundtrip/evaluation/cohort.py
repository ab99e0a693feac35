"""Many pairs judged one after the other, by any number of processes, as often interrupted as need be.

What registers and measures a pair is passed in. Neighbours: `journal.py` (remembers), `summary.py` (sums up).
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from roundtrip._launch import Ranks
from roundtrip.evaluation.journal import Journal, Judged

Pair = TypeVar("Pair")

FAULTS_OF_A_PAIR = (ValueError, OSError, ArithmeticError, RuntimeError)
"""An unreadable file, an image that cannot be prepared, a refinement that exploded, memory that is not there.
Anything else is a fault of the program, and stops it."""


def judge_pairs(
    pairs: Sequence[Pair],
    judge: Callable[[Pair], Judged],
    *,
    name: Callable[[Pair], tuple[str, str]],
    journal: Journal,
    ranks: Ranks | None = None,
    on_pair: Callable[[Judged], None] | None = None,
) -> list[Judged]:
    """All pairs, in their order; those of which the journal knows what was measured are not done again.

    A pair that fails is one of the results, with its reason. Every process returns all of them.
    """
    known = journal.read()
    left: Sequence[Pair] = [pair for pair in pairs if not _is_done(known.get(name(pair)))]
    if ranks is not None:
        # Nobody writes before all have read: they would deal out different lists.
        ranks.wait()
        left = ranks.own(left)
    for pair in left:
        judged = _judged_or_reason(pair, judge, name)
        journal.append(judged)
        if on_pair is not None:
            on_pair(judged)
    if ranks is not None:
        ranks.wait()
    known = journal.read()
    return [known[name(pair)] for pair in pairs]


def _is_done(judged: Judged | None) -> bool:
    return judged is not None and judged.error is None


def _judged_or_reason(
    pair: Pair, judge: Callable[[Pair], Judged], name: Callable[[Pair], tuple[str, str]]
) -> Judged:
    try:
        return judge(pair)
    except FAULTS_OF_A_PAIR as error:
        return Judged(*name(pair), error=" ".join(str(error).split()) or type(error).__name__)
