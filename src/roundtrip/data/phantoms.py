"""Drawn heads: two images of one anatomy, as two scanners show it, and the exact map between them.

A head of simple solids with folded borders, in millimetres: brightness as in T1-weighted images, seven
labels. The moving image shows the same head shifted, turned, scaled and bent by a map whose inverse is known
in closed form, on a grid of its own; so what a registration misses is known in millimetres at every point. No
head was measured; these images prove programs, not methods.
"""

import math
from dataclasses import dataclass

import torch

from roundtrip._shapes import Float, Tensor
from roundtrip.space.grid import Affine, Grid
from roundtrip.space.resample import reoriented
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

EXTENT = (184.0, 220.0, 184.0)
"""Millimetres of the fixed image from left to right, front to back, bottom to top."""

SHAPE = (100, 120, 100)

LABELS = ("scalp", "fluid", "cortex", "white matter", "ventricles", "nuclei", "cerebellum")
"""Label 1 and so on; 0 is air."""

BRIGHTNESS = (0.55, 0.16, 0.52, 0.86, 0.12, 0.62, 0.47)

Places = Float[Tensor, "3 *S"]
"""In LPS millimetres, from the middle of the head."""
Distance = Float[Tensor, "*S"]
"""To a surface, in millimetres; negative inside."""


@dataclass(frozen=True, eq=False)
class Wave:
    """Moves the coordinate `axis` by waves along the two others; so its inverse moves it back."""

    axis: int
    heights: tuple[float, float]
    lengths: tuple[float, float]
    phases: tuple[float, float]

    def __call__(self, x: Places, sign: int = 1) -> Places:
        others = [other for other in range(3) if other != self.axis]
        terms = zip(others, self.heights, self.lengths, self.phases, strict=True)
        moved = x.clone()
        for other, height, length, phase in terms:
            moved[self.axis] += sign * height * torch.sin(2 * math.pi * x[other] / length + phase)
        return moved


@dataclass(frozen=True, eq=False)
class KnownMap:
    """x -> A w3(w2(w1(x))), from the fixed to the moving world in LPS mm, and exactly back."""

    affine: Affine
    waves: tuple[Wave, ...]

    def __call__(self, x: Places) -> Places:
        for wave in self.waves:
            x = wave(x)
        return _transformed(self.affine, x)

    def back(self, y: Places) -> Places:
        """The inverse, in closed form."""
        x = _transformed(torch.linalg.inv(self.affine), y)
        for wave in reversed(self.waves):
            x = wave(x, -1)
        return x


@dataclass(frozen=True, eq=False)
class Phantom:
    """An image and its labels."""

    image: Volume
    labels: Volume


@dataclass(frozen=True, eq=False)
class PhantomPair:
    """Two images of one head; `truth` takes points of the fixed world to where they are in the moving one."""

    fixed: Phantom
    moving: Phantom
    truth: KnownMap

    def errors(self, transform: Transform) -> Float[Tensor, "P"]:
        """How far from the truth a transform takes the centres of the fixed head's voxels, in mm."""
        inside = self.fixed.labels.data[0] > 0
        x = _places(self.fixed.image.grid)[:, inside]
        return (transform.points(x.mT).mT.cpu() - self.truth(x)).norm(dim=0)


def draw_pair(*, shape: tuple[int, int, int] = SHAPE, seed: int = 0) -> PhantomPair:
    """A fixed image of `shape` voxels, and a moving one of about as many; the seed decides the rest."""
    if len(shape) != 3 or min(shape) < 8:
        raise ValueError(
            f"phantoms of shape {tuple(shape)} were asked for; three sizes from 8 are needed, e.g. {SHAPE}."
        )
    generator = torch.Generator().manual_seed(seed)
    truth = _drawn_map(generator)
    fixed = _grid(shape, [extent / n for extent, n in zip(EXTENT, shape, strict=True)])
    # As if from another scanner: voxels of another size, a table that is not straight.
    spacing = [s * f for s, f in zip(fixed.spacing, (1.14, 0.96, 1.07), strict=True)]
    turn = _rotation([math.radians(angle) for angle in (4.0, -6.0, 3.0)])
    beside = _grid(tuple(round(n / f) for n, f in zip(shape, (1.08, 0.92, 1.0), strict=True)), spacing)
    centre = torch.eye(4, dtype=torch.float64)
    centre[:3, 3] = truth.affine[:3, 3] + torch.tensor([3.0, -5.0, 4.0], dtype=torch.float64)
    moving = Grid(beside.shape, centre @ turn @ beside.world_from_voxel)
    anatomy = generator.get_state()
    first = _scanned(fixed, _places(fixed), anatomy, generator)
    second = _scanned(moving, truth.back(_places(moving)), anatomy, generator)
    return PhantomPair(first, _in_orientation(second, "RAS"), truth)


