"""How often the linear alignment finds its way back from random starts, in one table.

`python benchmarks/robustness.py FOLDER` where FOLDER/images and FOLDER/labels hold files of the same names,
e.g. NIfTI; `--help` names the options. Each start turns, scales and shifts the moving image in the world, by
its header alone, and cuts its field of view along one axis. What is found is compared with what is found for
the same cut image as it lay before, by the mean Dice of the labels (nearest voxel, every second voxel of the
fixed grid along each axis, labels that both images hold), and with the Dice without any cut. With
`--deform` and an effort, what is judged is the whole registration, as a user sees it.
"""

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import roundtrip as rt
from roundtrip.pairwise.linear import align

NEAR = 0.005
"""Of Dice: a start that ends this much below the aligned one counts as lost."""


@dataclass(frozen=True, eq=False)
class Subject:
    name: str
    image: rt.Volume
    labels: rt.Volume


@dataclass(frozen=True)
class Found:
    dice: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Start:
    moved: torch.Tensor
    """Takes the moving world to where the image is put."""
    first: tuple[int, ...]
    shape: tuple[int, ...]

    def of(self, image: rt.Volume, moved: torch.Tensor | None = None) -> rt.Volume:
        """The image cut, and moved by the header."""
        window = [slice(a, a + n) for a, n in zip(self.first, self.shape, strict=True)]
        place = image.world_from_voxel.clone()
        place[:, -1] = image.world_from_voxel @ torch.tensor([*self.first, 1], dtype=torch.float64)
        return rt.Volume(image.data[:, *window].contiguous(), place if moved is None else moved @ place)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", nargs="+", metavar="MOVING:FIXED", help="stems of files; default: a ring")
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--rotation", type=float, default=45.0, help="largest, in degrees")
    parser.add_argument("--shift", type=float, default=60.0, help="largest, in mm")
    parser.add_argument("--scale", type=float, default=1.25, help="largest; the smallest is its inverse")
    parser.add_argument("--keep", type=float, default=0.7, help="share of the field of view that is kept")
    parser.add_argument("--modality", choices=("same", "different"), default="same")
    parser.add_argument(
        "--deform",
        choices=("fast", "default", "best"),
        help="register wholly, by this effort, before judging",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    header = ("pair", "starts", "near", "near uncut", "Dice uncut", "Dice cut", "Dice median", "worst", "s")
    print(" ".join(f"{title:>14}" for title in header), flush=True)
    for pair in options.pairs or ring(options.folder):
        moving, fixed = (subject(options.folder, stem) for stem in pair.split(":"))
        print(" ".join(f"{cell:>14}" for cell in (pair, *row(moving, fixed, options))), flush=True)


def ring(folder: Path) -> list[str]:
    """Every image to the next but two."""
    stems = sorted(path.name.split(".")[0] for path in (folder / "images").iterdir())
    return [f"{stem}:{stems[(i + 3) % len(stems)]}" for i, stem in enumerate(stems)]


def subject(folder: Path, stem: str) -> Subject:
    image, labels = (next((folder / kind).glob(f"{stem}.*")) for kind in ("images", "labels"))
    return Subject(stem, rt.read(image), rt.read(labels, labels=True))


def overlap(image: rt.Volume, moving: Subject, fixed: Subject, moved: torch.Tensor | None, how: Any) -> Found:
    """Registers an image cut from that of `moving`, whose world was `moved`; all of its labels are judged."""
    home = torch.eye(image.dims + 1, dtype=torch.float64) if moved is None else torch.linalg.inv(moved)
    if how.deform is None:
        found = align(image, fixed.image, modality=how.modality)
        return Found(dice(home @ found.matrix, moving.labels, fixed.labels), found.seconds)
    result = rt.register(image, fixed.image, modality=how.modality, effort=how.deform)
    placed = rt.Volume(moving.labels.data, torch.linalg.inv(home) @ moving.labels.world_from_voxel)
    warped = result.transform.warp(placed, onto=fixed.labels, labels=True)
    here = torch.eye(image.dims + 1).double()
    return Found(dice(here, warped, fixed.labels, held=moving.labels), result.seconds)


def row(moving: Subject, fixed: Subject, options: argparse.Namespace) -> Sequence[str]:
    if options.modality == "different":
        moving = Subject(moving.name, another_contrast(moving.image, options.seed), moving.labels)
    uncut = overlap(moving.image, moving, fixed, None, options).dice
    rng = np.random.default_rng(options.seed)
    found, cut, seconds = [], [], []
    for _ in range(options.starts):
        start = random_start(moving.image, rng, options)
        before = overlap(start.of(moving.image), moving, fixed, None, options)
        after = overlap(start.of(moving.image, start.moved), moving, fixed, start.moved, options)
        found.append(after.dice)
        cut.append(before.dice)
        seconds.append(after.seconds)
    near = sum(one >= other - NEAR for one, other in zip(found, cut, strict=True))
    return (
        str(options.starts),
        str(near),
        str(sum(one >= uncut - NEAR for one in found)),
        *(
            f"{number:.4f}"
            for number in (uncut, statistics.median(cut), statistics.median(found), min(found))
        ),
        f"{statistics.median(seconds):.2f}",
    )


def random_start(image: rt.Volume, rng: np.random.Generator, options: argparse.Namespace) -> Start:
    """Turned about the middle of the image, about any axis."""
    dims = image.dims
    angle = math.radians(options.rotation) * rng.uniform()
    axis = rng.normal(size=3) * ([0, 0, 1] if dims == 2 else [1, 1, 1])
    x, y, z = angle * axis / np.linalg.norm(axis)
    turn = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    linear = options.scale ** rng.uniform(-1, 1) * torch.linalg.matrix_exp(turn)[:dims, :dims]
    direction = rng.normal(size=dims)
    shift = options.shift * rng.uniform() * direction / np.linalg.norm(direction)
    middle = image.world_from_voxel @ torch.tensor([*((n - 1) / 2 for n in image.shape), 1]).double()
    moved = torch.eye(dims + 1, dtype=torch.float64)
    moved[:-1, :-1] = linear
    moved[:-1, -1] = middle[:-1] - linear @ middle[:-1] + torch.from_numpy(shift)
    first, shape = [0] * dims, list(image.shape)
    cut = int(rng.integers(dims))
    shape[cut] = max(1, round(options.keep * image.shape[cut]))
    first[cut] = int(rng.integers(image.shape[cut] - shape[cut] + 1))
    return Start(moved, tuple(first), tuple(shape))


def another_contrast(image: rt.Volume, seed: int) -> rt.Volume:
    """What is bright becomes neither dark nor bright: not monotone, under a smooth bias, with noise."""
    generator = torch.Generator().manual_seed(seed)
    data = image.data / torch.quantile(image.data.flatten()[::17], 0.995)
    remapped = torch.where(data < 0.08, 0, 0.35 + 0.6 * torch.cos(4.2 * (data - 0.45)))
    axes = [torch.linspace(-1, 1, n) for n in image.shape]
    slopes = 0.25 * torch.randn(image.dims, generator=generator)
    bias = sum(s * g for s, g in zip(slopes, torch.meshgrid(*axes, indexing="ij"), strict=True))
    noise = 0.04 * torch.randn(image.data.shape, generator=generator)
    return rt.Volume((remapped * torch.exp(bias) + noise).float(), image.world_from_voxel)


def dice(matrix: torch.Tensor, moving: rt.Volume, fixed: rt.Volume, held: rt.Volume | None = None) -> float:
    """Mean over the labels that both images hold; `held` is the moving image's map before it was warped."""
    A, B = moving.data[0].numpy(), fixed.data[0].numpy()
    index = np.stack(np.meshgrid(*(np.arange(0, n, 2) for n in B.shape), indexing="ij")).reshape(B.ndim, -1)
    to_voxel = (torch.linalg.inv(moving.world_from_voxel) @ matrix @ fixed.world_from_voxel).numpy()
    at = np.rint(to_voxel[:-1, :-1] @ index + to_voxel[:-1, -1:]).astype(np.int64)
    inside = ((at >= 0) & (at < np.array(A.shape)[:, None])).all(axis=0)
    warped = np.zeros(index.shape[1], A.dtype)
    warped[inside] = A[tuple(at[:, inside])]
    seen = B[tuple(index)]
    both = np.intersect1d(A if held is None else held.data[0].numpy(), B)
    size = int(both.max()) + 1
    counts = [np.bincount(x, minlength=size)[both] for x in (warped, seen, seen[warped == seen])]
    return float((2 * counts[2] / np.maximum(counts[0] + counts[1], 1))[both > 0].mean())


if __name__ == "__main__":
    main()
