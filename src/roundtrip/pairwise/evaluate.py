"""Judges a model on the pairs of a manifest: by many processes, as often interrupted as need be.

Neighbours: `judged.py` (one pair), `evaluation/cohort.py` (the loop), `reports/tables.py` (what is written of
it).
"""

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roundtrip._files import write_whole
from roundtrip._launch import Ranks
from roundtrip._problems import Problems
from roundtrip.data.records import Record
from roundtrip.data.scan_file import ScanFiles, read_scan
from roundtrip.data.selection import RecordPair
from roundtrip.data.sources import Reading
from roundtrip.evaluation.cohort import judge_pairs
from roundtrip.evaluation.journal import Journal, Judged
from roundtrip.pairwise.judged import Case, judge_registered
from roundtrip.pairwise.model import Model, Registered, Scan
from roundtrip.pairwise.refine import Refinement
from roundtrip.space.transform import Transform

SETTINGS, JOURNAL, TRANSFORMS = "settings.json", "journal", "transforms"

REMEMBERED = 4
"""Images in memory: neighbouring pairs share one."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How pairs are registered and judged, and the folder that remembers them."""

    model: Model
    folder: Path
    reading: Reading = Reading()  # noqa: RUF009
    refinement: Refinement | None = None
    writes_transforms: bool = False
    """Whether both directions of every pair go to files, for ITK, ANTs and Slicer."""
    keep: "Callable[[Kept], None] | None" = None
    """Is given every pair as it was registered, to keep something of it to look at."""

    @property
    def journal(self) -> Path:
        return self.folder / JOURNAL

    def run(
        self,
        pairs: Sequence[RecordPair],
        *,
        ranks: Ranks | None = None,
        on_pair: Callable[[Judged], None] | None = None,
    ) -> list[Judged]:
        """All pairs, in their order; those that the folder remembers are not done again."""
        read = functools.lru_cache(maxsize=REMEMBERED)(self._read)

        def judge(pair: RecordPair) -> Judged:
            return self._judged(*pair, read)

        journal = Journal(self.journal, 0 if ranks is None else ranks.rank)
        return judge_pairs(pairs, judge, name=names_of, journal=journal, ranks=ranks, on_pair=on_pair)

    def again(self, pair: RecordPair) -> "Kept":
        """A pair registered once more, as it was for its numbers."""
        return self._registered(*pair, self._read)[1]

    def _judged(self, moving: Record, fixed: Record, read: Callable[[Record], ScanFiles]) -> Judged:
        registered, kept = self._registered(moving, fixed, read)
        quality = judge_registered(registered, kept.moving, kept.fixed, self.model.preparation)
        if self.writes_transforms:
            self._write_transforms(kept)
        if self.keep is not None:
            self.keep(kept)
        return Judged(moving.name, fixed.name, quality, registered.seconds)

    def _registered(
        self, moving: Record, fixed: Record, read: Callable[[Record], ScanFiles]
    ) -> "tuple[Registered, Kept]":
        source, target = (self._case(record, read(record)) for record in (moving, fixed))
        registered = self.model(source.scan, target.scan, refinement=self.refinement)
        return registered, Kept(source, target, _between_images(registered, source, target))

    def _read(self, record: Record) -> ScanFiles:
        problems = Problems()
        scan = read_scan(record, self.reading, problems)
        if scan is None:
            raise ValueError(" ".join(problems.lines))
        return scan

    def _case(self, record: Record, files: ScanFiles) -> Case:
        mirrored = record.is_mirrored(self.model.preparation)
        scan = Scan(files.image, mask=files.mask, mirrored=mirrored)
        return Case(record.name, scan, labels=files.labels, landmarks=files.landmarks)

    def _write_transforms(self, kept: "Kept") -> None:
        folder = self.folder / TRANSFORMS
        folder.mkdir(parents=True, exist_ok=True)
        names = kept.moving.name, kept.fixed.name
        kept.transform.save(folder / transform_name(*names))
        kept.transform.inverse().save(folder / transform_name(*names, inverse=True))


@dataclass(frozen=True, eq=False)
class Kept:
    """A registered pair: its images, what is known of them, and the transform between their worlds."""

    moving: Case
    fixed: Case
    transform: Transform


def _between_images(registered: Registered, moving: Case, fixed: Case) -> Transform:
    return Transform.from_maps(
        registered.phi_AB, registered.fixed, registered.moving, inverse=registered.phi_BA
    ).between(fixed.scan.image, moving.scan.image)


def names_of(pair: RecordPair) -> tuple[str, str]:
    """The moving and the fixed image, as the manifest calls them."""
    return pair[0].name, pair[1].name


def transform_name(moving: str, fixed: str, *, inverse: bool = False) -> str:
    """Of the file of a transform."""
    return f"{file_name(moving, fixed)}{'_inverse' if inverse else ''}.h5"


def file_name(moving: str, fixed: str) -> str:
    """Of files of a pair, without what they end with: readable, and another one for every pair."""
    stems = [Path(name).name.split(".")[0] for name in (moving, fixed)]
    digest = hashlib.sha256(json.dumps([moving, fixed]).encode()).hexdigest()[:6]
    return f"{'_to_'.join(stems)}_{digest}"


def require_same_settings(folder: Path, settings: dict[str, Any], *, writes: bool = True) -> None:
    """What is remembered in a folder was made with these settings; they are written there at first."""
    path = folder / SETTINGS
    if not path.exists() and not writes:
        return
    if not path.exists():
        text = json.dumps(settings, indent=2, allow_nan=False) + "\n"
        write_whole(path, lambda beside: beside.write_text(text, encoding="utf-8"))
        return
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}). Remove {folder}, or name another folder.") from error
    different = [name for name in {**settings, **known} if settings.get(name) != known.get(name)]
    if different:
        raise ValueError(
            f"{folder} holds an evaluation with another {', '.join(different)}; what it remembers cannot be "
            "continued. Name another folder, or remove that one."
        )


def digest_of_model(folder: Path) -> str:
    """Of its weights and its card."""
    hashed = hashlib.sha256()
    for name in ("card.json", "model.safetensors"):
        hashed.update((folder / name).read_bytes())
    return hashed.hexdigest()
