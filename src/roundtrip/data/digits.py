"""Reads MNIST's digits: from its own four files (IDX), packed or not, or from an .npz of arrays."""

import gzip
import re
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from roundtrip._shapes import Float, Tensor
from roundtrip.data.sources import DigitsSource

NPZ_NAMES = {
    "train": (("train", "x_train", "train_images"), ("y_train", "train_labels")),
    "test": (("test", "x_test", "test_images"), ("y_test", "test_labels")),
}
IDX_NAME = re.compile(r"(train|t10k|test).*images.*idx3-ubyte(\.gz)?$")


@dataclass(frozen=True, eq=False)
class Digits:
    """Images in [0, 1] and the part of MNIST, `train` or `test`, that each is from."""

    images: Float[Tensor, "B 1 *S"]
    parts: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Part:
    name: str
    images: np.ndarray
    digits: np.ndarray | None


def read_digits(source: DigitsSource) -> Digits:
    """The digits of a file or folder, `source.digit` alone where one is asked for."""
    path = source.path
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    parts = _of_npz(path) if path.suffix == ".npz" else _of_idx(path)
    images, names = [], []
    for part in parts:
        chosen = _chosen(part, source)
        images.append(chosen)
        names += [part.name] * len(chosen)
    stacked = np.concatenate(images)
    if not len(stacked):
        raise ValueError(f"{path} holds no digit {source.digit}.")
    return Digits(torch.from_numpy(stacked).float()[:, None] / 255, tuple(names))


def _chosen(part: _Part, source: DigitsSource) -> np.ndarray:
    if part.images.ndim != 3 or part.images.dtype != np.uint8:
        raise ValueError(
            f"the {part.name} images in {source.path} are {part.images.dtype} of shape {part.images.shape}; "
            "bytes of shape (number, height, width) are needed."
        )
    if source.digit is None:
        return part.images
    if part.digits is None:
        raise ValueError(
            f"{source.path} does not say which digits its {part.name} images show, so `digit: "
            f"{source.digit}` cannot be chosen. Leave `digit` out if they all show it, or give a folder with "
            "the files of labels, too."
        )
    if part.digits.shape != part.images.shape[:1]:
        raise ValueError(
            f"{source.path} has {len(part.images)} {part.name} images but {part.digits.size} labels of them."
        )
    return part.images[part.digits == source.digit]


def _of_npz(path: Path) -> list[_Part]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except Exception as error:
        raise ValueError(f"{path} could not be read as .npz: {error}. Is it complete?") from error
    parts = []
    for part, (images, digits) in NPZ_NAMES.items():
        name = next((name for name in images if name in found), None)
        if name is not None:
            labels = next((found[label] for label in digits if label in found), None)
            parts.append(_Part(part, found[name], labels))
    if not parts:
        known = ", ".join(found) or "none"
        raise ValueError(f"{path} has no array `train` or `test` (or `x_train`, ...); its arrays: {known}.")
    return parts


def _of_idx(path: Path) -> list[_Part]:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    # Packed and unpacked side by side are the same images twice.
    names = {file.name for file in files}
    files = [file for file in files if IDX_NAME.match(file.name) and file.name.removesuffix(".gz") not in
             names - {file.name}]  # fmt: skip
    if not files:
        raise ValueError(
            f"{path} is none of MNIST's files of images, nor a folder with one: they are called "
            "train-images-idx3-ubyte and t10k-images-idx3-ubyte, maybe with .gz; or give an .npz."
        )
    parts = []
    for file in files:
        labels = _labels_of(file)
        digits = None if labels is None else read_idx(labels)
        parts.append(_Part("train" if file.name.startswith("train") else "test", read_idx(file), digits))
    return parts


def _labels_of(images: Path) -> Path | None:
    name = images.name.replace("images", "labels").replace("idx3", "idx1").removesuffix(".gz")
    return next((file for end in ("", ".gz") if (file := images.with_name(name + end)).exists()), None)


def read_idx(path: Path) -> np.ndarray:
    """An array of bytes in IDX, the format of MNIST: two zeros, 8, the number of axes, their sizes, bytes."""
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        zeros, kind, axes = struct.unpack(">HBB", content[:4])
        shape = struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])
    except (struct.error, OSError, EOFError) as error:
        raise ValueError(f"{path} could not be read as IDX: {error}. Is it complete?") from error
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    if zeros != 0 or kind != 8 or values.size != np.prod(shape, dtype=np.int64):
        raise ValueError(
            f"{path} is no complete IDX file of bytes: it announces {shape} values and holds {values.size}."
        )
    return values.reshape(shape)
