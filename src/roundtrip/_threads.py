"""How compiled kernels are spread over the processor: with the same bits on any number of threads.

Used by the kernels of `maps/`, `losses/` and `pairwise/`; each says itself which numbers a call may write.
"""

import os
import threading
from collections.abc import Callable
from itertools import pairwise
from queue import SimpleQueue
from typing import Any

import torch


class Team:
    """As many threads as torch uses, kept for many kernels in a row: `with Team() as team: team.run(...)`."""

    def __init__(self) -> None:
        self.size = torch.get_num_threads()
        self._others = [_borrowed() for _ in range(self.size - 1)]

    def run(self, kernel: Callable[..., None], batch: int, length: int, *args: Any) -> None:
        """`kernel(*args, b, start, stop)` over all of `batch` x `length`.

        The kernel releases the GIL, and no two of its calls write one number.
        """
        threads = max(1, min(self.size, batch * length))
        edges = [batch * length * t // threads for t in range(threads + 1)]
        busy = self._others[: threads - 1]
        for other, span in zip(busy, pairwise(edges[1:]), strict=True):
            other.begin(_work, kernel, length, args, *span)
        try:
            _work(kernel, length, args, edges[0], edges[1])
        finally:
            failures = [other.finish() for other in busy]
        for failure in failures:
            if failure is not None:
                raise failure

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *_: object) -> None:
        # Starting a thread takes longer than many a kernel: they wait for the next team.
        _idle().extend(self._others)
        self._others = []


def run_in_threads(kernel: Callable[..., None], batch: int, length: int, *args: Any) -> None:
    """`Team.run`, of a team for this once."""
    with Team() as team:
        team.run(kernel, batch, length, *args)


class _Worker:
    """One thread, that does what it is told and says when it is done."""

    def __init__(self) -> None:
        self._told: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def begin(self, *work: Any) -> None:
        self._told.put(work)

    def finish(self) -> BaseException | None:
        """What went wrong, if anything; returns when all is done."""
        return self._done.get()

    def _serve(self) -> None:
        while True:
            function, *args = self._told.get()
            try:
                function(*args)
            except BaseException as failure:  # whoever gave the work has to hear of it
                self._done.put(failure)
            else:
                self._done.put(None)
            # Arrays must not be kept until there is more to do.
            del function, args


_IDLE: dict[int, list[_Worker]] = {}


def _idle() -> list[_Worker]:
    """The threads of this process that nobody uses: a process that was forked has none."""
    return _IDLE.setdefault(os.getpid(), [])


def _borrowed() -> _Worker:
    try:
        return _idle().pop()
    except IndexError:
        return _Worker()


def _work(kernel: Callable[..., None], length: int, args: tuple[Any, ...], first: int, last: int) -> None:
    while first < last:
        b, start = divmod(first, length)
        stop = min(length, start + last - first)
        kernel(*args, b, start, stop)
        first += stop - start
