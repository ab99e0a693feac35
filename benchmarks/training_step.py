"""One optimisation step, and inference, beside the published package: seconds, floor, peak memory.

Run `bash benchmarks/environment.sh` once, then
`benchmarks/environment/bin/python benchmarks/training_step.py`; `--help` names the options.

Each side of each case lives in a process of its own; the steps of all sides are interleaved, and medians
reported. A step is both directions, loss, folds, backward and Adam. The floor of a case is the arithmetic of
its networks, counted by torch, over the speed of a large matrix product measured in the same run.
"""

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

THREADS = 2
CASES = {
    "mlp-28": "MLP 28x28, batch 128",
    "unet-28": "U-Net 28x28, batch 128",
    "conv-28": "ConvOnly 28x28, batch 128",
    "unet-128": "U-Net 128x128, batch 32",
    "unet-3d": "3D U-Net 96x96x40, batch 1",
    "unet-3d-lncc": "3D U-Net 96x96x40, local NCC (sigma 5)",
    "inference": "4-step inference at 80x192x192, one direction",
}
SHAPES = {
    "mlp-28": (128, 1, 28, 28),
    "unet-28": (128, 1, 28, 28),
    "conv-28": (128, 1, 28, 28),
    "unet-128": (32, 1, 128, 128),
    "unet-3d": (1, 1, 96, 96, 40),
    "unet-3d-lncc": (1, 1, 96, 96, 40),
    "inference": (1, 1, 80, 192, 192),
}
SIDES = ("package", "package, memory kept", "ours float32", "ours bfloat16")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--worker", nargs=2, metavar=("SIDE", "CASE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(*options.worker)
        return
    speed = matrix_product_speed()
    print(f"{date.today()}, {platform.machine()}, {THREADS} threads; matrix product "
          + ", ".join(f"{name} {value:.0f} GFLOP/s" for name, value in speed.items()))  # fmt: skip
    rows = [measure(case, options.sides, options.repeats, speed) for case in options.only]
    print(table(rows))
    if options.output:
        options.output.write_text(
            json.dumps({"date": str(date.today()), "speed": speed, "cases": rows}, indent=1)
        )


def measure(case: str, sides: list[str], repeats: int, speed: dict[str, float]) -> dict:
    """Medians of interleaved steps of every side of one case."""
    workers = {side: start(side, case) for side in sides if not (case == "mlp-28" and "bfloat16" in side)}
    facts = {side: json.loads(worker.stdout.readline()) for side, worker in workers.items()}
    times: dict[str, list[float]] = {side: [] for side in workers}
    for _ in range(repeats):
        for side, worker in workers.items():
            times[side].append(ask(worker))
    memory = {}
    for side, worker in workers.items():
        worker.stdin.close()
        memory[side] = json.loads(worker.stdout.readline())["peak_mb"]
        worker.wait()
    gflop = next(fact["gflop"] for fact in facts.values() if fact["gflop"])
    row: dict = {"case": case, "gflop": gflop, "sides": {}}
    for side in workers:
        seconds = statistics.median(times[side])
        peak = speed["bfloat16" if "bfloat16" in side else "float32"]
        row["sides"][side] = {
            "seconds": seconds, "spread": [min(times[side]), max(times[side])],
            "share_of_floor": gflop / peak / seconds, "peak_mb": memory[side],
        }  # fmt: skip
    print(
        f"  {case}: " + ", ".join(f"{k} {v['seconds']:.3f} s" for k, v in row["sides"].items()),
        file=sys.stderr,
    )
    return row


