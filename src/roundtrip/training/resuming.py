"""Whether a run may begin in a folder, and from where it goes on. Neighbours: `run.py`, `checkpoint.py`."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from roundtrip._launch import Ranks
from roundtrip.algorithms.saved import CARD, WEIGHTS
from roundtrip.training.checkpoint import Checkpoint, Checkpoints, UnreadableCheckpoint, read
from roundtrip.training.config_file import differences
from roundtrip.training.watch import AbstractWatcher


@contextlib.contextmanager
def alone_in(folder: Path, ranks: Ranks) -> Iterator[None]:
    """No other run works in `folder` meanwhile. One that dies, however it dies, lets go of it.

    Two would mix their logs, and each would remove the checkpoints of the other.
    """
    wrong: str | None = None
    with contextlib.ExitStack() as held:
        try:
            if ranks.is_first:
                held.enter_context(_locked(folder))
        except OSError as error:
            wrong = str(error)
        if (said := ranks.gathered([wrong])[0]) is not None:
            raise ValueError(said)
        yield


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    number = os.open(folder, os.O_RDONLY)
    try:
        _lock(number, folder)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                # A run that was refused before it wrote anything leaves nothing.
                folder.rmdir()
    finally:
        os.close(number)


def _lock(number: int, folder: Path) -> None:
    try:
        # Not every system has it.
        import fcntl

        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OSError(
            f"another run is at work in {folder}; wait for its end, or choose another folder."
        ) from error
    except (ImportError, OSError):
        # Nor every network's file system.
        return


def require_free(folder: Path, store: Checkpoints, *, resume: bool) -> None:
    """Nothing that a run would overwrite is there, or it is asked to go on."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; name a folder for the run and its model.")
    is_run = any(True for _ in store.newest_first())
    if is_run and not resume:
        raise ValueError(
            f"{folder} holds a run already; go on with it by adding `--resume`, or choose another folder."
        )
    if not is_run and any((folder / name).exists() for name in (WEIGHTS, CARD)):
        raise ValueError(f"{folder} holds a model that is no run of ours; choose another folder.")


def newest_checkpoint(
    store: Checkpoints, plain: Mapping[str, Any], watchers: Sequence[AbstractWatcher]
) -> Checkpoint | None:
    """The newest whole one, which has to be of this very configuration; None where there is none."""
    paths = list(store.newest_first())
    for path in paths:
        try:
            checkpoint = read(path)
        except UnreadableCheckpoint as error:
            for watcher in watchers:
                watcher.on_note(f"{error} It is skipped; the one before it is used.")
            continue
        _require_same(checkpoint.config, plain, store.folder.parent)
        return checkpoint
    if paths:
        raise ValueError(
            f"none of the {len(paths)} checkpoints in {store.folder} can be read; to begin anew, remove "
            "that folder."
        )
    return None


def _require_same(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    if changed := differences(dict(before), dict(now)):
        raise ValueError(
            f"the run in {folder} has another configuration; it differs in {', '.join(changed)}. A run goes "
            "on as it began: give the same configuration and --seed, or choose another folder."
        )
