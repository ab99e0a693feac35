"""`roundtrip evaluate`: pairs of a manifest, judged, remembered, and summed up."""

import csv
import json
import re
import subprocess
import sys

import pytest
import torch

from data.scans import read_rows, write_rows, write_scans
from roundtrip.algorithms.card import Card, Intensities, Mirror, Preparation
from roundtrip.algorithms.from_network import DisplacementRegistration
from roundtrip.algorithms.saved import load, save
from roundtrip.cli.main import main
from roundtrip.networks.unet import UNet
from roundtrip.space.files import read
from roundtrip.space.transform import Transform

PREPARATION = Preparation(
    orientation="LPS", intensities=Intensities(unit="percentiles", lower=1, upper=99), grid=(8, 8, 8)
)
TRAINING = {"lambda": 1.0, "config": {"stages": [{"similarity": {"name": "mse"}}]}}


def save_model(folder, *, strength: float = 0.0, **card):
    """A network that registers by the identity, or by noise."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        algorithm = DisplacementRegistration(UNet(dims=3, down_features=(2, 4), up_features=(2, 4))).eval()
        with torch.no_grad():
            for weight in algorithm.parameters():
                weight += strength * torch.randn(weight.shape)
    fields = {"preparation": PREPARATION, "data": "", "numbers": {}, "licence": "", "training": TRAINING}
    save(algorithm, folder, card=Card(**{**fields, **card}))
    return folder


@pytest.fixture(autouse=True)
def one_thread():
    """These images are tiny: more threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def model(tmp_path):
    return save_model(tmp_path / "model")


@pytest.fixture
def manifest(tmp_path):
    return write_scans(tmp_path / "scans", subjects=3)


def evaluate(capsys, model, manifest, *more, code=0):
    """What it prints as JSON, or its error."""
    arguments = ["evaluate", str(model), "--data", str(manifest), "-o", str(manifest.parent / "out")]
    assert main([*arguments, "--json", "--device", "cpu", *map(str, more)]) == code
    out, err = capsys.readouterr()
    return json.loads(out) if code == 0 else err


def table(manifest, name="pairs.csv") -> list[dict[str, str]]:
    with (manifest.parent / "out" / name).open(newline="") as file:
        return list(csv.DictReader(file))


def measure(values, name):
    return next(row for row in values["measures"] if row["measure"] == name)


def test_every_pair_across_subjects_is_in_the_tables(capsys, model, manifest):
    values = evaluate(capsys, model, manifest)
    rows = table(manifest)
    assert values["pairs"] == len(rows) == 6 * 4 and values["failed"] == []
    assert len({(row["moving"], row["fixed"]) for row in rows}) == 24
    assert all(row["moving"][7:9] != row["fixed"][7:9] for row in rows)
    # The network is the identity: nothing changes, and nothing folds.
    dice = measure(values, "dice")
    assert dice["mean"] == dice["before_mean"] and 0 < dice["mean"] < 1
    assert measure(values, "folds")["max"] == 0 and measure(values, "roundtrip_error_max_mm")["max"] < 1e-4
    assert {row["label"] for row in table(manifest, "labels.csv")} == {"1"}
    assert json.loads((manifest.parent / "out" / "summary.json").read_text()) == values
    assert "| dice" in (manifest.parent / "out" / "summary.md").read_text()


def test_as_text_it_is_a_table(capsys, model, manifest):
    out = str(manifest.parent / "out")
    assert main(["evaluate", str(model), "--data", str(manifest), "-o", out, "--count", "2"]) == 0
    printed = capsys.readouterr().out
    assert "before" in printed and "\ndice " in printed and "summary.json" in printed
    assert main(["evaluate", str(model), "--data", str(manifest), "-o", out, "--count", "2", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_what_was_done_is_not_done_again(capsys, model, manifest):
    evaluate(capsys, model, manifest, "--count", 5)
    first = {(row["moving"], row["fixed"]): row["seconds"] for row in table(manifest)}
    journal = next((manifest.parent / "out" / "journal").glob("*.jsonl"))
    # Killed while it wrote its last line.
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:30])
    known = [json.loads(line) for line in lines[:-1]]
    evaluate(capsys, model, manifest)
    rows = {(row["moving"], row["fixed"]): row["seconds"] for row in table(manifest)}
    assert len(first) == 5 and len(rows) == 24
    for one in known:
        pair = one["moving"], one["fixed"]
        assert rows[pair] == first[pair]
    assert len(journal.read_bytes().splitlines()) == 4 + 1 + 20


