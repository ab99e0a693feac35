"""A registration judged in words: what was found, whether to worry, and where to look.

Numbers are taken from the maps themselves, so that every sentence can point at a place.
Neighbour: `content.py`, which asks for it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from roundtrip._shapes import Bool, Tensor
from roundtrip.space.volume import Volume

Level = Literal["good", "look", "bad"]

# Of the voxels of the foreground, in percent: where folding or missing stops being a detail.
_MANY = 1.0

# A voxel that becomes so many times larger or smaller is not anatomy.
_EXTREME_GROWTH = 8.0

# A label whose Dice falls by more was not merely cut differently by interpolation.
_DICE_NOISE = 0.01


@dataclass(frozen=True)
class Finding:
    """One sentence, the place it speaks of (a point of the fixed world, or a label), and the map to show."""

    level: Level
    text: str
    at: tuple[float, ...] | None = None
    label: int | None = None
    map: Literal["jacobian", "error"] | None = None


@dataclass(frozen=True)
class Evidence:
    """What a verdict rests on: maps on the fixed grid, the voxels that matter, and metrics.json."""

    metrics: Mapping[str, Any]
    jacobian: Volume
    roundtrip_error: Volume
    foreground: Bool[Tensor, "*S"]
    outside_percent: float
    """Of the foreground that is sent outside the moving image."""


def verdict_of(evidence: Evidence) -> dict[str, Any]:
    """The headline, its level, and the findings behind it, the worst first; as JSON takes it."""
    findings = [
        *_said_by_metrics(evidence.metrics),
        _folds(evidence),
        _round_trip(evidence),
        *_growth(evidence),
        *_coverage(evidence),
        *_similarity(evidence.metrics),
        *_dice(evidence.metrics),
    ]
    order: list[Level] = ["bad", "look", "good"]
    findings.sort(key=lambda finding: order.index(finding.level))
    level = findings[0].level
    count = sum(finding.level != "good" for finding in findings)
    return {
        "level": level,
        "headline": {
            "good": "Nothing wrong was found.",
            "look": f"Usable, but look at {count} thing{'s' if count > 1 else ''} first.",
            "bad": "Do not rely on this result before you have looked.",
        }[level],
        "findings": [asdict(finding) for finding in findings],
    }


def _said_by_metrics(metrics: Mapping[str, Any]) -> Iterator[Finding]:
    for reason in metrics.get("reasons") or []:
        yield Finding("bad", _sentence(reason))
    if metrics.get("ok") is False and not metrics.get("reasons"):
        yield Finding("bad", "Registration reports that it failed.")
    for note in metrics.get("notes") or []:
        yield Finding("look", _sentence(note))


def _folds(evidence: Evidence) -> Finding:
    growth = evidence.jacobian.data[0]
    folded = ~(growth > 0)
    count = int(folded.sum())
    if not count:
        return Finding("good", "No folds: the map keeps its orientation at every voxel.")
    percent = 100 * count / growth.numel()
    inside = folded & evidence.foreground
    where = inside if bool(inside.any()) else folded
    worst = torch.where(where, growth.nan_to_num(-math.inf), math.inf).argmin()
    many = percent > _MANY
    text = f"{count:,} voxel{'s fold' if count > 1 else ' folds'} ({_percent(percent)} of the image)"
    text += "." if bool(inside.any()) else ", none of them in the foreground."
    return Finding("bad" if many else "look", text, _place(evidence.jacobian, int(worst)), map="jacobian")


def _round_trip(evidence: Evidence) -> Finding:
    error = evidence.roundtrip_error.data[0]
    inside = error[evidence.foreground]
    if not inside.numel():
        inside = error.flatten()
    unit = min(evidence.roundtrip_error.grid.spacing)
    limit = 2 * unit
    worst = torch.where(evidence.foreground, error.nan_to_num(math.inf), -1.0).argmax()
    at = _place(evidence.roundtrip_error, int(worst))
    percent = 100 * int((~(inside <= limit)).sum()) / inside.numel()
    largest = inside.max().item()
    if percent == 0:
        return Finding(
            "good",
            f"There and back, every point of the foreground comes home to within {_length(largest)} "
            f"({_length(inside.double().mean().item())} on average).",
            at,
            map="error",
        )
    return Finding(
        "bad" if percent > _MANY else "look",
        f"The two maps disagree by more than {_length(limit)} (two voxels) in {_percent(percent)} of the "
        f"foreground, by {_length(largest)} at worst.",
        at,
        map="error",
    )


def _growth(evidence: Evidence) -> Iterator[Finding]:
    growth = evidence.jacobian.data[0]
    extreme = ((growth > _EXTREME_GROWTH) | (growth < 1 / _EXTREME_GROWTH)) & (growth > 0)
    extreme &= evidence.foreground
    if bool(extreme.any()):
        away = torch.where(extreme, growth.clamp(min=1e-6).log().abs(), -1.0)
        percent = 100 * int(extreme.sum()) / int(evidence.foreground.sum())
        yield Finding(
            "look",
            f"Volumes change by a factor of more than {_EXTREME_GROWTH:g} in {_percent(percent)} of the "
            "foreground.",
            _place(evidence.jacobian, int(away.argmax())),
            map="jacobian",
        )


def _coverage(evidence: Evidence) -> Iterator[Finding]:
    if evidence.outside_percent >= 0.5:
        yield Finding(
            "bad" if evidence.outside_percent > 50 else "look",
            f"{_percent(evidence.outside_percent)} of the foreground has no counterpart: it is sent "
            "outside the moving image.",
        )


def _similarity(metrics: Mapping[str, Any]) -> Iterator[Finding]:
    change = metrics.get("similarity") or {}
    before, after = change.get("before"), change.get("after")
    if before is None or after is None:
        return
    name, better = change.get("name", "similarity"), change.get("better")
    if better not in ("lower", "higher"):
        yield Finding("good", f"The similarity {name} went from {before:.4g} to {after:.4g}.")
        return
    improved = after < before if better == "lower" else after > before
    yield Finding(
        "good" if improved else "bad",
        f"The images are {'more' if improved else 'not more'} alike than before: {name} went from "
        f"{before:.4g} to {after:.4g}, and {better} is better.",
    )


def _dice(metrics: Mapping[str, Any]) -> Iterator[Finding]:
    dice = metrics.get("dice") or {}
    after, before = dice.get("labels") or {}, (dice.get("before") or {}).get("labels") or {}
    after = {label: score for label, score in after.items() if score is not None}
    if not after:
        return
    mean, mean_before = dice.get("mean"), (dice.get("before") or {}).get("mean")
    if mean is not None and mean_before is not None:
        improved = mean > mean_before
        yield Finding(
            "good" if improved else "bad",
            f"The labels overlap {'better' if improved else 'no better'} than before: mean Dice "
            f"{mean_before:.3f}, now {mean:.3f}.",
        )
    fallen = {
        label: before[label] - score
        for label, score in after.items()
        if before.get(label) is not None and before[label] - score > _DICE_NOISE
    }
    if fallen:
        most = max(fallen, key=lambda label: fallen[label])
        others = f" (and of {len(fallen) - 1} more)" if len(fallen) > 1 else ""
        yield Finding(
            "look",
            f"The Dice of label {most}{others} fell, from {before[most]:.2f} to {after[most]:.2f}.",
            label=int(most),
        )


def _place(volume: Volume, flat: int) -> tuple[float, ...]:
    """The place in the world of a voxel given by its number in the flattened volume."""
    index: list[float] = []
    for size in reversed(volume.shape):
        flat, here = divmod(flat, size)
        index.insert(0, float(here))
    place = volume.world_from_voxel @ torch.tensor([*index, 1.0], dtype=torch.float64)
    return tuple(place[:-1].tolist())


def _sentence(text: Any) -> str:
    said = str(text).strip()
    return said[:1].upper() + said[1:] + ("" if said.endswith((".", "!", "?")) else ".")


def _percent(value: float) -> str:
    return "less than 0.01 %" if 0 < value < 0.01 else f"{value:.2g} %" if value < 10 else f"{value:.0f} %"


def _length(millimetres: float) -> str:
    return f"{millimetres:.2g} mm" if millimetres < 10 else f"{millimetres:.0f} mm"
