"""A transform does what its map does, in millimetres, on any grids, and lays images where points come
from."""

import math

import numpy as np
import pytest
import torch
from scenes import CENTRE, GRIDS, body, grid, homogeneous, labelled, places, rotation
from torch.testing import assert_close

from roundtrip.maps.affine import AffineMap
from roundtrip.maps.displacement import DisplacementMap
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.interpolate import interpolate_cubic
from roundtrip.maps.map import Composition, Identity
from roundtrip.maps.velocity import exponential
from roundtrip.space.grid import Grid
from roundtrip.space.sampling import interpolate_one_hot
from roundtrip.space.steps import AffineStep, MapStep
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

PAIRS = [("straight", "oblique"), ("oblique", "permuted"), ("flipped", "anisotropic")]
PLANES = [("plane", "oblique plane"), ("oblique plane", "plane")]


def some_points(dims, count=20):
    generator = torch.Generator().manual_seed(dims)
    spread = 12 * torch.rand(count, dims, generator=generator, dtype=torch.float64) - 6
    return spread + torch.tensor(CENTRE[:dims])


def bend(dims, *, size=0.03, shape=(7, 9, 8)):
    """A smooth displacement and its inverse."""
    x = unit_grid(shape[:dims]).double()
    velocity = size * torch.sin(math.pi * x) * torch.cos(2 * x.flip(1) + 1)
    return exponential(velocity), exponential(-velocity)


def alignment(dims, angle=20.0):
    """A rotation about the body's centre with some scale and shift, from the fixed to the moving world."""
    linear = 1.1 * rotation(dims, angle)
    centre = torch.tensor(CENTRE[:dims], dtype=torch.float64)
    shift = torch.tensor([3.0, -2.0, 1.0][:dims], dtype=torch.float64)
    return homogeneous(linear, centre - linear @ centre + shift)


def apply(matrix, points):
    return points @ matrix[:-1, :-1].mT + matrix[:-1, -1]


def between(source, target):
    """world-from-unit of the target after unit-from-world of the source."""
    return GRIDS[target].world_from_unit, GRIDS[source].unit_from_world


@pytest.mark.parametrize(("fixed", "moving"), PAIRS + PLANES)
def test_points_go_through_unit_coordinates_from_one_world_to_the_other(fixed, moving):
    phi, _ = bend(GRIDS[fixed].dims)
    transform = Transform.from_maps(phi, GRIDS[fixed], GRIDS[moving])
    points = some_points(transform.dims)
    world_from_unit, unit_from_world = between(fixed, moving)
    by_hand = apply(world_from_unit, phi(apply(unit_from_world, points).mT[None])[0].mT)
    assert_close(transform.points(points), by_hand)
    assert_close(transform.points(points.tolist()), by_hand)


@pytest.mark.parametrize(("fixed", "moving"), PAIRS + PLANES)
def test_an_affine_alignment_follows_the_map(fixed, moving):
    dims = GRIDS[fixed].dims
    phi, _ = bend(dims)
    transform = Transform.from_maps(phi, GRIDS[fixed], GRIDS[moving], affine=alignment(dims))
    alone = Transform.from_maps(phi, GRIDS[fixed], GRIDS[fixed])
    points = some_points(dims)
    assert_close(transform.points(points), apply(alignment(dims), alone.points(points)))


def test_affine_parts_of_a_composition_stay_exact():
    fixed, moving = GRIDS["oblique"], GRIDS["permuted"]
    matrix = torch.eye(3, dtype=torch.float64)[None] * 0.9
    zoom = AffineMap(matrix, torch.full((1, 3), 0.05, dtype=torch.float64))
    phi, _ = bend(3)
    transform = Transform.from_maps(zoom @ Identity() @ phi @ zoom, fixed, moving)
    assert [type(step) for step in transform.steps] == [AffineStep, MapStep, AffineStep]
    whole = Transform.from_maps(lambda x: zoom(phi(zoom(x))), fixed, moving)
    assert_close(transform.points(some_points(3)), whole.points(some_points(3)))
    only = Transform.from_maps(Composition(zoom, zoom.inverse()), fixed, fixed)
    assert_close(only.points(some_points(3)), some_points(3), atol=1e-12, rtol=0)


