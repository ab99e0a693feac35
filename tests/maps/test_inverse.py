"""Inverses: found for every map that has one, reported honestly for those that have none."""

import math

import pytest
import torch
from torch.testing import assert_close

from roundtrip.maps.affine import AffineMap
from roundtrip.maps.displacement import DisplacementMap, sampled
from roundtrip.maps.grid import unit_grid
from roundtrip.maps.inverse import inverse_at, invert, residual
from roundtrip.maps.map import Identity
from roundtrip.maps.velocity import exponential


def image(*shape, dtype=torch.float64):
    return torch.zeros(1, 1, *shape, dtype=dtype)


def points(N=2, batch=1, layout=(60,), seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batch, N, *layout, generator=generator, dtype=torch.float64)


def about_the_centre(matrix):
    """The affine map of a matrix that leaves the centre of the image where it is."""
    matrix = torch.tensor(matrix, dtype=torch.float64)[None]
    centre = torch.full((1, matrix.shape[1], 1), 0.5, dtype=torch.float64)
    return AffineMap(matrix, (centre - matrix @ centre)[..., 0])


def steep(x):
    """Smooth, with derivatives between 0.05 and 1.95, and everywhere invertible."""
    return x + 0.95 * torch.sin(2 * math.pi * x) / (2 * math.pi)


def smooth_velocity(shape, size, batch=2):
    grid = unit_grid(shape, like=torch.zeros(1, dtype=torch.float64))
    waves = torch.cat([torch.sin(5 * grid.flip(1) + b) for b in range(batch)])
    return size * waves * (math.pi * grid).sin().prod(dim=1, keepdim=True)


HALF_TURN = [[-1.0, 0.0], [0.0, -1.0]]
QUARTER_TURN = [[0.0, -1.0], [1.0, 0.0]]

# Where the plain iteration y <- y - (phi(y) - x) runs away, hops to and fro, or creeps.
HARD = {
    "compressed 4 times": lambda x: 0.5 + (x - 0.5) / 4,
    "stretched 4 times": lambda x: 0.5 + (x - 0.5) * 4,
    "a quarter turn": lambda x: about_the_centre(QUARTER_TURN)(x),
    "half a turn": lambda x: about_the_centre(HALF_TURN)(x),
    "mirrored": lambda x: 1 - x,
    "far away": lambda x: x + 7,
    "steep": steep,
    "steep, turned and far": lambda x: steep(about_the_centre(QUARTER_TURN)(x)) - 3,
    "compressed along one axis": lambda x: about_the_centre([[1.0, 0.5], [0.0, 0.1]])(x),
}


@pytest.mark.parametrize("phi", HARD.values(), ids=HARD.keys())
class TestHardMaps:
    def test_their_inverse_is_found(self, phi):
        x = points()
        found = inverse_at(phi, x, tolerance=1e-11)
        assert found.converged.tolist() == [1.0]
        assert found.residual.max() <= 1e-11
        assert_close(phi(found.points), x, rtol=0, atol=1e-11)

    def test_in_single_precision_too(self, phi):
        x = points().float()
        found = inverse_at(phi, x, tolerance=1e-5)
        assert found.converged.tolist() == [1.0] and found.points.dtype == torch.float32

    def test_stored_on_a_grid_they_are_inverted_where_they_come_from_the_image(self, phi):
        stored = sampled(phi, image(9, 9))
        x = stored(points())
        found = inverse_at(stored, x, tolerance=1e-11)
        assert found.converged.tolist() == [1.0]


@pytest.mark.parametrize("N", [1, 3])
def test_other_dimensions(N):
    found = inverse_at(steep, points(N), tolerance=1e-11)
    assert found.converged.tolist() == [1.0] and found.points.shape == (1, N, 60)


