"""Fig. 4: a circle and a triangle, registered one to the other without noise, with noise, and by a network.

All weigh inverse consistency by the same lambda, of squared vector norms as the paper writes them. Directly
optimised maps see it at the pixels. With noise, each map is followed by white noise of 1/8 pixel (Eq. 5).
The closed form of what that is on average (Eq. 10) is evaluated off the grid: at a pixel, a derivative by
central differences is blind to what alternates from pixel to pixel. So that noise is not given the credit of
that, there is a cell without noise off the grid, too. The network learns from many shapes, without noise.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from roundtrip._shapes import Image
from roundtrip.algorithms.direct import DirectOptimisation
from roundtrip.algorithms.objective import PairObjective, Regularity, Sampler, both_directions
from roundtrip.data.config import Counts, DataConfig
from roundtrip.data.shapes import triangles_and_circles
from roundtrip.data.sources import ShapesSource
from roundtrip.evaluation.overlap import dice
from roundtrip.evaluation.round_trip import round_trip_statistics
from roundtrip.evaluation.summary import Row
from roundtrip.experiments.result import AbstractResult, Cell, Claim, Outcome, Scale, by_cell, claim
from roundtrip.experiments.workplace import Workplace
from roundtrip.losses.regularity import (
    diffusion,
    expected_inverse_consistency,
    inverse_consistency,
    noisy_inverse_consistency,
    points_off_grid,
    points_on_grid,
)
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.folds import folds_as_published, non_diffeomorphic_volume
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.interpolate import warp
from roundtrip.reports.figures import INK, draw_grid
from roundtrip.training.config import CheckpointConfig, StageConfig, TrainingConfig
from roundtrip.training.control import FixedLambda
from roundtrip.training.schedule import LearningRate
from roundtrip.training.similarity import MeanSquares

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAMBDA = 2048.0
NOISE_PIXELS = 1 / 8
TITLES = {
    "no-noise": "direct, no noise",
    "off-grid": "direct, off the grid",
    "noise": "direct, noise",
    "expectation": "direct, expectation",
    "unet": "U-Net",
}


@dataclass(frozen=True)
class Budget:
    """What a scale spends."""

    size: int
    """Pixels along each side."""
    direct_steps: int
    """The paper does not say how many."""
    direct_rate: float
    steps: int
    """Of the U-Net's training."""
    batch: int
    learning_rate: LearningRate
    images: int
    features: tuple[int, ...] = (16, 32, 64, 256, 512)
    """Of the U-Net on the way down; the paper's unless given."""


BUDGETS: dict[Scale, Budget] = {
    "full": Budget(128, 10000, 1e-4, 18750, 128, LearningRate(start=1e-4), 6000),
    "hours": Budget(64, 5000, 3e-4, 400, 16, LearningRate(start=1e-3, decay="cosine", warmup=20), 2000),
    "quick": Budget(32, 600, 1e-3, 300, 8, LearningRate(start=5e-3, decay="cosine"), 200, (8, 16, 32)),
}


class Noise(AbstractResult):
    name, paper = "noise", "Fig. 4"
    shows = "direct optimisation needs noise, sampled or expected, to be regular; a network does not"

    def cells(self, scale: Scale) -> Sequence[Cell]:
        budget = BUDGETS[scale]
        direct = [_direct_cell(name, budget) for name in TITLES if name != "unet"]
        return [*direct, _network_cell(scale)]

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        found = by_cell(rows)

        def irregular(row: Row) -> tuple[bool, str]:
            told = f"{row['folds']:.0f} folds, gradient energy {row['gradient_energy']:.2g}"
            return row["folds"] >= 10, told

        def regular(row: Row, against: Row) -> tuple[bool, str]:
            told = (
                f"{row['folds']:.0f} folds, gradient energy {row['gradient_energy']:.2g}, "
                f"Dice {row['dice_before']:.2f} to {row['dice']:.2f}"
            )
            smoother = row["gradient_energy"] < against["gradient_energy"]
            registers = row["dice"] > row["dice_before"] + 0.02
            return row["folds"] < 0.2 * against["folds"] and smoother and registers, told

        return [
            claim("direct optimisation without noise is irregular", found, ["no-noise"], irregular),
            claim(
                "with noise it is far more regular: less than a fifth of the folds",
                found,
                ["noise", "no-noise"],
                regular,
            ),
            claim("with the expectation in place of noise, too", found, ["expectation", "no-noise"], regular),
            claim("the network is regular without noise", found, ["unet", "no-noise"], regular),
        ]

    def figure(self, done: Mapping[str, Outcome]) -> "Figure":
        from matplotlib.figure import Figure

        moving, fixed = pair_of_shapes(next(iter(done.values())).arrays["AB"].shape[-1])
        figure = Figure(figsize=(10.0, 1.7), facecolor="white", layout="constrained")
        panels = figure.subplots(1, 2 + len(TITLES))
        for ax, image, title in zip(panels, (moving, fixed), ("moving", "fixed"), strict=False):
            ax.imshow(image[0, 0].numpy(), cmap="gray", vmin=-1, vmax=1)
            ax.set_title(title, fontsize=7, loc="left", color=INK)
        for ax, (name, title) in zip(panels[2:], TITLES.items(), strict=True):
            ax.set_title(title, fontsize=7, loc="left", color=INK)
            if name in done:
                points = torch.from_numpy(done[name].arrays["AB"])
                phi = DisplacementMap(points - unit_grid(points.shape[2:], like=points))
                draw_grid(ax, phi, moving.to(points.dtype), 7.0)
        for ax in panels:
            ax.set_xticks([])
            ax.set_yticks([])
        return figure