def table(rows: list[dict]) -> str:
    """Markdown: seconds (times faster than the package; share of floor; peak memory over its)."""
    lines = ["| case | " + " | ".join(SIDES) + " |", "|---|" + "---|" * len(SIDES)]
    for row in rows:
        cells = [CASES[row["case"]]]
        base = row["sides"].get("package")
        for side in SIDES:
            if (cell := row["sides"].get(side)) is None:
                cells.append("-")
                continue
            text = f"{cell['seconds']:.3f} s, {100 * cell['share_of_floor']:.0f} %, {cell['peak_mb']:.0f} MB"
            if base and side != "package":
                faster, smaller = base["seconds"] / cell["seconds"], cell["peak_mb"] / base["peak_mb"]
                text = f"**{faster:.2f}x** {text} ({smaller:.2f}x)"
            cells.append(text)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def start(side: str, case: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, __file__, "--worker", side, case],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def ask(worker: subprocess.Popen) -> float:
    worker.stdin.write("go\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


def matrix_product_speed() -> dict[str, float]:
    """GFLOP/s of a 2048 x 2048 product, the best of twenty."""
    import torch

    torch.set_num_threads(THREADS)
    speed = {}
    for name in ("float32", "bfloat16"):
        a = torch.randn(2048, 2048).to(getattr(torch, name))
        seconds = []
        for _ in range(20):
            begin = time.perf_counter()
            a @ a
            seconds.append(time.perf_counter() - begin)
        speed[name] = 2 * 2048**3 / min(seconds) / 1e9
    return speed


def work(side: str, case: str) -> None:
    """A worker: two steps to warm up, then one for every line of input; at the end, the peak of memory."""
    import torch

    if side != "package":
        from roundtrip._memory import keep_freed_memory

        keep_freed_memory()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    make = package_step if side.startswith("package") else ours_step
    if side.startswith("ours"):
        load_kernels()
    step = make(case, "bfloat16" in side)
    before = resident_mb()
    from torch.utils.flop_counter import FlopCounterMode

    gflop = None
    step()
    if side == "package":
        with FlopCounterMode(display=False) as counter:
            step()
        gflop = counter.get_total_flops() / 1e9
    else:
        step()
    print(json.dumps({"gflop": gflop}), flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        step()
        print(time.perf_counter() - begin, flush=True)
    print(json.dumps({"peak_mb": peak_mb() - before, "before_mb": before}), flush=True)


def load_kernels() -> None:
    """What weighs the same for every image is no memory of a step; the package loads its part at once."""
    import torch

    import roundtrip as rt

    image = torch.rand(1, 1, 8, 8, 8)
    net = rt.UNet(dims=3, down_features=(2,), up_features=(2,))
    objective = rt.InverseConsistent(rt.DisplacementRegistration(net), similarity=rt.lncc, weight=1.0)
    objective(image, image.flip(2)).total.backward()


def resident_mb() -> float:
    """The memory this process holds now."""
    status = Path("/proc/self/status").read_text()
    return float(status.split("VmRSS:")[1].split()[0]) / 1024


def peak_mb() -> float:
    """The most memory this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def package_step(case: str, low_precision: bool) -> Callable[[], None]:
    import icon_registration as icon
    import torch
    from icon_registration import networks

    shape = SHAPES[case]
    A, B = torch.rand(shape), torch.rand(shape)
    dims = len(shape) - 2
    if case == "inference":
        low = icon.TwoStepRegistration(
            *(icon.FunctionFromVectorField(networks.tallUNet2(dimension=3)) for _ in "12")
        )
        net = icon.DownsampleRegistration(low, 3)
        for _ in "34":
            net = icon.TwoStepRegistration(net, icon.FunctionFromVectorField(networks.tallUNet2(dimension=3)))
        net.assign_identity_map(shape)
        net.eval()

        def infer() -> None:
            with torch.no_grad():
                net(A, B)(net.identity_map)

        return infer
    inner = {"mlp": lambda: networks.FCNet(28), "conv": networks.RegisNet}.get(
        case.split("-")[0], lambda: networks.tallUNet2(dimension=dims)
    )()
    similarity = icon.LNCC(sigma=5) if "lncc" in case else icon.ssd
    objective = icon.InverseConsistentNet(icon.FunctionFromVectorField(inner), similarity, 2048)
    objective.assign_identity_map(shape)
    optimizer = torch.optim.Adam(objective.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        objective(A, B).all_loss.backward()
        optimizer.step()

    return step


def ours_step(case: str, low_precision: bool) -> Callable[[], None]:
    from functools import partial

    import torch

    import roundtrip as rt

    shape = SHAPES[case]
    A, B = torch.rand(shape), torch.rand(shape)
    dims = len(shape) - 2
    autocast = partial(torch.autocast, "cpu", torch.bfloat16, enabled=low_precision)

    def one() -> rt.DisplacementRegistration:
        return rt.DisplacementRegistration(rt.UNet(dims=dims))

    if case == "inference":
        algorithm = rt.TwoStep(rt.TwoStep(rt.AtHalfResolution(rt.TwoStep(one(), one())), one()), one()).eval()

        def infer() -> None:
            with torch.no_grad(), autocast():
                rt.on_grid_of(algorithm(A, B), B)

        return infer
    net = {"mlp": lambda: rt.MLP((28, 28)), "conv": lambda: rt.ConvOnly(dims=2)}.get(
        case.split("-")[0], lambda: rt.UNet(dims=dims)
    )()
    similarity = partial(rt.lncc, sigma=5.0) if "lncc" in case else rt.mse
    objective = rt.InverseConsistent(
        rt.DisplacementRegistration(net), similarity=similarity, weight=2048 / dims
    )
    optimizer = torch.optim.Adam(objective.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        with autocast():
            terms = objective(A, B)
        terms.total.backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
