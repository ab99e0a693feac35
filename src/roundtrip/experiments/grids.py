"""Fig. 5: deformed grids of every network at every lambda, 0 included. The trainings are those of Table 1."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from roundtrip.algorithms.objective import both_directions
from roundtrip.evaluation.summary import Row
from roundtrip.experiments.architectures import TITLES
from roundtrip.experiments.networks_compared import Training
from roundtrip.experiments.readings import judged
from roundtrip.experiments.result import AbstractResult, Cell, Claim, Outcome, Scale, by_cell, claim
from roundtrip.experiments.table1 import LAMBDAS, NETWORKS
from roundtrip.experiments.workplace import Workplace
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.grid import unit_grid
from roundtrip.reports.figures import INK, draw_grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUICK_LAMBDAS = (0, 2048)


class Grids(AbstractResult):
    name, paper, needs_digits = "grids", "Fig. 5", True
    shows = "without inverse consistency maps fold wildly; with more and more of it every network is regular"

    def cells(self, scale: Scale) -> Sequence[Cell]:
        lambdas = QUICK_LAMBDAS if scale == "quick" else (0, *LAMBDAS)
        trainings = [Training("mnist", net, lambda_, scale) for lambda_ in lambdas for net in NETWORKS]
        return [_cell(training) for training in trainings]

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        found = by_cell(rows)

        def wild(zero: Row, some: Row) -> tuple[bool, str]:
            told = f"{zero['folds']:.1f} folds at lambda 0, {some['folds']:.1f} at {some['lambda']}"
            return zero["folds"] > max(10.0, 5 * some["folds"]), told

        claims = []
        for network in NETWORKS:
            own = [row["lambda"] for row in rows if row["network"] == network and row["lambda"] > 0]
            says = f"{TITLES[network]}: lambda 0 folds wildly"
            claims.append(claim(says, found, [f"{network}-0", f"{network}-{max(own, default=1)}"], wild))
        return claims

    def figure(self, done: Mapping[str, Outcome]) -> "Figure":
        """A row of grids for every network, lambda growing to the right; a dot for every folded pixel."""
        from matplotlib.figure import Figure

        lambdas = sorted({int(name.rsplit("-", 1)[1]) for name in done})
        side = 1.15
        figure = Figure(
            figsize=(side * len(lambdas) + 0.3, side * len(NETWORKS) + 0.2),
            facecolor="white",
            layout="constrained",
        )
        panels = figure.subplots(len(NETWORKS), len(lambdas), squeeze=False)
        for row, network in zip(panels, NETWORKS, strict=True):
            for ax, lambda_ in zip(row, lambdas, strict=True):
                ax.set_axis_off()
                outcome = done.get(f"{network}-{lambda_}")
                if network == NETWORKS[0]:
                    ax.set_title(f"$\\lambda$ = {lambda_}", fontsize=7, color=INK)
                if outcome is None:
                    ax.text(0.5, 0.5, "not run", fontsize=6, ha="center", transform=ax.transAxes)
                    continue
                ax.set_axis_on()
                points, moving = (torch.from_numpy(outcome.arrays[name]) for name in ("AB", "moving"))
                phi = DisplacementMap(points - unit_grid(points.shape[2:], like=points))
                draw_grid(ax, phi, moving, 4.0)
            row[0].text(-0.08, 0.5, TITLES[network], rotation=90, fontsize=7, ha="center", va="center",
                        transform=row[0].transAxes)  # fmt: skip
        return figure


def _cell(training: Training) -> Cell:
    def compute(place: Workplace) -> Outcome:
        model, subset = training.trained(place), training.held_out(place)
        pairs = subset.pairs(training.budget.pairs)
        numbers = judged(model.algorithm, subset, pairs, place.ranks.device)
        batch = subset.load(pairs[:1], place.ranks.device)
        with torch.no_grad():
            phi, _ = both_directions(model.algorithm, batch.moving, batch.fixed)
        kept = ("dice_before", "dice", "folds", "folded_volume_percent", "round_trip_pixels")
        about = {
            "network": training.network,
            "lambda": training.lambda_,
            "training_seconds": round(model.seconds),
        }
        arrays = {"moving": batch.moving, "fixed": batch.fixed, "AB": phi.on_grid_of(batch.fixed)}  # type: ignore[attr-defined]
        return Outcome(
            {**about, **{name: numbers[name] for name in kept}},
            {name: np.asarray(tensor.cpu()) for name, tensor in arrays.items()},
        )

    return Cell(f"{training.network}-{training.lambda_}", training.settings(), compute)
