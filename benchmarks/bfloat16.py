"""What bfloat16 costs in accuracy: the Dice a training ends with, and how far maps move at inference.

    python benchmarks/bfloat16.py

Trains the built-in experiment `triangles-tiny` by the command line with `--precision 32` and `bf16-mixed`,
from several seeds, and compares what held-out pairs show: other seeds say what chance alone changes. Then one
model, in both precisions, registers pairs of shapes that it never saw; the maps' differences are in pixels.
`training_step.py` says what bfloat16 brings.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import torch

import roundtrip as rt
from roundtrip.data.shapes import triangles_and_circles

PRECISIONS, SEEDS = ("32", "bf16-mixed"), (0, 1, 2)
COMMAND = Path(sys.executable).with_name("roundtrip")


def main() -> None:
    torch.set_num_threads(2)
    print(f"{date.today()}, 2 threads, `python benchmarks/bfloat16.py`\n")
    print("| seed | Dice: float32 | bf16-mixed | folds: float32 | bf16-mixed |\n|---|---|---|---|---|")
    dice: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:
            found = {name: trained(Path(folder, f"{name}-{seed}"), name, seed) for name in PRECISIONS}
            cells = [f"{numbers[key]:.4f}" for key in ("dice", "folds") for numbers in found.values()]
            print(f"| {seed} | " + " | ".join(cells) + " |", flush=True)
            for name, numbers in found.items():
                dice[name].append(numbers["dice"])
        algorithm = rt.load(Path(folder, f"{PRECISIONS[0]}-{SEEDS[0]}"))
    means = [f"{statistics.fmean(values):.4f}" for values in dice.values()]
    print(f"| mean | {means[0]} | {means[1]} | | |")
    mean, most = differences(algorithm)
    print(f"\nMaps of one model, bfloat16 against float32: {mean:.4f} pixels on average, {most:.4f} at most.")


def trained(model: Path, precision: str, seed: int) -> dict[str, float]:
    """What held-out pairs show of a model, by its card."""
    how = ["--precision", precision, "--seed", str(seed), "--threads", "2", "--quiet"]
    subprocess.run(
        [COMMAND, "train", "triangles-tiny", "-o", model, *how], check=True, stdout=subprocess.DEVNULL
    )
    return json.loads((model / "card.json").read_text(encoding="utf-8"))["numbers"]


@torch.no_grad()
def differences(algorithm: rt.AbstractRegistration) -> tuple[float, float]:
    """Of the maps of 32 pairs, in pixels."""
    images = triangles_and_circles(64, size=64, generator=torch.Generator().manual_seed(99)).images
    moving, fixed = images.chunk(2)
    exact = rt.on_grid_of(algorithm(moving, fixed), fixed)
    with torch.autocast("cpu", torch.bfloat16):
        rough = rt.on_grid_of(algorithm(moving, fixed), fixed)
    distance = (rough.float() - exact).square().sum(dim=1).sqrt() * 63
    return distance.mean().item(), distance.max().item()


if __name__ == "__main__":
    main()
