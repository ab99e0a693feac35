"""Many pairs in files: what is done stays done, also after a kill, and one that fails stops no other."""

import json
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from unittest.mock import create_autospec

import pytest
from lightning_fabric import Fabric

from roundtrip._launch import Ranks
from roundtrip._problems import ManyProblems, Problems
from roundtrip.pairwise.cohort import MARK, FilePair, read_file_pairs, register_pairs, to_template

SETTINGS = {"effort": "fast"}
METRICS = {"ok": True, "seconds": 1.5, "folds": {"count": 0}, "dice": {"mean": 0.8, "num_labels": 2}}


@pytest.fixture
def table(tmp_path) -> Path:
    for name in ("a.nii.gz", "b.nii.gz", "c.nii.gz"):
        (tmp_path / name).touch()
    path = tmp_path / "pairs.csv"
    path.write_text("fixed,moving\na.nii.gz,b.nii.gz\nb.nii.gz,c.nii.gz\nc.nii.gz,a.nii.gz\n")
    return path


def pairs_in(table: Path) -> list[FilePair]:
    problems = Problems()
    pairs = read_file_pairs(table, problems)
    problems.raise_any("the pairs")
    return pairs


def recording(seen: list, *, fails: str = ""):
    def register(pair: FilePair, folder: Path) -> dict:
        seen.append(pair.name)
        if pair.name == fails:
            raise ValueError("a truncated\nfile")
        folder.mkdir(parents=True, exist_ok=True)
        return METRICS

    return register


def test_every_pair_is_registered_into_a_folder_of_its_name(table, tmp_path):
    seen: list = []
    marks = register_pairs(pairs_in(table), recording(seen), tmp_path / "out", settings=SETTINGS)
    assert seen == ["b_to_a", "c_to_b", "a_to_c"]
    assert [mark["metrics"]["dice"] for mark in marks] == [0.8, 0.8, 0.8]
    assert json.loads((tmp_path / "out" / "b_to_a" / MARK).read_text()) == marks[0]


def test_what_is_done_is_not_done_again_and_what_failed_is(table, tmp_path):
    seen: list = []
    fails = recording(seen, fails="c_to_b")
    marks = register_pairs(pairs_in(table), fails, tmp_path / "out", settings=SETTINGS)
    assert [mark["error"] for mark in marks] == [None, "a truncated file", None]
    seen.clear()
    marks = register_pairs(pairs_in(table), recording(seen), tmp_path / "out", settings=SETTINGS)
    assert seen == ["c_to_b"] and [mark["error"] for mark in marks] == [None, None, None]


def test_a_fault_of_the_program_is_not_a_fault_of_the_pair(table, tmp_path):
    def broken(pair: FilePair, folder: Path) -> dict:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        register_pairs(pairs_in(table), broken, tmp_path / "out", settings=SETTINGS)


def test_a_killed_run_goes_on(table, tmp_path):
    script = textwrap.dedent(f"""
        import os, signal
        from pathlib import Path
        from roundtrip._problems import Problems
        from roundtrip.pairwise.cohort import read_file_pairs, register_pairs

        def register(pair, folder):
            folder.mkdir(parents=True)
            if pair.name == "c_to_b":
                (folder / "warped.nii.gz").write_bytes(b"half")
                os.kill(os.getpid(), signal.SIGKILL)
            return {METRICS!r}

        pairs = read_file_pairs(Path({str(table)!r}), Problems())
        register_pairs(pairs, register, Path({str(tmp_path / "out")!r}), settings={SETTINGS!r})
    """)
    assert subprocess.run([sys.executable, "-c", script]).returncode == -9
    seen: list = []
    register_pairs(pairs_in(table), recording(seen), tmp_path / "out", settings=SETTINGS)
    assert seen == ["c_to_b", "a_to_c"]