def _scanned(grid: Grid, x: Places, anatomy: Tensor, generator: torch.Generator) -> Phantom:
    """What a scanner shows of the head at the places `x` of the anatomy, each time with other noise."""
    texture = torch.Generator()
    texture.set_state(anatomy)
    brightness, labels = _tissues(x, texture)
    shading = torch.zeros_like(brightness)
    for axis, n in enumerate(brightness.shape):
        slope = _uniform(-0.12, 0.12, generator)
        ramp = slope * torch.linspace(-1, 1, n, dtype=torch.float64)
        shading += ramp.view([n if a == axis else 1 for a in range(3)])
    noise = 0.012 * torch.randn(brightness.shape, generator=generator, dtype=torch.float64)
    scale = _uniform(300.0, 1200.0, generator)
    values = (scale * (brightness * (1 + shading) + noise).clamp(min=0)).float()
    return Phantom(Volume(values[None], grid.world_from_voxel), Volume(labels[None], grid.world_from_voxel))


def _tissues(x: Places, generator: torch.Generator) -> tuple[Float[Tensor, "*S"], Tensor]:
    """Brightness, from 0 to 1, and labels at places of the anatomy."""
    skin = _ellipsoid(x, (0.0, 0.0, 0.0), (78.0, 96.0, 80.0))
    brain = _ellipsoid(x, (0.0, -2.0, 4.0), (66.0, 84.0, 64.0))
    folds = _ripples(x, generator)
    cortex = torch.maximum(brain + 2.0 + 2.5 * folds, 1.2 - x[0].abs())
    white = torch.maximum(brain + 9.0 + 4.5 * folds, 3.5 - x[0].abs())
    mirrored = torch.cat([x[:1].abs(), x[1:]])
    ventricles = torch.minimum(
        _ellipsoid(mirrored, (11.0, -12.0, 12.0), (6.0, 26.0, 9.0)),
        _ellipsoid(mirrored, (16.0, 18.0, 2.0), (7.0, 18.0, 7.0)),
    )
    nuclei = torch.minimum(
        _ellipsoid(mirrored, (24.0, -6.0, 2.0), (8.0, 19.0, 12.0)),
        _ellipsoid(mirrored, (11.0, 12.0, -2.0), (8.0, 11.0, 9.0)),
    )
    cerebellum = _ellipsoid(x, (0.0, 46.0, -42.0), (44.0, 26.0, 21.0))
    # In the order in which they are painted, each over the ones before.
    inner = torch.maximum(skin + 7, -cerebellum)
    cortex, white = torch.maximum(cortex, -cerebellum - 1.5), torch.maximum(white, -cerebellum - 3)
    painted = (skin, torch.minimum(inner, skin + 7), cortex, white, ventricles, nuclei, cerebellum)

    brightness = torch.zeros_like(skin)
    labels = torch.zeros(skin.shape, dtype=torch.uint8)
    for number in (1, 2, 3, 4, 6, 5, 7):
        inside = torch.sigmoid(-1.5 * painted[number - 1])
        brightness = (1 - inside) * brightness + inside * BRIGHTNESS[number - 1]
        labels[painted[number - 1] < 0] = number
    return brightness + 0.06 * torch.sigmoid(-1.5 * skin) * _texture(x, generator), labels


