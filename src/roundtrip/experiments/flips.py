"""Fig. 2: trained with inverse consistency at the pixels alone, a network lets pixels of flat regions swap.

The swap of two pixels is its own inverse there, and no image shows it. The network is the MLP, whose last
biases begin as torch draws them, and as the published package leaves them (of its networks only the U-Net
begins at the identity): the first maps are irregular by about a pixel, and training has to put that right.
What training on the grid does to maps that begin at the identity, a third cell shows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from roundtrip._shapes import Bool, Float, Image, Tensor
from roundtrip.algorithms.objective import both_directions
from roundtrip.data.config import Counts, DataConfig
from roundtrip.data.dataset import open_dataset
from roundtrip.data.sources import ShapesSource
from roundtrip.evaluation.overlap import dice
from roundtrip.evaluation.summary import Row
from roundtrip.experiments.result import AbstractResult, Cell, Claim, Outcome, Scale, by_cell, claim
from roundtrip.experiments.workplace import Workplace
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.folds import folds_as_published
from roundtrip.maps.grid import unit_grid, voxel_from_unit
from roundtrip.maps.interpolate import interpolate
from roundtrip.maps.map import on_grid_of
from roundtrip.reports.figures import INK, draw_grid
from roundtrip.training.config import CheckpointConfig, StageConfig, TrainingConfig
from roundtrip.training.control import FixedLambda
from roundtrip.training.regularity import InverseConsistency, InverseConsistencyOnGrid
from roundtrip.training.schedule import LearningRate
from roundtrip.training.similarity import MeanSquares

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAMBDA = 512.0
"""As the paper prints lambdas: the weight in our loss is half of it, see `networks_compared.py`."""
FLAT = 0.01
"""How little intensities differ around a pixel of a flat region; images go from -1 to 1."""
TITLES = {"on-grid": "trained on the grid", "off-grid": "trained off the grid"}
REGULARITIES: dict[str, InverseConsistency | InverseConsistencyOnGrid] = {
    "on-grid": InverseConsistencyOnGrid(),
    "off-grid": InverseConsistency(),
    "on-grid-from-identity": InverseConsistencyOnGrid(),
}


@dataclass(frozen=True)
class Budget:
    """What a scale spends on each of the two trainings."""

    size: int
    hidden: tuple[int, int]
    steps: int
    batch: int
    learning_rate: LearningRate
    train: int
    test: int


BUDGETS: dict[Scale, Budget] = {
    "full": Budget(128, (8000, 3000), 18750, 128, LearningRate(start=1e-4), 6000, 200),
    "hours": Budget(48, (1024, 1024), 2000, 32, LearningRate(start=5e-4, decay="cosine"), 2000, 200),
    "quick": Budget(16, (128, 512), 200, 8, LearningRate(start=1e-3, decay="cosine"), 200, 50),
}


class Flips(AbstractResult):
    name, paper = "flips", "Fig. 2"
    shows = (
        "training with inverse consistency on the grid leaves swaps in flat regions; off the grid it does not"
    )

    def cells(self, scale: Scale) -> Sequence[Cell]:
        return [_cell(where, scale) for where in REGULARITIES]

    def claims(self, rows: Sequence[Row]) -> list[Claim]:
        found = by_cell(rows)

        def swaps(row: Row) -> tuple[bool, str]:
            told = (
                f"{row['swapped_flat_pixels']:.1f} swapped pixels, {row['flat_folds']:.1f} folds in each map"
            )
            return row["swapped_flat_pixels"] >= 1, told

        def none(off: Row, on: Row) -> tuple[bool, str]:
            told = (
                f"{off['swapped_flat_pixels']:.2f} swapped pixels, {off['flat_folds']:.2f} folds in each map"
            )
            few = off["swapped_flat_pixels"] <= 0.01 * on["swapped_flat_pixels"]
            return few and off["flat_folds"] <= 0.05 * on["flat_folds"], told

        return [
            claim("on the grid, pixels of flat regions change places", found, ["on-grid"], swaps),
            claim("off the grid, they do not", found, ["off-grid", "on-grid"], none),
        ]

    def figure(self, done: Mapping[str, Outcome]) -> "Figure":
        """The deformed grid of one pair, for both; and all of one corner."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.0, 1.95), facecolor="white", layout="constrained")
        panels = figure.subplots(1, 4)
        for number, (name, title) in enumerate(TITLES.items()):
            whole, corner = panels[2 * number], panels[2 * number + 1]
            whole.set_title(title, fontsize=7, loc="left", color=INK)
            corner.set_title("its corner", fontsize=7, loc="left", color=INK)
            if name not in done:
                continue
            points, moving = (torch.from_numpy(done[name].arrays[key]) for key in ("AB", "moving"))
            phi = DisplacementMap(points - unit_grid(points.shape[2:], like=points))
            draw_grid(whole, phi, moving, 5.0)
            _draw_corner(corner, points)
        return figure


