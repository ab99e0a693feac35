"""Which pairs of a manifest are evaluated: all, those of one part, or those of a list; each by its images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roundtrip._problems import Problems
from roundtrip.data.manifest import read_pairs
from roundtrip.data.pairing import across_subjects, chosen_pairs, within_subject
from roundtrip.data.records import Record
from roundtrip.data.split import PARTS, read_split

RecordPair = tuple[Record, Record]
"""The moving and the fixed image."""


@dataclass(frozen=True)
class Selection:
    """What is asked for; each field leaves out what it does not mean."""

    part: str | None = None
    """Only images of this part of a split."""
    split: Path | None = None
    """Where a training wrote which subjects are in which part; without it the manifest's column `part`."""
    pairs: Path | None = None
    """A table with the columns `moving` and `fixed`; without it all pairs across subjects."""
    within_subject: bool = False
    count: int | None = None
    """At most so many, spread over all of them."""


def selected_pairs(records: Sequence[Record], selection: Selection, problems: Problems) -> list[RecordPair]:
    """The pairs, in an order in which neighbours share an image; never an image with itself."""
    if selection.part is not None:
        records = _of_part(records, selection, problems)
    if selection.pairs is not None:
        return _listed(records, selection.pairs, problems)[: selection.count]
    pair_up = within_subject if selection.within_subject else across_subjects
    pairing = pair_up([record.subject for record in records], [record.group for record in records])
    pairs = chosen_pairs(pairing, selection.count, symmetric=False)
    if not pairs and not problems:
        kind = "within a subject" if selection.within_subject else "across subjects"
        problems.add("pairs", f"the {len(records)} images make no pair {kind}.")
    return [(records[moving], records[fixed]) for moving, fixed in pairs]


def _of_part(records: Sequence[Record], selection: Selection, problems: Problems) -> list[Record]:
    part, split = selection.part, selection.split
    if split is not None:
        subjects = problems.attempt(str(split), lambda: read_split(split)) or {}
        if part not in PARTS:
            problems.add("part", f"{part} is not one of {', '.join(PARTS)}, which {split} knows.")
        known = set(subjects.get(part or "", ()))
        chosen = [record for record in records if record.subject in known]
        where = f"{split} puts none of the manifest's subjects into {part}."
    else:
        chosen = [record for record in records if record.columns.get("part") == part]
        values = sorted({record.columns.get("part", "") for record in records} - {""})
        there = f"there are {', '.join(values)}" if values else "and there is no such column, or it is empty"
        where = f"no image has `part` {part}; {there}."
    if not chosen and not problems:
        problems.add("part", where)
    return chosen


def _listed(records: Sequence[Record], path: Path, problems: Problems) -> list[RecordPair]:
    by_name = {record.name: record for record in records}
    pairs: list[RecordPair] = []
    for where, *names in read_pairs(path, problems):
        unknown = [name for name in names if name not in by_name]
        for name in unknown:
            problems.add(where, f"{name} is no image of the manifest (or of the part that was asked for).")
        if names[0] == names[1]:
            problems.add(where, f"{names[0]} is paired with itself.")
        elif not unknown:
            pairs.append((by_name[names[0]], by_name[names[1]]))
    return list(dict.fromkeys(pairs))