def _ripples(x: Places, generator: torch.Generator) -> Float[Tensor, "*S"]:
    """Gyri and sulci, from -1 to 1."""
    product = torch.ones_like(x[0])
    for axis, length in enumerate((25.0, 29.0, 27.0)):
        bent = x[axis] + 5 * torch.sin(2 * math.pi * x[(axis + 1) % 3] / 70 + _uniform(0.0, 6.28, generator))
        product = product * torch.sin(2 * math.pi * bent / length + _uniform(0.0, 6.28, generator))
    return product / (0.2 + product.abs())


def _texture(x: Places, generator: torch.Generator) -> Float[Tensor, "*S"]:
    """What tells places within one tissue apart: a few faint waves."""
    total = torch.zeros_like(x[0])
    for _ in range(6):
        direction = torch.randn(3, generator=generator, dtype=torch.float64)
        along = torch.einsum("i,i...->...", direction / direction.norm(), x)
        total += torch.sin(
            2 * math.pi * along / _uniform(14.0, 40.0, generator) + _uniform(0.0, 6.28, generator)
        )
    return total / 3


def _drawn_map(generator: torch.Generator) -> KnownMap:
    waves = []
    for axis in range(3):
        heights, lengths, phases = (
            (_uniform(*limits, generator), _uniform(*limits, generator))
            for limits in ((2.0, 3.5), (80.0, 120.0), (0.0, 2 * math.pi))
        )
        waves.append(Wave(axis, heights, lengths, phases))
    matrix = _rotation([math.radians(_uniform(-12.0, 12.0, generator)) for _ in range(3)])
    matrix[:3, :3] = matrix[:3, :3] * torch.tensor(
        [_uniform(0.92, 1.08, generator) for _ in range(3)], dtype=torch.float64
    )
    matrix[:3, 3] = torch.tensor([_uniform(-25.0, 25.0, generator) for _ in range(3)], dtype=torch.float64)
    return KnownMap(matrix, tuple(waves))


def _grid(shape: tuple[int, ...], spacing: list[float]) -> Grid:
    """About the middle of the world."""
    matrix = torch.diag(torch.tensor([*spacing, 1.0], dtype=torch.float64))
    for axis, (n, size) in enumerate(zip(shape, spacing, strict=True)):
        matrix[axis, 3] = -size * (n - 1) / 2
    return Grid(shape, matrix)


def _rotation(angles: list[float]) -> Affine:
    turn, matrix = torch.zeros(3, 3, dtype=torch.float64), torch.eye(4, dtype=torch.float64)
    for (a, b), angle in zip(((0, 1), (0, 2), (1, 2)), angles, strict=True):
        turn[a, b], turn[b, a] = angle, -angle
    matrix[:3, :3] = torch.linalg.matrix_exp(turn)
    return matrix


def _places(grid: Grid) -> Places:
    axes = [torch.arange(n, dtype=torch.float64) for n in grid.shape]
    return _transformed(grid.world_from_voxel, torch.stack(torch.meshgrid(*axes, indexing="ij")))


def _transformed(matrix: Affine, x: Places) -> Places:
    return torch.einsum("ij,j...->i...", matrix[:3, :3], x) + matrix[:3, 3].view(3, *[1] * (x.ndim - 1))


def _in_orientation(phantom: Phantom, code: str) -> Phantom:
    return Phantom(reoriented(phantom.image, code), reoriented(phantom.labels, code))


def _ellipsoid(x: Places, centre: tuple[float, ...], radii: tuple[float, ...]) -> Distance:
    """About the distance: exact in its sign, and near the surface in its size."""
    scaled, steep = torch.zeros_like(x[0]), torch.zeros_like(x[0])
    for axis, (middle, radius) in enumerate(zip(centre, radii, strict=True)):
        part = ((x[axis] - middle) / radius).square()
        scaled += part
        steep += part / radius**2
    return scaled.sqrt() * (scaled.sqrt() - 1) / steep.sqrt().clamp(min=1e-6)


def _uniform(low: float, high: float, generator: torch.Generator) -> float:
    return low + (high - low) * torch.rand((), generator=generator, dtype=torch.float64).item()
