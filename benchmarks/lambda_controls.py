"""Four ways to choose lambda, on triangles & circles: Dice against folds, for the same budget.

python benchmarks/lambda_controls.py -o controls

Every run trains the same network from the same weights on the same pairs in the same order; only lambda
differs. Dice, folds (central differences, per map) and the round trip are means over held-out pairs. Lambda
is the paper's, of squared vector norms.
"""

import argparse
import json
import tempfile
import time
from datetime import date
from pathlib import Path

import torch

import roundtrip as rt
from roundtrip._launch import Ranks, Resources, launch
from roundtrip.data.config import Counts, DataConfig
from roundtrip.data.sources import ShapesSource
from roundtrip.training.config import StageConfig, TrainingConfig, ValidationConfig
from roundtrip.training.control import (
    AbstractControl,
    AugmentedLagrangian,
    FixedLambda,
    GrowingLambda,
    ScheduledLambda,
)
from roundtrip.training.records import StepRecord
from roundtrip.training.run import train
from roundtrip.training.schedule import LearningRate
from roundtrip.training.similarity import MeanSquares

COLOURS = {"fixed": "#1a1a1a", "growth": "#d55e00", "schedule": "#0072b2", "augmented_lagrangian": "#009e73"}


def controls(steps: int) -> list[tuple[str, AbstractControl]]:
    """Each control with a few strengths of the one number that a user of it has to choose."""
    found: list[tuple[str, AbstractControl]] = []
    found += [(f"lambda {value:g}", FixedLambda(start=value)) for value in (16.0, 64.0, 256.0, 1024.0)]
    for folds in (0.5, 2.0, 8.0):
        # Enough to come from 0 to 1024 in half of the steps.
        growing = GrowingLambda(acceptable_folds=folds, increment=2048 / steps)
        found.append((f"{folds:g} acceptable folds", growing))
    for end in (64.0, 256.0, 1024.0):
        found.append((f"0 to {end:g} by half-time", ScheduledLambda(points=((0, 0.0), (steps // 2, end)))))
    for miss in (0.25, 0.5, 1.0):
        bounded = AugmentedLagrangian(acceptable_miss=miss, penalty=16.0, every=max(10, steps // 20))
        found.append((f"miss of {miss:g} voxels", bounded))
    return found


def config(control: AbstractControl, options: argparse.Namespace) -> TrainingConfig:
    net = {"class": "UNet", "dims": 2, "down_features": [16, 32, 64, 128], "up_features": [16, 32, 64, 128]}
    return TrainingConfig(
        data=DataConfig(
            source=ShapesSource(count=1200, size=options.size),
            split=Counts(train=1000, validation=2 * options.pairs),
        ),
        stages=(
            StageConfig(
                name="unet",
                algorithm={"class": "DisplacementRegistration", "net": net},
                steps=options.steps,
                batch=16,
                learning_rate=LearningRate(start=1e-3, decay="cosine"),
                similarity=MeanSquares(),
                lambda_=control,
            ),
        ),
        validation=ValidationConfig(every=options.steps, pairs=options.pairs),
    )


def measure(name: str, control: AbstractControl, options: argparse.Namespace, ranks: Ranks) -> dict:
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        trained = train(config(control, options), Path(folder), ranks=ranks, seed=options.seed)
    steps = [record for record in trained.records if isinstance(record, StepRecord)]
    numbers = trained.card.numbers
    return {
        "control": control.kind,
        "setting": name,
        "dice_before": numbers["dice_before"],
        "dice": numbers["dice"],
        "folds": numbers["folds"],
        "volume_percent": numbers["non_diffeomorphic_volume_percent"],
        "roundtrip_error_voxels": numbers["roundtrip_error_mean_voxels"],
        "last_lambda": steps[-1].lambda_,
        "seconds": round(time.perf_counter() - start, 1),
    }


def table(rows: list[dict]) -> str:
    lines = [
        "| control | setting | Dice | folds | folded volume, % | round trip, px | last lambda |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {r['control']} | {r['setting']} | {r['dice']:.3f} | {r['folds']:.2f} | {r['volume_percent']:.3f} "
        f"| {r['roundtrip_error_voxels']:.2f} | {r['last_lambda']:.4g} |"
        for r in rows
    ]
    return "\n".join(lines)


def draw(rows: list[dict], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.4), layout="constrained")
    ax = figure.subplots()
    for kind, colour in COLOURS.items():
        own = sorted((r for r in rows if r["control"] == kind), key=lambda r: r["folds"])
        ax.plot([r["folds"] for r in own], [r["dice"] for r in own], "o-", color=colour, label=kind, ms=4)
    ax.set_xscale("symlog", linthresh=0.1)
    ax.set_xlabel("folded pixels per map")
    ax.set_ylabel("Dice of held-out pairs")
    ax.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--pairs", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    rt.keep_freed_memory()
    ranks = launch(Resources(threads=options.threads))
    options.output.mkdir(parents=True, exist_ok=True)
    rows: list[dict] = []
    for name, control in controls(options.steps):
        rows.append(measure(name, control, options, ranks))
        print(f"{rows[-1]['control']:22}{name:26}Dice {rows[-1]['dice']:.3f} folds {rows[-1]['folds']:.2f}")
        about = {"date": str(date.today()), "torch": torch.__version__, **vars(options), "rows": rows}
        (options.output / "controls.json").write_text(json.dumps(about, indent=1, default=str))
    print(f"\n{options.steps} steps of 16 pairs, {options.size}x{options.size}, held-out Dice before "
          f"{rows[0]['dice_before']:.3f}\n\n{table(rows)}")  # fmt: skip
    draw(rows, options.output / "controls.png")


if __name__ == "__main__":
    main()
