"""Folders: the names of files say who is who, and what belongs together."""

import pytest

from data.scans import write_scans
from roundtrip._problems import Problems
from roundtrip.data.folder import find_images
from roundtrip.data.sources import FolderSource


@pytest.fixture
def folder(tmp_path):
    write_scans(tmp_path, subjects=2)
    return tmp_path


def found(problems=None, **fields):
    problems = problems or Problems()
    records = find_images(FolderSource(**fields), problems)
    return records, problems.lines


def test_every_image_is_of_another_subject_unless_a_pattern_says_so(folder):
    records, lines = found(path=folder / "images")
    assert not lines and len({record.subject for record in records}) == len(records) == 4
    records, _ = found(path=folder / "images", subject=r"(s\d)")
    assert [record.subject for record in records] == ["s0", "s0", "s1", "s1"]


def test_named_groups_are_columns(folder):
    records, _ = found(path=folder / "images", subject=r"(?P<visit>_v\d)?(?P<subject>s\d)")
    assert [record.subject for record in records] == ["s0", "s0", "s1", "s1"]
    records, _ = found(path=folder / "images", subject=r"(?P<subject>s\d)_v(?P<visit>\d)")
    assert [record.columns for record in records] == [{"visit": "0"}, {"visit": "1"}] * 2


@pytest.mark.parametrize("path", ["", "images"])
def test_labels_are_found_by_name_and_are_no_images(folder, path):
    records, lines = found(path=folder / path, labels=folder / "labels")
    assert not lines and len(records) == 4
    assert all(record.labels == folder / "labels" / record.image.name for record in records)


def test_a_name_may_end_differently_and_hidden_files_do_not_count(folder):
    for path in list((folder / "labels").iterdir()):
        path.rename(path.with_name(path.name.replace(".nii.gz", ".mha")))
    (folder / "images" / "._s0_v0.nii.gz").write_bytes(b"")
    records, lines = found(path=folder / "images", labels=folder / "labels")
    assert not lines and len(records) == 4 and all(record.labels.suffix == ".mha" for record in records)


def test_what_is_missing_is_named_file_by_file(folder):
    (folder / "labels" / "s0_v0.nii.gz").unlink()
    _, lines = found(path=folder / "images", labels=folder / "labels", subject=r"(s0)")
    assert len(lines) == 3
    assert "images/s0_v0.nii.gz: no file is called s0_v0 among the labels" in lines[0]
    assert "images/s1_v0.nii.gz: its name does not show the subject" in lines[1]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"path": "none"}, "none: there is no such folder"),
        ({"images": "*.mha"}, "no file in it is called like"),
    ],
)
def test_a_folder_without_images_says_so(folder, fields, says):
    _, lines = found(**{"path": folder, **fields})
    assert len(lines) == 1 and says in lines[0]
