"""Which subjects train, which validate, and which test: decided once, subject by subject."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from roundtrip._files import write_whole
from roundtrip._problems import Problems
from roundtrip.data.config import ByColumn, Counts, Fractions
from roundtrip.data.records import Record

PARTS = ("train", "validation", "test")

Split = Mapping[str, list[str]]
"""The subjects of each part."""


def split_subjects(
    records: Sequence[Record], config: Counts | Fractions | ByColumn, problems: Problems
) -> dict[str, list[str]]:
    """The subjects of each part, in the order of their drawing, or of the manifest."""
    if isinstance(config, ByColumn):
        return _by_column(records, config, problems)
    subjects = list(dict.fromkeys(record.subject for record in records))
    if isinstance(config, Counts):
        sizes = [getattr(config, part) for part in PARTS]
    else:
        sizes = _sizes(len(subjects), [getattr(config, part) for part in PARTS])
    if sum(sizes) > len(subjects):
        problems.add("split", f"it asks for {sum(sizes)} subjects, but there are {len(subjects)}.")
        return {part: [] for part in PARTS}

    def place(subject: str) -> bytes:
        return hashlib.sha256(f"{config.seed} {subject}".encode()).digest()

    left = sorted(subjects, key=place)
    split = {}
    for part, size in zip(PARTS, sizes, strict=True):
        split[part], left = left[:size], left[size:]
    return split


def is_used(record: Record, part: str, split: Split, config: Counts | Fractions | ByColumn) -> bool:
    """Whether an image belongs to a part: its subject does, and its line is not left out."""
    if isinstance(config, ByColumn) and not record.columns.get(config.column):
        return False
    return record.subject in split[part]


def write_split(path: Path, split: Split) -> None:
    """As JSON: the subjects of each part."""
    text = json.dumps(dict(split), indent=2, ensure_ascii=False) + "\n"
    write_whole(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def read_split(path: Path) -> dict[str, list[str]]:
    """What `write_split` wrote."""
    try:
        split = json.loads(path.read_text(encoding="utf-8"))
        if set(split) <= set(PARTS) and all(isinstance(s, str) for part in split.values() for s in part):
            return {part: list(split.get(part, [])) for part in PARTS}
    except (ValueError, TypeError, AttributeError):
        pass
    raise ValueError(
        f"{path} is no split: a JSON object with lists of subjects, {', '.join(PARTS)}, is needed."
    )


def _sizes(count: int, fractions: Sequence[float]) -> list[int]:
    """To the nearest subject, so that they add up; whoever has a share gets one where there are enough."""
    ends = [round(count * sum(fractions[: i + 1]) + 1e-9) for i in range(len(fractions))]
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    for part, fraction in enumerate(fractions):
        if fraction > 0 and sizes[part] == 0 and max(sizes) > 1:
            sizes[sizes.index(max(sizes))] -= 1
            sizes[part] = 1
    return sizes


def _by_column(records: Sequence[Record], config: ByColumn, problems: Problems) -> dict[str, list[str]]:
    meaning = {value: part for part in PARTS for value in getattr(config, part)}
    if records and not any(config.column in record.columns for record in records):
        names = ", ".join(sorted({name for record in records for name in record.columns})) or "none"
        problems.add("split", f"there is no column `{config.column}`; other columns: {names}.")
    split: dict[str, list[str]] = {part: [] for part in PARTS}
    seen: dict[str, dict[str, Record]] = defaultdict(dict)
    for record in records:
        value = record.columns.get(config.column, "")
        if value and value not in meaning:
            problems.add(
                record.where, f"`{config.column}` is {value}; it may be {', '.join(meaning)} or empty."
            )
        elif value:
            seen[record.subject].setdefault(meaning[value], record)
    for subject, parts in seen.items():
        split[next(iter(parts))].append(subject)
        for part, record in list(parts.items())[1:]:
            other, first = next(iter(parts.items()))
            problems.add(
                record.where,
                f"subject {subject} is in {part} here but in {other} at {first.where}; a subject belongs to "
                "one part.",
            )
    return split
