"""Thousands of thumbnails in a few megabytes of text: as large and as good as fits.

Several share a sheet, because the header of a JPEG is as large as a small one itself. What is written here is
drawn by `viewer/overview.js`. Neighbours: `thumbnail.py`, which makes them; `overview.py`, which shows them.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roundtrip.reports.thumbnail import SIDE, as_jpeg

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_CHARACTERS = 8_000_000

PER_SHEET = 40

# Side and quality. Sides are multiples of 16, the squares in which JPEG halves colours: no stamp smears into
# the next.
_LEVELS = ((SIDE, 85), (64, 80), (48, 75), (48, 55), (32, 60))

# By how many stamps it is guessed how large all will be.
_TRIED = 160


@dataclass(frozen=True)
class Stamps:
    """Sheets of stamps below each other, in base64, by name, and where the stamp of each pair is."""

    blocks: dict[str, str] = field(default_factory=dict)
    places: list[int | None] = field(default_factory=list)
    """For each picture that was given its number among the stamps: `PER_SHEET` to a sheet."""
    side: int = SIDE

    def facts(self) -> dict[str, Any]:
        """What the page has to know of them."""
        return {"side": self.side, "per_sheet": PER_SHEET, "sheets": list(self.blocks)}


def stamps_of(pictures: Sequence[Path | None], *, budget: int = MOST_CHARACTERS) -> Stamps:
    """The first pictures matter most: where not all fit, the last have none."""
    there = [path if path is not None and path.exists() else None for path in pictures]
    known = [path for path in there if path is not None]
    if not known:
        return Stamps(places=[None] * len(there))
    step = max(1, len(known) // _TRIED)
    tried = known[::step]
    for side, quality in _LEVELS:
        each = sum(map(len, _sheets(tried, side, quality))) / len(tried)
        if each * len(known) <= 0.95 * budget:
            break
    kept = min(len(known), max(1, int(budget / each)))
    sheets = _sheets(known[:kept], side, quality)
    while sum(map(len, sheets)) > budget and len(sheets) > 1:
        sheets.pop()
    blocks = {f"sheet-{number}": sheet for number, sheet in enumerate(sheets)}
    return Stamps(blocks, _numbered(there, min(kept, PER_SHEET * len(sheets))), side)


def _numbered(there: Sequence[Path | None], most: int) -> list[int | None]:
    places: list[int | None] = []
    count = 0
    for path in there:
        places.append(count if path is not None and count < most else None)
        count += path is not None
    return places


def _sheets(paths: Sequence[Path], side: int, quality: int) -> list[str]:
    parts = [paths[start : start + PER_SHEET] for start in range(0, len(paths), PER_SHEET)]
    return [base64.b64encode(as_jpeg(_sheet(part, side), quality=quality)).decode("ascii") for part in parts]


def _sheet(paths: Sequence[Path], side: int) -> "Image":
    from PIL import Image

    sheet = Image.new("RGB", (3 * side, side * len(paths)))
    for row, path in enumerate(paths):
        with Image.open(path) as picture:
            sheet.paste(picture.convert("RGB").resize((3 * side, side)), (0, row * side))
    return sheet