def test_another_model_does_not_continue_it(capsys, model, manifest, tmp_path):
    evaluate(capsys, model, manifest, "--count", 1)
    other = save_model(tmp_path / "other", strength=0.05)
    said = evaluate(capsys, other, manifest, "--count", 1, code=2)
    assert "holds an evaluation with another model, weights" in said
    said = evaluate(capsys, model, manifest, "--count", 1, "--refine", 1, code=2)
    assert "another refinement" in said


def test_a_part_is_that_of_the_training_or_of_the_column(capsys, model, manifest):
    evaluate(capsys, model, manifest, "--part", "train")
    assert {row["moving"][7:9] for row in table(manifest)} == {"s0", "s1"}
    split = {"train": ["s0"], "validation": [], "test": ["s1", "s2"]}
    (model / "split.json").write_text(json.dumps(split))
    evaluate(capsys, model, manifest, "--part", "test")
    assert {row["moving"][7:9] for row in table(manifest)} == {"s1", "s2"}
    said = evaluate(capsys, model, manifest, "--part", "exam", code=2)
    assert "exam is not one of train, validation, test" in said


def test_pairs_are_those_that_are_asked_for(capsys, model, manifest):
    names = [row["image"] for row in read_rows(manifest)]
    pairs = write_rows(
        manifest.with_name("pairs.csv"),
        [{"moving": names[0], "fixed": names[1]}, {"moving": names[5], "fixed": names[0]}],
    )
    evaluate(capsys, model, manifest, "--pairs", pairs)
    assert [(row["moving"], row["fixed"]) for row in table(manifest)] == [
        (names[0], names[1]),
        (names[5], names[0]),
    ]
    evaluate(capsys, model, manifest, "--within-subject")
    assert len(table(manifest)) == 6
    write_rows(pairs, [{"moving": names[0], "fixed": names[0]}, {"moving": "x", "fixed": names[0]}])
    said = evaluate(capsys, model, manifest, "--pairs", pairs, code=2).splitlines()
    assert len(said) == 3 and "pairs.csv:2" in said[1] and "pairs.csv:3: x is no image" in said[2]


def test_refinement_registers_better_and_exports_what_it_optimised(capsys, model, manifest):
    weights = (model / "model.safetensors").read_bytes()
    values = evaluate(
        capsys, model, manifest, "--count", 2, "--refine", 20, "--refine-rate", 0.01, "--transforms"
    )
    similarity = measure(values, "ncc")
    assert similarity["mean"] < 0.98 * similarity["before_mean"]
    assert values["refinement"]["lambda"] == 1.0 and values["refinement"]["steps"] == 20
    assert (model / "model.safetensors").read_bytes() == weights
    assert all(not p.requires_grad or p.grad is None for p in load(model).parameters())
    row = table(manifest)[0]
    moving, fixed = (read(manifest.parent / row[name]) for name in ("moving", "fixed"))
    paths = sorted((manifest.parent / "out" / "transforms").glob("*.h5"))
    assert len(paths) == 4
    stem = "_to_".join(row[name][7:12] for name in ("moving", "fixed"))
    path, back = (path for path in paths if path.name.startswith(stem))
    assert back.name == path.name.replace(".h5", "_inverse.h5")
    transform = Transform.load(path, fixed=fixed, moving=moving)
    corner = [[3.0, -2.0, 5.0], [6.0, 1.0, 9.0]]
    assert (transform.points(corner) - torch.tensor(corner)).abs().max() > 1e-3


def test_a_model_that_does_not_say_how_it_was_trained_has_to_be_told(capsys, manifest, tmp_path):
    model = save_model(tmp_path / "plain", training=None)
    said = evaluate(capsys, model, manifest, "--refine", 1, code=2)
    assert "similarity and lambda" in said and "--refine-similarity lncc --refine-lambda 10" in said
    told = ("--refine-similarity", "ncc", "--refine-lambda", 1)
    evaluate(capsys, model, manifest, "--refine", 1, "--count", 1, *told)
    said = evaluate(capsys, model, manifest, "--refine", 1, "--refine-similarity", "cnn", code=2)
    assert "lambda" in said or "cnn" in said


def test_a_pair_that_fails_is_a_result_with_its_reason(capsys, model, manifest):
    (manifest.parent / "images" / "s0_v0.nii.gz").write_bytes(b"no image")
    values = evaluate(capsys, model, manifest)
    assert len(values["failed"]) == 8 and values["pairs"] == 16
    assert all("scans.csv:2: " in one["reason"] for one in values["failed"])
    assert sum(bool(row["error"]) for row in table(manifest)) == 8


