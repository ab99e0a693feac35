"""Known maps are found again between images that differ in grid, contrast and field of view; both ways."""

import math

import numpy as np
import pytest
import torch

from roundtrip.pairwise.linear import Alignment, align
from roundtrip.pairwise.linear_fit import add_up_by_torch
from roundtrip.pairwise.linear_levels import View, samples_of
from roundtrip.space.grid import Grid
from roundtrip.space.volume import Volume

CENTRE = {2: (40.0, -25.0), 3: (40.0, -25.0, 15.0)}


def turn(dims: int, degrees: float) -> torch.Tensor:
    """About an axis that is no coordinate axis."""
    a = math.radians(degrees)
    x, y, z = (0.0, 0.0, 1.0) if dims == 2 else (1 / 3, 2 / 3, -2 / 3)
    X = a * torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    return torch.linalg.matrix_exp(X)[:dims, :dims]


def matrix(linear: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
    """A homogeneous matrix that moves the centre of the body by about `shift` mm along each axis."""
    dims = len(linear)
    centre = torch.tensor(CENTRE[dims], dtype=torch.float64)
    A = torch.eye(dims + 1, dtype=torch.float64)
    A[:-1, :-1] = linear
    A[:-1, -1] = centre - linear @ centre + shift * torch.tensor([1.0, -0.7, 0.4], dtype=torch.float64)[:dims]
    return A


def grid(dims: int, *, angle: float, spacing: float, extent: float = 96.0, off: float = 0.0) -> Grid:
    """Oblique and anisotropic, an axis flipped, about the body's centre, or `off` it."""
    sizes = torch.tensor([1.0, 1.3, 1.6], dtype=torch.float64)[:dims] * spacing
    shape = tuple(round(extent / float(size)) for size in sizes)
    linear = turn(dims, angle) * sizes * torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)[:dims]
    middle = torch.tensor([(n - 1) / 2 for n in shape], dtype=torch.float64)
    place = torch.eye(dims + 1, dtype=torch.float64)
    place[:-1, :-1] = linear
    place[:-1, -1] = torch.tensor(CENTRE[dims], dtype=torch.float64) + off - linear @ middle
    return Grid(shape, place)


def draw(place: Grid, known: torch.Tensor) -> Volume:
    """A body without symmetry, moved by `known`, as a scanner with this grid sees it."""
    dims = place.dims
    index = torch.stack(
        torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in place.shape), indexing="ij")
    ).flatten(1)
    to_body = torch.linalg.inv(known) @ place.world_from_voxel
    at = to_body[:-1, :-1] @ index + to_body[:-1, -1:]
    at = at - torch.tensor(CENTRE[dims], dtype=torch.float64)[:, None]
    axes = torch.tensor([30.0, 22.0, 26.0], dtype=torch.float64)[:dims, None]
    image = torch.sigmoid(12 * (1 - (at / axes).norm(dim=0)))
    rng = np.random.default_rng(5)
    for _ in range(14):
        middle = torch.from_numpy(rng.uniform(-0.6, 0.6, (dims, 1))) * axes
        image = image + rng.uniform(-0.6, 0.8) * (-(at - middle).square().sum(dim=0) / 40).exp()
    return Volume(image.reshape(1, *place.shape).float(), place.world_from_voxel)


def miss(found: Alignment, known: torch.Tensor) -> float:
    """The largest distance in mm, over the corners of the body."""
    dims = len(known) - 1
    corners = torch.cartesian_prod(*[torch.tensor([-20.0, 20.0], dtype=torch.float64)] * dims).mT
    corners = corners + torch.tensor(CENTRE[dims], dtype=torch.float64)[:, None]
    apart = found.matrix - known
    return float((apart[:-1, :-1] @ corners + apart[:-1, -1:]).norm(dim=0).max())


KNOWN = {
    "rigid": lambda dims: matrix(turn(dims, 38), 30),
    "similarity": lambda dims: matrix(0.83 * turn(dims, -25), -22),
    "affine": lambda dims: matrix(
        turn(dims, 20)
        @ torch.tensor([[1.1, 0.06, 0], [0, 0.93, -0.05], [0.04, 0, 1.04]])[:dims, :dims].double(),
        25,
    ),
}


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("kind", KNOWN)
def test_a_known_map_between_different_grids_is_found(kind, dims):
    known = KNOWN[kind](dims)
    fixed = draw(grid(dims, angle=0, spacing=1.6), torch.eye(dims + 1, dtype=torch.float64))
    moving = draw(grid(dims, angle=27, spacing=1.9, off=12, extent=120), known)
    found = align(moving, fixed, kind=kind)
    assert found.matrix.dtype == torch.float64 and found.matrix.shape == known.shape
    assert miss(found, known) < 1.0
    assert found.after < 0.6 < found.before


def pair(dims: int = 2) -> tuple[Volume, Volume]:
    """The body, moving first, between grids that differ, with a map of every kind between them."""
    fixed = draw(grid(dims, angle=0, spacing=1.6), torch.eye(dims + 1, dtype=torch.float64))
    return draw(grid(dims, angle=27, spacing=1.9, off=12, extent=120), KNOWN["affine"](dims)), fixed