def test_half_a_mark_is_no_mark(table, tmp_path):
    seen: list = []
    register_pairs(pairs_in(table), recording(seen), tmp_path / "out", settings=SETTINGS)
    mark = tmp_path / "out" / "b_to_a" / MARK
    mark.write_text(mark.read_text()[:20])
    seen.clear()
    register_pairs(pairs_in(table), recording(seen), tmp_path / "out", settings=SETTINGS)
    assert seen == ["b_to_a"]


def test_other_settings_or_files_are_refused(table, tmp_path):
    pairs = pairs_in(table)
    register_pairs(pairs, recording([]), tmp_path / "out", settings=SETTINGS)
    with pytest.raises(ValueError, match="already holds b_to_a"):
        register_pairs(pairs, recording([]), tmp_path / "out", settings={"effort": "best"})
    other = FilePair("b_to_a", tmp_path / "c.nii.gz", tmp_path / "b.nii.gz")
    with pytest.raises(ValueError, match="other files"):
        register_pairs([other], recording([]), tmp_path / "out", settings=SETTINGS)


def test_processes_share_the_pairs_and_each_returns_all(table, tmp_path):
    together, seen, results = threading.Barrier(2), {0: [], 1: []}, {}

    def process(rank: int) -> None:
        fabric = create_autospec(Fabric, instance=True, global_rank=rank, world_size=2)
        fabric.barrier = together.wait
        ranks = Ranks(fabric)
        results[rank] = register_pairs(
            pairs_in(table), recording(seen[rank]), tmp_path / "out", settings=SETTINGS, ranks=ranks
        )

    threads = [threading.Thread(target=process, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {0: ["b_to_a", "a_to_c"], 1: ["c_to_b"]}
    assert results[0] == results[1] and len(results[0]) == 3


def test_everything_wrong_with_a_table_is_said_at_once(tmp_path):
    (tmp_path / "a.nii.gz").touch()
    table = tmp_path / "pairs.csv"
    table.write_text("fixed,moving\na.nii.gz,\na.nii.gz,nowhere.nii.gz\n")
    with pytest.raises(ManyProblems) as error:
        pairs_in(table)
    assert "no moving" in str(error.value) and "nowhere.nii.gz does not exist" in str(error.value)


def test_pairs_of_one_name_get_folders_of_their_own(tmp_path):
    for person in ("1", "2"):
        (tmp_path / person).mkdir()
        for image in ("t1.nii.gz", "t2.nii.gz"):
            (tmp_path / person / image).touch()
    table = tmp_path / "pairs.csv"
    table.write_text("fixed,moving\n" + "".join(f"{p}/t1.nii.gz,{p}/t2.nii.gz\n" for p in "12"))
    names = [pair.name for pair in pairs_in(table)]
    assert len(set(names)) == 2 and all(name.startswith("t2_to_t1-") for name in names)
    # The same files have the same name in any order of the table.
    lines = table.read_text().splitlines()
    table.write_text("\n".join([lines[0], lines[2], lines[1]]) + "\n")
    assert [pair.name for pair in pairs_in(table)] == names[::-1]


def test_names_cannot_leave_the_folder(tmp_path):
    for name in ("a.nii.gz", "b.nii.gz"):
        (tmp_path / name).touch()
    table = tmp_path / "pairs.csv"
    table.write_text("name,fixed,moving\n../../x y,a.nii.gz,b.nii.gz\n")
    (pair,) = pairs_in(table)
    assert "/" not in pair.name and not pair.name.startswith(".") and pair.name.endswith("x_y")


def test_a_template_is_not_registered_to_itself(tmp_path):
    images = [tmp_path / name for name in ("a.nii.gz", "b.nii.gz", "template.nii.gz")]
    pairs = to_template(images, tmp_path / "template.nii.gz", labels=tmp_path / "labels.nii.gz")
    assert [(pair.name, pair.fixed.name) for pair in pairs] == [
        ("a", "template.nii.gz"),
        ("b", "template.nii.gz"),
    ]
    assert all(pair.fixed_labels == tmp_path / "labels.nii.gz" for pair in pairs)
