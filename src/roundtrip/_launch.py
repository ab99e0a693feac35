"""Starts as many processes as asked for, on one machine or many, and lets them share work and numbers.

A thin layer over lightning-fabric: it finds out who started us (nobody, `torchrun`, SLURM), and says what is
wrong in the words of our command line. Training, `roundtrip evaluate` and `roundtrip cohort` start here.
"""

import inspect
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy
from torch.nn.parallel import DistributedDataParallel

from roundtrip._shapes import Tensor

Precision = Literal["32", "bf16-mixed", "16-mixed"]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Resources:
    """What a command may use. None: what the launcher says, else one device; all threads."""

    devices: int | None = None
    """Processes on each machine, one per GPU, or as many on its CPU."""
    nodes: int | None = None
    precision: Precision = "32"
    threads: int | None = None
    """Of the processor, for each process."""
    accelerator: str = "auto"
    """`cpu`, `cuda`, or `auto`: a GPU if there is one."""


@dataclass(frozen=True, eq=False)
class Ranks:
    """This process among all that do the same work together; `rank` 0 is the first, who writes and speaks."""

    fabric: Fabric

    @property
    def rank(self) -> int:
        return self.fabric.global_rank

    @property
    def count(self) -> int:
        return self.fabric.world_size

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def device(self) -> torch.device:
        return self.fabric.device

    def mean(self, values: Tensor) -> Tensor:
        """Of one tensor per rank; all get the same bits."""
        if self.count == 1:
            return values
        total = values.detach().clone()
        torch.distributed.all_reduce(total)
        return total / self.count

    def own(self, items: Sequence[Item]) -> Sequence[Item]:
        """This rank's share of the items; every item belongs to one rank."""
        return items[self.rank :: self.count]

    def gathered(self, own: Sequence[Item]) -> list[Item]:
        """The items of all ranks, back in the order in which `own` dealt them out."""
        if self.count == 1:
            return list(own)
        shares: list[Any] = [None] * self.count
        torch.distributed.all_gather_object(shares, list(own))
        total = sum(len(share) for share in shares)
        return [shares[i % self.count][i // self.count] for i in range(total)]

    def wait(self) -> None:
        """Until all ranks have come this far."""
        self.fabric.barrier()

    @contextmanager
    def first_alone(self) -> Iterator[None]:
        """Within, the first rank does what the others then find done, e.g. filling a cache."""
        if not self.is_first:
            self.wait()
        yield
        if self.is_first:
            self.wait()


def launch(resources: Resources) -> Ranks:
    """Starts the other processes where nobody else has, and joins them. Call it once, before any work.

    Without `torchrun` or SLURM the other processes run this process' own command line again and arrive
    here, too.
    """
    devices, nodes = _layout(resources)
    accelerator = resources.accelerator
    if accelerator == "auto":
        accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    _require_available(resources, accelerator, devices)
    # It announces precision and every rank on standard error, where only our own words belong.
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    fabric = Fabric(
        accelerator=accelerator,
        devices=devices,
        num_nodes=nodes,
        # Frozen networks get no gradient and are no parameters of the reducer; all others always do.
        strategy=DDPStrategy(**_BUFFERS_STAY) if devices * nodes > 1 else "auto",
        precision=resources.precision,
    )
    fabric.launch()
    if fabric.global_rank != 0:
        _end_with(os.getppid())
    if resources.threads is not None:
        torch.set_num_threads(resources.threads)
    return Ranks(fabric)


@contextmanager
def launched(resources: Resources) -> Iterator[Ranks]:
    """As `launch`; says goodbye to the other processes in the end."""
    ranks = launch(resources)
    try:
        yield ranks
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


# Batch statistics are taken over all ranks, and so agree without being sent. The argument was renamed.
_BUFFERS_STAY: dict[str, Any] = {
    next(
        name
        for name in ("forward_sync_buffers", "broadcast_buffers")
        if name in inspect.signature(DistributedDataParallel).parameters
    ): False
}


def _end_with(parent: int) -> None:
    """Ends this process soon after the one that started it was killed: nobody would ever answer it again."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()


def is_first_process() -> bool:
    """Whether this process is the one that speaks, known before `launch`; alone, it is."""
    names = ("RANK", "SLURM_PROCID", "LOCAL_RANK")
    return next((os.environ[name] for name in names if name in os.environ), "0") == "0"


def _layout(resources: Resources) -> tuple[int, int]:
    """Processes per machine, and machines: as the launcher says, which must not contradict what was asked."""
    found = _layout_of_launcher()
    if found is None:
        return resources.devices or 1, resources.nodes or 1
    for asked, (name, value) in zip((resources.devices, resources.nodes), found.items(), strict=True):
        if asked is not None and asked != value:
            raise ValueError(
                f"--{name} {asked} was asked for, but the launcher (torchrun or SLURM) started {value}; "
                f"leave out --{name}, or start as many."
            )
    return found["devices"], found["nodes"]


def _layout_of_launcher() -> dict[str, int] | None:
    environment = os.environ
    if torch.distributed.is_available() and torch.distributed.is_torchelastic_launched():
        local = int(environment["LOCAL_WORLD_SIZE"])
        return {"devices": local, "nodes": int(environment["WORLD_SIZE"]) // local}
    if _in_slurm():
        nodes = int(environment.get("SLURM_NNODES", 1))
        return {"devices": int(environment["SLURM_NTASKS"]) // nodes, "nodes": nodes}
    return None


def _in_slurm() -> bool:
    """Started by `srun`, as one of its tasks; a shell inside an allocation is none."""
    return "SLURM_PROCID" in os.environ and os.environ.get("SLURM_JOB_NAME") not in ("bash", "interactive")


def _require_available(resources: Resources, accelerator: str, devices: int) -> None:
    for name, value in (("devices", devices), ("nodes", resources.nodes), ("threads", resources.threads)):
        if value is not None and value < 1:
            raise ValueError(f"--{name} is {value}; at least one is needed.")
    if accelerator == "cuda" and devices > torch.cuda.device_count():
        raise ValueError(
            f"--devices {devices} asks for more GPUs than the {torch.cuda.device_count()} of this machine."
        )
    if accelerator == "cpu" and resources.precision == "16-mixed":
        raise ValueError(
            "--precision 16-mixed needs a GPU, but there is none; here use `--precision bf16-mixed` or 32."
        )