@pytest.mark.parametrize("dims", [2, 3])
def test_the_inverse_of_an_affine_transform_is_exact(dims):
    transform = Transform.from_affine(alignment(dims))
    points = some_points(dims)
    assert_close(transform.inverse().points(transform.points(points)), points, atol=1e-12, rtol=0)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize(("fixed", "moving"), PAIRS + PLANES)
def test_the_inverse_of_a_registered_pair_is_its_partner(fixed, moving, affine):
    dims = GRIDS[fixed].dims
    phi, psi = bend(dims)
    matrix = alignment(dims) if affine else None
    transform = Transform.from_maps(phi, GRIDS[fixed], GRIDS[moving], inverse=psi, affine=matrix)
    points, inverse = some_points(dims), transform.inverse()
    assert (inverse.fixed, inverse.moving) == (GRIDS[moving], GRIDS[fixed])
    assert_close(inverse.points(transform.points(points)), points, atol=0.2, rtol=0)
    # The partner, not an inverse found anew, which would be nearer.
    assert (inverse.points(transform.points(points)) - points).abs().max() > 1e-4
    assert_close(inverse.inverse().points(points), transform.points(points), atol=0, rtol=0)


@pytest.mark.parametrize(("fixed", "moving"), PAIRS + PLANES)
def test_without_a_partner_the_inverse_is_searched_for(fixed, moving):
    dims = GRIDS[fixed].dims
    transform = Transform.from_maps(bend(dims)[0], GRIDS[fixed], GRIDS[moving], affine=alignment(dims))
    points = some_points(dims)
    assert_close(transform.inverse().points(transform.points(points)), points, atol=1e-3, rtol=0)
    assert transform.inverse().round_trip_error().data.max() < 1e-2
    assert_close(transform.inverse().inverse().points(points), transform.points(points), atol=0, rtol=0)


def test_composition_is_composition_and_so_is_that_of_the_inverses():
    phi, psi = bend(3)
    first = Transform.from_maps(phi, GRIDS["straight"], GRIDS["oblique"], inverse=psi)
    second = Transform.from_affine(alignment(3), GRIDS["oblique"], GRIDS["permuted"])
    both, points = second @ first, some_points(3)
    assert_close(both.points(points), second.points(first.points(points)))
    assert_close(both.inverse().points(points), first.inverse().points(second.inverse().points(points)))
    assert both.back is not None and (both.fixed, both.moving) == (GRIDS["straight"], GRIDS["permuted"])


@pytest.mark.parametrize("shift", [(4.0, -3.0, 2.0), (-2.5, 0.0, 5.0)])
@pytest.mark.parametrize(("fixed", "moving"), PAIRS + PLANES)
def test_a_shifted_body_is_laid_onto_the_one_that_stayed(fixed, moving, shift):
    place = GRIDS[fixed]
    there = homogeneous(torch.eye(place.dims).double(), torch.tensor(shift[: place.dims]).double())
    transform = Transform.from_affine(there, place, GRIDS[moving])
    warped = transform.warp(body(GRIDS[moving], shift=shift))
    assert warped.grid.same_as(place)
    assert (warped.data - body(place).data).abs().mean() < 0.02 * 160
    unmoved = Transform.from_affine(there.inverse(), place).warp(body(GRIDS[moving], shift=shift))
    assert (unmoved.data - body(place).data).abs().mean() > 0.04 * 160


