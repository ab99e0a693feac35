"""Fig. 1: two functions on a line, matched by intensity, by optimal transport, and by inverse consistency.

Matching takes every target value to the source value nearest to it (Eq. 2 without any regulariser), transport
pairs the values in the order of their size, which is optimal among one-to-one maps (Eq. 3). Ours are a direct
optimisation with the expectation of noise (Eq. 10), and a U-Net that saw many such functions.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from roundtrip._shapes import Float, Tensor
from roundtrip.algorithms.direct import DirectOptimisation
from roundtrip.algorithms.from_network import DisplacementRegistration
from roundtrip.algorithms.objective import InverseConsistent, PairObjective, both_directions
from roundtrip.data.pairs import random_pairs
from roundtrip.evaluation.round_trip import round_trip_statistics
from roundtrip.evaluation.summary import Row
from roundtrip.experiments.result import AbstractResult, Cell, Claim, Outcome, Scale, by_cell, claim
from roundtrip.losses.regularity import expected_inverse_consistency
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.folds import folds_as_published
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.interpolate import warp
from roundtrip.networks.unet import UNet
from roundtrip.reports.figures import FAINT, FOLD, INK
from roundtrip.training.engine import fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 64
LAMBDA = 32.0
STEPS: dict[Scale, tuple[int, int]] = {"quick": (300, 150), "hours": (2000, 1500), "full": (5000, 10000)}
"""Of the direct optimisation, of the network's training."""
TITLES = {
    "mse": "nearest intensity",
    "transport": "optimal transport",
    "direct": "ours, one pair",
    "network": "ours, U-Net",
}


class Matching(AbstractResult):
    name, paper = "matching-1d", "Fig. 1"
    shows = "matching intensities folds, optimal transport permutes: both irregular; ours is regular"

    def cells(self, scale: Scale) -> Sequence[Cell]:
        direct, network = STEPS[scale]
        pair = {"points": POINTS, "lambda": LAMBDA}
        return [
            Cell("mse", {"points": POINTS}, lambda place: _outcome(_nearest, "grid")),
            Cell("transport", {"points": POINTS}, lambda place: _outcome(_transport, "grid")),
            Cell("direct", pair | {"steps": direct, "noise_pixels": 1.0}, lambda place: _direct(direct)),
            Cell("network", pair | {"steps": network, "batch": 32}, lambda place: _network(network)),
        ]

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        found = by_cell(rows)

        def irregular(row: Row) -> tuple[bool, str]:
            told = f"{row['folds']:.0f} folds, total variation {row['total_variation']:.1f}"
            return row["folds"] >= 5 and row["total_variation"] > 2, told

        def one_to_one(mse: Row, transport: Row) -> tuple[bool, str]:
            told = f"{mse['points_reached']} and {transport['points_reached']} of {POINTS} points are reached"
            return mse["points_reached"] < transport["points_reached"] == POINTS, told

        def regular(row: Row) -> tuple[bool, str]:
            told = (
                f"{row['folds']:.0f} folds, total variation {row['total_variation']:.2f}, squared difference "
                f"{row['mse_before']:.3f} to {row['mse']:.3f}"
            )
            return row["folds"] == 0 and row["mse"] < 0.5 * row["mse_before"], told

        return [
            claim("matching intensities is irregular", found, ["mse"], irregular),
            claim("optimal transport is irregular, too", found, ["transport"], irregular),
            claim("transport is one-to-one, matching is not", found, ["mse", "transport"], one_to_one),
            claim("ours on one pair is regular", found, ["direct"], regular),
            claim("ours by a network is regular", found, ["network"], regular),
        ]

    def figure(self, done: Mapping[str, Outcome]) -> "Figure":
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.0, 1.9), facecolor="white", layout="constrained")
        panels = figure.subplots(1, 1 + len(TITLES))
        moving, fixed = (image[0, 0].numpy() for image in pair_of_functions())
        x = np.linspace(0, 1, POINTS)
        panels[0].plot(x, moving, color=FOLD, linewidth=0.9, label="source A")
        panels[0].plot(x, fixed, color=INK, linewidth=0.9, label="target B")
        panels[0].set_title("the functions", fontsize=7, loc="left")
        panels[0].legend(frameon=False, fontsize=6)
        for ax, (name, title) in zip(panels[1:], TITLES.items(), strict=True):
            _draw_map(ax, x, done[name].arrays["map"] if name in done else None, title)
        for ax in panels:
            ax.tick_params(labelsize=6, length=2, width=0.5)
            for spine in ax.spines.values():
                spine.set(linewidth=0.5, color=FAINT)
        return figure