def pair_of_shapes(size: int) -> tuple[Image, Image]:
    """A triangle, to be laid onto a circle."""
    shapes = triangles_and_circles(8, size=size, generator=torch.Generator().manual_seed(0))
    triangle, circle = (shapes.images[shapes.is_triangle == kind][:1] for kind in (True, False))
    return triangle, circle


def _regularity(name: str, size: int, generator: torch.Generator) -> Regularity:
    pixel = 1 / (size - 1)
    noise = NOISE_PIXELS * pixel
    if name == "noise":
        return functools.partial(noisy_inverse_consistency, epsilon=noise, generator=generator)
    if name == "expectation":
        return functools.partial(expected_inverse_consistency, epsilon=noise, step=noise)
    return inverse_consistency


def _points(name: str) -> Sampler:
    return points_on_grid if name in ("no-noise", "noise") else points_off_grid


def _direct_cell(name: str, budget: Budget) -> Cell:
    def compute(place: Workplace) -> Outcome:
        moving, fixed = (image.to(place.ranks.device) for image in pair_of_shapes(budget.size))
        generator = torch.Generator(moving.device).manual_seed(0)
        regularity = _regularity(name, budget.size, generator)
        objective = PairObjective(weight=LAMBDA, regularity=regularity, points=_points(name))
        optimisation = DirectOptimisation(
            objective, steps=budget.direct_steps, learning_rate=budget.direct_rate
        )
        found = optimisation.both(moving, fixed)
        return _judged(found.phi_AB, found.phi_BA, moving, fixed)

    settings = {"size": budget.size, "steps": budget.direct_steps, "learning_rate": budget.direct_rate}
    noise = {"noise_pixels": NOISE_PIXELS} if name in ("noise", "expectation") else {}
    return Cell(name, {**settings, **noise, "lambda": LAMBDA}, compute)


def _network_cell(scale: Scale) -> Cell:
    config = unet_on_shapes(BUDGETS[scale])

    def compute(place: Workplace) -> Outcome:
        algorithm = place.trained(f"noise-{scale}-unet", config).algorithm
        moving, fixed = (image.to(place.ranks.device) for image in pair_of_shapes(BUDGETS[scale].size))
        with torch.no_grad():
            phi_AB, phi_BA = both_directions(algorithm, moving, fixed)
        assert isinstance(phi_AB, DisplacementMap) and isinstance(phi_BA, DisplacementMap)
        return _judged(phi_AB, phi_BA, moving, fixed)

    return Cell("unet", {**config.as_plain(), "seed": 0}, compute)


def unet_on_shapes(budget: Budget) -> TrainingConfig:
    """The U-Net of the figure: as in Table 1, of this budget."""
    net: dict[str, Any] = {"class": "UNet", "dims": 2}
    if budget.features != Budget.features:
        net |= {"down_features": list(budget.features), "up_features": list(budget.features)}
    return TrainingConfig(
        data=DataConfig(
            source=ShapesSource(count=budget.images, size=budget.size), split=Counts(train=budget.images)
        ),
        stages=(
            StageConfig(
                name="unet",
                algorithm={"class": "DisplacementRegistration", "net": net},
                steps=budget.steps,
                batch=budget.batch,
                learning_rate=budget.learning_rate,
                similarity=MeanSquares(),
                lambda_=FixedLambda(start=LAMBDA),
            ),
        ),
        checkpoints=CheckpointConfig(every=max(20, budget.steps // 20), keep=1),
        about="Drawn triangles & circles.",
        licence="CC0-1.0",
    )


@torch.no_grad()
def _judged(phi_AB: DisplacementMap, phi_BA: DisplacementMap, moving: Image, fixed: Image) -> Outcome:
    """Both directions count alike; the gradient energy is that of the displacements."""
    grids = [phi_AB.on_grid_of(fixed), phi_BA.on_grid_of(moving)]
    warped = warp(moving, phi_AB)
    miss = round_trip_statistics(phi_AB, phi_BA, fixed)
    numbers = {
        "folds": mean(folds_as_published(points).item() for points in grids),
        "folded_volume_percent": mean(non_diffeomorphic_volume(points).percent.item() for points in grids),
        "gradient_energy": mean(diffusion(phi, fixed).item() for phi in (phi_AB, phi_BA)),
        "round_trip_pixels": miss.mean,
        "round_trip_pixels_p99": miss.p99,
        "dice_before": dice(moving > 0.5, fixed > 0.5).mean.item(),
        "dice": dice(warped > 0.5, fixed > 0.5).mean.item(),
        "mse": (warped - fixed).square().mean().item(),
    }
    return Outcome(numbers, {"AB": np.asarray(grids[0].cpu())})
