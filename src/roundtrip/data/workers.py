"""Processes that do one kind of work on many items, and neither need nor run the caller's own script again.

Each is this file run as a program: it reads items from its standard input and answers on its standard output,
until the input ends, be it because its caller was killed. Neighbour: `preparing.py`, which prepares images.
"""

import contextlib
import os
import pickle
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], count: int, *, lost: Callable[[Item], Result]
) -> Iterator[Result]:
    """`work` of every item, in their order, by `count` processes; `lost` of those that a process died of."""
    workers: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
    for _ in range(count):
        workers.put(_Worker(work))

    def run(item: Item) -> Result:
        worker = workers.get()
        try:
            return worker.answer(item)
        except (EOFError, OSError, pickle.UnpicklingError):
            worker.close()
            return lost(item)
        finally:
            workers.put(worker)

    threads = ThreadPoolExecutor(count)
    try:
        yield from threads.map(run, items)
    finally:
        threads.shutdown(cancel_futures=True)
        for _ in range(count):
            workers.get().close()


class _Worker:
    """One process, started when it is first asked, and again after it died."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work
        self._process: subprocess.Popen[bytes] | None = None

    def answer(self, item: Any) -> Any:
        if self._process is None:
            self._process = _started()
            self._tell(self._work)
        self._tell(item)
        assert self._process.stdout is not None
        return pickle.load(self._process.stdout)

    def close(self) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.communicate()
            self._process = None

    def _tell(self, what: Any) -> None:
        assert self._process is not None and self._process.stdin is not None
        pickle.dump(what, self._process.stdin)
        self._process.stdin.flush()


def _started() -> "subprocess.Popen[bytes]":
    # It finds the package where this process does.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "roundtrip.data.workers"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def _serve(questions: BinaryIO, answers: BinaryIO) -> None:
    import torch

    # There are as many of us as cores.
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        work = pickle.load(questions)
        while True:
            pickle.dump(work(pickle.load(questions)), answers)
            answers.flush()


if __name__ == "__main__":
    answers_to_caller = sys.stdout.buffer
    # Whatever a library has to say goes elsewhere.
    sys.stdout = sys.stderr
    _serve(sys.stdin.buffer, answers_to_caller)