def swapped(points: Float[Tensor, "B N *S"]) -> Bool[Tensor, "B 1 *S"]:
    """Voxels that change places with another one, to the nearest voxel."""
    B, _, *shape = points.shape
    index = voxel_from_unit(points, shape).round().long()
    last = index.new_tensor([n - 1 for n in shape]).view(1, -1, *[1] * len(shape))
    inside = ((index >= 0) & (index <= last)).all(dim=1).flatten(1)
    index = index.clamp(min=torch.zeros_like(last), max=last)
    target = torch.zeros_like(index[:, 0])
    for axis, n in enumerate(shape):
        target = target * n + index[:, axis]
    target = target.flatten(1)
    itself = torch.arange(target.shape[1], device=target.device)
    found = inside & (target != itself) & (target.gather(1, target) == itself)
    return found.view(B, 1, *shape)


def flat(image: Image) -> Bool[Tensor, "B 1 H W"]:
    """Pixels around which nothing is to be seen."""
    return (F.max_pool2d(image, 3, 1, 1) + F.max_pool2d(-image, 3, 1, 1)) < FLAT


def _cell(where: str, scale: Scale) -> Cell:
    config = mlp_on_shapes(where, BUDGETS[scale])
    identity = where == "on-grid-from-identity"
    biases = "zero" if identity else "uniform, 1/sqrt(features)"
    settings = {**config.as_plain(), "seed": 0, "first_biases": biases}
    begin = None if identity else _with_random_biases

    def compute(place: Workplace) -> Outcome:
        trained = place.trained(f"flips-{scale}-{where}", config, begin=begin)
        subset = open_dataset(config.data, cache=place.root / "cache", ranks=place.ranks).test
        return _judged(trained.algorithm, subset.load(subset.pairs(100), place.ranks.device))

    return Cell(where, settings, compute)


def mlp_on_shapes(where: str, budget: Budget) -> TrainingConfig:
    """One of the two trainings; they differ in where inverse consistency is evaluated."""
    net = {"class": "MLP", "shape": [budget.size] * 2, "hidden_features": list(budget.hidden)}
    return TrainingConfig(
        data=DataConfig(
            source=ShapesSource(count=budget.train + budget.test, size=budget.size),
            split=Counts(train=budget.train, test=budget.test),
        ),
        stages=(
            StageConfig(
                name="mlp",
                algorithm={"class": "DisplacementRegistration", "net": net},
                steps=budget.steps,
                batch=budget.batch,
                learning_rate=budget.learning_rate,
                similarity=MeanSquares(),
                lambda_=FixedLambda(start=LAMBDA / 2),
                regularity=REGULARITIES[where],
            ),
        ),
        checkpoints=CheckpointConfig(every=max(50, budget.steps // 20), keep=1),
        about="Drawn triangles & circles.",
        licence="CC0-1.0",
    )


def _with_random_biases(algorithm: torch.nn.Module) -> None:
    """The last layer's biases as torch begins all of them."""
    last = algorithm.get_submodule("net.last")
    assert isinstance(last, torch.nn.Linear)
    bound = last.in_features**-0.5
    with torch.no_grad():
        torch.nn.init.uniform_(last.bias, -bound, bound, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def _judged(algorithm: Any, batch: Any) -> Outcome:
    moving, fixed = batch.moving, batch.fixed
    phi_AB, phi_BA = both_directions(algorithm, moving, fixed)
    points = on_grid_of(phi_AB, fixed)
    here = flat(fixed)
    exchanged, folded = swapped(points), _folded(points)
    miss = phi_BA(points) - unit_grid(fixed.shape[2:], like=fixed)
    numbers = {
        "swapped_flat_pixels": (exchanged & here).flatten(1).sum(dim=1).double().mean().item(),
        "swapped_pixels": exchanged.flatten(1).sum(dim=1).double().mean().item(),
        "flat_folds": (folded & here[..., :-1, :-1]).flatten(1).sum(dim=1).double().mean().item(),
        "folds": folds_as_published(points).mean().item(),
        "miss_at_pixels": miss.norm(dim=1).mean().item() * (fixed.shape[-1] - 1),
        "dice_before": dice(moving > 0.5, fixed > 0.5).mean.mean().item(),
        "dice": dice(interpolate(moving, points) > 0.5, fixed > 0.5).mean.mean().item(),
    }
    arrays = {"AB": points[:1], "moving": moving[:1]}
    return Outcome(numbers, {name: np.asarray(tensor.cpu()) for name, tensor in arrays.items()})


def _folded(points: Float[Tensor, "B 2 H W"]) -> Bool[Tensor, "B 1 h w"]:
    """Cells whose determinant is negative, as `folds_as_published` counts them."""
    down, across = points.diff(dim=2)[..., :-1], points.diff(dim=3)[..., :-1, :]
    return (down[:, :1] * across[:, 1:] - down[:, 1:] * across[:, :1]) < 0


def _draw_corner(ax: Any, points: Tensor) -> None:
    """Where the grid lines of the first rows and columns go, pixel by pixel."""
    count = min(10, points.shape[-1])
    at = voxel_from_unit(points, points.shape[2:])[0, :, :count, :count].numpy()
    for line in range(count):
        ax.plot(at[1, line], at[0, line], color=INK, linewidth=0.6)
        ax.plot(at[1, :, line], at[0, :, line], color=INK, linewidth=0.6)
    ax.set_xlim(-1, count)
    ax.set_ylim(count, -1)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_aspect("equal")
