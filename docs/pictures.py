"""Draws the pictures of the documentation into docs/images/, each by calling the library: `make pictures`.

With `--scans FOLDER`, in which the commands of the tutorial were run, also the pictures of the tutorial.
"""

import argparse
import functools
import io
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Rectangle
from PIL import Image

import roundtrip as rt
from roundtrip.data.shapes import triangles_and_circles
from roundtrip.evaluation.round_trip import round_trip_statistics
from roundtrip.maps.folds import worst_growth
from roundtrip.maps.jacobian import grid_jacobian
from roundtrip.reports.volume_figures import volume_pair_figure

IMAGES = Path(__file__).parent / "images"
INK, FAINT, BLUE, ORANGE = "#1a1a1a", "#b0b0b0", "#2b6cb0", "#d55e00"


def coordinates() -> Figure:
    """Where the voxels of an axis lie, and what that means for two resolutions."""
    figure = _figure(7.0, 1.5)
    ax = figure.add_axes((0.02, 0.05, 0.96, 0.85))
    for row, n in enumerate((5, 9)):
        centres = rt.unit_grid((n,)).flatten().tolist()
        half = 0.5 / (n - 1)
        for centre in centres:
            ax.add_patch(
                Rectangle((centre - half, -row - 0.18), 2 * half, 0.36, facecolor="none", edgecolor=FAINT)
            )
            ax.plot(centre, -row, "o", color=BLUE, markersize=4)
            if n == 5:
                ax.text(centre, -row + 0.3, f"{centre:g}", ha="center", va="bottom", fontsize=8, color=INK)
        ax.text(-0.16, -row, f"{n} voxels", ha="right", va="center", fontsize=8, color=INK)
    ax.set(xlim=(-0.3, 1.15), ylim=(-1.4, 0.75))
    ax.axis("off")
    return figure


def directions() -> Figure:
    """Points go from the fixed image to the moving one; intensities come back along the same lines."""

    def phi(x: torch.Tensor) -> torch.Tensor:
        shaken = 0.05 * torch.sin(2 * math.pi * x.flip(1)) * torch.sin(math.pi * x).sqrt()
        return 0.92 * x + shaken + torch.tensor([0.09, -0.01]).view(1, 2, *[1] * (x.ndim - 2))

    shapes = triangles_and_circles(40, size=96, generator=torch.Generator().manual_seed(1))
    triangles = shapes.images[shapes.is_triangle]
    moving = triangles[triangles.mean(dim=(1, 2, 3)).argmin()][None]
    fixed = rt.warp(moving, phi)
    figure = _figure(7.0, 3.5)
    left = _panel(figure, (0.03, 0.1, 0.42, 0.78), "fixed $B$: a grid of points $x$")
    right = _panel(figure, (0.55, 0.1, 0.42, 0.78), r"moving $A$: where $\Phi^{AB}(x)$ is")
    for ax, image, moved in ((left, fixed, rt.Identity()), (right, moving, phi)):
        ax.imshow(image[0, 0].numpy(), cmap="gray", extent=(0, 1, 1, 0), alpha=0.35, vmin=-1.2, vmax=1.2)
        _draw_lines(ax, moved, lines=15)
        ax.set(xlim=(-0.02, 1.02), ylim=(1.02, -0.02))
    points = torch.tensor([[0.31, 0.48, 0.75], [0.36, 0.79, 0.59]])[None]
    for x, y in zip(points[0].T.tolist(), phi(points)[0].T.tolist(), strict=True):
        left.plot(x[1], x[0], "o", color=ORANGE, markersize=5, zorder=3)
        right.plot(y[1], y[0], "o", color=ORANGE, markersize=5, zorder=3)
        arrow = {"arrowstyle": "-|>", "color": ORANGE, "linewidth": 1.1, "shrinkA": 3, "shrinkB": 3}
        figure.add_artist(ConnectionPatch(x[::-1], y[::-1], "data", "data", axesA=left, axesB=right, **arrow))
    figure.text(0.5, 0.94, r"points: $\Phi^{AB}$ $\rightarrow$", color=ORANGE, ha="center", fontsize=9)
    figure.text(
        0.5,
        0.03,
        r"$\leftarrow$ intensities: $A\circ\Phi^{AB}\approx B$",
        color=BLUE,
        ha="center",
        fontsize=9,
    )
    return figure


