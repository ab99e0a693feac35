"""Results in files: JSON and figures. Neighbour: `figures.py`, which makes the latter."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roundtrip._files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """`value` as indented JSON."""
    # JSON knows no NaN: what could not be measured has to be None, so that every reader can read it.
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    write_whole(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def write_figure(path: Path, figure: "Figure", *, dpi: int = 200) -> None:
    """`figure` in the format that the name of `path` ends with: .png, .pdf or .svg."""
    write_whole(path, lambda beside: figure.savefig(beside, dpi=dpi))


def plain(value: Any) -> Any:
    """As JSON knows it: names are text, and what is not a finite number is null."""
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
