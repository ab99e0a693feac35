"""Drawn knees: a small data set like the paper's, for everybody to try its recipe on, from files to labels.

Each person has a left and a right knee. Bones, cartilages (labelled 1 femoral, 2 tibial) and soft tissue are
simple solids in millimetres, bent for each person and turned for each image; spacing, orientation,
brightness and shading vary as scanners' do. A left knee is the mirror image of a right one: the fibula, on
the outer side, and the larger inner condyle tell them apart. No knee was measured; these images prove
recipes, not methods.
"""

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import torch

from roundtrip._files import write_whole
from roundtrip._shapes import Float, Tensor
from roundtrip.algorithms.card import Intensities, Mirror, Preparation
from roundtrip.space.files import write
from roundtrip.space.resample import reoriented
from roundtrip.space.volume import Volume

SIDES = ("left", "right")
FEMORAL, TIBIAL = 1, 2
EXTENT = (104.0, 120.0, 120.0)
"""Millimetres from left to right, front to back, bottom to top."""
ORIENTATIONS = ("LPS", "RAS", "ASL")

Places = Float[Tensor, "3 *S"]
"""Where voxels lie in the frame of a right knee: x outwards, y to the back, z up, in millimetres."""
Distance = Float[Tensor, "*S"]
"""To a surface, in millimetres; negative inside."""


def preparation_of_knees(grid: tuple[int, int, int] = (80, 192, 192)) -> Preparation:
    """As the paper prepares the OAI's knees (ICON, "Datasets"); `grid`: to the left, to the back, upwards.

    The first percentile becomes 0, the 99th 1, what lies beyond is clamped, and left knees are mirrored.
    """
    return Preparation(
        orientation="LPS",
        mirror=Mirror(column="side", value="left", axis=0),
        intensities=Intensities(unit="percentiles", lower=1, upper=99),
        grid=grid,
    )


@dataclass(frozen=True, eq=False)
class Knee:
    """An image and its cartilages."""

    image: Volume
    labels: Volume


def write_knees(folder: Path, *, people: int, spacing: float = 2.5, seed: int = 0) -> Path:
    """Draws both knees of so many people and returns the manifest, a CSV of image, labels, subject and side.

    Voxels are about `spacing` mm in the plane from front to back and up, and twice that from side to side.
    """
    if people < 1 or not 0 < spacing <= 10:
        raise ValueError(
            f"{people} people and voxels of {spacing} mm were asked for; at least one person is needed, and "
            "voxels of at most 10 mm, e.g. `write_knees(folder, people=20, spacing=2.5)`."
        )
    rows = []
    for person in range(1, people + 1):
        for side in SIDES:
            knee = draw_knee(side, spacing=spacing, seed=seed, person=person)
            name = f"knee_{person:03}_{side}.nii.gz"
            write(knee.image, folder / "images" / name)
            write(knee.labels, folder / "labels" / name)
            rows.append((f"images/{name}", f"labels/{name}", f"{person:03}", side))
    manifest = folder / "knees.csv"
    write_whole(manifest, lambda beside: _write_rows(beside, rows))
    return manifest


def draw_knee(side: str, *, spacing: float = 2.5, seed: int = 0, person: int = 1) -> Knee:
    """One knee; the seed, the person and the side decide all its numbers, its shape without the side."""
    anatomy = torch.Generator().manual_seed(1_000_003 * seed + 3 * person)
    scan = torch.Generator().manual_seed(1_000_003 * seed + 3 * person + 1 + SIDES.index(side))
    grid = _volume(spacing, scan)
    x = _lying(_places(grid), scan)
    if side == "right":
        # In LPS x grows to the left, which for a right knee is inwards.
        x = torch.cat([-x[:1], x[1:]])
    brightness, labels = _tissues(_bent(x, anatomy), thickness=_uniform(4.0, 5.5, anatomy))
    orientation = ORIENTATIONS[int(torch.randint(len(ORIENTATIONS), (), generator=scan))]
    parts = (Volume(values[None], grid.world_from_voxel) for values in (_scanned(brightness, scan), labels))
    return Knee(*(reoriented(part, orientation) for part in parts))


def _tissues(x: Places, *, thickness: float) -> tuple[Float[Tensor, "*S"], Tensor]:
    """Brightness, from 0 to 1, and labels at the places `x`."""
    condyles = torch.minimum(
        _ellipsoid(x, (-20.0, 2.0, 9.0), (22.0, 31.0, 23.0)),
        _ellipsoid(x, (22.0, 1.0, 11.0), (15.0, 24.0, 20.0)),
    )
    femur = torch.minimum(condyles, torch.maximum(_column(x, (0.0, -6.0), 15.0), 14 - x[2]))
    plateau = _ellipsoid(x, (0.0, 2.0, -27.0), (38.0, 27.0, 9.0))
    tibia = torch.minimum(plateau, torch.maximum(_column(x, (0.0, 0.0), 14.0), x[2] + 26))
    fibula = torch.maximum(_column(x, (34.0, 18.0), 7.0), x[2] + 32)
    patella = _ellipsoid(x, (0.0, -42.0, 14.0), (17.0, 7.0, 18.0))

    bone = torch.minimum(torch.minimum(femur, tibia), torch.minimum(fibula, patella))
    on_femur = torch.maximum(torch.maximum(condyles - thickness, -femur), x[2] - 14)
    on_tibia = torch.maximum(torch.maximum(plateau - thickness, -tibia), -24 - x[2])
    on_tibia = torch.maximum(on_tibia, -on_femur)

    brightness = 0.45 * _inside(_column(x, (0.0, 0.0), 54.0))
    for distance, value in ((bone - 2, 0.3), (bone, 0.7), (on_femur, 1.0), (on_tibia, 0.95)):
        inside = _inside(distance)
        brightness = (1 - inside) * brightness + inside * value
    labels = torch.where(on_femur < 0, FEMORAL, torch.where(on_tibia < 0, TIBIAL, 0))
    return brightness, labels.to(torch.uint8)


