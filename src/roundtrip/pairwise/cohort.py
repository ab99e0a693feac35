"""Thousands of pairs of files, registered by any number of processes, as often interrupted as need be.

Every pair has a folder of its own. When all of its files are there, or when it has failed, `pair.json` says
so; what has none is not done yet. Processes share nothing but the file system: each has its share of the
pairs, and all know from these files when the last one is done. What registers a pair is passed in.
"""

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from roundtrip._files import write_whole
from roundtrip._launch import Ranks
from roundtrip._problems import FAULTS_OF_A_FILE, Problems
from roundtrip.data.manifest import read_table
from roundtrip.space.files import suffix_of

MARK = "pair.json"

COLUMNS = ("fixed", "moving", "fixed_labels", "moving_labels", "fixed_mask", "moving_mask")
"""Of a table of pairs; `name` may be another. Files are looked for beside the table."""


@dataclass(frozen=True)
class FilePair:
    """Two images in files, what belongs to them, and the name of the folder for their results."""

    name: str
    fixed: Path
    moving: Path
    fixed_labels: Path | None = None
    moving_labels: Path | None = None
    fixed_mask: Path | None = None
    moving_mask: Path | None = None

    def as_dict(self) -> dict[str, str]:
        """For JSON, without what is not there."""
        return {name: str(value) for name, value in asdict(self).items() if value is not None}


Register = Callable[[FilePair, Path], Mapping[str, Any]]
"""Registers a pair into a folder and returns what metrics.json says."""


def read_file_pairs(table: Path, problems: Problems) -> list[FilePair]:
    """The pairs of a CSV with the columns `fixed` and `moving`, and perhaps the others of `COLUMNS`."""
    pairs = []
    for line in read_table(table, problems):
        where = f"{table}:{line.number}"
        files = {name: table.parent / line.cells[name] for name in COLUMNS if line.cells.get(name)}
        for name in ("fixed", "moving"):
            if name not in files:
                problems.add(where, f"there is no {name}; a pair has a fixed and a moving image.")
        for name, path in files.items():
            if not path.exists():
                problems.add(where, f"{name} {path} does not exist.")
        if {"fixed", "moving"} <= files.keys():
            name = line.cells.get("name") or name_of(files["fixed"], files["moving"])
            pairs.append(FilePair(_as_folder(name), **files))
    return _named_apart(pairs)


def to_template(images: Sequence[Path], template: Path, labels: Path | None = None) -> list[FilePair]:
    """Every image but the template itself, laid onto the template."""
    others = [image for image in images if image.resolve() != template.resolve()]
    pairs = [FilePair(_as_folder(_stem(image)), template, image, fixed_labels=labels) for image in others]
    return _named_apart(pairs)


def name_of(fixed: Path, moving: Path) -> str:
    """Of the folder of a pair that was given no other."""
    return f"{_stem(moving)}_to_{_stem(fixed)}"


def register_pairs(
    pairs: Sequence[FilePair],
    register: Register,
    folder: Path,
    *,
    settings: Mapping[str, Any],
    ranks: Ranks | None = None,
    on_pair: Callable[[FilePair, str | None], None] | None = None,
) -> list[dict[str, Any]]:
    """Registers every pair into `folder`/its name; what each `pair.json` then says, in their order.

    Pairs that are done are not done again, unless by other `settings` or from other files: that is refused.
    Pairs that failed are tried again, and a pair that fails does not stop the others. Every process returns
    the results of all.
    """
    marks = {pair.name: _mark(folder, pair) for pair in pairs}
    left = [pair for pair in pairs if not _is_done(pair, marks[pair.name], settings)]
    if ranks is not None:
        # Nobody writes before all have read: they would deal out different lists.
        ranks.wait()
        left = list(ranks.own(left))
    for pair in left:
        (folder / pair.name / MARK).unlink(missing_ok=True)
    if ranks is not None:
        # Nobody waits for what an earlier run left behind.
        ranks.wait()
    for pair in left:
        error = _registered(pair, register, folder / pair.name, settings)
        if on_pair is not None:
            on_pair(pair, error)
    return list(_all_marks(pairs, folder))


def _registered(pair: FilePair, register: Register, folder: Path, settings: Mapping[str, Any]) -> str | None:
    """Why it failed; either way `pair.json` is there in the end."""
    said: dict[str, Any] = {**pair.as_dict(), "settings": dict(settings), "error": None}
    try:
        said["metrics"] = _in_short(register(pair, folder))
    except FAULTS_OF_A_FILE as error:
        said["error"] = " ".join(str(error).split()) or type(error).__name__
    text = json.dumps(said, indent=2) + "\n"
    write_whole(folder / MARK, lambda beside: beside.write_text(text, encoding="utf-8"))
    return said["error"]


def _in_short(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers that a table of many pairs shows."""
    parts: dict[str, Mapping[str, Any]] = {
        name: metrics.get(name) or {} for name in ("dice", "folds", "roundtrip_error_mm", "similarity")
    }
    return {
        "ok": metrics["ok"],
        "dice_before": (parts["dice"].get("before") or {}).get("mean"),
        "dice": parts["dice"].get("mean"),
        "labels": parts["dice"].get("num_labels"),
        "similarity_before": parts["similarity"].get("before"),
        "similarity": parts["similarity"].get("after"),
        "folds": parts["folds"].get("count"),
        "non_diffeomorphic_volume_percent": parts["folds"].get("non_diffeomorphic_volume_percent"),
        "roundtrip_error_mm_mean": parts["roundtrip_error_mm"].get("mean"),
        "roundtrip_error_mm_max": parts["roundtrip_error_mm"].get("max"),
        "seconds": metrics.get("seconds"),
    }


def _is_done(pair: FilePair, mark: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> bool:
    if mark is None or mark["error"] is not None:
        return False
    before = {name: mark.get(name) for name in pair.as_dict()}
    if before != pair.as_dict() or mark["settings"] != settings:
        raise ValueError(
            f"the folder already holds {pair.name}, made from other files or by other settings "
            f"({mark['settings']}): name another folder, or give the same command again to go on."
        )
    return True


def _mark(folder: Path, pair: FilePair) -> dict[str, Any] | None:
    """What is known of a pair; None where nothing is, or only half of it."""
    try:
        mark = json.loads((folder / pair.name / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return mark if isinstance(mark, dict) and {"error", "settings"} <= mark.keys() else None


def _all_marks(pairs: Sequence[FilePair], folder: Path) -> Iterator[dict[str, Any]]:
    """Waits for what other processes have not finished yet; a barrier would give up after some minutes."""
    for pair in pairs:
        while (mark := _mark(folder, pair)) is None:
            time.sleep(0.5)
        yield mark


def _named_apart(pairs: Sequence[FilePair]) -> list[FilePair]:
    """Names that several pairs have get a number that depends on the files alone, not on their order."""
    once = dict.fromkeys(pairs)
    count = Counter(pair.name.lower() for pair in once)
    return [pair if count[pair.name.lower()] == 1 else _numbered(pair) for pair in once]


def _numbered(pair: FilePair) -> FilePair:
    digest = hashlib.sha256(json.dumps(pair.as_dict(), sort_keys=True).encode()).hexdigest()
    return FilePair(**{**vars(pair), "name": f"{pair.name}-{digest[:8]}"})


def _as_folder(name: str) -> str:
    """A name that is a single folder on every file system."""
    return re.sub(r"[^\w.+=-]+", "_", name).strip(".") or "pair"


def _stem(path: Path) -> str:
    return path.name.removesuffix(suffix_of(path)) or path.name
