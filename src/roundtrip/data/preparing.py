"""Prepares all images of a data set, by as many processes as there are cores, and checks that they agree.

Neighbours: `prepared.py` (one image), `dataset.py` (who asks).
"""

import functools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from roundtrip._problems import Problems
from roundtrip.data.prepared import Prepared, Recipe, opened, prepared_record, remove_unfinished
from roundtrip.data.records import Record
from roundtrip.data.workers import in_processes

ALONE_SECONDS = 5.0
"""For so long one process prepares images; starting others takes as much."""

Outcome = tuple[Path | None, list[str]]
"""A file of the cache, or what is wrong."""


def prepare_all(
    records: Sequence[Record],
    recipe: Recipe,
    cache: Path,
    problems: Problems,
    *,
    on_progress: Callable[[int, int], None] | None = None,
    workers: int | None = None,
) -> list[Prepared]:
    """All images, in their order, those left out that cannot be used: of these, `problems` tells.

    `workers`: processes; as many as cores unless given.
    """
    remove_unfinished(cache)
    found = []
    for number, (path, wrong) in enumerate(_outcomes(records, recipe, cache, workers), start=1):
        problems.lines += [line for line in wrong if line not in problems.lines]
        found.append(None if path is None else opened(path))
        if on_progress is not None:
            on_progress(number, len(records))
    _require_agreement(records, found, recipe, problems)
    return [one for one in found if one is not None]


def _outcomes(
    records: Sequence[Record], recipe: Recipe, cache: Path, workers: int | None
) -> Iterator[Outcome]:
    work = functools.partial(_prepare_one, recipe=recipe, cache=cache)
    workers = workers or _cores()
    done, until = 0, time.monotonic() + ALONE_SECONDS
    while done < len(records) and (workers == 1 or time.monotonic() < until):
        yield work(records[done])
        done += 1
    if done < len(records):
        left = records[done:]
        yield from in_processes(work, left, min(workers, len(left)), lost=_lost)


def _lost(record: Record) -> Outcome:
    why = (
        f"{record.where}: the process that prepared {record.name} was ended from outside, most likely for "
        "want of memory. All others are kept: start again, on fewer cores, e.g. `taskset -c 0 roundtrip ...`."
    )
    return None, [why]


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _prepare_one(record: Record, recipe: Recipe, cache: Path) -> Outcome:
    problems = Problems()
    prepared = prepared_record(record, recipe, cache, problems)
    return None if prepared is None else prepared.path, problems.lines


def _require_agreement(
    records: Sequence[Record], found: Sequence[Prepared | None], recipe: Recipe, problems: Problems
) -> None:
    """One number of axes and channels, one grid, and as many landmarks, in all images."""
    pairs = [(record, one) for record, one in zip(records, found, strict=True) if one is not None]
    for what, of in (
        ("spatial axes", lambda one: one.grid.dims),
        ("channels", lambda one: one.channels),
        ("landmarks", lambda one: one.num_landmarks or None),
    ):
        values = [(record, of(one)) for record, one in pairs if of(one) is not None]
        usual = Counter(value for _, value in values).most_common(1)
        for record, value in values:
            if value != usual[0][0]:
                problems.add(
                    record.where, f"{record.name} has {value} {what}, but most images have {usual[0][0]}."
                )
    shapes = Counter(one.grid.shape for _, one in pairs)
    if len(shapes) > 1 and len({len(shape) for shape in shapes}) == 1:
        largest = [max(sizes) for sizes in zip(*shapes, strict=True)]
        some = ", ".join("x".join(map(str, shape)) for shape, _ in shapes.most_common(3))
        problems.add(
            "preparation",
            f"images differ in size ({some}{', ...' if len(shapes) > 3 else ''}), but a network is trained "
            f"on one: declare a grid, e.g. `grid: {largest}`; with `spacing`, images are cropped or padded "
            "to it.",
        )