@pytest.mark.parametrize("modality", ["same", "different"])
def test_exchanged_images_give_the_inverse(modality):
    moving, fixed = pair()
    there, back = (align(*images, modality=modality) for images in ((moving, fixed), (fixed, moving)))
    assert (there.matrix @ back.matrix - torch.eye(3)).abs().max() < 1e-6
    assert (there.inverse() - back.matrix).abs().max() < 1e-6
    assert torch.linalg.det(there.matrix) > 0


def test_a_remapped_contrast_is_followed():
    moving, fixed = pair()
    found = align(negative_and_biased(moving), fixed, modality="different")
    assert miss(found, KNOWN["affine"](2)) < 1.0


def negative_and_biased(volume: Volume) -> Volume:
    """Brightness no longer grows with brightness, and is uneven over the image."""
    n = volume.shape[0]
    uneven = torch.linspace(0.8, 1.2, n).view(-1, *[1] * (volume.dims - 1))
    return Volume(torch.sin(2.2 * volume.data + 0.6) * uneven, volume.world_from_voxel)


def test_a_cropped_field_of_view_is_put_in_its_place():
    known = KNOWN["rigid"](3)
    fixed = draw(grid(3, angle=0, spacing=1.6), torch.eye(4, dtype=torch.float64))
    moving = draw(grid(3, angle=0, spacing=1.6, extent=130), known)
    whole = moving.data.shape[1]
    cropped = Volume(moving.data[:, : int(0.8 * whole)], moving.world_from_voxel)
    assert cropped.data[:, -1].max() > 0.5, "the body is to be cut"
    assert miss(align(cropped, fixed, kind="rigid"), known) < 1.0


def test_voxels_outside_the_masks_do_not_count():
    moving, fixed = pair()
    known, spoilt = KNOWN["affine"](2), fixed.data.clone()
    spoilt[:, 20:36, 18:34] += 3 * torch.rand(16, 16, generator=torch.Generator().manual_seed(1))
    kept = torch.ones_like(fixed.data, dtype=torch.bool)
    kept[:, 20:36, 18:34] = False
    damaged, mask = (Volume(data, fixed.world_from_voxel) for data in (spoilt, kept))
    masked = miss(align(moving, damaged, fixed_mask=mask), known)
    assert masked < 1.5 < miss(align(moving, damaged), known)
    inverse = align(damaged, moving, moving_mask=mask)
    assert miss(inverse, torch.linalg.inv(known)) < 2.0


def test_none_takes_the_world_as_it_is():
    moving, fixed = pair()
    found = align(moving, fixed, kind="none")
    assert found.matrix.equal(torch.eye(3, dtype=torch.float64)) and found.before == found.after
    far = Volume(moving.data, matrix(torch.eye(2, dtype=torch.float64), 9999) @ moving.world_from_voxel)
    with pytest.raises(ValueError, match="do not overlap in the world"):
        align(far, fixed, kind="none")


def test_every_channel_counts():
    moving, fixed = pair()
    noise = torch.rand(fixed.data.shape, generator=torch.Generator().manual_seed(0))
    blurred = [Volume(torch.cat([v.data, v.data.square()]), v.world_from_voxel) for v in (moving, fixed)]
    assert miss(align(*blurred), KNOWN["affine"](2)) < 1.0
    with pytest.raises(ValueError, match="`moving` has 1 channels but `fixed` 2"):
        align(moving, Volume(torch.cat([fixed.data, noise]), fixed.world_from_voxel))


def test_what_cannot_be_aligned_is_refused_in_a_sentence():
    moving, fixed = pair()
    flat = Volume(torch.ones_like(fixed.data), fixed.world_from_voxel)
    empty = Volume(torch.zeros_like(fixed.data, dtype=torch.int16), fixed.world_from_voxel)
    corner = torch.zeros_like(fixed.data, dtype=torch.bool)
    corner[:, :2, :2] = True
    nothing = Volume(torch.where(corner, 0.0, fixed.data), fixed.world_from_voxel)
    cases = {
        "every voxel of `fixed` is 1": lambda: align(moving, flat),
        "one image has 3 axes and the other 2": lambda: align(pair(3)[0], fixed),
        "a mask has one channel, on the grid of its image": lambda: align(moving, fixed, fixed_mask=moving),
        "`fixed_mask` is 0 everywhere": lambda: align(moving, fixed, fixed_mask=empty),
        "within `fixed_mask`, `fixed` has the same value": lambda: align(
            moving, nothing, fixed_mask=Volume(corner, fixed.world_from_voxel)
        ),
    }
    for message, call in cases.items():
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("masked", [False, True])
def test_the_kernel_sums_what_torch_sums(masked):
    from roundtrip.pairwise._linear_kernel import add_up

    rng = torch.Generator().manual_seed(2)
    data = torch.rand(2, 7, 6, 5, generator=rng)
    weight = (torch.rand(7, 6, 5, generator=rng) > 0.3).float() if masked else None
    view = View(data, weight, np.diag([1.0, 1.2, 1.5, 1.0]))
    region = np.array([[0.0, 0.0, 0.0], [9.0, 9.0, 9.0]])
    samples = samples_of(view, region, at_most=120, knots=5, block=4.0)
    matrices = np.eye(4) + np.random.default_rng(3).uniform(-0.25, 0.25, (3, 4, 4))
    for differentiate in (False, True):
        compiled = add_up(samples, view, matrices, 1, differentiate)
        assert np.abs(compiled - add_up_by_torch(samples, view, matrices, 1, differentiate)).max() < 1e-9
        assert np.abs(compiled).max() > 1
