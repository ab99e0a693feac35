"""Sec. 2.3 and its proof: noise in inverse consistency is worth an H1 norm, measured against the closed form.

The maps are smooth, keep the unit cube and have inverses in closed form, so that the noise is all there is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from roundtrip._shapes import Points
from roundtrip.evaluation.summary import Row
from roundtrip.experiments.result import AbstractResult, Cell, Claim, Outcome, Scale
from roundtrip.experiments.workplace import Workplace
from roundtrip.losses.regularity import (
    expected_inverse_consistency,
    inverse_consistency,
    noisy_inverse_consistency,
)
from roundtrip.maps.map import Composition, Map
from roundtrip.reports.figures import FAINT, FOLD, INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
"""Standard deviations of the noise, in unit coordinates."""
DRAWS: dict[Scale, int] = {"quick": 8, "hours": 100, "full": 1000}
VOXELS = {2: 48, 3: 24}
"""Along each axis, by dimension: the points at which the loss is evaluated."""


class H1(AbstractResult):
    name, paper = "h1", "Sec. 2.3"
    shows = "what noise adds to the loss is the closed form's H1 term, of second order in the noise"

    def cells(self, scale: Scale) -> Sequence[Cell]:
        return [_cell(N, DRAWS[scale]) for N in VOXELS]

    def rows(self, done: Mapping[str, Outcome], scale: Scale) -> list[Row]:
        """A row for every dimension and level of noise."""
        found = []
        for name, outcome in done.items():
            slope = outcome.numbers["slope"]
            for level in outcome.numbers["levels"]:
                found.append({"cell": name, **level, "slope": slope})
        return found

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        return [
            one for N in VOXELS for one in _claims_of(N, [row for row in rows if row["cell"] == _name(N)])
        ]

    def figure(self, done: Mapping[str, Outcome]) -> "Figure":
        from matplotlib.figure import Figure

        figure = Figure(figsize=(3.4, 2.6), facecolor="white", layout="constrained")
        ax = figure.subplots()
        for (name, outcome), colour in zip(done.items(), (INK, FOLD), strict=False):
            levels = outcome.numbers["levels"]
            noise = [level["noise"] for level in levels]
            slope = outcome.numbers["slope"]
            ax.plot(noise, [level["closed_form"] for level in levels], color=colour, linewidth=0.9,
                    label=f"{name}: closed form")  # fmt: skip
            ax.plot(noise, [level["measured"] for level in levels], "o", color=colour, markersize=4,
                    fillstyle="none", label=f"{name}: measured, slope {slope:.3f}")  # fmt: skip
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("noise, unit coordinates", fontsize=7)
        ax.set_ylabel("what it adds to the loss", fontsize=7)
        ax.tick_params(which="both", labelsize=6.5, length=2, width=0.5)
        ax.legend(frameon=False, fontsize=6.5)
        for spine in ax.spines.values():
            spine.set(linewidth=0.5, color=FAINT)
        return figure


@dataclass(frozen=True)
class Stretch:
    """Moves points along one axis by a constant on the logit scale, which depends on the other coordinates.

    0 and 1 stay where they are; the opposite strength undoes it.
    """

    axis: int
    strength: float

    def __call__(self, x: Points) -> Points:
        N = x.shape[1]
        others = [d for d in range(N) if d != self.axis]
        amount = self.strength * (math.pi * x[:, others].sum(dim=1)).cos()
        moved = x[:, self.axis] / (x[:, self.axis] + (1 - x[:, self.axis]) * (-amount).exp())
        return torch.stack([moved if d == self.axis else x[:, d] for d in range(N)], dim=1)


def inverse_pair(N: int) -> tuple[Map, Map]:
    """Two maps that undo each other exactly."""
    phi_AB: Map = Stretch(0, 0.7)
    phi_BA: Map = Stretch(0, -0.7)
    for axis in range(1, N):
        phi_AB = Composition(phi_AB, Stretch(axis, 0.6 / axis))
        phi_BA = Composition(Stretch(axis, -0.6 / axis), phi_BA)
    return phi_AB, phi_BA


def _name(N: int) -> str:
    return f"{N}d"


def _cell(N: int, draws: int) -> Cell:
    settings = {"dims": N, "voxels": VOXELS[N], "levels": list(LEVELS), "draws": draws}
    return Cell(_name(N), settings, lambda place: _measured(N, draws, place))


def _measured(N: int, draws: int, place: Workplace) -> Outcome:
    """Both sides at every level; the constant, which has no gradient, is taken off."""
    maps = inverse_pair(N)
    line = (torch.arange(VOXELS[N], dtype=torch.float64, device=place.ranks.device) + 0.5) / VOXELS[N]
    x = torch.stack(torch.meshgrid(*[line] * N, indexing="ij")).flatten(1)[None]
    exact = inverse_consistency(*maps, x).item()
    levels = []
    for noise in LEVELS:
        measured, error = _mean_over_draws(maps, x, noise, draws)
        closed = expected_inverse_consistency(*maps, x, epsilon=noise, step=1e-4).item() - exact
        constant = 2 * N * noise**2
        level = {"noise": noise, "measured": measured - exact - constant, "standard_error": error}
        level |= {"closed_form": closed}
        levels.append(level | {"ratio": level["measured"] / closed})
    values = np.log([level["measured"] for level in levels])
    slope = float(np.polyfit(np.log(LEVELS), values, 1)[0])
    return Outcome({"levels": levels, "slope": slope})


def _mean_over_draws(maps: tuple[Map, Map], x: Points, noise: float, draws: int) -> tuple[float, float]:
    """The noisy loss, and the standard error of this mean."""
    values = []
    for seed in range(draws):
        generator = torch.Generator(x.device).manual_seed(seed)
        values.append(noisy_inverse_consistency(*maps, x, epsilon=noise, generator=generator).item())
    return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(draws))


def _claims_of(N: int, rows: Sequence[Row]) -> list[Claim]:
    second = f"in {N} dimensions what noise adds is of second order"
    same = f"in {N} dimensions it is what the closed form says"
    if not rows:
        return [Claim(second, None), Claim(same, None)]
    # At the highest level, terms of higher order begin to show.
    off = [abs(row["measured"] - row["closed_form"]) for row in rows[:-1]]
    allowed = [4 * row["standard_error"] + 0.002 * row["closed_form"] for row in rows[:-1]]
    ratios = ", ".join(f"{row['ratio']:.3f}" for row in rows)
    return [
        Claim(second, abs(rows[0]["slope"] - 2) < 0.05, f"slope {rows[0]['slope']:.3f}"),
        Claim(same, all(a <= b for a, b in zip(off, allowed, strict=True)), f"ratios {ratios}"),
    ]
