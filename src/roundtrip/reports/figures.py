"""Pictures of a registered pair: figures are returned, and nothing of matplotlib's global state is touched.

matplotlib is imported when the first figure is drawn. Neighbours: `volume_figures.py` draws volumes,
`files.py` writes figures.
"""

from typing import TYPE_CHECKING

import torch

from roundtrip._checks import require_pair, shape_of
from roundtrip._shapes import Image, Tensor
from roundtrip.evaluation.round_trip import round_trip_distance
from roundtrip.maps.grid import voxel_from_unit
from roundtrip.maps.interpolate import warp
from roundtrip.maps.jacobian import determinant, grid_jacobian
from roundtrip.maps.map import Map, on_grid_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

INK, FAINT, FOLD = "#1a1a1a", "#b0b0b0", "#d55e00"
DIFFERENCE_COLOURS, DISTANCE_COLOURS = "PuOr", "cividis"
"""The colour-blind can tell all of these apart, and the order of each scale survives a grey printer."""

GRID_LINES = 25
"""Lines per axis of a deformed grid."""


@torch.no_grad()
def pair_figure(moving: Image, fixed: Image, phi_AB: Map, phi_BA: Map, *, width: float = 7.0) -> "Figure":
    """The first pair of a batch in two dimensions: images, differences, round trip, and both deformed grids.

    phi_AB takes points of `fixed` to points of `moving`, phi_BA back. A grid is drawn where its map sends it:
    that of phi_AB over the moving image, that of phi_BA over the fixed one. Dots are folded pixels, counted
    as `folds_central` does. `width` is in inches: 7 fills a page, 3.4 a column.
    """
    require_pair(moving, fixed)
    _require_planar(moving)
    moving, fixed = moving[:1], fixed[:1]
    warped = warp(moving, phi_AB)
    distance = round_trip_distance(phi_BA, phi_AB, fixed)
    intensities = (min(moving.min(), fixed.min()).item(), max(moving.max(), fixed.max()).item())
    largest = (moving - fixed).abs().max().item() or 1.0

    page = _Page(width, aspect=moving.shape[2] / moving.shape[3])
    for column, image, title in [
        (0, moving, "moving $A$"),
        (1, warped, r"warped $A\circ\Phi^{AB}$"),
        (2, fixed, "fixed $B$"),
    ]:
        _draw_image(page.panel(0, column, title), image, "gray", intensities)

    before = page.panel(1, 0, "before $A-B$")
    after = page.panel(1, 1, r"after $A\circ\Phi^{AB}-B$")
    _draw_image(before, moving - fixed, DIFFERENCE_COLOURS, (-largest, largest))
    page.scale(_draw_image(after, warped - fixed, DIFFERENCE_COLOURS, (-largest, largest)), 0, 1)
    there_and_back = page.panel(1, 2, "round trip (px)")
    shown = _draw_image(there_and_back, distance, DISTANCE_COLOURS, (0.0, distance.max().item() or 1.0))
    page.scale(shown, 2, 2)

    folds = draw_grid(page.panel(0, 3, r"grid $\Phi^{AB}$"), phi_AB, moving, width)
    folds += draw_grid(page.panel(1, 3, r"grid $\Phi^{BA}$"), phi_BA, fixed, width)
    page.note(3, f"{folds} folded pixel{'' if folds == 1 else 's'}", FOLD if folds else INK)
    return page.figure


