"""The images of a source, whether they are files, drawn, or in memory, and subsets of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from roundtrip._problems import Problems
from roundtrip._shapes import Image, Shaped, Tensor
from roundtrip.algorithms.card import Preparation
from roundtrip.data.config import DataConfig
from roundtrip.data.digits import read_digits
from roundtrip.data.folder import find_images
from roundtrip.data.manifest import read_manifest
from roundtrip.data.pairing import AbstractPairing
from roundtrip.data.prepared import Prepared, Recipe
from roundtrip.data.preparing import prepare_all
from roundtrip.data.records import Record
from roundtrip.data.shapes import triangles_and_circles
from roundtrip.data.sources import DigitsSource, FolderSource, ManifestSource, ShapesSource
from roundtrip.data.subset import AbstractSubset, InMemorySubset, PreparedSubset
from roundtrip.space.preparation import prepare, prepare_labels
from roundtrip.space.volume import Volume


@dataclass(frozen=True, eq=False)
class Drawing:
    """Images that no file of their own holds, and their labels."""

    images: Image
    labels: Shaped[Tensor, "B 1 *S"]


@dataclass(frozen=True, eq=False)
class Collection:
    """All that a source has."""

    records: Sequence[Record]
    drawing: Drawing | None = None
    """Element i belongs to record i; None: the records name files."""


@dataclass(frozen=True, eq=False)
class InMemory:
    """Prepared images in memory, by name."""

    drawing: Drawing
    at: dict[str, int]

    def subset(
        self, records: Sequence[Record], pairing: AbstractPairing, *, symmetric: bool
    ) -> AbstractSubset:
        index = torch.tensor([self.at[record.name] for record in records], dtype=torch.long)
        index = index.to(self.drawing.images.device)
        return InMemorySubset(
            self.drawing.images[index],
            pairing,
            names=[record.name for record in records],
            labels=self.drawing.labels[index],
            symmetric=symmetric,
        )


@dataclass(frozen=True, eq=False)
class InFiles:
    """Prepared images in the cache, by name."""

    prepared: dict[str, Prepared]

    def subset(
        self, records: Sequence[Record], pairing: AbstractPairing, *, symmetric: bool
    ) -> AbstractSubset:
        like = next(iter(self.prepared.values()))
        return PreparedSubset(
            [self.prepared[record.name] for record in records],
            pairing,
            names=[record.name for record in records],
            like=like,
            symmetric=symmetric,
        )


def collect(config: DataConfig, problems: Problems) -> Collection:
    """The records of the source that `config` declares; images in memory come along."""
    source = config.source
    if isinstance(source, ManifestSource):
        return Collection(read_manifest(source.path, problems))
    if isinstance(source, FolderSource):
        return Collection(find_images(source, problems))
    if isinstance(source, ShapesSource):
        return _shapes(source)
    return problems.attempt("source", lambda: _digits(source)) or Collection([])


def images_of(
    collection: Collection,
    used: Sequence[Record],
    config: DataConfig,
    cache: Path,
    device: torch.device,
    problems: Problems,
    on_progress: Callable[[int, int], None] | None = None,
) -> InMemory | InFiles | None:
    """The images of the records that are used, prepared; `problems` says which cannot be."""
    drawing = collection.drawing
    if drawing is not None:
        at = {record.name: index for index, record in enumerate(collection.records)}
        ready = problems.attempt("preparation", lambda: _prepared(drawing, config.preparation))
        return None if ready is None else InMemory(_on(device, ready), at)
    assert isinstance(config.source, ManifestSource | FolderSource)
    recipe = Recipe(config.preparation, config.source.reading)
    # What is known to be wrong already is not said twice.
    whole = [record for record in used if not problems.mention(record.where)]
    prepared = prepare_all(whole, recipe, cache, problems, on_progress=on_progress)
    if problems or not prepared:
        return None
    return InFiles(dict(zip((record.name for record in whole), prepared, strict=True)))


def _shapes(source: ShapesSource) -> Collection:
    generator = torch.Generator().manual_seed(source.seed)
    shapes = triangles_and_circles(source.count, size=source.size, generator=generator)
    records = [Record(f"shape {number}", "source", str(number)) for number in range(source.count)]
    return Collection(records, Drawing(shapes.images, shapes.inside.to(torch.uint8)))


def _digits(source: DigitsSource) -> Collection:
    digits = read_digits(source)
    records = [
        Record(f"digit {number}", "source", str(number), {"part": part})
        for number, part in enumerate(digits.parts)
    ]
    return Collection(records, Drawing(digits.images, (digits.images > 0.5).to(torch.uint8)))


def _prepared(drawing: Drawing, preparation: Preparation) -> Drawing:
    """Images without a world are prepared as if their pixels were 1 mm apart."""
    if preparation == Preparation():
        return drawing
    world = torch.eye(drawing.images.ndim - 1, dtype=torch.float64)
    images = [prepare(Volume(image, world), preparation).data for image in drawing.images]
    labels = [prepare_labels(Volume(one, world), preparation).data for one in drawing.labels]
    return Drawing(torch.stack(images), torch.stack(labels))


def _on(device: torch.device, drawing: Drawing) -> Drawing:
    return Drawing(drawing.images.to(device), drawing.labels.to(device))
