"""The cache of prepared images: found again by content and settings, safe against others and death."""

import dataclasses
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from data.scans import config_for, volume, write_scans
from roundtrip._problems import Problems
from roundtrip.algorithms.card import Preparation
from roundtrip.data import preparing
from roundtrip.data.manifest import read_manifest
from roundtrip.data.prepared import Recipe, prepared_record
from roundtrip.data.preparing import prepare_all
from roundtrip.data.sources import Reading
from roundtrip.data.workers import in_processes
from roundtrip.space.files import write

PLAIN = Recipe(Preparation(), Reading())
COARSE = Recipe(Preparation(grid=(3, 3, 3)), Reading())


@pytest.fixture
def manifest(tmp_path):
    return write_scans(tmp_path / "scans", subjects=2)


@pytest.fixture
def records(manifest):
    return read_manifest(manifest, Problems())


def prepared(records, cache, recipe=PLAIN, **more):
    problems = Problems()
    found = prepare_all(records, recipe, cache, problems, **more)
    assert not problems
    return found


def stamps(cache):
    return {path: path.stat().st_mtime_ns for path in cache.glob("*.safetensors")}


def test_what_is_there_is_not_made_again(records, tmp_path):
    first = prepared(records, tmp_path / "cache")
    before = stamps(tmp_path / "cache")
    again = prepared(records, tmp_path / "cache")
    assert [one.path for one in first] == [one.path for one in again]
    assert len(before) == 4 and stamps(tmp_path / "cache") == before


def test_other_content_and_other_settings_make_other_files(records, tmp_path):
    cache = tmp_path / "cache"
    prepared(records, cache)
    assert all(one.grid.shape == (3, 3, 3) for one in prepared(records, cache, COARSE))
    assert len(stamps(cache)) == 8
    write(volume(99), records[0].image)
    new = prepared(records, cache)[0]
    assert len(stamps(cache)) == 9
    torch.testing.assert_close(new.tensor("image"), volume(99).data)


def test_equal_content_elsewhere_is_found(records, manifest, tmp_path):
    first = prepared(records, tmp_path / "cache")
    manifest.parent.rename(tmp_path / "moved")
    moved = read_manifest(tmp_path / "moved" / manifest.name, Problems())
    assert [one.path for one in prepared(moved, tmp_path / "cache")] == [one.path for one in first]


@pytest.mark.parametrize("kept", [0, 4, 100])
def test_a_damaged_file_is_made_again(records, tmp_path, kept):
    (one,) = prepared(records[:1], tmp_path / "cache")
    expected = one.tensor("image").clone()
    content = one.path.read_bytes()
    one.path.unlink()
    one.path.write_bytes(content[:kept])
    (again,) = prepared(records[:1], tmp_path / "cache")
    assert again.tensor("image").equal(expected)


@pytest.mark.slow
def test_many_processes_make_what_one_makes(records, tmp_path, monkeypatch):
    alone = prepared(records, tmp_path / "alone", workers=1)
    monkeypatch.setattr(preparing, "ALONE_SECONDS", 0.0)
    told = []
    together = prepared(records, tmp_path / "together", workers=2, on_progress=lambda *n: told.append(n))
    assert [one.path.name for one in alone] == [one.path.name for one in together]
    assert all(a.path.read_bytes() == b.path.read_bytes() for a, b in zip(alone, together, strict=True))
    assert told == [(n, 4) for n in range(1, 5)]


def test_what_the_killed_left_is_cleared_away_once_it_is_old(records, tmp_path):
    cache = tmp_path / "cache"
    for name, age in ((".old-x", 2), ("digests/.old-y", 2), (".new-z", 0)):
        (cache / name).mkdir(parents=True)
        (cache / name / "half.safetensors").write_bytes(b"half")
        os.utime(cache / name, (time.time() - age * 24 * 3600,) * 2)
    prepared(records[:1], cache)
    left = {path.name for path in cache.rglob(".*")}
    assert left == {".new-z"}


def test_a_full_disk_is_a_problem_among_others(records, tmp_path, monkeypatch):
    def full(path, write):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("roundtrip.data.prepared._digest", lambda path, cache: "0")
    monkeypatch.setattr("roundtrip.data.prepared.write_whole", full)
    problems = Problems()
    assert prepare_all(records, PLAIN, tmp_path, problems, workers=1) == []
    assert len(problems.lines) == 4 and all("No space left" in line for line in problems.lines)


def double(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


@pytest.mark.slow
def test_a_process_that_dies_loses_its_item_alone():
    assert list(in_processes(double, range(6), 2, lost=lambda item: -item)) == [0, 2, 4, -3, 8, 10]


CHILD = """
import sys
from pathlib import Path
from roundtrip._problems import Problems
from roundtrip.data.manifest import read_manifest
from roundtrip.data.preparing import prepare_all
from roundtrip.data.prepared import Recipe
from roundtrip.data.sources import Reading
from roundtrip.algorithms.card import Preparation
records = read_manifest(Path(sys.argv[1]), Problems())
print("ready", flush=True)
recipe = Recipe(Preparation(grid=(3, 3, 3)), Reading())
found = prepare_all(records, recipe, Path(sys.argv[2]), Problems(), workers=1)
assert len(found) == len(records)
"""


def started(manifest, cache):
    arguments = [sys.executable, "-c", CHILD, str(manifest), str(cache)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_processes_fill_one_cache(tmp_path):
    manifest, cache = write_scans(tmp_path / "scans", subjects=30), tmp_path / "cache"
    both = [started(manifest, cache) for _ in range(2)]
    for process in both:
        process.communicate()
    assert [process.returncode for process in both] == [0, 0]
    assert len(stamps(cache)) == 60
    expected = prepared(read_manifest(manifest, Problems()), tmp_path / "other", COARSE)
    assert all((cache / one.path.name).read_bytes() == one.path.read_bytes() for one in expected)


@pytest.mark.slow
def test_who_is_killed_leaves_nothing_that_is_half(tmp_path):
    manifest, cache = write_scans(tmp_path / "scans", subjects=30), tmp_path / "cache"
    for moment in (0.0, 0.05, 0.2):
        process = started(manifest, cache)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(moment)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    records = read_manifest(manifest, Problems())
    expected = prepared(records, tmp_path / "other", COARSE)
    assert all(
        (tmp_path / "other" / path.name).read_bytes() == path.read_bytes()
        for path in cache.glob("*.safetensors")
    )
    assert [one.path.name for one in prepared(records, cache, COARSE)] == [one.path.name for one in expected]


def test_the_cache_knows_what_is_mirrored(records, manifest, tmp_path):
    config = config_for(manifest, preparation={"mirror": {"column": "side", "value": "left", "axis": 0}})
    recipe = Recipe(config.preparation, Reading())
    left = records[0]
    right = dataclasses.replace(left, columns={"side": "right"})
    mirrored, plain = (prepared_record(one, recipe, tmp_path, Problems()) for one in (left, right))
    assert plain.path != mirrored.path
    assert plain.tensor("image").flip(1).equal(mirrored.tensor("image"))
