"""What a training leaves while it runs: curves after every stage, and TensorBoard's scalars and pictures.

Neighbour: `training/watch.py`, the contract. matplotlib and tensorboard are imported when they are needed.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from roundtrip._shapes import Float, Image, Tensor
from roundtrip.maps.interpolate import warp
from roundtrip.maps.map import Map
from roundtrip.reports.curves import training_figure
from roundtrip.reports.files import write_figure
from roundtrip.training.config import StageConfig
from roundtrip.training.records import Record, StepRecord, ValidationRecord
from roundtrip.training.watch import AbstractWatcher, Example

LINES = 12
"""Of the grid that is shown deformed, about so many along the shortest axis."""
SCALARS = ("total", "similarity", "inverse_consistency", "folds", "magnitude", "lambda_", "learning_rate")


class Curves(AbstractWatcher):
    """`training.png` with the curves of all stages so far, drawn anew after each."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "training.png"

    def on_stage(self, stage: StageConfig, *, number: int, of: int, done: int) -> None: ...

    def on_step(self, record: StepRecord) -> None: ...

    def on_validation(self, record: ValidationRecord, example: Example) -> None: ...

    def on_stage_end(self, stage: StageConfig, *, number: int, records: Sequence[Record]) -> None:
        write_figure(self._path, training_figure(records), dpi=110)

    def on_note(self, text: str) -> None: ...


class TensorBoard(AbstractWatcher):
    """Scalars of every step and validation, and what the first held-out pair looks like."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None

    def on_stage(self, stage: StageConfig, *, number: int, of: int, done: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What was written after the checkpoint a run goes on from will be written again.
        self._writer = SummaryWriter(str(self._folder / f"{number:02}-{stage.name}"), purge_step=done + 1)

    def on_step(self, record: StepRecord) -> None:
        for name in SCALARS:
            self._writer.add_scalar(f"training/{name.rstrip('_')}", getattr(record, name), record.step)

    def on_validation(self, record: ValidationRecord, example: Example) -> None:
        for name, value in record.numbers.items():
            if not name.endswith("_before"):
                self._writer.add_scalar(f"validation/{name}", value, record.step)
        for name, picture in pictures(example):
            self._writer.add_image(f"pair/{name}", picture, record.step)
        self._writer.flush()

    def on_stage_end(self, stage: StageConfig, *, number: int, records: Sequence[Record]) -> None:
        self._writer.close()

    def on_note(self, text: str) -> None: ...


@torch.no_grad()
def pictures(example: Example) -> Iterator[tuple[str, Float[Tensor, "1 H W"]]]:
    """Moving, fixed, warped, difference and deformed grid of a pair, from 0 to 1; of a volume a slice."""
    moving, fixed, phi = example.moving[:1, :1], example.fixed[:1, :1], example.phi_AB
    warped = warp(moving, phi)
    low, high = min(moving.min(), fixed.min()), max(moving.max(), fixed.max())
    span = (high - low).clamp(min=torch.finfo(moving.dtype).tiny)
    for name, image in (("moving", moving), ("fixed", fixed), ("warped", warped)):
        yield name, _plane((image - low) / span)
    # Grey where nothing differs.
    yield "difference", _plane((warped - fixed) / (2 * span) + 0.5)
    yield "grid", _plane(_deformed_grid(fixed, phi))


def _deformed_grid(image: Image, phi: Map) -> Image:
    """Lines of a regular grid in the plane that is shown, as the map warps them."""
    gap = max(2, min(image.shape[3:] or image.shape[2:]) // LINES)
    lines = torch.zeros_like(image)
    for axis in range(max(2, image.ndim - 2), image.ndim):
        lines.movedim(axis, 0)[::gap] = 1
    return warp(lines, phi)


def _plane(image: Image) -> Float[Tensor, "1 H W"]:
    """The picture itself, the middle slice across the first axis of a volume, or a line as a row."""
    shown = image[0, 0]
    if shown.ndim == 3:
        shown = shown[len(shown) // 2]
    return shown.reshape(1, -1, shown.shape[-1]).clamp(0, 1).cpu()
