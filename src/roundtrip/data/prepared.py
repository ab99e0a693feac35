"""Prepared images on disk: made once, found again by what they were made of, and read by memory map.

A file of the cache is named by the content of the files it was made of and by the settings; whoever changes
either gets another file. It holds the image and what belongs to it, and appears whole or not at all, so that
any number of processes may fill one cache, and be killed. Neighbours: `preparing.py` (many of them at once).
"""

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from roundtrip._files import write_whole
from roundtrip._problems import Problems
from roundtrip._shapes import Points, Tensor
from roundtrip.algorithms.card import Preparation
from roundtrip.data.records import Record
from roundtrip.data.scan_file import ScanFiles, read_scan
from roundtrip.data.sources import Reading
from roundtrip.space.grid import Grid
from roundtrip.space.preparation import prepare, prepare_labels, prepare_points

FORMAT = 1
"""Counts up whenever preparation changes: what older versions prepared is not used."""


@dataclass(frozen=True)
class Recipe:
    """All that decides what a prepared image looks like, its files aside."""

    preparation: Preparation
    reading: Reading


@dataclass(frozen=True, eq=False)
class Prepared:
    """One file of the cache, and what its header says."""

    path: Path
    channels: int
    grid: Grid
    kinds: frozenset[str]
    """What is in it: `image`, and maybe `labels`, `mask`, `landmarks`."""
    num_landmarks: int

    def tensor(self, kind: str) -> Tensor:
        """`(C, *S)` of `image`, `labels` or `mask`, without a batch axis."""
        with safe_open(self.path, framework="pt") as file:
            return file.get_tensor(kind)

    def landmarks(self) -> Points | None:
        """In unit coordinates `(1, N, P)`."""
        return self.tensor("landmarks") if "landmarks" in self.kinds else None


def prepared_record(record: Record, recipe: Recipe, cache: Path, problems: Problems) -> Prepared | None:
    """The record's image, prepared, from the cache or newly; None where `problems` says why not."""
    key = problems.attempt(record.where, lambda: _key(record, recipe, cache))
    if key is None:
        return None
    path = cache / f"{key}.safetensors"
    if (known := opened(path)) is not None:
        return known
    scan = read_scan(record, recipe.reading, problems)
    if scan is None:
        return None
    mirrored = record.is_mirrored(recipe.preparation)
    parts = problems.attempt(record.where, lambda: _parts(scan, recipe.preparation, mirrored=mirrored))
    if parts is None:
        return None
    # Also a full disk is said with all the rest.
    problems.attempt(record.where, lambda: write_whole(path, lambda beside: save_file(parts, beside)))
    return opened(path)


def remove_unfinished(cache: Path) -> None:
    """What processes that were killed left half-written a day ago or more."""
    for beside in [*cache.glob(".*-*"), *cache.glob("digests/.*-*")]:
        with contextlib.suppress(OSError):
            if beside.is_dir() and time.time() - beside.stat().st_mtime > 24 * 3600:
                shutil.rmtree(beside, ignore_errors=True)


def opened(path: Path) -> Prepared | None:
    """What is in a file of the cache; None where it is missing or damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            kinds = frozenset(file.keys()) - {"world_from_voxel"}
            channels, *shape = file.get_slice("image").get_shape()
            place = Grid(tuple(shape), file.get_tensor("world_from_voxel"))
            count = file.get_slice("landmarks").get_shape()[-1] if "landmarks" in kinds else 0
            return Prepared(path, channels, place, kinds, count)
    except (SafetensorError, OSError):
        return None


def _parts(scan: ScanFiles, preparation: Preparation, *, mirrored: bool) -> dict[str, Tensor]:
    image = prepare(scan.image, preparation, mask=scan.mask, mirrored=mirrored)
    parts = {"image": image.data, "world_from_voxel": image.world_from_voxel}
    for kind, drawn in (("labels", scan.labels), ("mask", scan.mask)):
        if drawn is not None:
            on_grid = prepare_labels(drawn, preparation, mirrored=mirrored).data
            parts[kind] = (on_grid != 0).to(torch.uint8) if kind == "mask" else _compact(on_grid)
    if scan.landmarks is not None:
        parts["landmarks"] = prepare_points(scan.landmarks, image)
    return {kind: part.contiguous() for kind, part in parts.items()}


def _compact(labels: Tensor) -> Tensor:
    return labels.to(torch.uint8) if labels.min() >= 0 and labels.max() < 256 else labels


def _key(record: Record, recipe: Recipe, cache: Path) -> str:
    files = (record.image, record.labels, record.mask, record.landmarks)
    about = {
        "format": FORMAT,
        "preparation": recipe.preparation.model_dump(mode="json"),
        "reading": recipe.reading.model_dump(mode="json"),
        "mirrored": record.is_mirrored(recipe.preparation),
        "files": [None if path is None else _digest(path, cache) for path in files],
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:40]


def _digest(path: Path, cache: Path) -> str:
    """Of a file's content; it is not read again where its place, size and time are those of last time."""
    files = [path] if path.is_file() else sorted(part for part in path.rglob("*") if part.is_file())
    stamp = _sha256(f"{part.resolve()} {part.stat().st_size} {part.stat().st_mtime_ns}" for part in files)
    note = cache / "digests" / stamp[:40]
    if note.is_file():
        return note.read_text(encoding="ascii")
    hashed = hashlib.sha256()
    for part in files:
        with part.open("rb") as file:
            while block := file.read(2**20):
                hashed.update(block)
    digest = hashed.hexdigest()
    write_whole(note, lambda beside: beside.write_text(digest, encoding="ascii"))
    return digest


def _sha256(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