def pair_of_functions() -> tuple[Float[Tensor, "1 1 P"], Float[Tensor, "1 1 P"]]:
    """Two bumps on a line, in other places and of other widths."""
    moving = bumps(torch.tensor([[0.30, 0.62]]), torch.tensor([[0.07, 0.10]]))
    fixed = bumps(torch.tensor([[0.37, 0.72]]), torch.tensor([[0.09, 0.07]]))
    return moving, fixed


def bumps(centres: Tensor, widths: Tensor) -> Float[Tensor, "B 1 P"]:
    """For each row of centres a function with a high bump and a lower one."""
    x = torch.linspace(0, 1, POINTS, dtype=torch.float64).view(1, 1, -1)
    heights = torch.tensor([1.0, 0.7], dtype=torch.float64).view(1, 2, 1)
    shapes = heights * (-(((x - centres[..., None]) / widths[..., None]) ** 2)).exp()
    return shapes.sum(dim=1, keepdim=True)


def population(count: int, generator: torch.Generator) -> Float[Tensor, "B 1 P"]:
    """Functions like the pair's, for a network to learn from."""
    draw = torch.rand(count, 4, dtype=torch.float64, generator=generator)
    centres = torch.stack([0.25 + 0.2 * draw[:, 0], 0.57 + 0.2 * draw[:, 1]], dim=1)
    return bumps(centres, 0.06 + 0.05 * draw[:, 2:])


def _nearest(moving: Tensor, fixed: Tensor) -> Tensor:
    """For every target point the source point whose intensity is nearest: the minimiser of Eq. (2)."""
    return (moving[0, 0][None] - fixed[0, 0][:, None]).abs().argmin(dim=1)


def _transport(moving: Tensor, fixed: Tensor) -> Tensor:
    """For every target point the source point of the same rank: the permutation that minimises Eq. (3)."""
    source, target = moving[0, 0].argsort(stable=True), fixed[0, 0].argsort(stable=True)
    found = torch.empty_like(target)
    found[target] = source
    return found


def _outcome(match: Any, kind: str) -> Outcome:
    moving, fixed = pair_of_functions()

    def as_map(a: Tensor, b: Tensor) -> DisplacementMap:
        x = match(a, b).double().view(1, 1, -1) / (POINTS - 1)
        return DisplacementMap(x - unit_grid((POINTS,), like=a))

    return _judged(as_map(moving, fixed), as_map(fixed, moving))


def _direct(steps: int) -> Outcome:
    """The two displacement fields of the one pair are the unknowns."""
    voxel = 1 / (POINTS - 1)
    regularity = functools.partial(expected_inverse_consistency, epsilon=voxel, step=voxel)
    objective = PairObjective(weight=LAMBDA, regularity=regularity)
    found = DirectOptimisation(objective, steps=steps, learning_rate=2e-3).both(*pair_of_functions())
    return _judged(found.phi_AB, found.phi_BA)


def _network(steps: int) -> Outcome:
    """A U-Net learns from other functions; it never saw the pair."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = UNet(dims=1, down_features=(16, 32, 64), up_features=(16, 32, 64))
        algorithm = DisplacementRegistration(net).double()
    objective = InverseConsistent(algorithm, weight=LAMBDA)
    pairs = random_pairs(population(1000, generator), batch_size=32, generator=generator)
    fit(objective, pairs, steps=steps, learning_rate=lambda step: 2e-3 * (1 - (step - 1) / steps),
        generator=generator)  # fmt: skip
    with torch.no_grad():
        phi_AB, phi_BA = both_directions(algorithm, *pair_of_functions())
    return _judged(phi_AB, phi_BA)


def _judged(phi_AB: Any, phi_BA: Any) -> Outcome:
    moving, fixed = pair_of_functions()
    points = phi_AB.on_grid_of(fixed)
    path = points[0, 0]
    reached = (path * (POINTS - 1)).round().clamp(0, POINTS - 1).unique()
    numbers = {
        "mse_before": (moving - fixed).square().mean().item(),
        "mse": (warp(moving, phi_AB) - fixed).square().mean().item(),
        "folds": folds_as_published(points).item(),
        "total_variation": path.diff().abs().sum().item(),
        "points_reached": len(reached),
        "round_trip_pixels": round_trip_statistics(phi_AB, phi_BA, fixed).mean,
    }
    return Outcome(numbers, {"map": path.detach().numpy()})


def _draw_map(ax: "Axes", x: np.ndarray, path: np.ndarray | None, title: str) -> None:
    ax.set_title(title, fontsize=7, loc="left")
    if path is None:
        return
    ax.plot([0, 1], [0, 1], color=FAINT, linewidth=0.5)
    ax.plot(x, path, color=INK, linewidth=0.7, marker="o", markersize=1.5)
    ax.set_xlim(0, 1)
    ax.set_ylim(-0.05, 1.05)
