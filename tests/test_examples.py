"""Every example runs, with a small budget, prints something worth reading, and stays short."""

import ast
import runpy
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))

BUDGETS = {
    "beyond_space": ["--steps", "3"],
    "knees": ["--people", "8", "--spacing", "8"],
    "own_algorithm": ["--steps", "3"],
    "own_similarity": ["--steps", "5"],
    "train_on_folder": ["--steps", "2"],
    "train_shapes": ["--steps", "2", "--size", "16"],
    "warp_points": ["--size", "20"],
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(path), *BUDGETS.get(path.stem, [])])
    with torch.random.fork_rng(devices=[]):
        runpy.run_path(str(path), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 2 and all("nan" not in line.split() for line in lines)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_how_to_run_it(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert f"python examples/{path.name}" in ast.get_docstring(ast.parse(text))


def test_the_swap_shows_between_the_pixels_only(capsys):
    """What `off_grid.py` is there to show."""
    values = runpy.run_path(str(next(path for path in EXAMPLES if path.stem == "off_grid")))
    assert values["on_grid"] == 0 and values["changed"].abs().max() == 0
    # Half a pixel of 15, missed by 1.5 of them, near two of 256 pixels.
    assert values["off_grid"].mean() > 1e-5
    assert "misses by 1.5" in capsys.readouterr().out


def test_a_negative_is_registered_by_its_shape_alone(monkeypatch, capsys):
    """What `own_similarity.py` is there to show: squared differences cannot, the example's similarity can."""
    path = next(path for path in EXAMPLES if path.stem == "own_similarity")
    monkeypatch.setattr(sys, "argv", [str(path), "--steps", "60"])
    runpy.run_path(str(path), run_name="__main__")
    before, mse, correlation = (float(line.split()[-1]) for line in capsys.readouterr().out.splitlines())
    assert mse < before < correlation


def test_points_come_home_and_land_near_the_truth(monkeypatch, capsys):
    """What `warp_points.py` is there to show."""
    path = next(path for path in EXAMPLES if path.stem == "warp_points")
    monkeypatch.setattr(sys, "argv", [str(path), "--size", "40"])
    values = runpy.run_path(str(path), run_name="__main__")
    assert (values["home"] - values["points"]).norm(dim=1).max() < 0.5
    assert (
        (values["there"] - values["truth"]).norm(dim=1).median()
        < 3
        < (values["points"] - values["truth"]).norm(dim=1).min()
    )
