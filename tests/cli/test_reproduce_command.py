"""`roundtrip reproduce`: what it lists, writes, says and refuses."""

import json

import pytest

from roundtrip.cli.main import main
from roundtrip.experiments.results import RESULTS


def test_without_a_name_it_lists_the_results(capsys):
    assert main(["reproduce"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [result.name for result in RESULTS]
    assert "Table 1" in lines[4] and all(len(line) <= 140 for line in lines)
    assert main(["reproduce", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {result.name for result in RESULTS}


def test_it_makes_a_result_and_says_what_it_shows(tmp_path, capsys):
    command = ["reproduce", "off-grid", "--scale", "quick", "-o", str(tmp_path / "new")]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert err == "" and "scale quick" in out and out.count("    yes  ") == 2
    assert (tmp_path / "new" / "off-grid-quick" / "figure.png").exists()
    assert main([*command, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["scale"] == "quick" and values["not_run"] == [] and len(values["rows"]) == 2
    assert main([*command, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_one_cell_can_be_asked_for(tmp_path, capsys):
    command = ["reproduce", "off-grid", "--scale", "quick", "-o", str(tmp_path), "--cells", "on-grid"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "not run: off-grid" in out and "not run  the swap costs nothing" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["table-2"], "is no result of the paper; these are matching-1d"),
        (["off-grid", "--scale", "long"], "scale"),
        (["off-grid", "--cells", "neither"], "its cells: on-grid, off-grid"),
        (["grids", "--data", "nowhere"], "nowhere does not exist"),
        (["curves", "--scale", "full"], "grants access"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments, says, tmp_path, capsys):
    assert main(["reproduce", *arguments, "-o", str(tmp_path / "a")]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1
