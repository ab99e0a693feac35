"""A result goes on where it was stopped: cell by cell, and within a training."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import roundtrip
from roundtrip.experiments.networks_compared import Training
from roundtrip.experiments.reproduce import reproduce
from roundtrip.experiments.result import AbstractResult, Cell, Claim, Outcome
from roundtrip.experiments.results import result_named
from roundtrip.experiments.table import read_table
from roundtrip.experiments.workplace import Workplace
from training_samples import alone


class Counting(AbstractResult):
    """Three cells; the second fails while `broken`."""

    name, paper, shows = "counting", "Fig. 0", "that cells are computed once"

    def __init__(self, broken=False, setting=1):
        self.broken, self.setting, self.computed = broken, setting, []

    def cells(self, scale):
        return [Cell(name, {"setting": self.setting, "pair": (1, 2)}, self._compute(name)) for name in "abc"]

    def _compute(self, name):
        def compute(place):
            if self.broken and name == "b":
                raise RuntimeError("stopped")
            self.computed.append(name)
            return Outcome({"letter": name, "value": 0.5}, {"array": np.arange(3)})

        return compute

    def claims(self, rows):
        return [Claim("there are three", len(rows) == 3 if len(rows) == 3 else None)]

    def figure(self, done):
        from matplotlib.figure import Figure

        assert all((outcome.arrays["array"] == np.arange(3)).all() for outcome in done.values())
        return Figure(figsize=(1, 1))


@pytest.fixture
def place(tmp_path):
    return Workplace(tmp_path, alone())


def test_cells_that_are_done_are_not_done_again(place):
    broken = Counting(broken=True)
    with pytest.raises(RuntimeError):
        reproduce(broken, "quick", place)
    table = read_table(place.root / "counting-quick" / "table.json")
    assert [row["cell"] for row in table.rows] == ["a"] and table.not_run == ["b", "c"]
    assert table.claims[0].holds is None
    assert "Not run: b, c." in (place.root / "counting-quick" / "table.md").read_text()
    whole = Counting()
    made = reproduce(whole, "quick", place)
    assert broken.computed == ["a"] and whole.computed == ["b", "c"]
    assert made.table.claims[0].holds and not made.table.not_run
    again = Counting()
    assert reproduce(again, "quick", place).table.rows == made.table.rows and not again.computed


def test_chosen_cells_alone_are_run(place):
    result = Counting()
    assert reproduce(result, "quick", place, only=["b"]).table.not_run == ["a", "c"]
    assert result.computed == ["b"]
    with pytest.raises(ValueError, match="its cells: a, b, c"):
        reproduce(result, "quick", place, only=["d"])


def test_what_was_made_otherwise_is_not_mixed_in(place):
    reproduce(Counting(), "quick", place)
    with pytest.raises(ValueError, match="other settings"):
        reproduce(Counting(setting=2), "quick", place)


def test_an_unfinished_cell_is_done_again(place):
    """The numbers are written last: arrays alone are a cell that was killed."""
    reproduce(Counting(), "quick", place)
    cells = place.root / "counting-quick" / "cells"
    (cells / "b.json").unlink()
    again = Counting()
    reproduce(again, "quick", place)
    assert again.computed == ["b"]
    (cells / "c.json").write_text('{"settings"')
    with pytest.raises(ValueError, match="cannot be read"):
        reproduce(Counting(), "quick", place)


def test_scales_stand_beside_each_other(place):
    reproduce(Counting(), "quick", place)
    hours = Counting()
    reproduce(hours, "hours", place)
    assert hours.computed == ["a", "b", "c"]
    for scale in ("quick", "hours"):
        settings = json.loads((place.root / f"counting-{scale}" / "settings.json").read_text())
        assert settings["scale"] == scale and settings["cells"]["a"] == {"setting": 1, "pair": [1, 2]}


def test_table_1_and_the_grids_share_their_trainings(place):
    training = Training("shapes", "unet", 64, "quick")
    first = training.trained(place)
    folder = place.root / "trainings" / "shapes-quick-unet-64"
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert not (folder / "checkpoints").exists()
    again = training.trained(place)
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    assert len(first.records) == len(again.records) == training.budget.steps
    config = training.config(Path())
    longer = config.model_copy(update={"about": "something else"})
    with pytest.raises(ValueError, match="other settings"):
        place.trained(training.name, longer)


COMMAND = ["reproduce", "architectures-shapes", "--scale=quick", "--cells=unet-64", "--threads=1", "--quiet"]


def start(folder: Path) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": str(Path(roundtrip.__file__).parents[1])}
    run = "import sys; from roundtrip.cli.main import main; sys.exit(main())"
    return subprocess.Popen([sys.executable, "-c", run, *COMMAND, "-o", str(folder)], env=environment)


@pytest.mark.slow
def test_killed_in_a_training_it_ends_as_if_it_had_not_been(tmp_path):
    assert start(tmp_path / "whole").wait() == 0
    killed = start(tmp_path / "killed")
    checkpoints = tmp_path / "killed" / "trainings" / "shapes-quick-unet-64" / "checkpoints"
    while not list(checkpoints.glob("00-*")):
        assert killed.poll() is None
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    cells = "architectures-shapes-quick/cells/unet-64.json"
    assert not (tmp_path / "killed" / cells).exists()
    assert start(tmp_path / "killed").wait() == 0
    numbers = [json.loads((tmp_path / name / cells).read_text())["numbers"] for name in ("whole", "killed")]
    assert numbers[0] == numbers[1]


def test_a_result_is_for_one_process(place, as_users_see_it):
    class Two:
        count = 2

    with pytest.raises(ValueError, match="one process"):
        reproduce(result_named("off-grid"), "quick", Workplace(place.root, Two()))
