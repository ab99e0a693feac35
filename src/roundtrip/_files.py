"""Files that appear whole or not at all. Used by every room that writes: `space/`, `reports/` and others."""

import contextlib
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a file beside `path` and moves it there when it is complete.

    Whoever reads `path` sees the old file or the new one, never half of it; an error leaves no trace.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with folder_beside(path) as beside:
        # The name ends as `path` does: libraries choose the format by it.
        complete = beside / path.name
        write(complete)
        os.replace(complete, path)


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, whose files are moved into `folder` together when the block ends well.

    After an error or a signal nothing has changed in `folder`, and if it was made here, it is gone again.
    Whether one can write there at all is known at once.
    """
    made = [part for part in (folder, *folder.parents) if not part.exists()]
    try:
        with undisturbed():
            folder.mkdir(parents=True, exist_ok=True)
        with folder_beside(folder / "unfinished") as beside:
            yield beside
            with undisturbed():
                for complete in sorted(beside.iterdir()):
                    os.replace(complete, folder / complete.name)
    except BaseException:
        with undisturbed():
            for part in made:
                with contextlib.suppress(OSError):
                    part.rmdir()
        raise


@contextlib.contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """A hidden folder next to `path`, on its file system, gone with all it holds when the block ends."""
    made: list[str] = []
    try:
        with undisturbed():
            made.append(tempfile.mkdtemp(prefix=f".{path.stem}-", dir=path.parent))
        yield Path(made[0])
    finally:
        with undisturbed():
            for folder in made:
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until this block is done, and only then interrupt what comes after it.

    For the moments in which something was made and nobody knows yet that it must be taken away. Python
    delivers signals to the main thread alone, so other threads need nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    # None: a handler that was not installed from Python, which cannot be put back.
    before = {number: signal.getsignal(number) for number in numbers if signal.getsignal(number) is not None}
    try:
        for number in before:
            signal.signal(number, lambda number, frame: waiting.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for came in waiting:
            signal.raise_signal(came)
