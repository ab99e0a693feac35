"""`Record`: one image of a data set, and all that is known of it before any file is opened.

Neighbours: `manifest.py` and `folder.py` make records of files, `split.py` and `dataset.py` use them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roundtrip._problems import Problems
from roundtrip.algorithms.card import Preparation


@dataclass(frozen=True, eq=False)
class Record:
    """One image. `name` is how its source calls it, `where` the line of the manifest that does."""

    name: str
    where: str
    subject: str
    columns: Mapping[str, str] = field(default_factory=dict)
    image: Path | None = None
    """None: it was drawn, or is in memory."""
    labels: Path | None = None
    mask: Path | None = None
    landmarks: Path | None = None

    @property
    def group(self) -> str:
        """Images are paired within it."""
        return self.columns.get("group", "")

    def is_mirrored(self, preparation: Preparation) -> bool:
        """Whether it is one of those that the preparation mirrors."""
        mirror = preparation.mirror
        return mirror is not None and self.columns.get(mirror.column) == mirror.value


def require_mirror_column(records: Sequence[Record], preparation: Preparation, problems: Problems) -> None:
    """Where a column says what is mirrored, every image has a value in it, and some the one that is meant."""
    if preparation.mirror is None or not records:
        return
    column, value = preparation.mirror.column, preparation.mirror.value
    found = {record.columns.get(column, "") for record in records}
    if found == {""}:
        names = ", ".join(sorted({name for record in records for name in record.columns})) or "none"
        problems.add(
            "preparation.mirror",
            f"there is no column `{column}` to say which images are mirrored; other columns: {names}.",
        )
        return
    for record in records:
        if not record.columns.get(column):
            problems.add(record.where, f"`{column}` is empty, but it says which images are mirrored.")
    if value not in found:
        known = ", ".join(sorted(found - {""}))
        problems.add("preparation.mirror", f"no image has `{column}` {value}; there are {known}.")
