"""Files appear whole or not at all, alone and in folders."""

import pytest

from roundtrip._files import whole_folder, write_whole


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
