"""Files appear whole or not at all."""

import json

import pytest

from roundtrip.reports.files import write_json, write_whole


def test_a_file_is_written_and_folders_are_made(tmp_path):
    path = tmp_path / "a" / "b" / "note.txt"
    write_whole(path, lambda beside: beside.write_text("whole"))
    assert path.read_text() == "whole"
    assert [p.name for p in path.parent.iterdir()] == ["note.txt"]


def test_a_writer_that_fails_half_way_leaves_the_old_file_and_no_trace(tmp_path):
    path = tmp_path / "note.txt"
    path.write_text("old")

    def fail(beside):
        beside.write_text("ha")
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="disk is full"):
        write_whole(path, fail)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["note.txt"]


def test_nobody_sees_half_a_file(tmp_path):
    path = tmp_path / "note.txt"
    path.write_text("old")

    def look(beside):
        beside.write_text("new")
        assert path.read_text() == "old" and beside.suffix == path.suffix

    write_whole(path, look)
    assert path.read_text() == "new"


def test_json_is_readable_and_refuses_what_json_cannot_say(tmp_path):
    path = tmp_path / "values.json"
    write_json(path, {"a": [1, 2.5], "b": None})
    assert json.loads(path.read_text()) == {"a": [1, 2.5], "b": None}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": [1, 2.5], "b": None}