def test_nothing_that_could_be_judged_is_an_error(capsys, model, manifest):
    for path in (manifest.parent / "images").iterdir():
        path.write_bytes(b"no image")
    out = str(manifest.parent / "out")
    assert main(["evaluate", str(model), "--data", str(manifest), "-o", out, "--quiet"]) == 2
    assert "none of the 24 pairs could be judged: " in capsys.readouterr().err


def test_all_that_is_wrong_with_the_manifest_is_said_at_once(capsys, manifest, tmp_path):
    model = save_model(
        tmp_path / "knees",
        preparation=PREPARATION.model_copy(update={"mirror": Mirror(column="laterality", value="L", axis=0)}),
    )
    rows = read_rows(manifest)
    rows[0]["image"], rows[2]["subject"] = "images/none.nii.gz", ""
    said = evaluate(capsys, model, write_rows(manifest, rows), code=2).splitlines()
    assert said[0] == "roundtrip: 3 things are wrong with the data:"
    assert "scans.csv:2: " in said[1] and "scans.csv:4: " in said[2] and "`laterality`" in said[3]


def rows_of(manifest) -> list[dict]:
    """The rows of index.html, in their order."""
    page = (manifest.parent / "out" / "index.html").read_text(encoding="utf-8")
    (facts,) = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(facts)["rows"]


def test_all_pairs_can_be_looked_at_the_worst_on_pages_of_their_own(capsys, model, manifest):
    evaluate(capsys, model, manifest, "--count", 4, "--reports", 2)
    rows = rows_of(manifest)
    dice = {f"{row['moving']} to {row['fixed']}": float(row["dice"]) for row in table(manifest)}
    assert [row["n"] for row in rows] == sorted(dice, key=dice.get)
    assert sorted(row["p"] for row in rows) == [0, 1, 2, 3]
    assert ["r" in row for row in rows] == [True, True, False, False]
    worst = manifest.parent / "out" / rows[0]["r"]
    assert f'"fixed":"{rows[0]["n"].split(" to ")[1]}"' in worst.read_text(encoding="utf-8")
    # Once more: those pages are not made again, and the next are.
    before = worst.stat().st_mtime_ns
    evaluate(capsys, model, manifest, "--count", 4, "--reports", 3)
    assert worst.stat().st_mtime_ns == before and ["r" in row for row in rows_of(manifest)].count(True) == 3


def test_failed_pairs_come_first_with_their_reasons(capsys, model, manifest):
    (manifest.parent / "images" / "s0_v0.nii.gz").write_bytes(b"no image")
    evaluate(capsys, model, manifest, "--reports", 0)
    rows = rows_of(manifest)
    assert all("scans.csv:2: " in row["e"] for row in rows[:8]) and not any("e" in row for row in rows[8:])
    assert not (manifest.parent / "out" / "reports").exists()


def test_a_pair_that_cannot_be_registered_again_is_said_and_costs_no_result(capsys, model, manifest):
    evaluate(capsys, model, manifest, "--reports", 0, "--count", 2)
    for path in (manifest.parent / "images").iterdir():
        path.write_bytes(b"no image")
    out = str(manifest.parent / "out")
    command = ["evaluate", str(model), "--data", str(manifest), "-o", out, "--count", "2", "--quiet"]
    assert main([*command, "--reports", "1"]) == 0
    assert "no page of" in capsys.readouterr().err and len(rows_of(manifest)) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--count", "0"], "--count is 0"), (["--refine", "-1"], "--refine is -1"),
     (["--reports", "-1"], "--reports is -1"), (["--seed", "-1"], "--seed is -1"),
     (["--split", "s.json"], "--part test")],
)  # fmt: skip
def test_impossible_arguments_are_refused(capsys, model, manifest, arguments, says):
    assert says in evaluate(capsys, model, manifest, *arguments, code=2)


@pytest.mark.slow
def test_two_processes_judge_as_one_does(capsys, model, manifest):
    alone = evaluate(capsys, model, manifest)
    (manifest.parent / "out").rename(manifest.parent / "alone")
    code = "import sys; from roundtrip.cli.main import main; sys.exit(main(sys.argv[1:]))"
    script = manifest.parent / "roundtrip_main.py"
    script.write_text(code)
    command = [sys.executable, script, "evaluate", model, "--data", manifest]
    command += [
        "-o",
        manifest.parent / "out",
        "--devices",
        "2",
        "--device",
        "cpu",
        "--threads",
        "1",
        "--json",
    ]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    together = json.loads(done.stdout)
    assert len(list((manifest.parent / "out" / "journal").glob("*.jsonl"))) == 2
    for values in (alone, together):
        values["measures"] = [row for row in values["measures"] if row["measure"] != "seconds"]
    assert together == alone