def off_grid() -> Figure:
    """Two pixels that change places: what the pixels see, and what lies between them."""
    swap = _swap(1.0)
    x = torch.linspace(5, 10, 501, dtype=torch.float64)
    row = torch.stack([torch.full_like(x, 8), x])[None] / 15
    there, back = swap(row)[0, 1] * 15, swap(swap(row))[0, 1] * 15
    figure = _figure(7.0, 2.9)
    for left, values, title in (
        (0.08, there, "there: $\\Phi(x)$ swaps pixels 7 and 8"),
        (0.57, back, "and back: $\\Phi(\\Phi(x))$"),
    ):
        ax = figure.add_axes((left, 0.17, 0.4, 0.7))
        ax.plot(x, x, color=FAINT, linewidth=1)
        ax.plot(x, values, color=BLUE, linewidth=1.6)
        ax.fill_between(x, x, values, color=ORANGE, alpha=0.25 if values is back else 0.0, linewidth=0)
        at_pixels = [round((p - 5) * 100) for p in range(5, 11)]
        ax.plot(x[at_pixels], values[at_pixels], "o", color=INK, markersize=5, zorder=3)
        ax.set_title(title, fontsize=9, color=INK, loc="left")
        ax.set_xlabel("pixels along the row; dots are pixels", fontsize=8)
        ax.tick_params(labelsize=8)
        ax.grid(color="#e8e8e8")
        ax.set_axisbelow(True)
    cost = rt.inverse_consistency(swap, swap, rt.points_on_grid(_BLANK))
    figure.text(0.60, 0.80, f"at the pixels it misses by {math.sqrt(cost):.0f}", fontsize=8, color=INK)
    figure.text(0.60, 0.74, f"between them by up to {(back - x).abs().max():.1f}", fontsize=8, color=ORANGE)
    return figure


def noise() -> Figure:
    """What noise after both maps costs a map that stretches: measured, and by the closed form."""
    epsilon, generator = 0.01, torch.Generator().manual_seed(0)
    stretches = torch.logspace(math.log10(0.3), math.log10(1 / 0.3), 25, dtype=torch.float64).tolist()
    x = torch.linspace(0, 1, 20001, dtype=torch.float64).view(1, 1, -1)
    measured, expected = [], []
    for stretch in stretches:
        there = rt.AffineMap(torch.full((1, 1, 1), stretch).double(), torch.zeros(1, 1).double())
        pair = (there, there.inverse(), x)
        measured.append(
            rt.noisy_inverse_consistency(*pair, epsilon=epsilon, generator=generator) / epsilon**2
        )
        # Its second noise, after the outer map, costs the same whatever the map.
        expected.append(2 + stretch**2 + stretch**-2)
    figure = _figure(7.0, 2.6)
    ax = figure.add_axes((0.2, 0.18, 0.6, 0.71))
    ax.plot(stretches, expected, color=BLUE, linewidth=1.6, label="$2 + s^2 + 1/s^2$")
    ax.plot(stretches, measured, "o", color=ORANGE, markersize=4, label="measured round trips")
    ax.set_xscale("log")
    ax.set_xticks([0.33, 0.5, 1, 2, 3], ["1/3", "1/2", "1", "2", "3"])
    ax.minorticks_off()
    ax.set_title("squared miss of noisy round trips, in units of $\\epsilon^2$", fontsize=9, loc="left")
    ax.set_xlabel("$s$: by how much the map stretches", fontsize=8)
    ax.tick_params(labelsize=8)
    ax.legend(fontsize=8, frameon=False)
    ax.grid(color="#e8e8e8")
    return figure


