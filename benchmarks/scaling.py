"""Time and memory of `roundtrip register` as images grow, and with one thread and two.

    benchmarks/environment/bin/python benchmarks/scaling.py -o scaling

Drawn heads of 64, 96, 128, 192 and 256 voxels along each axis, registered by the command line. `seconds` are
those of metrics.json, from images in memory to the transform; memory is the peak of the whole command. A run
that was stopped goes on where it was.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import roundtrip as rt
from pairwise import _processor, _run, lines_of
from roundtrip.data.phantoms import draw_pair


def drawn(n: int, folder: Path) -> dict[str, Path]:
    pair = draw_pair(shape=(n, n, n))
    files = {name: folder / f"{name}_{n}.nii.gz" for name in ("fixed", "moving")}
    for name, phantom in (("fixed", pair.fixed), ("moving", pair.moving)):
        if not files[name].exists():
            rt.write(phantom.image, files[name])
    return files


def measured(n: int, threads: int, effort: str, folder: Path) -> dict[str, Any]:
    files = drawn(n, folder)
    command = [Path(sys.executable).parent / "roundtrip", "register", "-o", folder / "out", "--quiet"]
    for name, path in files.items():
        command += [f"--{name}", path]
    command += ["--effort", effort, "--threads", threads]
    used = _run([str(part) for part in command], folder / "said.txt", threads, limit=3600)
    metrics = json.loads((folder / "out" / "metrics.json").read_text())
    voxels = {"size": n, "threads": threads, "effort": effort, "voxels": n**3}
    return voxels | used | {name: metrics[name] for name in ("seconds", "wall_seconds", "notes")}


def table(lines: list[dict[str, Any]]) -> list[str]:
    rows = [
        "| voxels | threads | seconds | seconds per million | wall | MB | bytes per voxel | times faster |"
    ]
    rows += ["|---" * 8 + "|"]
    alone = {line["size"]: line["seconds"] for line in lines if line["threads"] == 1}
    for line in lines:
        n, seconds, peak = line["size"], line["seconds"], line["peak_mb"]
        faster = alone[n] / seconds if n in alone else float("nan")
        rows.append(
            f"| {n}^3 | {line['threads']} | {seconds:.2f} | {1e6 * seconds / n**3:.2f} "
            f"| {line['wall_seconds']:.1f} | {peak:.0f} | {2**20 * peak / n**3:.0f} | {faster:.2f} |"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 96, 128, 192, 256])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--effort", choices=["fast", "default", "best"], default="default")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    journal = asked.output / "journal.jsonl"
    known = {(line["size"], line["threads"], line["effort"]): line for line in lines_of(journal)}
    lines = []
    with tempfile.TemporaryDirectory(prefix="scaling-") as folder:
        # The very first run compiles, which is not what is measured here.
        measured(32, 2, asked.effort, Path(folder))
        for n in asked.sizes:
            for threads in asked.threads:
                line = known.get((n, threads, asked.effort))
                if line is None:
                    line = measured(n, threads, asked.effort, Path(folder))
                    with journal.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
                lines.append(line)
                print(f"{n}^3, {threads} threads: {line['seconds']:.2f} s", file=sys.stderr, flush=True)
    today = datetime.datetime.now(datetime.UTC).date()
    text = "\n".join(
        [
            f"{today}, {os.cpu_count()} cores ({_processor()}); drawn heads, --effort {asked.effort}.",
            "",
            "`benchmarks/scaling.py`",
            "",
            *table(lines),
        ]
    )
    (asked.output / "scaling.md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
