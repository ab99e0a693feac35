"""An evaluation to look at: a thumbnail of every pair, a page for the worst, index.html over all.

Neighbours: `tables.py`, its numbers; `overview.py`, which makes the page over all; `page.py`, that of a pair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roundtrip.evaluation.journal import Judged
from roundtrip.evaluation.quality import PairQuality
from roundtrip.evaluation.summary import pair_row
from roundtrip.pairwise.evaluate import Kept, file_name
from roundtrip.reports.overview import PAGE, Column, Entry, Overview, worst_first, write_overview
from roundtrip.reports.page import write_report
from roundtrip.reports.pair import ReportedPair
from roundtrip.reports.thumbnail import write_thumbnail

THUMBNAILS, REPORTS = "thumbnails", "reports"


@dataclass(frozen=True)
class EvaluationPages:
    """What an evaluation leaves to look at, in one folder."""

    folder: Path

    def keep_thumbnail(self, kept: Kept) -> None:
        """Writes the thumbnail of a pair that was just registered, unless it has one axis alone."""
        if kept.transform.dims < 2:
            return
        path = self.folder / THUMBNAILS / f"{file_name(kept.moving.name, kept.fixed.name)}.jpg"
        write_thumbnail(path, kept.moving.scan.image, kept.fixed.scan.image, kept.transform)

    def worst(self, judged: Sequence[Judged], count: int) -> list[Judged]:
        """Of the pairs that were measured those to look at first, of which there is no page yet."""
        by_name = {_name(one): one for one in judged if one.quality is not None}
        entries = worst_first([self._entry(one) for one in by_name.values()], columns_of(judged))
        chosen = [by_name[entry.name] for entry in entries[:count]]
        return [one for one in chosen if not self._report(one).exists()]

    def write_report(self, one: Judged, kept: Kept, command: str) -> None:
        """Writes the page of a pair, which its row in index.html opens."""
        assert one.quality is not None
        write_report(self._report(one), _reported(one, kept, command))

    def write_index(self, judged: Sequence[Judged], values: Mapping[str, Any]) -> None:
        """Writes index.html; `values` are those of summary.json."""
        known = {"pairs", "failed", "measures", "labels"}
        overview = Overview(
            title="Evaluation",
            entries=[self._entry(one) for one in judged],
            columns=columns_of(judged),
            about={name: value for name, value in values.items() if name not in known},
            tables={"Over all pairs": values["measures"], "By label": values["labels"]},
        )
        write_overview(self.folder / PAGE, overview)

    def _entry(self, one: Judged) -> Entry:
        if one.quality is None:
            return Entry(name=_name(one), error=one.error)
        report = self._report(one)
        return Entry(
            name=_name(one),
            values={**pair_row(one.quality), "seconds": one.seconds},
            doubts=doubts_of(one.quality),
            report=f"{REPORTS}/{report.name}" if report.exists() else None,
            thumbnail=self.folder / THUMBNAILS / f"{file_name(one.moving, one.fixed)}.jpg",
        )

    def _report(self, one: Judged) -> Path:
        return self.folder / REPORTS / f"{file_name(one.moving, one.fixed)}.html"


def columns_of(judged: Sequence[Judged]) -> list[Column]:
    """The numbers of an index; which there are depends on the unit and on how images were compared."""
    qualities = [one.quality for one in judged if one.quality is not None]
    unit = qualities[0].unit if qualities else "mm"
    name = qualities[0].similarity.name if qualities else ""
    return [
        Column("dice", "Dice", "lower", "dice_before", histogram=True),
        Column(f"landmark_error_{unit}", f"Landmarks ({unit})", "higher", f"landmark_error_{unit}_before"),
        Column(f"hd95_{unit}", f"HD95 ({unit})", "higher", f"hd95_{unit}_before"),
        Column(name, name, "higher", f"{name}_before"),
        Column("folds", "Folds", "higher", histogram=True),
        Column("non_diffeomorphic_volume_percent", "Folded volume (%)", "higher"),
        Column(f"roundtrip_error_mean_{unit}", f"Round trip, mean ({unit})", "higher", histogram=True),
        Column(f"roundtrip_error_max_{unit}", f"Round trip, max ({unit})", "higher"),
        Column("seconds", "Seconds"),
    ]


# Of the voxels of an image, in percent; and of a Dice, what interpolation alone may cost.
_MANY_FOLDS, _DICE_NOISE = 1.0, 0.01


def doubts_of(quality: PairQuality) -> list[str]:
    """Why not to rely on a pair, in words; nothing that is measured says so where there are none."""
    said = []
    if quality.folds.percent > _MANY_FOLDS:
        said.append(f"{quality.folds.percent:.2g} % of the voxels fold.")
    if quality.dice is not None and quality.dice.mean < quality.dice.mean_before - _DICE_NOISE:
        said.append(
            f"labels overlap less than before: {quality.dice.mean_before:.3f}, now {quality.dice.mean:.3f}."
        )
    if quality.similarity.after > quality.similarity.before:
        said.append("the images are less alike than before.")
    return said


def _reported(one: Judged, kept: Kept, command: str) -> ReportedPair:
    assert one.quality is not None
    moving, fixed = kept.moving.scan.image, kept.fixed.scan.image
    return ReportedPair(
        fixed=fixed,
        moving=moving,
        transform=kept.transform,
        metrics={"seconds": one.seconds, **one.quality.as_dict()},
        fixed_labels=kept.fixed.labels,
        moving_labels=kept.moving.labels,
        fixed_name=one.fixed,
        moving_name=one.moving,
        command=command,
    )


def _name(one: Judged) -> str:
    return f"{one.moving} to {one.fixed}"
