"""A figure with panels of slices: millimetres equally long everywhere, text of 8 points, nothing global.

Neighbours: `cut.py`, what is in the panels; `plots.py`, which fills them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from roundtrip.reports.cut import Cut
from roundtrip.reports.figures import DIFFERENCE_COLOURS, FAINT, FOLD, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

COLUMN = 3.5
"""Inches: one column of a paper with two."""

TEXT = 8.0
"""Points; 72 of them are an inch."""

_LINE = 1.5 * TEXT / 72

GROWTH = 1.0
"""Colours of growth end at a factor of two, either way."""


class Sheet:
    """Panels in rows and columns, each as large as its slice is in millimetres, placed in inches."""

    def __init__(
        self, rows: Sequence[Sequence[Cut]], *, width: float, titles: Sequence[str] = (), scale: bool = False
    ) -> None:
        from matplotlib.figure import Figure

        self.rows, self.width, self.gap = rows, width, 0.012 * width
        extents = [[_extent(cut) for cut in row] for row in rows]
        columns = [max(across for across, _ in column) for column in zip(*extents, strict=True)]
        self.inches = (width - (len(columns) + 1) * self.gap) / sum(columns)
        self.sides = [self.inches * column for column in columns]
        self.heights = [self.inches * max(down for _, down in row) for row in extents]
        self.head = _LINE if titles else self.gap
        self.foot = 2.6 * _LINE if scale else self.gap
        self.height = self.head + sum(self.heights) + (len(rows) - 1) * self.gap + self.foot
        self.figure = Figure(figsize=(width, self.height), facecolor="white")
        for column, title in enumerate(titles):
            self._title(column, title)

    def image(
        self, row: int, column: int, picture: np.ndarray, colours: str, limits: tuple[float, float]
    ) -> "AxesImage":
        """A slice in its panel, as colours between the limits."""
        spacing = self.rows[row][column].spacing
        return self._panel(row, column).imshow(
            picture,
            cmap=colours,
            vmin=limits[0],
            vmax=limits[1],
            aspect=spacing[1] / spacing[0],
            interpolation="nearest",
        )

    def lines(self, row: int, column: int, behind: np.ndarray, lines: Sequence[np.ndarray]) -> None:
        """Lines in columns and rows of the picture `behind` them; what leaves it is cut off."""
        from matplotlib.collections import LineCollection

        ax = self.image(row, column, behind, "gray", (0.0, 1.0)).axes
        assert ax is not None
        ax.add_collection(LineCollection(list(lines), colors=INK, linewidths=0.5))
        ax.set_xlim(-0.5, behind.shape[1] - 0.5)
        ax.set_ylim(behind.shape[0] - 0.5, -0.5)

    def growth(self, row: int, column: int, determinant: np.ndarray) -> "AxesImage":
        """Growth of volume, smaller purple and larger orange, with a dot wherever it folds."""
        # What folds has lost all its volume.
        exponent = np.log2(np.where(determinant > 0, determinant, 2.0**-GROWTH))
        shown = self.image(row, column, exponent, DIFFERENCE_COLOURS + "_r", (-GROWTH, GROWTH))
        down, across = np.nonzero(~(determinant > 0))
        assert shown.axes is not None
        shown.axes.scatter(across, down, s=4, color=FOLD, edgecolors=INK, linewidths=0.3)
        return shown

    def scale(self, shown: "AxesImage", ticks: Sequence[tuple[float, str]], title: str) -> None:
        """A colour scale below all panels, its title before it."""
        bottom, height = 1.35 * _LINE, 0.45 * _LINE
        box = (0.37, bottom / self.height, 0.53, height / self.height)
        bar = self.figure.colorbar(shown, cax=self.figure.add_axes(box), orientation="horizontal")
        bar.outline.set_visible(False)
        bar.set_ticks([place for place, _ in ticks], labels=[text for _, text in ticks])
        bar.ax.tick_params(labelsize=TEXT, length=2, width=0.5, pad=2, colors=INK)
        y = (bottom + height / 2) / self.height
        self.figure.text(0.02, y, title, fontsize=TEXT, color=INK, ha="left", va="center")

    def note(self, text: str) -> None:
        """A few words beside the ticks of the colour scale."""
        y = 0.55 * _LINE / self.height
        self.figure.text(0.02, y, text, fontsize=TEXT, color=FOLD, ha="left", va="center")

    def letters(self, row: int, column: int) -> None:
        """Which end of the patient is left and which right."""
        ends = self.rows[row][column].plane.ends
        ax = self.figure.axes[-1]
        for x, letter, side in ((0.04, ends[0], "left"), (0.96, ends[1], "right")):
            ax.text(
                x,
                0.03,
                letter,
                fontsize=0.85 * TEXT,
                color="white",
                ha=side,
                va="bottom",
                transform=ax.transAxes,
            )

    def _panel(self, row: int, column: int) -> "Axes":
        across, down = (self.inches * part for part in _extent(self.rows[row][column]))
        left = self._left(column) + (self.sides[column] - across) / 2
        top = self.height - self.head - row * self.gap - sum(self.heights[:row])
        bottom = top - (self.heights[row] + down) / 2
        box = (left / self.width, bottom / self.height, across / self.width, down / self.height)
        ax = self.figure.add_axes(box)
        ax.set_xticks([])
        ax.set_yticks([])
        for spine in ax.spines.values():
            spine.set(linewidth=0.5, color=FAINT)
        return ax

    def _title(self, column: int, title: str) -> None:
        x, y = self._left(column) + self.sides[column] / 2, self.height - 0.5 * _LINE
        self.figure.text(
            x / self.width, y / self.height, title, fontsize=TEXT, color=INK, ha="center", va="center"
        )

    def _left(self, column: int) -> float:
        return self.gap + column * self.gap + sum(self.sides[:column])


def _extent(cut: Cut) -> tuple[float, float]:
    """Millimetres across and down."""
    return cut.size[0] * cut.spacing[0], cut.size[1] * cut.spacing[1]
