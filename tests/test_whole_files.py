"""Files appear whole or not at all, alone and in folders."""

import os
import signal

import pytest

from roundtrip._files import undisturbed, whole_folder, write_whole


def test_a_folder_is_filled_when_all_is_done(tmp_path):
    with whole_folder(tmp_path / "a" / "b") as beside:
        (beside / "one").write_text("1")
        assert not (tmp_path / "a" / "b" / "one").exists()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["one"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_after_an_error_nothing_has_changed(tmp_path, error):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "one").write_text("old")
    for folder in (tmp_path / "old", tmp_path / "new" / "below"):
        with pytest.raises(error), whole_folder(folder) as beside:
            (beside / "one").write_text("new")
            raise error
    assert (tmp_path / "old" / "one").read_text() == "old"
    assert [path.name for path in tmp_path.rglob("*")] == ["old", "one"]


def test_a_file_that_is_not_finished_is_not_there(tmp_path):
    def half(path):
        path.write_text("half")
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_whole(tmp_path / "file", half)
    assert list(tmp_path.iterdir()) == []


def interrupt_after(monkeypatch, function):
    """Ctrl-C comes the moment `os.<function>` has done its work, before anybody knows of it."""
    original = getattr(os, function)

    def interrupted(*args, **kwargs):
        done = original(*args, **kwargs)
        signal.raise_signal(signal.SIGINT)
        return done

    monkeypatch.setattr(os, function, interrupted)


@pytest.mark.parametrize("when", ["mkdir", "replace"])
def test_an_interrupt_at_the_worst_moment_leaves_all_or_nothing(tmp_path, monkeypatch, when):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_after(patch, when)
        with whole_folder(tmp_path / "new" / "below") as beside:
            for name in ("one", "two"):
                (beside / name).write_text(name)
    there = {path.name for path in tmp_path.rglob("*")}
    assert there == (set() if when == "mkdir" else {"new", "below", "one", "two"})


def test_signals_wait_and_are_not_lost():
    before = signal.getsignal(signal.SIGINT)
    reached = []
    with pytest.raises(KeyboardInterrupt), undisturbed():
        signal.raise_signal(signal.SIGINT)
        reached.append("the end of the block")
    assert reached and signal.getsignal(signal.SIGINT) is before
