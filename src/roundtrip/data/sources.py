"""Where a configuration says that images come from: a folder, a manifest, drawn shapes, or digits.

Declarations only; `records.py` and `dataset.py` carry them out. Paths are relative to where the command runs.
"""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeInt, field_validator


class Reading(BaseModel):
    """What has to be said about files that do not say it themselves; see `rt.read`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    orientation: str | None = None
    """Which way the axes run where a header does not know, e.g. "LP" for PNG."""
    replace_nan: FiniteFloat | None = None
    """What stands in for values that are NaN or infinite; None: they are refused."""
    volume: NonNegativeInt | None = None
    """Which image of a 4-D file, counted from 0."""


class FolderSource(BaseModel):
    """All images in a folder; what else belongs to them lies in other folders, under the same names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["folder"] = "folder"
    path: Path
    images: str = "**/*.nii.gz"
    """Which files are images: a pattern with `*` for any part of a name and `**` for any folders."""
    subject: str | None = None
    """A regular expression found in a file's path within the folder. Its group is the subject, e.g.
    `sub-([0-9]+)`, or the one called so, e.g. `knee_(?P<subject>[0-9]+)_(?P<side>left|right)`; other groups
    with names are columns, as in a manifest. Without it, every image is of another subject."""
    labels: Path | None = None
    """The folder of label maps."""
    masks: Path | None = None
    landmarks: Path | None = None
    reading: Reading = Reading()

    @field_validator("subject")
    @classmethod
    def _is_a_pattern_with_a_group(cls, pattern: str | None) -> str | None:
        if pattern is None:
            return None
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise ValueError(f'"{pattern}" is not a regular expression: {error}.') from error
        if not compiled.groups or (compiled.groupindex and "subject" not in compiled.groupindex):
            raise ValueError(
                f'"{pattern}" does not say which part is the subject: put parentheses around it, as in '
                '"sub-([0-9]+)" or "(?P<subject>[0-9]+)_(?P<side>left|right)".'
            )
        return pattern


class ManifestSource(BaseModel):
    """A table with a line for every image: CSV, TSV or JSON lines, by the end of its name.

    The columns `image` and `subject` are needed; `labels`, `mask`, `landmarks` and `group` may be there, and
    any others for mirroring and splitting, such as `side`. Files are relative to the table.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["manifest"] = "manifest"
    path: Path
    reading: Reading = Reading()


class ShapesSource(BaseModel):
    """The paper's triangles & circles, drawn anew; each image is a subject, 1 its label."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["shapes"] = "shapes"
    count: Annotated[int, Field(ge=2)]
    size: Annotated[int, Field(ge=2)] = 128
    """Pixels along each side."""
    seed: NonNegativeInt = 0


class DigitsSource(BaseModel):
    """MNIST, in [0, 1]; each image is a subject. 1 is the label of what is brighter than 0.5.

    Column `part` says `train` or `test`: MNIST's own split.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["digits"] = "digits"
    path: Path
    """A folder with MNIST's four files (IDX, packed with gzip or not), one such file of images, or an .npz of
    arrays `train` and `test`, or `x_train`, `y_train`, `x_test` and `y_test`."""
    digit: Annotated[int, Field(ge=0, le=9)] | None = None
    """Only this one."""


Source = Annotated[FolderSource | ManifestSource | ShapesSource | DigitsSource, Field(discriminator="kind")]
