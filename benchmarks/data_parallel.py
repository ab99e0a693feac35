"""Pairs per second of one process and of two, and on paper: where 64 workers would stop scaling, and why.

python benchmarks/data_parallel.py

Measured: `roundtrip train` on triangles & circles with a fixed batch per process (weak scaling) and a fixed
batch over all (strong scaling), every process with one thread; medians of steps. On paper: a step of W
workers lasts as long as its share of the pairs, plus what of a ring all-reduce the backward pass does not
hide, plus the messages of the batch norms, which cannot be hidden.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

import roundtrip as rt
from roundtrip.networks.batch_norm import BatchNorm
from roundtrip.training.config_file import as_yaml

# The processes start each other by this very file.
COMMAND = [sys.executable, str(Path(sys.executable).with_name("roundtrip")), "train"]
WORKERS = (4, 16, 32, 64)
SECONDS_PER_DAY = 86400


@dataclass(frozen=True)
class Link:
    """What joins the workers."""

    name: str
    bytes_per_second: float
    latency: float
    """Seconds from one worker to the next."""


@dataclass(frozen=True)
class Work:
    """A step of a stage: what one worker alone computes for a pair, and what has to be sent."""

    name: str
    batch: int
    seconds_per_pair: float
    gradient_bytes: int
    norm_messages: int
    """Exchanges of batch statistics in a step, forward and backward."""


LINKS = (Link("100 Gbit/s, 5 us", 12.5e9, 5e-6), Link("10 Gbit/s, 50 us", 1.25e9, 5e-5))
HIDDEN = 0.5
"""The share of a step, its backward pass, behind which gradients travel."""


def step_seconds(work: Work, workers: int, link: Link) -> float:
    """The length of a step of W workers."""
    compute = work.batch / workers * work.seconds_per_pair
    if workers == 1:
        return compute
    ring = 2 * (workers - 1) / workers * work.gradient_bytes / link.bytes_per_second
    ring += 2 * (workers - 1) * link.latency
    norms = work.norm_messages * (workers - 1) * link.latency
    return compute + max(0.0, ring - HIDDEN * compute) + norms


def simulated(work: Work, link: Link) -> list[str]:
    """A row for every number of workers that the batch can feed."""
    alone = step_seconds(work, 1, link)
    rows = []
    for workers in WORKERS:
        if workers > work.batch:
            rows.append(
                f"| {work.name} | {link.name} | {workers} | - | - | the batch has {work.batch} pairs |"
            )
            continue
        seconds = step_seconds(work, workers, link)
        compute = work.batch / workers * work.seconds_per_pair
        rows.append(
            f"| {work.name} | {link.name} | {workers} | {alone / seconds:.1f} | "
            f"{100 * alone / seconds / workers:.0f} % | {100 * (1 - compute / seconds):.0f} % waiting |"
        )
    return rows


def unet_work(dims: int) -> tuple[int, int]:
    """Bytes of the gradients of a U-Net, and exchanges of statistics: two directions, there and back."""
    with torch.device("meta"):
        net = rt.UNet(dims=dims)
    norms = sum(isinstance(module, BatchNorm) for module in net.modules())
    return 4 * sum(weight.numel() for weight in net.parameters()), 2 * 2 * norms


def measured(processes: int, batch: int, options: argparse.Namespace) -> float:
    """Pairs per second over all processes: the median step."""
    plain = {
        "data": {
            "source": {"kind": "shapes", "count": 200, "size": options.size},
            "split": {"kind": "counts", "train": 200},
        },
        "stages": [
            {
                "name": "unet",
                "algorithm": {"class": "DisplacementRegistration", "net": {"class": "UNet", "dims": 2}},
                "steps": options.steps,
                "batch": batch,
                "learning_rate": 1e-4,
                "similarity": "mse",
                "lambda": 256,
            }
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.yaml")
        config.write_text(as_yaml(plain))
        arguments = ["-o", f"{folder}/run", "--threads", "1", "--devices", str(processes), "--quiet"]
        subprocess.run([*COMMAND, str(config), *arguments], check=True)
        lines = [json.loads(line) for line in Path(folder, "run", "log.jsonl").read_text().splitlines()]
    # The first steps compile, allocate, and build the buckets of gradients.
    return statistics.median(line["pairs_per_second"] for line in lines[3:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--batch", type=int, default=8, help="pairs per process, or over all")
    options = parser.parse_args()

    alone = measured(1, options.batch, options)
    print("| processes | batch | pairs/s | efficiency |\n| ---: | ---: | ---: | ---: |")
    print(f"| 1 | {options.batch} | {alone:.2f} | |")
    for batch in (2 * options.batch, options.batch):
        both = measured(2, batch, options)
        print(f"| 2 | {batch} | {both:.2f} | {100 * both / alone / 2:.0f} % |")

    sent, messages = unet_work(2)
    here = Work(f"measured here: 2D U-Net, {options.size}x{options.size}", 128, 1 / alone, sent, messages)
    # The supplement: 2 days for 16 000 steps of 128 pairs, 4 days for 75 000 of 16, on four RTX 3090 each.
    sent, messages = unet_work(3)
    low = Work("knees, half resolution", 128, 4 * 2 * SECONDS_PER_DAY / 16000 / 128, 2 * sent, 2 * messages)
    high = Work("knees, full resolution", 16, 4 * 4 * SECONDS_PER_DAY / 75000 / 16, sent, messages)
    sizes = [f"{work.name} {work.gradient_bytes / 1e6:.0f} MB" for work in (here, low, high)]
    print(f"\nGradients of a step: {'; '.join(sizes)}. What is frozen sends nothing.")
    print("\n| work | link | workers | speed-up | efficiency | |\n| --- | --- | ---: | ---: | ---: | --- |")
    for work in (here, low, high):
        for link in LINKS:
            print("\n".join(simulated(work, link)))


if __name__ == "__main__":
    main()
