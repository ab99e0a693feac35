"""Many pairs whose every number is known, for tests of the page over all of them."""

from pathlib import Path

from PIL import Image

from roundtrip.reports.overview import Column, Entry, Overview

COLUMNS = (
    Column("dice", "Dice", "lower", "dice_before", histogram=True),
    Column("folds", "Folds", "higher", histogram=True),
    Column("error", "Round trip (mm)", "higher", histogram=True),
)


def colour_of(number: int) -> tuple[int, int, int]:
    """Of the thumbnail of a pair: no two neighbours are alike."""
    return (40 + 60 * (number % 4), 200 - 50 * (number % 3), 90 * (number % 2) + 60)


def draw_thumbnail(path: Path, number: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (288, 96), colour_of(number)).save(path, quality=95)
    return path


def entry(number: int, folder: Path | None = None, **changes) -> Entry:
    """Dice rises with the number, folds are rare, errors fall."""
    values = {
        "dice": 0.5 + 0.001 * (number % 400),
        "dice_before": 0.4,
        "folds": 0 if number % 5 else 3 * number,
        "error": 1 / (1 + number),
    }
    given = {
        "name": f"pair-{number:04}",
        "values": values,
        "report": f"pair-{number:04}/report.html",
        "thumbnail": None if folder is None else draw_thumbnail(folder / f"{number}.jpg", number),
    }
    return Entry(**{**given, **changes})


def overview(entries, **changes) -> Overview:
    return Overview(**{"title": "Cohort", "entries": entries, "columns": COLUMNS, **changes})