def regularity(steps: int = 1200) -> Figure:
    """One pair, the same similarity, and four ways to ask for a round trip."""
    size = 48
    shapes = triangles_and_circles(12, size=size, generator=torch.Generator().manual_seed(4))
    moving, fixed = shapes.images[shapes.is_triangle][:1], shapes.images[~shapes.is_triangle][:1]
    voxel = 1 / (size - 1)
    expected = functools.partial(rt.expected_inverse_consistency, epsilon=voxel / 8, step=voxel)
    cases = {
        "similarity alone": rt.PairObjective(weight=0.0),
        "+ round trips of pixels": rt.PairObjective(weight=1024.0, points=rt.points_on_grid),
        "+ of points between": rt.PairObjective(weight=1024.0),
        "+ noise of 1/8 pixel": rt.PairObjective(weight=1024.0, regularity=expected),
    }
    figure = _figure(7.0, 2.35)
    for column, (title, objective) in enumerate(cases.items()):
        found = rt.DirectOptimisation(objective, steps=steps, learning_rate=2e-3).both(moving, fixed)
        ax = _panel(figure, (0.005 + 0.25 * column, 0.21, 0.24, 0.715), title)
        ax.imshow(moving[0, 0].numpy(), cmap="gray", extent=(0, 1, 1, 0), alpha=0.2)
        _draw_lines(ax, found.phi_AB, lines=30)
        ax.set(xlim=(0, 1), ylim=(1, 0))
        folded = rt.non_diffeomorphic_volume(rt.on_grid_of(found.phi_AB, fixed))
        miss = round_trip_statistics(found.phi_AB, found.phi_BA, fixed)
        said = (
            f"round trip: {miss.mean:.2f} pixels off\n"
            f"{int(folded.cells)} folded cell{'' if int(folded.cells) == 1 else 's'}"
        )
        colour = ORANGE if folded.cells else INK
        figure.text(0.125 + 0.25 * column, 0.1, said, ha="center", va="center", fontsize=8, color=colour)
    return figure


def folds() -> Figure:
    """One map, three ways to look for its folds, and what each of them sees."""
    points = rt.on_grid_of(_swap(0.75), _BLANK)
    voxels = (points[0] * 15).numpy()
    rows, columns = torch.diff(points, dim=2)[..., :-1], torch.diff(points, dim=3)[:, :, :-1]
    one_sided = rows[:, 0] * columns[:, 1] - rows[:, 1] * columns[:, 0] < 0
    central = ~(rt.determinant(grid_jacobian(points)) > 0)[0]
    cases = (
        ("one-sided differences", one_sided, int(rt.folds_as_published(points)), "cell"),
        ("central differences", central, int(rt.folds_central(points).count), "voxel"),
        (
            "all corner triangles",
            worst_growth(points) <= 0,
            int(rt.non_diffeomorphic_volume(points).cells),
            "cell",
        ),
    )
    figure = _figure(7.0, 2.6)
    for column, (title, seen, count, what) in enumerate(cases):
        assert int(seen.sum()) == count
        ax = _panel(figure, (0.01 + 0.33 * column, 0.1, 0.315, 0.8), title)
        ax.add_collection(LineCollection(_edges(voxels), colors=INK, linewidths=0.8))
        corners = [(0, 0), (1, 0), (1, 1), (0, 1)]
        cells = [
            [voxels[::-1, i + a, j + b] for a, b in corners]
            for i, j in seen[0].nonzero().tolist()
            if what == "cell"
        ]
        ax.add_collection(PolyCollection(cells, facecolors=ORANGE, alpha=0.55, linewidths=0))
        ax.plot(voxels[1].ravel(), voxels[0].ravel(), "o", color=BLUE, markersize=3)
        ax.set(xlim=(4.5, 10.5), ylim=(10.2, 5.7), aspect="equal")
        text = f"{count} {what}{'' if count == 1 else 's'}"
        figure.text(
            0.167 + 0.33 * column, 0.03, text, ha="center", fontsize=9, color=ORANGE if count else INK
        )
    return figure


