"""Pictures of a registered pair of volumes: three slices through a point, as a radiologist looks at them.

The patient's right is on the left of the picture, the nose of a sagittal slice too. Only what is drawn is
computed. Neighbours: `cut.py` cuts the slices, `figures.py` draws pairs in two dimensions.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from roundtrip.reports.cut import PLANES, Cut, Plane, middle_of
from roundtrip.reports.display import canonical, linear_part, nodes_over, window_of
from roundtrip.reports.figures import DIFFERENCE_COLOURS, FAINT, FOLD, INK
from roundtrip.space.resample import require_same_dims
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

GROWTH = 1.0
"""Colours of growth end at a factor of two, either way."""

_COLUMNS = ("fixed", "moving", "warped", "warped $-$ fixed", "grid", "growth of volume")


@torch.no_grad()
def volume_pair_figure(
    moving: Volume,
    fixed: Volume,
    transform: Transform,
    *,
    at: Sequence[float] | None = None,
    width: float = 7.0,
) -> "Figure":
    """Slices through `at`, a point of the fixed world in LPS mm; without it, the middle of what is bright.

    From the left: the fixed image, the moving one as the files place it, the moving one warped, what is left
    of the difference, a grid of the fixed image as the transform deforms it once its linear part is taken
    away, and the growth of volume, with dots where it folds. `width` is in inches: 7 fills a page.
    """
    require_same_dims(fixed, moving)
    windows = window_of(fixed), window_of(moving)
    middle = middle_of(fixed, windows[0]) if at is None else torch.as_tensor(at, dtype=torch.float64)
    fixed = canonical(fixed)
    linear = linear_part(transform.displacement(nodes_over(fixed.grid, 5000)))
    nowhere = Transform.from_affine(torch.eye(fixed.dims + 1, dtype=torch.float64))
    cuts = [Cut(plane, fixed.grid, middle) for plane in (PLANES if fixed.dims == 3 else PLANES[:1])]

    page = _Page(width, cuts)
    for row, cut in enumerate(cuts):
        target = cut.picture(cut.of(fixed), windows[0])
        before = cut.picture(nowhere.warp(moving, onto=cut.slab), windows[1])
        after = cut.picture(transform.warp(moving, onto=cut.slab), windows[1])
        for column, picture in enumerate((target, before, after)):
            page.image(row, column, picture, "gray", (0.0, 1.0))
        difference = page.image(row, 3, after - target, DIFFERENCE_COLOURS, (-1.0, 1.0))
        page.lines(row, 4, 1 - 0.35 * target, cut.deformed_lines(transform, linear))
        growth = page.growth(row, 5, cut.rows(transform.jacobian(cut.slab).data[0]))
    page.scale(difference, 3, ("fixed brighter", "warped"))
    page.scale(growth, 5, ("smaller", "larger"))
    return page.figure


class _Page:
    """A row for each slice, a column for each way to look; millimetres are equally long everywhere."""

    def __init__(self, width: float, cuts: Sequence[Cut]) -> None:
        from matplotlib.figure import Figure

        self.text_size = min(8.0, 4.4 + 0.53 * width)
        self.line = 1.55 * self.text_size / 72
        self.gap = 0.008 * width
        self.width, self.cuts = width, cuts
        self.side = (width - (len(_COLUMNS) + 1) * self.gap) / len(_COLUMNS)
        self.extents = [[n * step for n, step in zip(cut.size, cut.spacing, strict=True)] for cut in cuts]
        inches = self.side / max(across for across, _ in self.extents)
        self.heights = [inches * down for _, down in self.extents]
        self.widths = [inches * across for across, _ in self.extents]
        self.height = self.line + sum(self.heights) + (len(cuts) + 1) * self.gap + 2 * self.line
        self.figure = Figure(figsize=(width, self.height), facecolor="white")

    def image(
        self, row: int, column: int, picture: np.ndarray, colours: str, limits: tuple[float, float]
    ) -> "AxesImage":
        ax = self._panel(row, column)
        step = self.cuts[row].spacing
        return ax.imshow(
            picture,
            cmap=colours,
            vmin=limits[0],
            vmax=limits[1],
            aspect=step[1] / step[0],
            interpolation="nearest",
        )

    def lines(self, row: int, column: int, behind: np.ndarray, lines: Sequence[np.ndarray]) -> None:
        from matplotlib.collections import LineCollection

        ax = self.image(row, column, behind, "gray", (0.0, 1.0)).axes
        assert ax is not None
        ax.add_collection(LineCollection(list(lines), colors=INK, linewidths=0.06 * self.width))
        ax.set_xlim(-0.5, behind.shape[1] - 0.5)
        ax.set_ylim(behind.shape[0] - 0.5, -0.5)

    def growth(self, row: int, column: int, determinant: np.ndarray) -> "AxesImage":
        exponent = np.log2(np.where(determinant > 0, determinant, 1.0))
        shown = self.image(row, column, exponent, DIFFERENCE_COLOURS + "_r", (-GROWTH, GROWTH))
        down, across = np.nonzero(~(determinant > 0))
        assert shown.axes is not None
        shown.axes.scatter(across, down, s=0.4 * self.width, color=FOLD, edgecolors=INK, linewidths=0.2)
        return shown

    def scale(self, shown: "AxesImage", column: int, ends: tuple[str, str]) -> None:
        """A colour scale below a column, its ends said in words."""
        left = self._left(column)
        box = (
            left / self.width,
            1.35 * self.line / self.height,
            self.side / self.width,
            0.3 * self.line / self.height,
        )
        bar = self.figure.colorbar(shown, cax=self.figure.add_axes(box), orientation="horizontal")
        bar.outline.set_visible(False)
        bar.set_ticks([])
        for place, text, side in ((left, ends[0], "left"), (left + self.side, ends[1], "right")):
            y = 0.75 * self.line / self.height
            self.figure.text(
                place / self.width, y, text, fontsize=0.85 * self.text_size, color=INK, ha=side, va="center"
            )

    def _panel(self, row: int, column: int) -> "Axes":
        top = self.height - self.line - self.gap * (row + 1) - sum(self.heights[:row])
        left = self._left(column) + (self.side - self.widths[row]) / 2
        box = (left, top - self.heights[row], self.widths[row], self.heights[row])
        ax = self.figure.add_axes(
            (box[0] / self.width, box[1] / self.height, box[2] / self.width, box[3] / self.height)
        )
        ax.set_xticks([])
        ax.set_yticks([])
        for spine in ax.spines.values():
            spine.set(linewidth=0.5, color=FAINT)
        if row == 0:
            self._title(column)
        if column == 0 and len(self.cuts) > 1:
            self._letters(ax, self.cuts[row].plane)
        return ax

    def _title(self, column: int) -> None:
        x, y = self._left(column) / self.width, 1 - 0.5 * self.line / self.height
        self.figure.text(x, y, _COLUMNS[column], fontsize=self.text_size, color=INK, ha="left", va="center")

    def _letters(self, ax: "Axes", plane: Plane) -> None:
        """Which end of the patient is left and which right."""
        for x, letter, side in ((0.03, plane.ends[0], "left"), (0.97, plane.ends[1], "right")):
            ax.text(
                x,
                0.03,
                letter,
                fontsize=0.8 * self.text_size,
                color="white",
                ha=side,
                va="bottom",
                transform=ax.transAxes,
            )

    def _left(self, column: int) -> float:
        return self.gap + column * (self.side + self.gap)
