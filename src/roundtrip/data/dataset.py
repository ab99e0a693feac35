"""`open_dataset`: from a declaration to images in pairs, split by subject.

Neighbours: `config.py` (the declaration), `subset.py` (what comes out), `collection.py` (where images are).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from roundtrip._launch import Ranks
from roundtrip._problems import Problems
from roundtrip.data.collection import collect, images_of
from roundtrip.data.config import AcrossSubjects, DataConfig, ListedPairs
from roundtrip.data.manifest import read_pairs
from roundtrip.data.pairing import AbstractPairing, ListedPairing, across_subjects, within_subject
from roundtrip.data.records import Record, require_mirror_column
from roundtrip.data.split import PARTS, is_used, split_subjects
from roundtrip.data.subset import AbstractSubset

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images for training, validation and test; no subject is in two of them."""

    train: AbstractSubset
    validation: AbstractSubset
    test: AbstractSubset
    split: Mapping[str, list[str]]
    """The subjects of each part, to be written down beside what was trained."""


def open_dataset(
    config: DataConfig,
    *,
    cache: Path,
    ranks: Ranks | None = None,
    on_progress: Progress | None = None,
) -> Dataset:
    """The images that `config` declares, prepared in the folder `cache` where they come from files.

    Everything that is wrong with them is reported in one `ValueError`. Images in memory lie on the device of
    `ranks`. `on_progress(done, of)` is told how many images are ready.
    """
    problems = Problems()
    collection = collect(config, problems)
    require_mirror_column(collection.records, config.preparation, problems)
    split = split_subjects(collection.records, config.split, problems)
    members = {
        part: [record for record in collection.records if is_used(record, part, split, config.split)]
        for part in PARTS
    }
    pairings = _pairings(config, members, problems)
    device = torch.device("cpu") if ranks is None else ranks.device
    # What is wrong is collected, not raised, in here: all ranks have to come out of it.
    with ranks.first_alone() if ranks is not None else nullcontext():
        images = images_of(
            collection,
            [r for part in PARTS for r in members[part]],
            config,
            cache,
            device,
            problems,
            on_progress,
        )
    problems.raise_any("the data")
    assert images is not None
    symmetric = not isinstance(config.pairs, ListedPairs) and config.pairs.symmetric
    subsets = {part: images.subset(members[part], pairings[part], symmetric=symmetric) for part in PARTS}
    return Dataset(subsets["train"], subsets["validation"], subsets["test"], split)


def _pairings(
    config: DataConfig, members: Mapping[str, Sequence[Record]], problems: Problems
) -> Mapping[str, AbstractPairing]:
    if isinstance(config.pairs, ListedPairs):
        pairings: Mapping[str, AbstractPairing] = _listed(config.pairs.path, members, problems)
    else:
        pair_up = across_subjects if isinstance(config.pairs, AcrossSubjects) else within_subject
        pairings = {
            part: pair_up([r.subject for r in records], [r.group for r in records])
            for part, records in members.items()
        }
    if not problems:
        _require_pairs(config, members, pairings, problems)
    return pairings


def _require_pairs(
    config: DataConfig,
    members: Mapping[str, Sequence[Record]],
    pairings: Mapping[str, AbstractPairing],
    problems: Problems,
) -> None:
    """There is something to train on, and every part that has images has pairs, unless they were listed."""
    for part, records in members.items():
        expected = records and not isinstance(config.pairs, ListedPairs)
        if not pairings[part].count and (expected or part == "train"):
            kind = config.pairs.kind.replace("_", " ")
            problems.add("pairs", f"the {len(records)} images of `{part}` make no pair ({kind}).")


def _listed(
    path: Path, members: Mapping[str, Sequence[Record]], problems: Problems
) -> dict[str, ListedPairing]:
    """The pairs of each part; both images of a pair are in one."""
    at = {
        record.name: (part, index)
        for part, records in members.items()
        for index, record in enumerate(records)
    }
    pairs: dict[str, list[tuple[int, int]]] = {part: [] for part in members}
    for where, *names in read_pairs(path, problems):
        unknown = [name for name in names if name not in at]
        for name in unknown:
            problems.add(where, f"{name} is none of the images that are used (or is called differently).")
        if unknown:
            continue
        (part, moving), (other, fixed) = at[names[0]], at[names[1]]
        if part != other:
            problems.add(
                where, f"{names[0]} is for {part} but {names[1]} for {other}; pairs stay in one part."
            )
        elif moving == fixed:
            problems.add(where, f"{names[0]} is paired with itself.")
        else:
            pairs[part].append((moving, fixed))
    return {part: ListedPairing(tuple(of_part)) for part, of_part in pairs.items()}
