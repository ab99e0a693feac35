"""What a result of the paper is to us: cells that are computed one by one, and what is made of their numbers.

Neighbours: one file per result (`flips.py`, ...), `workplace.py` (what cells are computed with),
`reproduce.py` (which runs them and writes the files), `results.py` (all by name).
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from roundtrip.evaluation.summary import Row, as_markdown
from roundtrip.experiments.workplace import Workplace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = Literal["quick", "hours", "full"]
"""`full` is the paper's own protocol, `hours` fits an evening on two cores, `quick` a test."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a cell left: numbers for the table, arrays for the figure."""

    numbers: Mapping[str, Any]
    """Values that JSON knows, by the names of their columns."""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Cell:
    """A part of a result that is computed by itself, once."""

    name: str
    """Also that of its files."""
    settings: Mapping[str, Any]
    """All that decides the numbers, as JSON has it."""
    compute: Callable[[Workplace], Outcome]


@dataclass(frozen=True)
class Claim:
    """Something the result must show."""

    says: str
    holds: bool | None
    """None: the cells that would tell were not run."""
    numbers: str = ""
    """On which that rests."""


class AbstractResult(abc.ABC):
    """A figure, table or section of the paper, made again."""

    name: str
    paper: str
    """Where it is: "Fig. 2"."""
    shows: str
    """What there is to see, in one line."""
    needs_digits: bool = False

    @abc.abstractmethod
    def cells(self, scale: Scale) -> Sequence[Cell]:
        """In the order in which they are to be computed."""

    def rows(self, done: Mapping[str, Outcome], scale: Scale) -> list[Row]:
        """The table, of the cells that were run: a row for each, unless a result says otherwise."""
        return [{"cell": name, **outcome.numbers} for name, outcome in done.items()]

    @abc.abstractmethod
    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        """What has to be true, judged by the table alone."""

    def markdown(self, rows: Sequence[Row]) -> str:
        """The table for people."""
        return as_markdown(rows)

    @abc.abstractmethod
    def figure(self, done: Mapping[str, Outcome]) -> "Figure":
        """The picture, of the cells that were run: at least one."""


def by_cell(rows: Sequence[Row]) -> dict[str, Row]:
    """The rows by the names of their cells."""
    return {row["cell"]: row for row in rows}


def claim(says: str, rows: Mapping[str, Row], needed: Sequence[str], test: Callable[..., Any]) -> Claim:
    """`test(*rows)` of the cells `needed` says (whether it holds, by which numbers)."""
    if any(name not in rows for name in needed):
        return Claim(says, None)
    holds, numbers = test(*(rows[name] for name in needed))
    return Claim(says, bool(holds), numbers)
