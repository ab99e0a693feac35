"""Labels, landmarks and rigid regions steer, whatever the intensities say; maps stay maps."""

import math

import pytest
import torch

import roundtrip as rt
from roundtrip.pairwise.landmark_pairs import paired
from roundtrip.space.grid import Grid
from roundtrip.space.points import PointTable


def centred(shape, spacing):
    matrix = torch.diag(torch.tensor([*spacing, 1.0])).double()
    middle = torch.tensor([(n - 1) / 2 for n in shape]).double()
    matrix[:-1, -1] = -matrix[:-1, :-1] @ middle
    return matrix


def places(volume):
    """The voxels of a volume in the world, one a row."""
    axes = [torch.arange(n).double() for n in volume.shape]
    index = torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1)
    matrix = volume.world_from_voxel
    return (matrix[:-1, :-1] @ index + matrix[:-1, -1:]).mT


def ball(volume, centre, radius):
    inside = (places(volume) - torch.tensor(centre).double()).norm(dim=1) < radius
    return rt.Volume(inside.int().view(1, *volume.shape), volume.world_from_voxel)


def body(shape, spacing):
    """A body with nothing inside."""
    volume = rt.Volume(torch.zeros(1, *shape), centred(shape, spacing))
    image = torch.sigmoid(2 * (12 - places(volume).norm(dim=1)))
    return rt.Volume(image.view(1, *shape).float(), volume.world_from_voxel)


def textured(shape, spacing, bend=None):
    """A body with blobs; `bend` says where its points come from."""
    volume = rt.Volume(torch.zeros(1, *shape), centred(shape, spacing))
    at = places(volume)
    at = at if bend is None else bend(at)
    egg = torch.tensor([1.2, 1.0, 0.9])[: len(shape)]
    image = torch.sigmoid(3 * (11 - (at / egg).norm(dim=1)))
    for centre, radius in (((5.0, 2.0, -1.0), 3.0), ((-4.0, -3.0, 2.0), 2.5), ((0.0, 5.0, 3.0), 2.0)):
        image += 0.6 * torch.sigmoid(3 * (radius - (at - torch.tensor(centre[: len(shape)])).norm(dim=1)))
    return rt.Volume(image.view(1, *shape).float(), volume.world_from_voxel)


def turned(at):
    """A turn about the third axis by 12 degrees, a shift, and a bend."""
    a = math.radians(12)
    turn = torch.eye(at.shape[1], dtype=at.dtype)
    turn[0, 0] = turn[1, 1] = math.cos(a)
    turn[0, 1], turn[1, 0] = -math.sin(a), math.sin(a)
    return at @ turn.mT + 1.5 + 0.8 * torch.sin(at.roll(1, dims=1) / 3)


