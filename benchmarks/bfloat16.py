"""What bfloat16 costs in accuracy: the Dice a training ends with, and how far maps move at inference.

    python benchmarks/bfloat16.py -o bfloat16

Trains the built-in experiment `triangles-tiny` by the command line with `--precision 32` and `bf16-mixed`,
from eight seeds, decided before the first was run. A difference of one seed is mostly chance, which other
seeds show: what counts is the mean difference of the pairs, and its standard error. Then `oai-knees-drawn`,
four networks in the paper's nesting, is trained in float32, and registers knees it never saw, drawn at the
paper's 80x192x192, in both precisions; the differences of the maps are in voxels, along each axis its own.

Goes on where it was stopped. `training_step.py` says what bfloat16 brings.
"""

import argparse
import json
import statistics
import subprocess
import sys
from datetime import date
from pathlib import Path

import torch

import roundtrip as rt
from roundtrip.data.knees import draw_knee, preparation_of_knees, write_knees
from roundtrip.maps.grid import voxel_from_unit
from roundtrip.space.preparation import prepare

PRECISIONS, SEEDS = ("32", "bf16-mixed"), range(8)
PAIRS, SHAPE = 4, (80, 192, 192)
COMMAND = Path(sys.executable).with_name("roundtrip")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{date.today()}, {options.threads} threads\n")
    print("| seed | Dice: float32 | bf16-mixed | folds: float32 | bf16-mixed |\n|---|---|---|---|---|")
    differences = []
    for seed in SEEDS:
        found = [trained("triangles-tiny", name, seed, options) for name in PRECISIONS]
        cells = [f"{numbers[key]:.4f}" for key in ("dice", "folds") for numbers in found]
        print(f"| {seed} | " + " | ".join(cells) + " |", flush=True)
        differences.append(found[1]["dice"] - found[0]["dice"])
    error = statistics.stdev(differences) / len(differences) ** 0.5
    print(f"\nbf16-mixed - float32, Dice: {statistics.fmean(differences):+.4f}, standard error {error:.4f}.")

    trained("oai-knees-drawn", "32", 0, options)
    mean, most, moved = differences_of_maps(rt.load(options.output / "oai-knees-drawn-32-0"))
    grid = "x".join(map(str, SHAPE))
    print(
        f"\nMaps of 4-step inference at {grid}, bfloat16 against float32: {mean:.4f} voxels apart on "
        f"average, {most:.4f} at most; they move voxels by {moved:.2f} on average."
    )


def trained(experiment: str, precision: str, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """What held-out pairs show of a model, by its card."""
    model = options.output / f"{experiment}-{precision}-{seed}"
    if not (model / "card.json").exists():
        how = ["--precision", precision, "--seed", str(seed), "--threads", str(options.threads)]
        command = [COMMAND, "train", experiment, "-o", model, *how, "--resume", "--quiet"]
        if experiment == "oai-knees-drawn":
            command += ["--set", f"data.source.path={knees(options.output)}"]
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
    numbers: dict[str, float] = json.loads((model / "card.json").read_text(encoding="utf-8"))["numbers"]
    return numbers


def knees(folder: Path) -> Path:
    manifest = folder / "knees" / "knees.csv"
    return manifest if manifest.exists() else write_knees(folder / "knees", people=20)


@torch.no_grad()
def differences_of_maps(algorithm: rt.AbstractRegistration) -> tuple[float, float, float]:
    """Mean and largest distance in voxels over pairs of new people, and how far points move."""
    distances, moves = [], []
    for pair in range(PAIRS):
        moving, fixed = (
            prepare(draw_knee("right", seed=99, person=2 * pair + k).image, preparation_of_knees(SHAPE)).data[
                None
            ]
            for k in (0, 1)
        )
        exact = rt.on_grid_of(algorithm(moving, fixed), fixed)
        with torch.autocast("cpu", torch.bfloat16):
            rough = rt.on_grid_of(algorithm(moving, fixed), fixed)
        distances.append(voxel_from_unit(rough.float() - exact, SHAPE).norm(dim=1))
        moves.append(voxel_from_unit(exact - rt.unit_grid(SHAPE), SHAPE).norm(dim=1).mean())
    apart = torch.stack(distances)
    return apart.mean().item(), apart.max().item(), torch.stack(moves).mean().item()


if __name__ == "__main__":
    main()
