"""`roundtrip train`: what it writes, says and refuses."""

import json

import pytest

from roundtrip.algorithms.saved import load
from roundtrip.cli.main import main
from training_samples import stage, write


@pytest.fixture
def config(tmp_path):
    return write(tmp_path / "tiny.yaml", stage("only", steps=2))


def test_it_writes_a_model_with_its_curves_and_says_how_good_it_is(config, tmp_path, capsys):
    folder = tmp_path / "new" / "model"
    assert main(["train", str(config), "-o", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert err == "" and str(folder) in out
    for word in ("held-out", "before", "after", "dice", "folds"):
        assert word in out
    names = {path.name for path in folder.iterdir()}
    assert {
        "model.safetensors",
        "card.json",
        "training.png",
        "config.yaml",
        "log.jsonl",
        "tensorboard",
    } <= names
    load(folder)


def test_json_stands_alone_and_quiet_is_silent(config, tmp_path, capsys):
    assert main(["train", str(config), "-o", str(tmp_path / "a"), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["seed"] == 0 and values["model"] == str(tmp_path / "a") and "dice" in values["validation"]
    assert main(["train", str(config), "-o", str(tmp_path / "b"), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_fields_are_replaced_by_name(config, tmp_path, capsys):
    changes = ["--set", "stages.0.steps=1", "--set", "about=two words"]
    assert main(["train", str(config), "-o", str(tmp_path / "a"), "--quiet", *changes]) == 0
    log = (tmp_path / "a" / "log.jsonl").read_text()
    assert log.count('"kind": "step"') == 1
    assert json.loads((tmp_path / "a" / "card.json").read_text())["data"] == "two words"


def test_what_it_wrote_down_can_be_trained_again(config, tmp_path):
    assert main(["train", str(config), "-o", str(tmp_path / "a"), "--quiet"]) == 0
    assert main(["train", str(tmp_path / "a" / "config.yaml"), "-o", str(tmp_path / "b"), "--quiet"]) == 0
    first, again = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b"))
    assert first == again


def test_a_second_run_needs_resume(config, tmp_path, capsys):
    folder = str(tmp_path / "a")
    assert main(["train", str(config), "-o", folder, "--quiet"]) == 0
    assert main(["train", str(config), "-o", folder]) == 2
    assert "--resume" in capsys.readouterr().err
    assert main(["train", str(config), "-o", folder, "--resume", "--quiet"]) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.yaml"], "neither a file nor a built-in experiment; these are triangles-tiny"),
        (["triangles-tiny", "--set", "stages.0.stepz=1"], "did you mean `steps`?"),
        (["triangles-tiny", "--seed", "-1"], "from 0 to"),
        (["triangles-tiny", "--threads", "0"], "at least one"),
        (["triangles-tiny", "--precision", "16-mixed"], "needs a GPU"),
        (["triangles-tiny", "--devices", "3", "--device", "cuda"], "more GPUs"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_anything_is_written(arguments, says, tmp_path, capsys):
    assert main(["train", *arguments, "-o", str(tmp_path / "a")]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1
    assert not (tmp_path / "a").exists()


def test_an_explosion_is_the_users_to_solve(tmp_path, capsys):
    config = write(tmp_path / "wild.yaml", stage("wild", steps=40, learning_rate=1e6), validation=None)
    assert main(["train", str(config), "-o", str(tmp_path / "a")]) == 2
    err = capsys.readouterr().err
    assert "of stage wild" in err and "smaller learning rate" in err
