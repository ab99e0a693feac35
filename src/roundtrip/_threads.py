"""How compiled kernels are spread over the processor: with the same bits on any number of threads.

Used by the kernels of `maps/`, `losses/` and `pairwise/`; each says itself which numbers a call may write.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import torch


class Team:
    """As many threads as torch uses, kept for many kernels in a row: `with Team() as team: team.run(...)`."""

    def __init__(self) -> None:
        self.size = torch.get_num_threads()
        self._others = ThreadPoolExecutor(self.size)

    def run(self, kernel: Callable[..., None], batch: int, length: int, *args: Any) -> None:
        """`kernel(*args, b, start, stop)` over all of `batch` x `length`.

        The kernel releases the GIL, and no two of its calls write one number.
        """
        threads = min(self.size, batch * length)
        edges = [batch * length * t // threads for t in range(threads + 1)]
        others = [self._others.submit(_work, kernel, length, args, *span) for span in pairwise(edges[1:])]
        _work(kernel, length, args, edges[0], edges[1])
        for other in others:
            other.result()

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *_: object) -> None:
        self._others.shutdown()


def run_in_threads(kernel: Callable[..., None], batch: int, length: int, *args: Any) -> None:
    """`Team.run`, of a team for this once."""
    with Team() as team:
        team.run(kernel, batch, length, *args)


def _work(kernel: Callable[..., None], length: int, args: tuple[Any, ...], first: int, last: int) -> None:
    while first < last:
        b, start = divmod(first, length)
        stop = min(length, start + last - first)
        kernel(*args, b, start, stop)
        first += stop - start