def test_warping_is_looking_up_where_each_voxel_comes_from():
    fixed, moving = GRIDS["oblique"], GRIDS["permuted"]
    transform = Transform.from_maps(bend(3)[0], fixed, moving, affine=alignment(3))
    # A linear function of the world is interpolated without error.
    slope = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    ramp = Volume((slope @ places(moving).flatten(1)).view(1, *moving.shape), moving.world_from_voxel)
    expected = transform.points(places(fixed).flatten(1).mT) @ slope
    warped = transform.warp(ramp, fill=1e9).data.flatten()
    inside = warped < 1e8
    assert inside.double().mean() > 0.2
    close = (warped - expected).abs()[inside] < 1e-6
    # Beyond the outermost voxel centres, the half voxel that belongs to the image sees its edge.
    assert close.double().mean() > 0.9


def test_a_map_on_the_fixed_grid_is_read_off_and_not_interpolated():
    asked = []

    class Spy:
        def __call__(self, x):
            asked.append(x)
            return x

    place = GRIDS["oblique"]
    phi = DisplacementMap(torch.rand(1, 3, *place.shape))
    transform = Transform.from_maps(Spy() @ phi, place, place)
    transform.displacement()
    assert asked[0].equal(unit_grid(place.shape) + phi.displacement)


def test_points_come_in_whatever_holds_rows():
    """Also in arrays that nobody may write into, as tables hand them out."""
    shift = Transform.from_affine(torch.tensor([[1, 0, 0, 3.0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]))
    rows = np.zeros((2, 3))
    rows.flags.writeable = False
    for xyz in (rows, rows.tolist(), torch.zeros(2, 3), np.zeros((2, 3), np.int32)):
        assert shift.points(xyz).tolist() == [[3, 0, 0], [3, 0, 0]]


def test_labels_are_not_mixed():
    fixed, moving = GRIDS["straight"], GRIDS["oblique"]
    transform = Transform.from_affine(alignment(3).inverse(), fixed, moving)
    labels = labelled(moving)
    nearest = transform.warp(labels)
    assert nearest.is_labels and set(nearest.data.unique().tolist()) == {0, 1, 2}
    assert transform.warp(labels.to(torch.float32), labels=True).data.equal(nearest.data)
    smooth = transform.warp(labels, interpolation=interpolate_one_hot)
    assert 0 < (smooth.data != nearest.data).double().mean() < 0.02
    with pytest.raises(ValueError, match="whole numbers"):
        transform.warp(body(moving), labels=True)


def test_interpolation_and_fill_are_those_that_were_asked_for():
    fixed = GRIDS["straight"]
    transform = Transform.from_affine(torch.eye(4), fixed)
    sharp = grid((20, 25, 18), (2.0, 1.6, 2.6))
    truth = body(fixed).data
    errors = [
        (transform.warp(body(sharp), interpolation=rule, fill=-1.0).data - truth)[..., 5:-5, 5:-5, 5:-5]
        .abs()
        .mean()
        for rule in (interpolate_cubic, None)
    ]
    assert errors[0] < 0.7 * errors[1]
    outside = Transform.from_affine(homogeneous(torch.eye(3).double(), torch.tensor([500.0, 0, 0])), fixed)
    assert (outside.warp(body(sharp), fill=-7.0).data == -7).all()


@pytest.mark.parametrize("name", GRIDS)
def test_growth_is_that_of_millimetres_on_any_grid(name):
    place = GRIDS[name]
    transform = Transform.from_affine(alignment(place.dims), place)
    growth = transform.jacobian()
    assert growth.grid.same_as(place)
    assert_close(growth.data, torch.full_like(growth.data, 1.1**place.dims), atol=1e-3, rtol=0)
    mirror = Transform.from_affine(torch.diag(torch.tensor([-1.0] + [1.0] * place.dims)), place)
    assert (mirror.jacobian().data < 0).all()


def test_a_slice_of_a_volume_keeps_its_thickness():
    thin = grid((30, 40, 1), (1.0, 0.8, 5.0), angle=20)
    transform = Transform.from_affine(alignment(3), thin)
    assert_close(transform.jacobian().data.mean().item(), 1.21, atol=0.1, rtol=0)


def test_displacement_is_in_millimetres_of_the_world():
    shift = torch.tensor([4.0, -3.0, 2.0])
    transform = Transform.from_affine(homogeneous(torch.eye(3).double(), shift.double()), GRIDS["oblique"])
    moved = transform.displacement().data
    assert_close(moved, shift.view(3, 1, 1, 1).expand_as(moved), atol=1e-4, rtol=0)


def test_resampled_is_exact_at_the_voxels_and_in_its_affine_part():
    fixed, moving = GRIDS["oblique"], GRIDS["permuted"]
    phi, psi = bend(3)
    transform = Transform.from_maps(phi @ phi, fixed, moving, inverse=psi @ psi, affine=alignment(3))
    stored = transform.resampled()
    assert [type(step) for step in stored.steps] == [MapStep, AffineStep]
    assert stored.steps[1].matrix.allclose(alignment(3))
    assert_close(stored.displacement().data, transform.displacement().data, atol=1e-4, rtol=0)
    assert_close(stored.points(some_points(3)), transform.points(some_points(3)), atol=0.1, rtol=0)
    there, back = stored.inverse().displacement(), transform.inverse().displacement()
    assert_close(there.data, back.data, atol=1e-4, rtol=0)
    assert Transform.from_affine(alignment(3), fixed).resampled().steps[0].matrix.allclose(alignment(3))


def test_another_place_to_put_images():
    transform = Transform.from_maps(bend(3)[0], GRIDS["straight"], GRIDS["oblique"])
    other = transform.between(GRIDS["flipped"], GRIDS["permuted"])
    assert_close(other.points(some_points(3)), transform.points(some_points(3)))
    assert other.warp(body(GRIDS["oblique"])).grid.same_as(GRIDS["flipped"])
    assert other.warp(body(GRIDS["oblique"]), onto=body(GRIDS["straight"])).grid.same_as(GRIDS["straight"])


def test_what_does_not_fit_is_said(as_users_see_it):
    phi, _ = bend(3)
    plain = Transform.from_affine(torch.eye(4))
    with pytest.raises(ValueError, match="does not know a fixed image"):
        plain.warp(body(GRIDS["straight"]))
    with pytest.raises(ValueError, match="a slice goes with a slice"):
        plain.warp(body(GRIDS["plane"]), onto=GRIDS["straight"])
    with pytest.raises(ValueError, match="a slice goes with a slice"):
        Transform.from_maps(phi, GRIDS["straight"], GRIDS["plane"])
    with pytest.raises(ValueError, match=r"select one of a batch, e\.g\. `phi\[:1\]`"):
        Transform.from_maps(DisplacementMap(torch.zeros(2, 3, 4, 4, 4)), GRIDS["straight"], GRIDS["oblique"])
    with pytest.raises(ValueError, match=r"A single point becomes `\[point\]`"):
        plain.points([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="last row is 0 0 0 1"):
        Transform.from_affine(torch.eye(3, 4))
    with pytest.raises(ValueError, match="no inverse"):
        Transform.from_affine(torch.diag(torch.tensor([1.0, 0, 1, 1])))
    with pytest.raises(ValueError, match="followed by one of 3"):
        plain @ Transform.from_affine(torch.eye(3))
    with pytest.raises(ValueError, match="becomes one by"):
        plain @ phi


def test_all_that_holds_tensors_is_converted():
    phi, psi = bend(2)
    transform = Transform.from_maps(phi, GRIDS["plane"], GRIDS["plane"], inverse=psi).to(torch.float32)
    assert transform.steps[0].map.displacement.dtype == torch.float32
    assert transform.inverse().steps[0].map.displacement.dtype == torch.float32
    assert transform.device == torch.device("cpu")


def test_it_prints_what_it_is():
    text = repr(Transform.from_maps(bend(2)[0], GRIDS["plane"], Grid((4, 4), torch.eye(3))))
    assert "DisplacementMap" in text and "then affine" in text and "60 x 50" in text
