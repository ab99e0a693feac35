"""Grids that are oblique, anisotropic and flipped, and a body to draw on them, for the tests of this room."""

import math

import torch

from roundtrip.space.grid import Grid
from roundtrip.space.volume import Volume

CENTRE = (12.0, -7.0, 31.0)
"""Of the body, in LPS millimetres."""


def rotation(dims: int, angle: float) -> torch.Tensor:
    """By `angle` degrees about an axis that is no coordinate axis."""
    a = math.radians(angle)
    if dims == 2:
        return torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], dtype=torch.float64)
    x, y, z = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64) / math.sqrt(14)
    return torch.linalg.matrix_exp(
        a * torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    )


def homogeneous(linear: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    matrix = torch.eye(len(linear) + 1, dtype=torch.float64)
    matrix[:-1, :-1], matrix[:-1, -1] = linear, offset
    return matrix


def grid(
    shape=(40, 50, 36), spacing=(1.0, 0.8, 1.3), *, angle=0.0, flips=(), order=None, off=(0.0, 0.0, 0.0)
) -> Grid:
    """A grid whose centre lies `off` the body's: turned by `angle`, some axes flipped, in another order."""
    dims = len(shape)
    axes = rotation(dims, angle)[:, list(order or range(dims))]
    signs = torch.tensor([-1.0 if axis in flips else 1.0 for axis in range(dims)], dtype=torch.float64)
    linear = axes * signs * torch.tensor(spacing[:dims], dtype=torch.float64)
    middle = torch.tensor([(n - 1) / 2 for n in shape], dtype=torch.float64)
    centre = torch.tensor(CENTRE[:dims], dtype=torch.float64) + torch.tensor(off[:dims], dtype=torch.float64)
    return Grid(shape, homogeneous(linear, centre - linear @ middle))


GRIDS = {
    "straight": grid(),
    "anisotropic": grid((44, 40, 20), (0.9, 1.1, 2.4)),
    "flipped": grid(flips=(0, 2), off=(2.0, -1.0, 1.0)),
    "permuted": grid((36, 44, 50), (1.3, 1.0, 0.8), order=(2, 0, 1), flips=(1,)),
    "oblique": grid((46, 52, 30), (1.0, 0.9, 1.6), angle=33, flips=(1,), off=(-2.0, 3.0, 1.0)),
    "plane": grid((60, 50), (0.8, 1.1)),
    "oblique plane": grid((56, 62), (0.9, 0.8), angle=-24, flips=(0,), off=(1.0, 2.0)),
}
VOLUMES = [name for name, place in GRIDS.items() if place.dims == 3]


def places(place: Grid) -> torch.Tensor:
    """The world coordinates of every voxel, (N, *S)."""
    index = torch.stack(
        torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in place.shape), indexing="ij")
    )
    matrix = place.world_from_voxel
    return torch.einsum("ij,j...->i...", matrix[:-1, :-1], index) + matrix[:-1, -1].view(
        -1, *[1] * place.dims
    )


def body(place: Grid, *, shift=(0.0, 0.0, 0.0)) -> Volume:
    """A smooth ellipsoid with something beside its middle, drawn in the world."""
    at = places(place) - (
        torch.tensor(CENTRE[: place.dims]) + torch.tensor(shift[: place.dims])
    ).double().view(-1, *[1] * place.dims)
    axes = torch.tensor([11.0, 9.0, 10.0][: place.dims], dtype=torch.float64).view(-1, *[1] * place.dims)
    spot = torch.tensor([4.0, 3.0, -4.0][: place.dims], dtype=torch.float64).view(-1, *[1] * place.dims)
    outer = torch.sigmoid(4 * (1 - (at / axes).norm(dim=0)) / 0.6)
    inner = torch.exp(-(at - spot).square().sum(dim=0) / 18)
    return Volume((100 * outer + 60 * inner)[None].float(), place.world_from_voxel)


def labelled(place: Grid) -> Volume:
    """The body as labels: 1, and 2 for what is beside its middle."""
    image = body(place).data.double()
    at = places(place) - torch.tensor(CENTRE[: place.dims]).double().view(-1, *[1] * place.dims)
    return Volume((image > 50).int() + ((image > 50) & (at[:1] > 3)).int(), place.world_from_voxel)


def centre_of_mass(volume: Volume) -> torch.Tensor:
    """In world coordinates."""
    weights = volume.data.double()
    return (places(volume.grid) * weights).flatten(1).sum(dim=1) / weights.sum()
