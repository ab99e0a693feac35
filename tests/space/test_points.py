"""Points in tables: what is read is written back, what is no point is said."""

import pytest
import torch

from roundtrip.space.points import read_points, write_points


def table(tmp_path, text):
    (tmp_path / "points.csv").write_text(text)
    return tmp_path / "points.csv"


def test_columns_are_found_by_their_names_and_the_rest_is_kept(tmp_path):
    path = table(tmp_path, "label,z,Y,x\nleft tip,3,2,1\nright,6,5,4\n")
    points = read_points(path)
    assert points.xyz.tolist() == [[1, 2, 3], [4, 5, 6]]
    write_points(points.with_points(points.xyz + 0.5), tmp_path / "moved.csv")
    assert (tmp_path / "moved.csv").read_text().splitlines() == [
        "label,z,Y,x",
        "left tip,3.500000,2.500000,1.500000",
        "right,6.500000,5.500000,4.500000",
    ]


def test_without_names_the_first_columns_count(tmp_path):
    points = read_points(table(tmp_path, "1,2,3,a\n\n4,5,6,b\n"))
    assert points.xyz.tolist() == [[1, 2, 3], [4, 5, 6]] and points.header == ()
    assert read_points(table(tmp_path, "1,2,9\n"), dims=2).xyz.tolist() == [[1, 2]]


def test_ras_runs_the_other_way_along_two_axes_and_back(tmp_path):
    path = table(tmp_path, "x,y,z\n1,2,3\n")
    points = read_points(path, world="RAS")
    assert points.xyz.tolist() == [[-1, -2, 3]]
    write_points(points, tmp_path / "same.csv", world="RAS")
    assert read_points(tmp_path / "same.csv").xyz.equal(torch.tensor([[1.0, 2, 3]]).double())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b,c\n1,2,3\n", "none is called x"),
        ("x,y,z\n1,2\n", "without a number in column 3"),
        ("1,2,3\n4,five,6\n", "without a number in column 2"),
        ("x,y,z\n1,nan,3\n", "without a number in column 2"),
    ],
)
def test_what_is_no_table_of_points_is_said(text, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        read_points(table(tmp_path, text))


def test_a_file_without_anything_is_no_table_of_no_points(tmp_path):
    (tmp_path / "empty.csv").write_text("\n\n")
    with pytest.raises(ValueError, match="is empty"):
        read_points(tmp_path / "empty.csv")


def test_files_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_points(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(ValueError, match="is no text"):
        read_points(tmp_path / "binary.csv")
