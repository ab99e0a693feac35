"""Table 1: Dice and folds of four networks at six lambdas, beside the paper's numbers."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from roundtrip.algorithms.objective import both_directions
from roundtrip.evaluation.summary import Row
from roundtrip.experiments.closeness import LEAST, closeness
from roundtrip.experiments.networks_compared import Images, Training
from roundtrip.experiments.readings import judged
from roundtrip.experiments.result import AbstractResult, Cell, Claim, Outcome, Scale
from roundtrip.experiments.table1 import LAMBDAS, NETWORKS, TABLE_1
from roundtrip.experiments.workplace import Workplace
from roundtrip.reports.figures import FAINT, INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {"mlp": "MLP", "encoder-decoder": "Enc-Dec", "unet": "U-Net", "conv-only": "ConvOnly"}
COLOURS = {"mlp": "#d55e00", "encoder-decoder": "#0072b2", "unet": "#1a1a1a", "conv-only": "#009e73"}

ORDER = (64, 2048, 512, 128, 1024, 256)
"""The ends first, so that what is stopped early shows the range."""

QUICK_LAMBDAS = (64, 2048)
ENOUGH = 3
"""Lambdas that make a curve."""
EQUAL_FOLDS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Where networks are compared: at as many folds per image, their Dice interpolated between lambdas."""


class Architectures(AbstractResult):
    """Every network at every lambda, on one set of images."""

    paper = "Table 1"
    shows = "folds fall as lambda grows for every network; U-Net and MLP overlap best"

    def __init__(self, images: Images) -> None:
        self.images: Images = images
        self.name = f"architectures-{images}"
        self.needs_digits = images == "mnist"

    def cells(self, scale: Scale) -> Sequence[Cell]:
        lambdas = QUICK_LAMBDAS if scale == "quick" else ORDER
        trainings = [Training(self.images, net, lambda_, scale) for lambda_ in lambdas for net in NETWORKS]
        return [_cell(training) for training in trainings]

    def rows(self, done: Mapping[str, Outcome], scale: Scale) -> list[Row]:
        found = []
        for network in NETWORKS:
            for lambda_ in LAMBDAS:
                outcome = done.get(f"{network}-{lambda_}")
                if outcome is not None:
                    published = TABLE_1[self.images][network, lambda_]
                    paper = {"paper_dice": published.dice, "paper_folds": published.folds}
                    about = {"cell": f"{network}-{lambda_}", "network": network, "lambda": lambda_}
                    found.append({**about, **paper, **outcome.numbers})
        return found

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        claims = [_folds_fall(network, [r for r in rows if r["network"] == network]) for network in NETWORKS]
        return [*claims, _best_at_equal_folds(rows), _overlap_improves(rows)]

    def markdown(self, rows: Sequence[Row]) -> str:
        """As the paper prints it, each cell with the paper's number behind it."""
        found = {(row["network"], row["lambda"]): row for row in rows}
        head = " | ".join(f"{TITLES[network]} Dice | folds" for network in NETWORKS)
        lines = [f"| lambda | {head} |", f"| ---: |{' ---: |' * 2 * len(NETWORKS)}"]
        published = TABLE_1[self.images]
        for lambda_ in LAMBDAS:
            cells = [_pair(found.get((n, lambda_)), published[n, lambda_]) for n in NETWORKS]
            lines.append(f"| {lambda_} | {' | '.join(cells)} |")
        lines += ["", "In brackets the paper's; a dash: not run.", ""]
        lines += ["Read in other ways, how far from the paper on average:", "", closeness(rows, published)]
        return "\n".join(lines)

    def figure(self, done: Mapping[str, Outcome]) -> "Figure":
        """Dice against folds, a curve for every network: ours beside the paper's."""
        from matplotlib.figure import Figure

        rows = self.rows(done, "hours")
        figure = Figure(figsize=(7.0, 3.0), facecolor="white", layout="constrained")
        ours, theirs = figure.subplots(1, 2)
        for network in NETWORKS:
            own = [row for row in rows if row["network"] == network]
            _curve(ours, network, [(row["folds"], row["dice"]) for row in own])
            published = [TABLE_1[self.images][network, lambda_] for lambda_ in LAMBDAS]
            _curve(theirs, network, [(one.folds, one.dice) for one in published])
        for ax, title in ((ours, "ours"), (theirs, "the paper's")):
            ax.set_title(f"{self.images}: {title}", fontsize=8, loc="left", color=INK)
            ax.set_xscale("symlog", linthresh=0.1)
            ax.set_xlabel("folds per image", fontsize=7)
            ax.set_ylabel("Dice", fontsize=7)
            ax.tick_params(labelsize=6.5, length=2, width=0.5)
            for spine in ax.spines.values():
                spine.set(linewidth=0.5, color=FAINT)
        theirs.legend(frameon=False, fontsize=7)
        return figure


