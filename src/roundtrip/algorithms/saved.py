"""A model is a folder: `model.safetensors` with the weights, `card.json` with what one must know to use them.

The folder says what the algorithm is made of (`description.py`), so that `load` can build it again, and how
its images are prepared (`card.py`). Nothing in it is ever executed. Neighbour: `icon_weights.py`, which reads
the weights that the published package wrote.
"""

import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from roundtrip._files import folder_beside, undisturbed, write_whole
from roundtrip._shapes import Tensor
from roundtrip.algorithms.card import Card
from roundtrip.algorithms.description import build, describe
from roundtrip.algorithms.registration import AbstractRegistration

WEIGHTS, CARD, CURVES = "model.safetensors", "card.json", "training.png"
"""The curves of its training may lie beside a model; they are for people."""
FORMAT = 1


def save(algorithm: AbstractRegistration, folder: str | os.PathLike[str], *, card: Card) -> None:
    """Write `algorithm` into `folder`, whole or not at all; a model that was there before is replaced.

    A network that serves two steps is stored twice, and each step has its own when loaded.
    """
    folder = Path(folder).resolve()
    _require_replaceable(folder)
    content = _content(algorithm, card)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder_beside(folder) as beside:
        new = beside / "new"
        new.mkdir()
        _write_weights(_independent(algorithm.state_dict()), new / WEIGHTS)
        (new / CARD).write_text(content, encoding="utf-8")
        with undisturbed():
            _put_in_place(new, folder, aside=beside / "old")


def write_model(algorithm: AbstractRegistration, folder: Path, *, card: Card) -> None:
    """Make a model of a folder that holds other files too, as a training leaves them.

    Each file is whole or not there; the card comes last and goes first, and without it there is no model.
    """
    content = _content(algorithm, card)
    (folder / CARD).unlink(missing_ok=True)
    weights = _independent(algorithm.state_dict())
    write_whole(folder / WEIGHTS, lambda beside: _write_weights(weights, beside))
    write_whole(folder / CARD, lambda beside: beside.write_text(content, encoding="utf-8"))


def load(folder: str | os.PathLike[str]) -> AbstractRegistration:
    """The algorithm that was saved in `folder`, on the CPU, in eval mode; call it with (moving, fixed)."""
    folder = Path(folder)
    description, _ = _read(folder)
    weights = _read_weights(folder)
    algorithm = _without_weights(description, folder / CARD)
    try:
        algorithm.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise ValueError(
            f"{folder / WEIGHTS} does not fit the architecture in {CARD}: they are from two models, or one "
            f"was edited. Copy the folder again, or save the model again. In detail: {error}"
        ) from error
    return algorithm.eval()


def read_card(folder: str | os.PathLike[str]) -> Card:
    """What the model in `folder` says about itself, without loading its weights."""
    return _read(Path(folder))[1]


def _write_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    # safetensors makes files that nobody else may read; who may is the folder's business.
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(dict(weights), path)
    except SafetensorError as error:
        raise OSError(f"the weights could not be written: {error}. Is the disk full?") from error
    path.chmod(mode)


def _content(algorithm: AbstractRegistration, card: Card) -> str:
    """What card.json says."""
    content = {"format": FORMAT, "roundtrip": version("roundtrip"), "architecture": describe(algorithm)}
    return json.dumps(content | card.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def _require_replaceable(folder: Path) -> None:
    """Nothing is there, or a model and nothing else."""
    if folder.exists() and not (
        folder.is_dir() and {p.name for p in folder.iterdir()} <= {WEIGHTS, CARD, CURVES}
    ):
        raise ValueError(
            f"{folder} exists and is not a saved model (a folder of {WEIGHTS} and {CARD}). It was left as it "
            "is: choose another name, or remove it."
        )


def _put_in_place(new: Path, folder: Path, *, aside: Path) -> None:
    """Rename `new` to `folder`; what is there goes `aside`, and returns should the renaming fail."""
    if folder.exists():
        folder.rename(aside)
    try:
        new.rename(folder)
    finally:
        if aside.exists() and not folder.exists():
            aside.rename(folder)


def _without_weights(description: Any, path: Path) -> AbstractRegistration:
    """What a card describes, on no device: it takes no memory and no random numbers."""
    try:
        with torch.device("meta"):
            algorithm = build(description)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the architecture in {path} cannot be built: {error}") from error
    if not isinstance(algorithm, AbstractRegistration):
        raise ValueError(
            f"the architecture in {path} is the network {type(algorithm).__name__} alone; an algorithm made "
            f'of it is needed, e.g. {{"class": "DisplacementRegistration", "net": ...}}.'
        )
    return algorithm


def _independent(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors in plain memory, none shared between two names: safetensors stores nothing else."""
    return {key: tensor.detach().cpu().contiguous().clone() for key, tensor in state.items()}


def _read(folder: Path) -> tuple[Any, Card]:
    """The architecture, not yet checked, and the card in a model's folder."""
    path = folder / CARD
    if not path.is_file():
        raise ValueError(
            f"{folder} is not a saved model: it has no {CARD}. A model is a folder of {WEIGHTS} and {CARD}, "
            "as `roundtrip train` and `roundtrip convert` write it."
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        written, _, description = (content.pop(key) for key in ("format", "roundtrip", "architecture"))
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path} is not the card of a Roundtrip model ({type(error).__name__}: {error}). Copy the folder "
            "again, or convert the weights again with `roundtrip convert`."
        ) from error
    if written != FORMAT:
        raise ValueError(f"{path} has format {written!r}; this version reads {FORMAT}. Update Roundtrip.")
    try:
        return description, Card.model_validate(content)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ValueError(f"{path} cannot be read. {wrong}. Correct it with a text editor.") from error


def _read_weights(folder: Path) -> dict[str, Tensor]:
    path = folder / WEIGHTS
    if not path.is_file():
        raise ValueError(f"{folder} is not a saved model: it has no {WEIGHTS}. Copy the whole folder again.")
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}). Copy the folder again.") from error