def _volume(spacing: float, generator: torch.Generator) -> Volume:
    """An empty image in LPS around the knee, which lies somewhere near the middle of the scanner."""
    sizes = [s * _uniform(0.92, 1.08, generator) for s in (2 * spacing, spacing, spacing)]
    shape = [round(extent / size) for extent, size in zip(EXTENT, sizes, strict=True)]
    matrix = torch.diag(torch.tensor([*sizes, 1.0], dtype=torch.float64))
    middle = [_uniform(-60.0, 60.0, generator), *(_uniform(-15.0, 15.0, generator) for _ in range(2))]
    for axis, (n, size) in enumerate(zip(shape, sizes, strict=True)):
        matrix[axis, 3] = middle[axis] - size * (n - 1) / 2
    return Volume(torch.zeros(1, *shape), matrix)


def _places(grid: Volume) -> Places:
    """Millimetres from the middle of the image, along its axes."""
    axes = [
        size * (torch.arange(n, dtype=torch.float64) - (n - 1) / 2)
        for n, size in zip(grid.shape, grid.spacing, strict=True)
    ]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"))


def _lying(x: Places, generator: torch.Generator) -> Places:
    """Turned and shifted, as a leg lies in the scanner."""
    turn = torch.zeros(3, 3, dtype=torch.float64)
    for a, b, most in ((0, 1, 0.12), (0, 2, 0.08), (1, 2, 0.12)):
        turn[a, b] = _uniform(-most, most, generator)
    shift = torch.tensor([_uniform(-5.0, 5.0, generator) for _ in range(3)], dtype=torch.float64)
    return torch.einsum("ij,j...->i...", torch.linalg.matrix_exp(turn - turn.mT), x - shift.view(3, 1, 1, 1))


def _bent(x: Places, generator: torch.Generator) -> Places:
    """As one person differs from the next: in size, and by smooth waves."""
    bent = x / _uniform(0.9, 1.1, generator)
    for axis in range(3):
        for along in range(3):
            phase, height = _uniform(0.0, 2 * math.pi, generator), _uniform(-1.6, 1.6, generator)
            bent[axis] += height * torch.sin(2 * math.pi * x[along] / 110 + phase)
    return bent


def _scanned(brightness: Float[Tensor, "*S"], generator: torch.Generator) -> Float[Tensor, "*S"]:
    """With shading, noise and a scale of its own."""
    shading = torch.zeros_like(brightness)
    for axis, n in enumerate(brightness.shape):
        ramp = _uniform(-0.12, 0.12, generator) * torch.linspace(-1, 1, n, dtype=torch.float64)
        shading += ramp.view([n if a == axis else 1 for a in range(3)])
    noise = 0.03 * torch.randn(brightness.shape, generator=generator, dtype=torch.float64)
    scale = math.exp(_uniform(math.log(50), math.log(2000), generator))
    return (scale * (brightness * (1 + shading) + noise).clamp(min=0)).float()


def _ellipsoid(x: Places, centre: tuple[float, ...], radii: tuple[float, ...]) -> Distance:
    """About the distance: exact in its sign, and near the surface in its size."""
    from_centre = [x[axis] - centre[axis] for axis in range(3)]
    scaled = sum((part / r) ** 2 for part, r in zip(from_centre, radii, strict=True)).sqrt()  # type: ignore[union-attr]
    steep = sum((part / r**2) ** 2 for part, r in zip(from_centre, radii, strict=True)).sqrt()  # type: ignore[union-attr]
    return scaled * (scaled - 1) / steep.clamp(min=1e-6)


def _column(x: Places, centre: tuple[float, float], radius: float) -> Distance:
    """An upright cylinder without ends."""
    return torch.hypot(x[0] - centre[0], x[1] - centre[1]) - radius


def _inside(distance: Distance) -> Float[Tensor, "*S"]:
    """1 inside, 0 outside, and in between within a millimetre: what a voxel at the border shows."""
    return torch.sigmoid(-2 * distance)


def _uniform(low: float, high: float, generator: torch.Generator) -> float:
    return low + (high - low) * torch.rand((), generator=generator, dtype=torch.float64).item()


def _write_rows(path: Path, rows: list[tuple[str, str, str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("image", "labels", "subject", "side"), *rows])
