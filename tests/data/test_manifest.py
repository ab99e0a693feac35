"""Manifests: every way to write one says the same, and what is wrong is said with its line."""

import json

import pytest

from data.scans import read_rows, write_rows, write_scans
from roundtrip._problems import ManyProblems, Problems
from roundtrip.data.manifest import read_manifest, read_pairs


def problems_of(path, read=read_manifest) -> list[str]:
    problems = Problems()
    read(path, problems)
    return [line.replace(f"{path.parent}/", "") for line in problems.lines]


@pytest.fixture
def manifest(tmp_path):
    return write_scans(tmp_path, subjects=2)


def test_csv_tsv_semicolons_and_json_lines_say_the_same(manifest):
    rows = read_rows(manifest)
    expected = read_manifest(manifest, Problems())
    names = list(rows[0])
    texts = {
        "a.tsv": "\n".join("\t".join(cells) for cells in [names, *(row.values() for row in rows)]),
        "b.csv": "\ufeff" + "\r\n".join("; ".join(cells) for cells in [names, *(r.values() for r in rows)]),
        "c.jsonl": "\n\n".join(json.dumps(row | {"age": 7, "group": None}) for row in rows),
    }
    for name, text in texts.items():
        path = manifest.with_name(name)
        path.write_text(text, encoding="utf-8")
        problems = Problems()
        found = read_manifest(path, problems)
        assert not problems
        assert [(r.name, r.subject, r.labels, r.image) for r in found] == [
            (r.name, r.subject, r.labels, r.image) for r in expected
        ]
        assert all(record.columns["side"] in ("left", "right") for record in found)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"image": "images/none.nii.gz"}, "scans.csv:3: image images/none.nii.gz does not exist"),
        ({"labels": "images/none.nii.gz"}, "scans.csv:3: labels images/none.nii.gz does not exist"),
        ({"subject": " "}, "scans.csv:3: 'subject' is empty."),
        ({"image": "images/s0_v0.nii.gz"}, "scans.csv:3: image images/s0_v0.nii.gz is in line 2 already."),
    ],
)
def test_a_wrong_line_is_named(manifest, change, says):
    rows = read_rows(manifest)
    rows[1] |= change
    (line,) = problems_of(write_rows(manifest, rows))
    assert line.startswith(says)


def renamed(manifest, names):
    rows = [{names.get(name, name): value for name, value in row.items()} for row in read_rows(manifest)]
    return write_rows(manifest, rows)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ({"labels": "lables"}, "scans.csv:1: column 'lables' is not known; did you mean 'labels'?"),
        ({"labels": "label"}, "scans.csv:1: column 'label' is not known; did you mean 'labels'?"),
        ({"image": "Image"}, "scans.csv:1: column 'Image' is not known; did you mean 'image'?"),
        ({"subject": "who"}, "scans.csv:1: there is no column 'subject'; columns are image, who, labels"),
    ],
)
def test_a_misspelt_column_is_named(manifest, names, says):
    (line,) = problems_of(renamed(manifest, names))
    assert line.startswith(says)


def test_a_column_of_ones_own_is_no_mistake(manifest):
    assert problems_of(renamed(manifest, {"part": "site"})) == []


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", b"", "it has no lines"),
        ("a.csv", b"image,subject\n", "it has no lines"),
        ("a.csv", b"\xff\xfe\x00", "it is not text in UTF-8"),
        ("a.csv", b"image,subject,image\na,b,c\n", "column 'image' is there twice"),
        ("a.csv", b"image,subject\na,b,c\n", "a.csv:2: it has 3 cells, but there are 2 columns"),
        ("a.jsonl", b'{"image": "a"\n', "a.jsonl:1: it is not JSON"),
        ("a.jsonl", b'["a"]\n', "a.jsonl:1: it is not a JSON object"),
        ("a.jsonl", b'\n{"image": ["a"], "subject": 1}\n', "a.jsonl:2: 'image' is ['a']"),
    ],
)
def test_a_broken_table_says_what_is_broken(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    assert any(says in line for line in problems_of(tmp_path / name))


def test_a_missing_table_is_one_problem(tmp_path):
    assert problems_of(tmp_path / "none.csv") == ["none.csv: there is no such file."]


def test_pairs_are_read_with_their_lines(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("moving,fixed\na,b\n,c\n")
    problems = Problems()
    assert read_pairs(path, problems) == [(f"{path}:2", "a", "b")]
    assert "pairs.csv:3: there is no moving" in problems.lines[0]


def test_problems_are_raised_in_one_error_each_on_its_line():
    problems = Problems()
    problems.raise_any("the data")
    for number in (1, 2, 2):
        problems.add("scans.csv", f"problem\n{number}")
    with pytest.raises(ManyProblems) as caught:
        problems.raise_any("the data")
    assert str(caught.value).splitlines() == [
        "2 things are wrong with the data:",
        "  scans.csv: problem 1",
        "  scans.csv: problem 2",
    ]