def _cell(training: Training) -> Cell:
    def compute(place: Workplace) -> Outcome:
        model, subset = training.trained(place), training.held_out(place)
        pairs = subset.pairs(training.budget.pairs)
        numbers = judged(model.algorithm, subset, pairs, place.ranks.device)
        numbers["training_seconds"] = round(model.seconds)
        batch = subset.load(pairs[:1], place.ranks.device)
        with torch.no_grad():
            maps = both_directions(model.algorithm, batch.moving, batch.fixed)
        arrays = {"moving": batch.moving, "fixed": batch.fixed}
        arrays |= {name: phi.on_grid_of(batch.fixed) for name, phi in zip(("AB", "BA"), maps, strict=True)}  # type: ignore[attr-defined]
        return Outcome(numbers, {name: np.asarray(tensor.cpu()) for name, tensor in arrays.items()})

    return Cell(f"{training.network}-{training.lambda_}", training.settings(), compute)


def _folds_fall(network: str, rows: Sequence[Row]) -> Claim:
    """From the least lambda to the greatest; in between by no more than what few pairs leave to chance."""
    says = f"{TITLES[network]}: folds fall as lambda grows"
    ordered = sorted(rows, key=lambda row: row["lambda"])
    if len(ordered) < 2:
        return Claim(says, None)
    folds = [row["folds"] for row in ordered]
    falls = folds[-1] < folds[0] or folds[0] == folds[-1] == 0
    steady = all(after <= 1.1 * before + 0.1 for before, after in pairwise(folds))
    series = ", ".join(f"{row['lambda']}: {row['folds']:.2f}" for row in ordered)
    return Claim(says, falls and steady, series)


def _best_at_equal_folds(rows: Sequence[Row]) -> Claim:
    """At most numbers of folds that several networks reach, U-Net or MLP have the best Dice."""
    says = "at equal folds, U-Net or MLP overlap best"
    own = {network: [row for row in rows if row["network"] == network] for network in NETWORKS}
    if any(len(some) < ENOUGH for some in own.values()):
        return Claim(says, None)
    curves = {network: _dice_by_folds(some) for network, some in own.items()}
    winners = {}
    for level in EQUAL_FOLDS:
        reached = {
            network: float(np.interp(np.log10(level), folds, overlap))
            for network, (folds, overlap) in curves.items()
            if len(folds) > 1 and folds[0] <= np.log10(level) <= folds[-1]
        }
        if len(reached) >= 2 and reached.keys() & {"unet", "mlp"}:
            winners[level] = max(reached, key=lambda network: reached[network])
    if not winners:
        return Claim(says, None)
    good = sum(network in ("unet", "mlp") for network in winners.values())
    told = ", ".join(f"{level:g} folds: {TITLES[network]}" for level, network in winners.items())
    return Claim(says, good > len(winners) / 2, told)


def _dice_by_folds(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the folds, increasing, and Dice, where there are more folds than chance makes."""
    ordered = sorted((row["folds"], row["dice"]) for row in rows if row["folds"] >= LEAST)
    return np.log10([folds for folds, _ in ordered]), np.array([overlap for _, overlap in ordered])


def _overlap_improves(rows: Sequence[Row]) -> Claim:
    says = f"at lambda {min(LAMBDAS)} every network overlaps better than before"
    own = [row for row in rows if row["lambda"] == min(LAMBDAS)]
    if len(own) < len(NETWORKS):
        return Claim(says, None)
    worst = min(own, key=lambda row: row["dice"] - row["dice_before"])
    told = f"least: {worst['cell']}, {worst['dice_before']:.2f} to {worst['dice']:.2f}"
    return Claim(says, worst["dice"] > worst["dice_before"], told)


def _pair(row: Row | None, published: Any) -> str:
    paper = f"({published.dice:.2f})", f"({published.folds:.2f})"
    ours = ("-", "-") if row is None else (f"{row['dice']:.2f}", f"{row['folds']:.2f}")
    return f"{ours[0]} {paper[0]} | {ours[1]} {paper[1]}"


def _curve(ax: Any, network: str, points: Sequence[tuple[float, float]]) -> None:
    if points:
        folds, overlap = zip(*points, strict=True)
        ax.plot(
            folds, overlap, "o-", color=COLOURS[network], label=TITLES[network], markersize=3, linewidth=0.9
        )
