"""Fig. 3: two points change places. At the points it costs nothing, between them it does."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from roundtrip.evaluation.summary import Row
from roundtrip.experiments.result import AbstractResult, Cell, Claim, Outcome, Scale, by_cell, claim
from roundtrip.losses.regularity import (
    inverse_consistency,
    points_off_grid,
    points_on_grid,
)
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.folds import non_diffeomorphic_volume
from roundtrip.maps.map import on_grid_of
from roundtrip.reports.figures import FAINT, FOLD, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 4
"""In a row, as in the figure; the middle two change places."""
ROUNDING = 1e-20
DRAWS: dict[Scale, int] = {"quick": 1_000, "hours": 100_000, "full": 1_000_000}


class OffGrid(AbstractResult):
    name, paper = "off-grid", "Fig. 3"
    shows = "a swap of two points costs 0 on the grid and more than 0 off it"

    def cells(self, scale: Scale) -> Sequence[Cell]:
        settings = {"points": POINTS, "draws": DRAWS[scale], "seed": 0, "noise": "one voxel, normal"}
        return [
            Cell("on-grid", {"points": POINTS}, lambda place: _outcome(_cost_on_grid())),
            Cell("off-grid", settings, lambda place: _outcome(_cost_off_grid(DRAWS[scale]))),
        ]

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        def differ(on: Row, off: Row) -> tuple[bool, str]:
            told = f"{on['cost_square_pixels']:.3g} and {off['cost_square_pixels']:.3g} square pixels"
            return on["cost_square_pixels"] < ROUNDING < off["cost_square_pixels"], told

        def folds(on: Row) -> tuple[bool, str]:
            return on["folded_percent"] > 0, f"{on['folded_percent']:.3g} % of the line"

        found = by_cell(rows)
        return [
            claim(
                "the swap costs nothing on the grid, but does off it", found, ["on-grid", "off-grid"], differ
            ),
            claim("the swap folds", found, ["on-grid"], folds),
        ]

    def figure(self, done: Mapping[str, Outcome]) -> "Figure":
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.0, 2.2), facecolor="white", layout="constrained")
        panels = figure.subplots(1, 2)
        voxels = np.arange(POINTS, dtype=float)
        between = np.array([0.3, 0.7, 1.3, 1.7, 2.3, 2.7])
        _draw(panels[0], voxels, INK, "at the points: there and back is home")
        _draw(panels[1], between, FOLD, "between the points: it is not")
        return figure


def swap() -> DisplacementMap:
    """Points 1 and 2 of a row of four change places, and are its own inverse there."""
    displacement = torch.tensor([0.0, 1.0, -1.0, 0.0], dtype=torch.float64) / (POINTS - 1)
    return DisplacementMap(displacement.view(1, 1, POINTS))


def _outcome(cost: float) -> Outcome:
    """In pixels: unit coordinates would make it depend on how long the row is."""
    phi, image = swap(), torch.zeros(1, 1, POINTS, dtype=torch.float64)
    folded = non_diffeomorphic_volume(on_grid_of(phi, image)).percent.item()
    return Outcome({"cost_square_pixels": cost * (POINTS - 1) ** 2, "folded_percent": folded})


def _cost_on_grid() -> float:
    image = torch.zeros(1, 1, POINTS, dtype=torch.float64)
    return inverse_consistency(swap(), swap(), points_on_grid(image)).item()


def _cost_off_grid(draws: int) -> float:
    image = torch.zeros(draws, 1, POINTS, dtype=torch.float64)
    points = points_off_grid(image, torch.Generator().manual_seed(0))
    return inverse_consistency(swap(), swap(), points).item()


def _draw(ax: "Axes", starts: np.ndarray, colour: str, title: str) -> None:
    """Three rows: where points start, where they come to, where they come back to."""
    phi = swap()

    def moved(pixels: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(pixels).view(1, 1, -1) / (POINTS - 1)
        return np.asarray(phi(x)[0, 0] * (POINTS - 1))

    rows: list[Any] = [starts, moved(starts), moved(moved(starts))]
    voxels = np.arange(POINTS)
    for level in range(3):
        ax.plot(voxels, [-level] * POINTS, "o", color=FAINT, markersize=7, zorder=1)
    for level in range(2):
        for start, end in zip(rows[level], rows[level + 1], strict=True):
            arrow = {"arrowstyle": "->", "color": colour, "linewidth": 0.8, "shrinkA": 3, "shrinkB": 3}
            ax.annotate("", xy=(end, -level - 1), xytext=(start, -level), arrowprops=arrow)
    for level in range(3):
        ax.plot(rows[level], [-level] * len(starts), "o", color=colour, markersize=3.5, zorder=3)
    ax.set_title(title, fontsize=8, loc="left", color=INK)
    ax.set_yticks([0, -1, -2], ["start", "there", "back"], fontsize=7)
    ax.set_xticks(voxels, [str(voxel) for voxel in voxels], fontsize=7)
    ax.tick_params(length=0)
    ax.set_ylim(-2.3, 0.3)
    for spine in ax.spines.values():
        spine.set_visible(False)