def scattered(count, dims, spread=4.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(count, dims, generator=generator, dtype=torch.float64)


def requires_good_maps(result):
    """No folds, and both maps undo each other."""
    metrics = result.metrics
    assert metrics["folds"]["count"] == 0 and metrics["folds"]["non_diffeomorphic_volume_percent"] == 0
    assert metrics["roundtrip_error_mm"]["mean"] < 0.1 and metrics["roundtrip_error_mm"]["p99"] < 1


SHAPES = pytest.mark.parametrize("shape", [(34, 32, 30), (40, 44)], ids=str)


@SHAPES
class TestLabels:
    def pair(self, shape):
        spacing = (1.0, 1.1, 1.2)[: len(shape)]
        fixed, moving = body(shape, spacing), body([n + 2 for n in shape], spacing)
        far = [3.0, -2.0, 1.5][: len(shape)]
        return moving, fixed, ball(moving, far, 5), ball(fixed, [0.0] * len(shape), 5)

    def test_align_what_intensities_cannot(self, shape):
        moving, fixed, there, here = self.pair(shape)
        labels = {"moving_labels": there, "fixed_labels": here}
        alone = rt.register(moving, fixed, modality="same", **labels)
        guided = rt.register(moving, fixed, modality="same", moving_guide=there, fixed_guide=here, **labels)
        assert alone.metrics["dice"]["mean"] < 0.7
        assert guided.metrics["dice"]["mean"] > 0.9
        requires_good_maps(guided)

    def test_that_measure_do_not_steer(self, shape):
        moving, fixed, there, here = self.pair(shape)
        without = rt.register(moving, fixed, modality="same", effort="fast")
        measured = rt.register(
            moving, fixed, modality="same", effort="fast", moving_labels=there, fixed_labels=here
        )
        assert torch.equal(measured.transform.displacement().data, without.transform.displacement().data)
        assert "guidance" not in measured.metrics and measured.notes == ()
        assert measured.settings["guides"] == []

    def test_that_steer_do_not_measure_unless_asked_and_then_it_is_said(self, shape):
        moving, fixed, there, here = self.pair(shape)
        guides = {"moving_guide": there, "fixed_guide": here}
        steered = rt.register(moving, fixed, modality="same", effort="fast", **guides)
        assert "dice" not in steered.metrics and steered.notes == ()
        assert steered.metrics["guidance"]["dice"]["mean"] > 0.8
        assert steered.settings["guides"] == ["labels"]
        labels = {"moving_labels": there, "fixed_labels": here}
        both = rt.register(moving, fixed, modality="same", effort="fast", **guides, **labels)
        assert "have steered, too" in both.notes[0]


@SHAPES
class TestLandmarks:
    @pytest.mark.parametrize("effort", ["fast", "default"])
    def test_come_together_where_intensities_say_nothing(self, shape, effort):
        """Images of noise: all that is known is the landmarks."""
        generator = torch.Generator().manual_seed(0)
        fixed, moving = (
            rt.Volume(torch.rand(1, *size, generator=generator), centred(size, (1.0, 1.1, 1.2)[: len(size)]))
            for size in (shape, [n + 3 for n in shape])
        )
        here = scattered(12, len(shape))
        found = rt.register(
            moving, fixed, modality="same", effort=effort, fixed_guide=here, moving_guide=turned(here)
        )
        error = found.metrics["guidance"]["landmark_error_mm"]
        assert error["count"] == 12 and error["before"] > 1.5
        assert error["mean"] < 0.5 and error["max"] < 1
        requires_good_maps(found)

    def test_help_elsewhere_too(self, shape):
        spacing = (1.0, 1.1, 1.2)[: len(shape)]
        moving, fixed = textured(shape, spacing), textured(shape, spacing, bend=turned)
        here, elsewhere = scattered(20, len(shape)), scattered(200, len(shape), seed=1)
        found = rt.register(moving, fixed, fixed_guide=here, moving_guide=turned(here))
        error = (found.transform.points(elsewhere) - turned(elsewhere)).norm(dim=1)
        before = (elsewhere - turned(elsewhere)).norm(dim=1)
        assert error.mean() < 0.25 * before.mean()
        assert found.ok
        requires_good_maps(found)

    def test_only_measure_where_they_are_no_guide(self, shape):
        spacing = (1.0, 1.1, 1.2)[: len(shape)]
        moving, fixed = textured(shape, spacing), textured(shape, spacing, bend=turned)
        here = scattered(20, len(shape))
        landmarks = {"fixed_landmarks": here, "moving_landmarks": turned(here)}
        found = rt.register(moving, fixed, effort="fast", **landmarks)
        without = rt.register(moving, fixed, effort="fast")
        assert torch.equal(found.transform.displacement().data, without.transform.displacement().data)
        error = found.metrics["landmark_error_mm"]
        expected = (found.transform.points(here) - turned(here)).norm(dim=1)
        assert error["mean"] == pytest.approx(expected.mean().item())
        assert error["max"] == pytest.approx(expected.max().item())
        assert error["before"] == pytest.approx((here - turned(here)).norm(dim=1).mean().item())
        assert "guidance" not in found.metrics
        guided = rt.register(
            moving, fixed, effort="fast", fixed_guide=here, moving_guide=turned(here), **landmarks
        )
        assert "landmarks that measure have steered" in guided.notes[0]


class TestPairing:
    GRID = Grid((40, 40, 40), centred((40, 40, 40), (1.0, 1.0, 1.0)))

    def table(self, xyz, names=None, column="name"):
        xyz = torch.tensor(xyz, dtype=torch.float64)
        if names is None:
            return PointTable(xyz, (), (), ())
        return PointTable(
            xyz, (column, "x", "y", "z"), tuple((name, "", "", "") for name in names), (1, 2, 3)
        )

    def paired(self, fixed, moving):
        return paired(fixed, moving, fixed_grid=self.GRID, moving_grid=self.GRID)

    def test_by_name_whatever_the_order_and_what_is_alone_is_said(self):
        fixed = self.table([[1, 0, 0], [2, 0, 0], [3, 0, 0]], ["a", "b", "c"])
        moving = self.table([[13, 0, 0], [11, 0, 0], [19, 0, 0]], ["c", "a", "d"])
        found = self.paired(fixed, moving)
        assert found.fixed[:, 0].tolist() == [1, 3] and found.moving[:, 0].tolist() == [11, 13]
        assert "left out: b, d" in found.notes[0]

    def test_by_order_where_there_are_no_names(self):
        fixed = self.table([[1, 0, 0], [2, 0, 0]], ["a", "b"])
        found = self.paired(fixed, torch.tensor([[3.0, 0, 0], [4.0, 0, 0]]))
        assert found.fixed[:, 0].tolist() == [1, 2] and found.moving[:, 0].tolist() == [3, 4]

    def test_what_has_no_partner_or_two_is_said(self):
        one, two = self.table([[1, 0, 0]]), self.table([[1, 0, 0], [2, 0, 0]])
        with pytest.raises(ValueError, match="1 fixed landmarks but 2 moving ones"):
            self.paired(one, two)
        twice = self.table([[1, 0, 0], [2, 0, 0]], ["a", "a"])
        with pytest.raises(ValueError, match="two of the moving landmarks are called 'a'"):
            self.paired(self.table([[1, 0, 0]], ["a"]), twice)
        with pytest.raises(ValueError, match="no fixed landmark has the name"):
            self.paired(self.table([[1, 0, 0]], ["a"]), self.table([[1, 0, 0]], ["b"]))

    def test_another_world_is_noticed(self):
        matrix = self.GRID.world_from_voxel.clone()
        matrix[:2, 3] += 100
        grid = Grid(self.GRID.shape, matrix)
        inside = torch.tensor([[100.0, 100, 0], [90.0, 95, 3]])
        assert len(paired(inside, inside, fixed_grid=grid, moving_grid=grid).fixed) == 2
        ras = inside * torch.tensor([-1.0, -1, 1])
        with pytest.raises(ValueError, match=r"100 % of the moving landmarks lie outside.*Taken as RAS"):
            paired(inside, ras, fixed_grid=grid, moving_grid=grid)
        with pytest.raises(ValueError, match="not in voxels"):
            paired(inside + 500, inside, fixed_grid=grid, moving_grid=grid)


@SHAPES
@pytest.mark.parametrize("side", ["fixed", "moving"])
def test_a_rigid_region_stays_rigid_both_ways_while_the_rest_deforms(shape, side):
    spacing = (1.0, 1.1, 1.2)[: len(shape)]
    moving, fixed = textured(shape, spacing), textured(shape, spacing, bend=turned)
    image = fixed if side == "fixed" else moving
    region = ball(image, [3.0, 1.0, -1.0][: len(shape)], 5)
    found = rt.register(moving, fixed, **{f"{side}_rigid": region})
    free = rt.register(moving, fixed)
    there, back = found.transform, found.inverse
    freely = free.transform
    if side == "moving":
        there, back, freely = back, there, free.inverse
    inside = places(region)[region.data.flatten() > 0]
    generator = torch.Generator().manual_seed(0)
    between = inside + 0.5 * torch.rand(inside.shape, generator=generator).double() * torch.tensor(spacing)
    for points in (inside, between):
        moved = there.points(points)
        kept = torch.cdist(moved, moved) - torch.cdist(points, points)
        assert kept.abs().max() < 1e-4
        assert (back.points(moved) - points).norm(dim=1).max() < 0.02
    moved = freely.points(inside)
    assert (torch.cdist(moved, moved) - torch.cdist(inside, inside)).abs().max() > 0.3
    around = ball(image, [3.0, 1.0, -1.0][: len(shape)], 9).data - region.data
    around = places(region)[around.flatten() > 0]
    moved = there.points(around)
    assert (torch.cdist(moved, moved) - torch.cdist(around, around)).abs().max() > 0.3
    report = found.metrics["rigid"]
    assert report["side"] == side and report["regions"]["1"]["off_by_mm"]["max"] < 1e-4
    assert 5 < report["regions"]["1"]["rotation_degrees"] < 25
    assert found.ok
    requires_good_maps(found)


def test_each_label_of_a_rigid_region_is_a_body_of_its_own():
    shape, spacing = (34, 32, 30), (1.0, 1.0, 1.0)
    moving, fixed = textured(shape, spacing), textured(shape, spacing, bend=turned)
    one, other = ball(fixed, [5.0, 0.0, 0.0], 3.5), ball(fixed, [-5.0, 1.0, 0.0], 3.5)
    region = rt.Volume(one.data + 7 * other.data, one.world_from_voxel)
    found = rt.register(moving, fixed, effort="fast", fixed_rigid=region)
    regions = found.metrics["rigid"]["regions"]
    assert set(regions) == {"1", "7"}
    assert max(entry["off_by_mm"]["max"] for entry in regions.values()) < 1e-4
    requires_good_maps(found)


def test_what_cannot_be_meant_is_said():
    image = textured((20, 20, 20), (1.0, 1.0, 1.0))
    labels, points = ball(image, [0.0, 0.0, 0.0], 5), scattered(4, 3)
    other = rt.Volume(labels.data * 2, labels.world_from_voxel)
    for given, says in (
        ({"fixed_guide": labels}, "fixed guide has 1 label maps, the moving guide 0"),
        ({"fixed_guide": labels, "moving_guide": points}, "needs its partner"),
        ({"fixed_guide": labels, "moving_guide": other}, "none in common"),
        ({"fixed_landmarks": points}, "for one image only"),
        ({"fixed_rigid": labels, "moving_rigid": labels}, "give it for one"),
        ({"fixed_rigid": rt.Volume(labels.data * 0, labels.world_from_voxel)}, "is empty"),
        ({"fixed_rigid": image}, "holds torch.float32"),
        ({"fixed_guide": points[:, :2], "moving_guide": points}, r"have shape \(4, 2\)"),
    ):
        with pytest.raises(ValueError, match=says):
            rt.register(image, image, **given)
