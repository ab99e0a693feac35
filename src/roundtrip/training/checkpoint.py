"""Checkpoints: everything a training run is at one moment, in one file that is whole or not there.

A file of safetensors: tensors by name, and one JSON text with all else. Nothing in it is executed when it is
read, and a truncated one is recognised. All that is random in training is a function of seed, stage and step,
so these are the random states. Neighbours: `stages.py` (writes them), `run.py` (goes on from the last one).
"""

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from roundtrip._shapes import Tensor
from roundtrip.training.control import Lambda

FORMAT = "1"
_NAME = re.compile(r"(?P<stage>\d{2})-(?P<name>.+)-(?P<step>\d{8})\.safetensors")
_UNFINISHED = ".unfinished-"


@dataclass(frozen=True, order=True)
class Place:
    """How far a run has come: `step` steps of stage number `stage`, which counts from 0, are done."""

    stage: int
    step: int


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A run after the steps of `place`."""

    place: Place
    stage_name: str
    weights: Mapping[str, Tensor]
    """Of the stage's algorithm, what it took from earlier stages included."""
    optimizer: Mapping[str, Tensor]
    """Adam's two moments and number of steps, as `<number of the parameter>.<name>`."""
    lambda_: Lambda
    config: Mapping[str, Any]
    best: float | None = None
    """The best score of a validation in this stage so far."""
    scaler: Mapping[str, float] = field(default_factory=dict)
    """The loss scale of half precision."""


class UnreadableCheckpoint(ValueError):
    """A file that is no whole checkpoint of ours."""


@dataclass(frozen=True)
class Checkpoints:
    """One run's checkpoints in their folder; of each stage the last `keep` stay, its end and its best."""

    folder: Path
    keep: int

    def write(self, checkpoint: Checkpoint, *, is_end: bool = False) -> None:
        """Write it, whole or not at all, and remove what is no longer kept."""
        self._write(self._path(checkpoint), checkpoint)
        if is_end:
            self._write(self._end(checkpoint.place.stage, checkpoint.stage_name), checkpoint)
        stages_before = [path for path in self._all() if self._place(path).stage < checkpoint.place.stage]
        this_stage = [path for path in self._all() if self._place(path).stage == checkpoint.place.stage]
        for path in stages_before + this_stage[: -self.keep]:
            path.unlink(missing_ok=True)

    def write_best(self, checkpoint: Checkpoint) -> None:
        """Keep it as the best of its stage."""
        self._write(self._best(checkpoint.place.stage, checkpoint.stage_name), checkpoint)

    def newest_first(self) -> Iterator[Path]:
        """All from which a run can go on."""
        return reversed(self._all())

    def result(self, stage: int, name: str, *, best: bool) -> Mapping[str, Tensor]:
        """The weights a finished stage leaves: its last, or those that validated best if it was validated."""
        path = self._best(stage, name)
        if not (best and path.exists()):
            path = self._end(stage, name)
        return read(path).weights

    def remove_unfinished(self) -> None:
        """What a killed process was writing."""
        for path in self.folder.glob(f"{_UNFINISHED}*"):
            path.unlink(missing_ok=True)

    def _write(self, path: Path, checkpoint: Checkpoint) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(prefix=_UNFINISHED, dir=self.folder)
        os.close(handle)
        try:
            write(Path(beside), checkpoint)
            os.replace(beside, path)
        except (OSError, SafetensorError) as error:
            raise OSError(
                f"the checkpoint {path} could not be written ({error}). Make room on the disk, then give the "
                "same command with --resume: the run goes on from the checkpoint before."
            ) from error
        finally:
            Path(beside).unlink(missing_ok=True)

    def _all(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return sorted((p for p in self.folder.iterdir() if _NAME.fullmatch(p.name)), key=self._place)

    def _place(self, path: Path) -> Place:
        found = _NAME.fullmatch(path.name)
        assert found is not None
        return Place(int(found["stage"]), int(found["step"]))

    def _path(self, checkpoint: Checkpoint) -> Path:
        place = checkpoint.place
        return self.folder / f"{place.stage:02}-{checkpoint.stage_name}-{place.step:08}.safetensors"

    def _end(self, stage: int, name: str) -> Path:
        return self.folder / f"{stage:02}-{name}-end.safetensors"

    def _best(self, stage: int, name: str) -> Path:
        return self.folder / f"{stage:02}-{name}-best.safetensors"


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Fill the file, and see it on the disk."""
    about = {
        "format": FORMAT,
        "stage": checkpoint.place.stage,
        "step": checkpoint.place.step,
        "stage_name": checkpoint.stage_name,
        "lambda": {"value": checkpoint.lambda_.value, "memory": dict(checkpoint.lambda_.memory)},
        "config": checkpoint.config,
        "best": checkpoint.best,
        "scaler": dict(checkpoint.scaler),
    }
    tensors = {f"weights/{name}": tensor for name, tensor in checkpoint.weights.items()}
    tensors |= {f"optimizer/{name}": tensor for name, tensor in checkpoint.optimizer.items()}
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    save_file(plain, path, metadata={"roundtrip": json.dumps(about)})
    with path.open("rb") as written:
        os.fsync(written.fileno())


def read(path: Path) -> Checkpoint:
    """What `write` wrote, on the CPU; `UnreadableCheckpoint` names the file where that cannot be."""
    try:
        with safe_open(path, framework="pt") as stored:
            about = json.loads(stored.metadata()["roundtrip"])
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        if about["format"] != FORMAT:
            raise UnreadableCheckpoint(
                f"{path} has format {about['format']!r}; this version of Roundtrip reads {FORMAT!r}."
            )
        return Checkpoint(
            place=Place(about["stage"], about["step"]),
            stage_name=about["stage_name"],
            weights=_under("weights/", tensors),
            optimizer=_under("optimizer/", tensors),
            lambda_=Lambda(**about["lambda"]),
            config=about["config"],
            best=about["best"],
            scaler=about["scaler"],
        )
    except (SafetensorError, OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise UnreadableCheckpoint(
            f"{path} is no whole checkpoint ({type(error).__name__}: {error}); it may be truncated."
        ) from error


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What Adam has learned about each of its parameters."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{name}": value for i, entry in state.items() for name, value in entry.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`, for an optimizer of the same parameters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, name = key.split(".", maxsplit=1)
        like = parameters[int(index)]
        if value.shape == like.shape and name != "step":
            # The fused Adam walks through memory: moments must lie there as their parameter does.
            value = torch.empty_like(like, memory_format=torch.preserve_format).copy_(value)
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
