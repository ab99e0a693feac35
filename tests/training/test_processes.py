"""What only processes of their own show: being killed, and working side by side."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from training_samples import run, stage, write

SCRIPT = "import sys\nfrom roundtrip.cli.main import main\nsys.exit(main())\n"

pytestmark = pytest.mark.slow


def start(
    config: Path, folder: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.Popen:
    # A file, as an installed command is one: the processes start each other by its name.
    script = config.with_name("command.py")
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), "train", str(config), "-o", str(folder)]
    command += ["--threads", "1", "--quiet", *arguments]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    return subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen) -> str:
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return said


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_killed_run_goes_on_and_ends_with_the_same_bits(tmp_path):
    """`kill -9` after any number of steps, several times over, then the same command."""
    config = write(tmp_path / "config.yaml", checkpoints={"every": 3, "keep": 2})
    finish(start(config, tmp_path / "undisturbed"))
    folder = tmp_path / "killed"
    for steps in (2, 7, 12):
        process = start(config, folder, "--resume")
        log = folder / "log.jsonl"
        while process.poll() is None and not (log.exists() and log.read_text().count("\n") >= steps):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    finish(start(config, folder, "--resume"))
    for name in ("model.safetensors", "card.json", "training.png"):
        assert (folder / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes(), name


@pytest.mark.parametrize("changes", [{}, {"accumulation": 2}], ids=["at once", "accumulated"])
def test_two_processes_see_what_one_sees(changes, tmp_path):
    """The same global batch, batch statistics, random points and augmentation: the same losses and lambda."""
    from training_samples import UNET, plain_config

    second = {"class": "TwoStep", "first": {"stage": "low", "frozen": True}, "second": UNET}
    stages = (stage("low", resolution=2, **changes), stage("high", algorithm=second, **changes))
    augmentation = {"rotation_degrees": 10.0, "noise": 0.05}
    data = plain_config()["data"] | {"augmentation": augmentation}
    config = write(tmp_path / "config.yaml", *stages, data=data)
    finish(start(config, tmp_path / "one"))
    finish(start(config, tmp_path / "two", "--devices", "2"))
    one, two = lines(tmp_path / "one"), lines(tmp_path / "two")
    assert [line["kind"] for line in one] == [line["kind"] for line in two]
    for a, b in zip(one, two, strict=True):
        if a["kind"] == "step":
            assert a["total"] == pytest.approx(b["total"], rel=1e-4)
            assert a["magnitude"] == pytest.approx(b["magnitude"], rel=1e-3, abs=1e-9)
            assert a["lambda"] == b["lambda"]
        else:
            assert a["score"] == pytest.approx(b["score"], abs=2e-2)


def test_the_command_and_the_function_train_alike(tmp_path):
    config = write(tmp_path / "config.yaml")
    finish(start(config, tmp_path / "command", "--seed", "3"))
    run(tmp_path / "function", seed=3)
    a, b = (
        [line["total"] for line in lines(tmp_path / name) if line["kind"] == "step"]
        for name in ("command", "function")
    )
    assert a == pytest.approx(b, rel=1e-3)


def test_started_by_slurm_the_command_is_the_same(tmp_path):
    """Two tasks of `srun`, as its environment makes them: each finds the other by itself."""
    config = write(tmp_path / "config.yaml", stage("only", steps=3))
    finish(start(config, tmp_path / "one"))
    job = {"SLURM_JOB_ID": "12346", "SLURM_JOB_NAME": "training", "SLURM_NODELIST": "localhost"}
    job |= {"SLURM_NNODES": "1", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NODEID": "0"}
    tasks = [
        start(config, tmp_path / "two", environment=job | {"SLURM_PROCID": rank, "SLURM_LOCALID": rank})
        for rank in "01"
    ]
    for task in tasks:
        finish(task)
    one, two = (
        [line["total"] for line in lines(tmp_path / name) if line["kind"] == "step"]
        for name in ("one", "two")
    )
    assert one == pytest.approx(two, rel=1e-4)


def test_half_precision_trains(tmp_path):
    config = write(tmp_path / "config.yaml", stage("only", steps=20))
    for name, precision in (("full", "32"), ("half", "bf16-mixed")):
        finish(start(config, tmp_path / name, "--precision", precision))
    full, half = (
        [line["total"] for line in lines(tmp_path / name) if line["kind"] == "step"]
        for name in ("full", "half")
    )
    # The first map is the identity in any precision; then they drift apart, but not far.
    assert half[0] == pytest.approx(full[0], rel=1e-5)
    assert half != full and half[-1] == pytest.approx(full[-1], rel=0.3)