@pytest.mark.parametrize("shape", [(17,), (13, 11), (6, 5, 7)], ids=str)
def test_a_flow_is_inverted_at_every_voxel(shape):
    phi = exponential(smooth_velocity(shape, 0.1))
    inverse = invert(phi, like=image(*shape), tolerance=1e-10)
    assert inverse.converged.tolist() == [1.0, 1.0]
    grid = unit_grid(shape, like=image(*shape))
    assert inverse.residual.shape == (2, 1, *shape) and inverse.residual.max() <= 1e-10
    assert_close(phi(inverse.map(grid)), grid.expand(2, *grid.shape[1:]), rtol=0, atol=1e-10)
    # The other way round the inverse is read between its voxels.
    assert residual(inverse.map, phi, grid).max() < 0.05


def test_the_inverse_of_a_flow_is_the_flow_backwards():
    def distance(n):
        velocity = smooth_velocity((n, n), 0.1)
        inverse = invert(exponential(velocity), like=image(n, n), tolerance=1e-12)
        return (inverse.map.displacement - exponential(-velocity).displacement).abs().max()

    assert distance(17) < 5e-3
    assert 1.6 < math.log2(distance(17) / distance(33)) < 2.4


class TestShortcuts:
    def test_affine_maps_are_inverted_at_once(self):
        phi = about_the_centre([[1.0, 2.0], [0.0, 0.01]])
        found = inverse_at(phi, points(), tolerance=1e-10)
        assert found.iterations == 0
        assert_close(found.points, phi.inverse()(points()))

    def test_the_identity_needs_no_step(self):
        found = inverse_at(Identity(), points())
        assert found.iterations == 0 and torch.equal(found.points, points())

    def test_compositions_are_inverted_part_by_part(self):
        phi = steep_map = DisplacementMap(smooth_velocity((9, 9), 0.1))
        for turn in (QUARTER_TURN, HALF_TURN, QUARTER_TURN):
            phi = phi @ about_the_centre(turn) @ steep_map
        found = inverse_at(phi, points(batch=2), tolerance=1e-10)
        assert found.converged.tolist() == [1.0, 1.0]
        assert_close(phi(found.points), points(batch=2), rtol=0, atol=1e-10)

    def test_a_part_without_inverse_does_not_stop_the_search(self):
        flat = AffineMap(torch.zeros(1, 2, 2).double(), torch.full((1, 2), 0.5).double())
        found = inverse_at(flat @ Identity(), points())
        assert found.points.isfinite().all() and found.converged.item() < 0.1


class TestWithoutInverse:
    def test_points_out_of_reach_are_reported(self):
        # Only (0.4, 0.6) is reached.
        def narrow(x):
            return 0.5 + 0.1 * torch.tanh(8 * (x - 0.5))

        x = torch.tensor([[[0.45, 0.55, 0.9, 0.0]]], dtype=torch.float64)
        found = inverse_at(narrow, x, tolerance=1e-8)
        assert found.converged.tolist() == [0.5]
        assert (found.residual.flatten() <= 1e-8).tolist() == [True, True, False, False]
        assert found.points.isfinite().all()
        assert_close(found.residual[..., 2:].flatten(), torch.tensor([0.3, 0.4]).double(), rtol=0, atol=1e-3)

    def test_where_a_map_folds_mostly_one_of_the_points_is_found(self):
        def folding(x):
            return x + 0.5 * torch.sin(2 * math.pi * x)

        found = inverse_at(folding, points(), tolerance=1e-10)
        assert found.converged.item() > 0.95

    def test_a_map_to_one_place_has_the_inverse_of_that_place_only(self):
        found = inverse_at(lambda x: torch.full_like(x, 0.5), points(), tolerance=1e-8)
        assert found.converged.tolist() == [0.0]
        assert_close(found.residual, (points() - 0.5).norm(dim=1, keepdim=True))

    def test_where_a_map_is_not_a_number_the_residual_is_infinite(self):
        found = inverse_at(lambda x: x * torch.nan, points())
        assert found.points.isfinite().all()
        assert found.residual.isposinf().all() and found.converged.tolist() == [0.0]

    def test_a_map_that_is_not_a_number_here_and_there_is_inverted_elsewhere(self):
        # log x, of targets below log 0.3: half of the starting points are outside its domain.
        found = inverse_at(lambda x: torch.log(x - 0.3), points() - 1.5, tolerance=1e-9)
        assert found.points.isfinite().all() and found.converged.tolist() == [1.0]

    def test_no_point_ends_worse_than_it_began(self):
        noise = 2 * torch.rand(1, 2, 6, 6, generator=torch.Generator().manual_seed(1)).double() - 1
        wild = DisplacementMap(noise)
        found = inverse_at(wild, points(layout=(500,)))
        start = residual(wild, Identity(), points(layout=(500,)))
        assert (found.residual <= start).all() and found.converged.item() > 0.5


