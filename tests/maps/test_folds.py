"""Folds: three ways of counting, what each sees, and what each overlooks."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from roundtrip.maps import folds
from roundtrip.maps.folds import folds_as_published, folds_central, non_diffeomorphic_volume
from roundtrip.maps.grid import unit_grid

SHAPES = [(7,), (5, 6), (4, 5, 3)]
COUNTS = {
    "as published": folds_as_published,
    "central": lambda points, **frames: folds_central(points, **frames).count,
    "non-diffeomorphic": lambda points, **frames: non_diffeomorphic_volume(points, **frames).cells,
}


@pytest.fixture(params=COUNTS.values(), ids=COUNTS.keys())
def count(request):
    return request.param


@pytest.fixture(params=SHAPES, ids=str)
def shape(request):
    return request.param


def grid(shape, batch=1):
    exact = unit_grid(shape, like=torch.zeros(1, dtype=torch.float64))
    return exact.repeat(batch, *[1] * (len(shape) + 1))


def shaken(shape, amount, batch=2, seed=0):
    """The grid with noise, in units of a voxel."""
    noise = torch.randn(batch, len(shape), *shape, generator=torch.Generator().manual_seed(seed)).double()
    size = torch.tensor([1 / max(n - 1, 1) for n in shape]).view(1, -1, *[1] * len(shape))
    return grid(shape) + amount * size * noise


def overshot(shape):
    """The grid with the voxel in its middle pushed past three others along the first axis."""
    points = grid(shape)
    points[(0, 0, *(n // 2 for n in shape))] += 3 / (shape[0] - 1)
    return points


def mirrored(points):
    """The same points, seen in a mirror across the first axis."""
    return torch.cat([-points[:, :1], points[:, 1:]], dim=1)


def plane_and_slice():
    """A map of the plane, and the same as a volume of one slice that stays in its plane."""
    flat = shaken((6, 7), 0.6, batch=3)
    volume = torch.cat([flat[:, :1], torch.zeros(3, 1, 6, 7).double(), flat[:, 1:]], dim=1)
    return flat, volume[:, :, :, None]


CUBE = list(itertools.product((0, 1), repeat=3))


class TestEachWay:
    def test_the_identity_has_none(self, count, shape):
        assert count(grid(shape, batch=2)).tolist() == [0, 0]

    def test_a_gentle_map_has_none(self, count, shape):
        assert count(grid(shape) + 0.05 * torch.sin(3 * grid(shape).flip(1))).tolist() == [0]

    def test_a_voxel_that_overtook_others_is_a_fold(self, count, shape):
        assert count(overshot(shape)).item() > 0

    def test_each_element_of_a_batch_has_its_own(self, count, shape):
        points = torch.cat([grid(shape), overshot(shape), shaken(shape, 1.0)])
        alone = torch.cat([count(one) for one in points.split(1)])
        assert_close(count(points), alone)
        assert alone[0] == 0 < alone[1] < alone[2]

    def test_mirroring_folds_everything(self, count, shape):
        everything = shape if count is COUNTS["central"] else [n - 1 for n in shape]
        assert count(mirrored(grid(shape))).item() == math.prod(everything)

    def test_it_does_not_touch_the_graph(self, count, shape):
        points = shaken(shape, 0.5).requires_grad_()
        assert not count(points).requires_grad

    def test_low_precision_is_compared_in_single(self, count, shape):
        points = shaken(shape, 0.5).bfloat16()
        assert_close(count(points), count(points.float()))

    def test_points_that_do_not_fit_their_grid_are_refused(self, count, shape, as_users_see_it):
        with pytest.raises(ValueError, match="`points_on_grid` has shape"):
            count(torch.zeros(1, len(shape) + 1, *shape))


class TestAsPublished:
    @pytest.mark.parametrize("amount", [0.5, 1.0, 2.0])
    def test_it_is_what_a_slow_loop_over_cells_counts(self, shape, amount):
        points = shaken(shape, amount, batch=3)
        N = len(shape)
        slow = [0, 0, 0]
        for b, cell in itertools.product(range(3), itertools.product(*(range(n - 1) for n in shape))):
            # The corner at which the N edges meet: the highest of the cell in 3D, the lowest otherwise.
            corner = [i + (N == 3) for i in cell]
            edges = []
            for axis in range(N):
                ends = [
                    tuple(i if d != axis else cell[axis] + high for d, i in enumerate(corner))
                    for high in (0, 1)
                ]
                edges.append(points[(b, slice(None), *ends[1])] - points[(b, slice(None), *ends[0])])
            slow[b] += int(torch.linalg.det(torch.stack(edges)) < 0)
        assert folds_as_published(points).tolist() == slow
        assert sum(slow) > 0

    @pytest.mark.parametrize("cells", [1, 7, 40])
    def test_the_work_may_be_cut_anywhere(self, shape, cells, monkeypatch):
        points = shaken(shape, 1.0)
        whole = folds_as_published(points)
        monkeypatch.setattr(folds, "_CELLS_AT_ONCE", cells)
        assert_close(folds_as_published(points), whole)

    @pytest.mark.parametrize(("shape", "expected"), [((31,), 5.5), ((9, 8), 18), ((6, 5, 7), 45.25)], ids=str)
    def test_its_batch_mean_is_what_the_package_gives(self, shape, expected):
        # Points without a random generator, so that anyone can give them to `icon_registration.losses.flips`.
        index = torch.arange(4 * len(shape) * math.prod(shape), dtype=torch.float64)
        noise = torch.sin(index * index).view(4, len(shape), *shape)
        size = torch.tensor([1 / (n - 1) for n in shape]).view(1, -1, *[1] * len(shape))
        assert folds_as_published(grid(shape) + noise * size).mean().item() == expected

    def test_a_determinant_of_zero_does_not_count(self, shape):
        assert folds_as_published(torch.zeros(1, len(shape), *shape)).item() == 0

    def test_an_axis_of_one_voxel_has_no_cells(self):
        assert folds_as_published(shaken((4, 1, 5), 2.0)).tolist() == [0, 0]

    def test_it_counts_cells_only_once_in_any_precision(self, shape):
        points = shaken(shape, 1.0)
        assert_close(folds_as_published(points).double(), folds_as_published(points.float()).double())
        assert folds_as_published(points.float()).dtype == torch.float32


class TestCentral:
    def test_the_percentage_is_of_all_voxels(self, shape):
        found = folds_central(shaken(shape, 1.0))
        assert_close(found.percent, 100 * found.count.double() / math.prod(shape))

    def test_a_determinant_of_zero_counts(self, shape):
        assert folds_central(torch.zeros(1, len(shape), *shape)).percent.item() == 100

    def test_what_is_not_a_number_counts(self, shape):
        assert folds_central(torch.full((1, len(shape), *shape), torch.nan)).percent.item() == 100

    def test_it_counts_a_whole_region_that_is_turned_over(self):
        # y runs back over the middle of 9 voxels: central differences of it are 1 1 .5 -.5 -1 -.5 .5 1 1.
        line = torch.tensor([0, 1, 2, 2, 1, 0, 1, 2, 3]).double() / 8
        assert folds_central(line.view(1, 1, 9)).count.item() == 3

    def test_an_axis_of_one_voxel_changes_nothing(self):
        flat, flat_in_space = plane_and_slice()
        assert folds_central(flat_in_space).count.tolist() == folds_central(flat).count.tolist()

    def test_spacing_does_not_matter_but_mirrored_frames_do(self, shape):
        points, N = shaken(shape, 0.5), len(shape)
        frame = torch.diag(torch.tensor([100.0, 30.0, 70.0])[:N])
        mirror = frame.clone()
        mirror[0] *= -1
        plain = folds_central(points).count
        assert (
            folds_central(points, fixed_frame=frame, moving_frame=2 * frame).count.tolist() == plain.tolist()
        )
        assert folds_central(points, fixed_frame=mirror, moving_frame=mirror).count.tolist() == plain.tolist()
        turned = folds_central(points, fixed_frame=frame, moving_frame=mirror).count
        assert (turned + plain).tolist() == [math.prod(shape)] * 2

    def test_frames_that_cannot_be_are_refused(self, shape, as_users_see_it):
        with pytest.raises(ValueError, match="`moving_frame` is"):
            folds_central(grid(shape), moving_frame=torch.zeros(len(shape), len(shape)))
        with pytest.raises(ValueError, match="`fixed_frame` is"):
            folds_central(grid(shape), fixed_frame=torch.eye(4))


class TestNonDiffeomorphicVolume:
    @pytest.mark.parametrize("shape", [(8,), (6, 5), (6, 3, 4)], ids=str)
    def test_it_sees_what_central_differences_skip(self, shape):
        # Every second voxel moves by 1.5: central differences compare voxels that moved alike. Every second
        # cell is turned over, to half its volume.
        points, n = grid(shape), shape[0]
        points[:, :1, 1::2] += 1.5 / (n - 1)
        turned = n // 2 - 1
        found = non_diffeomorphic_volume(points)
        assert folds_central(points).count.item() == 0
        assert found.cells.item() == turned * math.prod(m - 1 for m in shape[1:])
        assert_close(found.volume, torch.tensor([0.5 * turned / (n - 1)]).double())

    def test_it_sees_what_one_corner_of_a_cell_does_not(self):
        # The far corner of a square is pushed past its diagonal: the triangle there, of area 0.3, turns over.
        points = grid((2, 2))
        points[..., 1, 1] = 0.2
        found = non_diffeomorphic_volume(points)
        assert folds_as_published(points).item() == 0
        assert found.cells.item() == 1
        assert_close(found.volume.item(), 0.15)
        assert_close(found.percent.item(), 15.0)

    def test_a_cell_without_volume_counts_as_a_cell_and_adds_none(self, shape):
        found = non_diffeomorphic_volume(torch.zeros(1, len(shape), *shape))
        assert found.cells.item() == math.prod(n - 1 for n in shape) and found.volume.item() == 0

    def test_what_is_turned_over_is_covered_once_more(self, shape):
        # As long as the border stays, the signed volumes of either cut sum to that of the grid.
        inside = (slice(None), slice(None), *(slice(1, -1),) * len(shape))
        points = grid(shape)
        points[inside] = shaken(shape, 3.0, batch=1)[inside]
        folded, unfolded = (non_diffeomorphic_volume(p).volume.item() for p in (points, mirrored(points)))
        assert folded > 0.01
        assert_close(unfolded - folded, 1.0)

    def test_it_is_what_a_slow_loop_over_tetrahedra_adds_up(self):
        shape, cut = (
            (3, 4, 3),
            [(c, *[tuple(x ^ (d == a) for d, x in enumerate(c)) for a in range(3)]) for c in CUBE],
        )
        cut += [tuple(c for c in CUBE if sum(c) % 2 == parity) for parity in (0, 1)]
        points, total, cells = shaken(shape, 0.7, batch=1)[0], 0.0, 0
        for cell in itertools.product(*(range(n - 1) for n in shape)):
            volumes = []
            for corners in cut:
                voxels = [tuple(i + c for i, c in zip(cell, corner, strict=True)) for corner in corners]
                start, *ends = (points[(slice(None), *voxel)] for voxel in voxels)
                first, *others = torch.tensor(voxels).double()
                orientation = torch.linalg.det(torch.stack([v - first for v in others])).sign()
                volumes.append(orientation * torch.linalg.det(torch.stack([end - start for end in ends])) / 6)
            total += sum(max(-volume.item(), 0) for volume in volumes) / 2
            cells += any(volume <= 0 for volume in volumes)
        found = non_diffeomorphic_volume(points[None])
        assert_close(found.volume.item(), total)
        assert found.cells.item() == cells
        assert cells > 0

    def test_volumes_are_those_of_the_moving_world_and_percentages_of_the_fixed_grid(self, shape):
        points, N = shaken(shape, 0.5), len(shape)
        fixed = torch.diag(torch.tensor([10.0, 3.0, 7.0])[:N])
        moving = 2 * fixed
        plain = non_diffeomorphic_volume(points)
        found = non_diffeomorphic_volume(points, fixed_frame=fixed, moving_frame=moving)
        extent = math.prod([10, 3, 7][:N])
        assert_close(found.volume, plain.volume * 2**N * extent)
        assert_close(found.percent, plain.percent * 2**N)
        assert found.cells.tolist() == plain.cells.tolist()

    def test_only_a_frame_that_is_mirrored_against_the_other_turns_it_over(self, shape):
        points = shaken(shape, 0.3)
        mirror = torch.eye(len(shape), dtype=torch.float64)
        mirror[0] *= -1
        plain = non_diffeomorphic_volume(points)
        assert_close(
            non_diffeomorphic_volume(points, fixed_frame=mirror, moving_frame=mirror).volume, plain.volume
        )
        turned = non_diffeomorphic_volume(points, moving_frame=mirror)
        assert_close(turned.volume, non_diffeomorphic_volume(mirrored(points)).volume)
        assert (turned.volume > 2 * plain.volume).all()

    def test_an_axis_of_one_voxel_changes_nothing(self):
        flat, flat_in_space = (non_diffeomorphic_volume(points) for points in plane_and_slice())
        assert_close(flat_in_space.volume, flat.volume)
        assert flat_in_space.cells.tolist() == flat.cells.tolist()

    def test_a_single_voxel_has_no_cells(self):
        found = non_diffeomorphic_volume(torch.zeros(2, 2, 1, 1))
        assert found.volume.tolist() == found.cells.tolist() == [0, 0]

    def test_frames_that_cannot_be_are_refused(self, shape, as_users_see_it):
        with pytest.raises(ValueError, match="`moving_frame` is"):
            non_diffeomorphic_volume(grid(shape), moving_frame=torch.zeros(len(shape), len(shape)))
