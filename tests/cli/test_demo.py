"""`roundtrip demo` on small heads: what it writes, says and refuses."""

import functools
import json

import pytest

from roundtrip.cli.main import main
from roundtrip.data import phantoms

SHAPE = (28, 32, 28)
AS_REGISTER = {
    *("warped.nii.gz", "warped_labels.nii.gz", "transform.h5", "inverse.h5", "displacement.nii.gz"),
    *("jacobian.nii.gz", "roundtrip_error.nii.gz", "report.html", "thumbnail.jpg"),
    "metrics.json",
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(phantoms, "draw_pair", functools.partial(phantoms.draw_pair, shape=SHAPE))


def test_it_registers_what_it_drew_and_says_how_far_that_is_from_the_truth(tmp_path, capsys):
    folder = tmp_path / "new" / "demo"
    assert main(["demo", "-o", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert {path.name for path in folder.iterdir()} == AS_REGISTER | {"demo.png", "images"}
    assert {path.name for path in (folder / "images").iterdir()} == {
        *("fixed.nii.gz", "moving.nii.gz", "fixed_labels.nii.gz", "moving_labels.nii.gz"),
    }
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    values = json.loads((folder / "metrics.json").read_text())
    truth = values["true_error_mm"]
    assert truth["after"]["mean"] < 0.4 * truth["before"]["mean"]
    assert values["dice"]["mean"] > values["dice"]["before"]["mean"] + 0.2
    assert values["folds"]["count"] == 0
    for words in (
        "mean Dice of 7 labels",
        "true error in mm",
        "folded voxels",
        "round-trip error",
        "report.html",
    ):
        assert words in out
    assert err == ""


def test_json_is_what_the_file_says(tmp_path, capsys):
    assert main(["demo", "-o", str(tmp_path), "--effort", "fast", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "metrics.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--threads", "0"], "at least one"), (["--seed", "-1"], "from 0 to")],
)
def test_bad_settings_are_refused_before_drawing(arguments, says, tmp_path, capsys):
    assert main(["demo", "-o", str(tmp_path / "demo"), *arguments]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


def test_a_file_is_no_folder(tmp_path, capsys):
    (tmp_path / "demo").write_text("something of the user's")
    assert main(["demo", "-o", str(tmp_path / "demo")]) == 2
    assert "is a file" in capsys.readouterr().err
    assert (tmp_path / "demo").read_text() == "something of the user's"
