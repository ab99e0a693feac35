"""`roundtrip cohort` on small heads: a folder for each pair, tables over all, one that fails is listed."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from roundtrip.cli.main import main
from roundtrip.data.phantoms import draw_pair
from roundtrip.pairwise.cohort import MARK
from roundtrip.space.files import write


def facts_of(page: str) -> dict:
    (facts,) = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(facts)


@pytest.fixture(scope="module")
def heads(tmp_path_factory) -> Path:
    """Two heads, their labels, a file that is no image, and a table of pairs."""
    folder = tmp_path_factory.mktemp("heads")
    pair = draw_pair(shape=(20, 24, 20))
    for name, phantom in (("a", pair.fixed), ("b", pair.moving)):
        write(phantom.image, folder / "images" / f"{name}.nii.gz")
        write(phantom.labels, folder / "labels" / f"{name}.nii.gz")
    (folder / "broken.nii.gz").write_bytes(b"not an image")
    lines = ["fixed,moving,fixed_labels,moving_labels"]
    lines.append("images/a.nii.gz,images/b.nii.gz,labels/a.nii.gz,labels/b.nii.gz")
    lines.append("images/a.nii.gz,broken.nii.gz,,")
    lines.append("images/b.nii.gz,images/a.nii.gz,labels/b.nii.gz,labels/a.nii.gz")
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_pairs_are_registered_and_one_that_fails_is_listed(heads, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["cohort", "--pairs", str(heads / "pairs.csv"), "-o", str(out), "--effort", "fast"]
    assert main(command) == 0
    said, err = capsys.readouterr()
    assert "2 pairs registered, 1 failed" in said and "broken_to_a" in said and err == ""
    assert (out / "b_to_a" / "transform.h5").exists() and (out / "b_to_a" / "report.html").exists()
    summary = json.loads((out / "summary.json").read_text())
    assert [one["name"] for one in summary["failed"]] == ["broken_to_a"]
    with (out / "summary.csv").open(newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert float(rows["b_to_a"]["dice"]) > float(rows["b_to_a"]["dice_before"])
    assert rows["broken_to_a"]["error"] and not rows["a_to_b"]["error"]
    assert "broken_to_a" in (out / "summary.md").read_text()
    failed, *others = facts_of((out / "index.html").read_text())["rows"]
    assert failed["n"] == "broken_to_a" and failed["e"] == summary["failed"][0]["reason"]
    # Every row has its picture, and opens its pair.
    assert {row["r"] for row in others} == {"./b_to_a/report.html", "./a_to_b/report.html"}
    assert sorted(row["p"] for row in others) == [0, 1] and "p" not in failed

    before = (out / "b_to_a" / "metrics.json").stat().st_mtime_ns
    assert main([*command, "--quiet"]) == 0
    assert (out / "b_to_a" / "metrics.json").stat().st_mtime_ns == before
    assert main([*command[:-1], "best"]) == 2
    assert "already holds b_to_a" in capsys.readouterr().err


def test_all_images_of_a_folder_to_a_template(heads, tmp_path, capsys):
    command = [
        "cohort",
        "--to-template",
        str(heads / "images" / "a.nii.gz"),
        "--images",
        str(heads / "images"),
    ]
    assert main([*command, "-o", str(tmp_path), "--effort", "fast", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pairs"] == 1
    assert (tmp_path / "b" / "warped.nii.gz").exists() and not (tmp_path / "a").exists()


def test_what_is_missing_is_said_before_anything_is_done(heads, tmp_path, capsys):
    table = tmp_path / "pairs.csv"
    table.write_text("fixed,moving\nnowhere.nii.gz,neither.nii.gz\n")
    assert main(["cohort", "--pairs", str(table), "-o", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert "nowhere.nii.gz does not exist" in err and "neither.nii.gz does not exist" in err
    assert not (tmp_path / "out").exists()
    assert main(["cohort", "-o", str(tmp_path / "out")]) == 2
    assert "--to-template" in capsys.readouterr().err


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_and_two_processes_share(heads, tmp_path):
    """As a user would: processes of their own, the first killed as soon as one pair is done."""
    out = tmp_path / "out"
    # A file, because the second process runs the command line of the first again.
    program = tmp_path / "program.py"
    program.write_text("import sys\nfrom roundtrip.cli.main import main\nsys.exit(main())\n")
    command = [sys.executable, str(program), "cohort", "--pairs", str(heads / "pairs.csv")]
    command += ["-o", str(out), "--effort", "fast", "--device", "cpu"]
    process = subprocess.Popen(command)
    while not (out / "b_to_a" / MARK).exists():
        time.sleep(0.05)
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / "summary.json").exists()
    before = (out / "b_to_a" / MARK).stat().st_mtime_ns
    assert subprocess.run([*command, "--devices", "2"]).returncode == 0
    assert (out / "b_to_a" / MARK).stat().st_mtime_ns == before
    assert json.loads((out / "summary.json").read_text())["pairs"] == 2