class _Page:
    """Two rows of four equal panels, titles above, colour scales below; everything placed in inches."""

    def __init__(self, width: float, aspect: float) -> None:
        from matplotlib.figure import Figure

        self.text_size = min(8.0, 4.4 + 0.53 * width)
        self.line = 1.55 * self.text_size / 72
        self.gap = 0.012 * width
        self.side = (width - 5 * self.gap) / 4
        self.row = self.line + self.side * aspect
        self.width, self.height = width, 2 * self.row + 2 * self.gap + 1.6 * self.line
        self.aspect = aspect
        self.figure = Figure(figsize=(self.width, self.height), facecolor="white")

    def panel(self, row: int, column: int, title: str) -> "Axes":
        top = self.height - self.gap - row * (self.row + self.gap / 2) - self.line
        ax = self._axes(column, column, top - self.side * self.aspect, self.side * self.aspect)
        ax.set_title(title, fontsize=self.text_size, color=INK, loc="left", pad=0.3 * self.text_size)
        return ax

    def scale(self, shown: "AxesImage", first: int, last: int) -> None:
        """The colour scale of panels `first` to `last` of the lower row."""
        from matplotlib.ticker import MaxNLocator

        # Narrower than the panels, so that the numbers at its ends do not reach over their edges.
        ax = self._axes(first, last, 1.05 * self.line, 0.28 * self.line, indent=1.2 * self.text_size / 72)
        bar = self.figure.colorbar(shown, cax=ax, orientation="horizontal")
        bar.outline.set_visible(False)
        bar.ax.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
        bar.ax.tick_params(labelsize=0.85 * self.text_size, length=2, width=0.5, pad=1.5, colors=INK)

    def note(self, column: int, text: str, colour: str) -> None:
        """A line under the lower panel of a column."""
        x = (self._left(column) + self.side / 2) / self.width
        y = 1.05 * self.line / self.height
        self.figure.text(x, y, text, fontsize=self.text_size, color=colour, ha="center", va="center")

    def _left(self, column: int) -> float:
        return self.gap + column * (self.side + self.gap)

    def _axes(self, first: int, last: int, bottom: float, height: float, indent: float = 0.0) -> "Axes":
        left, right = self._left(first) + indent, self._left(last) + self.side - indent
        box = (left / self.width, bottom / self.height, (right - left) / self.width, height / self.height)
        return self.figure.add_axes(box)


def _draw_image(ax: "Axes", image: Image, colours: str, limits: tuple[float, float]) -> "AxesImage":
    """The first channel, axis 0 downwards; coordinates on the panel are voxel indices."""
    shown = ax.imshow(
        image[0, 0].cpu().numpy(), cmap=colours, vmin=limits[0], vmax=limits[1], interpolation="nearest"
    )
    _bare(ax)
    return shown


def draw_grid(ax: "Axes", phi: Map, behind: Image, width: float) -> int:
    """Where phi sends the lines of a grid, over a pale image; says how many pixels fold."""
    from matplotlib.collections import LineCollection

    _draw_image(ax, behind, "gray", (behind.min().item() - 0.1, behind.max().item() + 0.1)).set_alpha(0.16)
    shape = behind.shape[2:]
    lines = [voxel_from_unit(phi(line), shape)[0].flip(0).T.cpu().numpy() for line in _grid_lines(behind)]
    ax.add_collection(LineCollection(lines, colors=INK, linewidths=0.055 * width))

    moved = on_grid_of(phi, behind)
    folded = ~(determinant(grid_jacobian(moved)) > 0)[0, 0]
    at = voxel_from_unit(moved, shape)[0][:, folded].cpu().numpy()
    ax.scatter(at[1], at[0], s=0.6 * width, color=FOLD, linewidths=0, zorder=3)
    # Lines that leave the image end at its frame, as the image itself does.
    ax.set_xlim(-0.5, shape[1] - 0.5)
    ax.set_ylim(shape[0] - 0.5, -0.5)
    return int(folded.sum())


def _grid_lines(image: Tensor) -> list[Tensor]:
    """Points `(1, 2, P)` along each line of a regular grid over the image, finely enough to look smooth."""
    rows, columns = (
        torch.linspace(0, 1, GRID_LINES, dtype=image.dtype, device=image.device) for _ in range(2)
    )
    along = torch.linspace(0, 1, 4 * max(image.shape[2:]), dtype=image.dtype, device=image.device)
    across = [torch.stack([at.expand_as(along), along])[None] for at in rows]
    return across + [torch.stack([along, at.expand_as(along)])[None] for at in columns]


def _bare(ax: "Axes") -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set(linewidth=0.5, color=FAINT)


def _require_planar(image: Tensor) -> None:
    if image.ndim != 4:
        raise ValueError(
            f"`moving` has shape {shape_of(image)}; this figure shows two-dimensional pairs, (batch, "
            "channels, rows, columns). Volumes are drawn by `volume_pair_figure`."
        )