class TestReport:
    def test_the_residual_is_the_distance_in_unit_coordinates(self):
        x = points()
        found = inverse_at(steep, x, tolerance=1e-3)
        assert_close(found.residual, (steep(found.points) - x).norm(dim=1, keepdim=True))
        assert_close(residual(steep, lambda _: found.points, x), found.residual)

    def test_the_fraction_is_that_of_points_within_the_tolerance(self):
        found = inverse_at(steep, points(batch=2), tolerance=1e-6, max_iterations=2)
        within = (found.residual <= 1e-6).double().mean(dim=(1, 2))
        assert_close(found.converged, within)
        assert 0 < within.min() < 1

    def test_it_stops_when_all_have_arrived_or_when_told(self):
        assert inverse_at(lambda x: x + 1, points()).iterations == 1
        assert inverse_at(steep, points(), tolerance=1e-12, max_iterations=0).iterations == 0
        start = inverse_at(steep, points(), tolerance=1e-12, max_iterations=0).points
        few = inverse_at(steep, points(), max_iterations=1)
        assert few.residual.mean() < residual(steep, lambda _: start, points()).mean()

    def test_a_smaller_tolerance_is_met(self):
        for tolerance in (1e-3, 1e-6, 1e-12):
            assert inverse_at(steep, points(), tolerance=tolerance).residual.max() <= tolerance

    def test_gradients_are_cut(self):
        field = smooth_velocity((6, 6), 0.1).requires_grad_()
        inverse = invert(DisplacementMap(field), like=image(6, 6))
        assert not inverse.map.displacement.requires_grad and not inverse.residual.requires_grad


class TestBatch:
    def test_elements_do_not_mix(self):
        # One element of the batch is easy, one hard, one impossible.
        matrices = torch.stack([torch.eye(2), torch.tensor(QUARTER_TURN), torch.zeros(2, 2)]).double()

        def phi_of(b):
            return lambda x: AffineMap(matrices[b], torch.zeros(len(matrices[b]), 2).double())(x)

        x = points(batch=3)
        together = inverse_at(phi_of(slice(0, 3)), x, tolerance=1e-9)
        for b in range(3):
            alone = inverse_at(phi_of(slice(b, b + 1)), x[b : b + 1], tolerance=1e-9)
            assert_close(together.points[b : b + 1], alone.points, rtol=0, atol=1e-12)
        assert together.converged.tolist() == [1.0, 1.0, 0.0]

    def test_one_set_of_points_serves_every_map(self):
        phi = exponential(smooth_velocity((9, 9), 0.1, batch=3))
        assert_close(inverse_at(phi, points()).points, inverse_at(phi, points().expand(3, -1, -1)).points)

    @pytest.mark.parametrize("layout", [(), (4,), (2, 3), (0,)], ids=str)
    def test_points_may_have_any_layout(self, layout):
        found = inverse_at(steep, points(batch=2, layout=layout))
        assert found.points.shape == (2, 2, *layout) and found.residual.shape == (2, 1, *layout)

    def test_the_grid_may_be_another_than_that_of_the_map(self):
        phi = exponential(smooth_velocity((9, 9), 0.1))
        inverse = invert(phi, like=image(5, 12))
        assert inverse.map.displacement.shape == (2, 2, 5, 12) and inverse.residual.max() <= 1e-5