def tutorial_pair(folder: Path) -> Figure:
    """The first pair of the tutorial."""
    fixed, moving = (_scan(folder, name) for name in ("003", "007"))
    transform = rt.Transform.load(folder / "first" / "transform.h5")
    return volume_pair_figure(moving, fixed, transform)


def tutorial_mean(folder: Path) -> Figure:
    """The fixed scan, the mean of the others as their files place them, and their mean after registration."""
    fixed, people = _scan(folder, "003"), ("001", "004", "007", "011", "015")
    nothing = rt.Transform.from_affine(torch.eye(4))
    before = [nothing.warp(_scan(folder, one), onto=fixed) for one in people]
    after = [
        rt.read(folder / "cohort" / f"hippocampus_{one}_to_hippocampus_003" / "warped.nii.gz")
        for one in people
    ]
    figure = _figure(7.0, 1.85)
    for column, (title, volumes) in enumerate(
        (("scan 003", [fixed]), ("mean of five, before", before), ("mean of five, after", after))
    ):
        mean = torch.stack([one.data[0] / one.data.quantile(0.99) for one in volumes]).mean(dim=0)
        ax = _panel(figure, (0.01 + 0.33 * column, 0.02, 0.315, 0.85), title)
        sagittal = mean[mean.shape[0] // 2].T.flip(0, 1).numpy()
        ax.imshow(sagittal, cmap="gray", vmin=0, vmax=1.05, interpolation="nearest")
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "coordinates": coordinates,
    "directions": directions,
    "noise": noise,
    "off_grid": off_grid,
    "regularity": regularity,
    "folds": folds,
}

TUTORIAL: dict[str, Callable[[Path], Figure]] = {
    "tutorial_pair": tutorial_pair,
    "tutorial_mean": tutorial_mean,
}

_BLANK = torch.zeros(1, 1, 16, 16, dtype=torch.float64)


def _scan(folder: Path, number: str) -> rt.Volume:
    return rt.read(folder / "imagesTr" / f"hippocampus_{number}.nii.gz")


def _swap(part: float) -> rt.DisplacementMap:
    """Moves pixels 7 and 8 of row 8 towards each other, by so large a part of their exchange."""
    displacement = torch.zeros(1, 2, 16, 16, dtype=torch.float64)
    displacement[0, 1, 8, 7], displacement[0, 1, 8, 8] = part / 15, -part / 15
    return rt.DisplacementMap(displacement)


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), facecolor="white")


def _panel(figure: Figure, box: tuple[float, float, float, float], title: str) -> Axes:
    ax = figure.add_axes(box)
    ax.set_title(title, fontsize=9, color=INK, loc="left", pad=3)
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set(linewidth=0.5, color=FAINT)
    return ax


def _draw_lines(ax: Axes, phi: Callable[[torch.Tensor], torch.Tensor], *, lines: int) -> None:
    """Where the lines of a regular grid go."""
    along = torch.linspace(0, 1, 300)
    drawn = []
    for at in torch.linspace(0, 1, lines):
        for ends in ((at.expand_as(along), along), (along, at.expand_as(along))):
            drawn.append(phi(torch.stack(ends)[None])[0].flip(0).T.detach().numpy())
    ax.add_collection(LineCollection(drawn, colors=INK, linewidths=0.5))


def _edges(voxels: np.ndarray) -> list[np.ndarray]:
    """Lines between neighbours of a grid of points."""
    return [*voxels[::-1].transpose(1, 2, 0), *voxels[::-1].transpose(2, 1, 0)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scans", type=Path, metavar="FOLDER")
    folder = parser.parse_args().scans
    for name, draw in PICTURES.items():
        _write(draw(), name)
    for name, draw_scans in TUTORIAL.items() if folder else ():
        _write(draw_scans(folder), name)


def _write(figure: Figure, name: str) -> None:
    """In 240 colours, which nobody can tell from all of them, and which take a third of the bytes."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=160)
    Image.open(drawn).convert("RGB").quantize(240).save(IMAGES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
