"""Registration of volumes in memory: what was moved is found again, whatever the grids."""

import dataclasses
import math

import pytest
import torch

import roundtrip as rt
from roundtrip.algorithms.card import Card, Intensities, Preparation
from roundtrip.evaluation.quality import FoldCounts, LabelScores
from roundtrip.evaluation.round_trip import RoundTripStatistics
from roundtrip.pairwise.model import Scan, open_model
from roundtrip.pairwise.outcome import Similarity
from roundtrip.space.transform import Transform


def drawn(shape, spacing, flips=(1, 1, 1), warp=None):
    """A body with parts, on a grid about the origin of the world; `warp` says where points come from."""
    matrix = torch.diag(torch.tensor([s * f for s, f in zip(spacing, flips, strict=True)] + [1.0])).double()
    middle = torch.tensor([(n - 1) / 2 for n in shape]).double()
    matrix[:3, 3] = -matrix[:3, :3] @ middle
    index = torch.stack(torch.meshgrid(*(torch.arange(n).double() for n in shape), indexing="ij")).flatten(1)
    at = (matrix[:3, :3] @ index + matrix[:3, 3:]).mT
    at = at if warp is None else warp(at)
    image = torch.sigmoid(3 * (11 - (at / torch.tensor([1.2, 1.0, 0.9])).norm(dim=1)))
    for centre, radius in (((5.0, 2.0, -1.0), 3.0), ((-4.0, -3.0, 2.0), 2.5), ((0.0, 5.0, 3.0), 2.0)):
        image += 0.6 * torch.sigmoid(3 * (radius - (at - torch.tensor(centre)).norm(dim=1)))
    return rt.Volume(image.view(1, *shape).float(), matrix)


def bent(at):
    """Where a point of the deformed body comes from: a smooth way of up to 2 mm, after a turn and a shift."""
    a = math.radians(12)
    turn = torch.tensor([[math.cos(a), -math.sin(a), 0], [math.sin(a), math.cos(a), 0], [0, 0, 1]]).double()
    at = at @ turn.mT + torch.tensor([3.0, -2.0, 1.0])
    return at + 1.2 * torch.sin(at.roll(1, dims=1) / 4)


@pytest.fixture(scope="module")
def found():
    moving = drawn((34, 36, 30), (1.0, 0.9, 1.2), flips=(-1, 1, 1))
    fixed = drawn((30, 32, 28), (1.1, 1.0, 1.3), warp=bent)
    return rt.register(moving, fixed)


def test_the_true_map_is_found_where_there_is_something_to_see(found):
    generator = torch.Generator().manual_seed(0)
    points = 6 * torch.randn(200, 3, generator=generator, dtype=torch.float64)
    points = points[bent(points).norm(dim=1) < 9]
    error = (found.transform.points(points) - bent(points)).norm(dim=1)
    assert error.mean() < 0.9 < 0.3 * (points - bent(points)).norm(dim=1).mean()


def test_it_goes_there_and_back_without_folds(found):
    assert found.ok and found.reasons == ()
    assert found.metrics["folds"] == {"count": 0, "percent": 0, "non_diffeomorphic_volume_percent": 0}
    assert found.metrics["roundtrip_error_mm"]["mean"] < 0.1
    points = torch.tensor([[2.0, 3.0, -4.0], [0.0, 0.0, 0.0]])
    assert found.inverse.points(found.transform.points(points)).allclose(points.double(), atol=0.1)


def test_the_result_lies_on_the_fixed_grid(found):
    assert found.warped.grid.same_as(found.fixed.grid) and found.transform.moving.same_as(found.moving.grid)
    before = (
        Transform.from_affine(torch.eye(4)).warp(found.moving, onto=found.fixed).data - found.fixed.data
    ).abs()
    assert (found.warped.data - found.fixed.data).abs().mean() < 0.4 * before.mean()


def test_another_contrast_is_noticed(found):
    inverted = rt.Volume((found.moving.data - 0.8).abs(), found.moving.world_from_voxel)
    result = rt.register(inverted, found.fixed, effort="fast")
    assert found.contrast == "same"
    assert result.contrast == "different" and result.settings["compared_as"] == "different"


def test_the_same_image_registers_to_itself_and_is_no_failure(found):
    result = rt.register(found.fixed, found.fixed, effort="fast")
    assert result.ok and result.transform.displacement().data.abs().max() < 0.3


def test_labels_that_are_driven_apart_are_a_failure(found):
    good = found.outcome
    said = {}
    for name, before, after in (("worse", 0.6, 0.3), ("better", 0.3, 0.6), ("as before", 0.6, 0.595)):
        scores = LabelScores({1: before}, {1: after})
        said[name] = dataclasses.replace(good, dice=scores).reasons
    assert said["better"] == said["as before"] == ()
    assert "the labels overlap less than before" in said["worse"][0]


def test_maps_that_disagree_and_images_that_do_not_match_are_a_failure(found):
    good = found.outcome
    missed = dataclasses.replace(good, roundtrip_error_mm=RoundTripStatistics(2.0, 9.0, 12.0))
    assert "the two maps disagree" in missed.reasons[0]
    worse = dataclasses.replace(good, similarity=Similarity("lncc", 0.5, 0.4, 0.9))
    assert "not more alike than before" in worse.reasons[0]
    strange = dataclasses.replace(good, similarity=Similarity("lncc", 0.01, 0.05, 0.9))
    assert "next to nothing in common" in strange.reasons[0]
    strange = dataclasses.replace(good, similarity=Similarity("mutual_information", 0.01, 0.05, 1.9))
    assert "next to nothing in common" in strange.reasons[0]
    folded = dataclasses.replace(good, folds=FoldCounts(3, 0.01, 0.002))
    assert "folds at 3 voxels" in folded.reasons[0]


def test_what_cannot_be_meant_is_said(found, as_users_see_it):
    with pytest.raises(ValueError, match="`effort` is 'much'"):
        rt.register(found.moving, found.fixed, effort="much")
    with pytest.raises(ValueError, match="mask of the fixed image lies on another grid"):
        mask = rt.Volume(torch.ones(1, 4, 4, 4).int(), torch.eye(4))
        rt.register(found.moving, found.fixed, fixed_mask=mask)
    with pytest.raises(ValueError, match="label map of the moving image"):
        rt.register(found.moving, found.fixed, moving_labels=found.moving)


@pytest.fixture
def wild_model(tmp_path):
    """A model in a folder whose maps fold, and do not belong together."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = rt.UNet(dims=3, down_features=(8, 8), up_features=(8, 8)).eval()
        torch.nn.init.normal_(network.last.weight, std=0.6)
    preparation = Preparation(
        orientation="LPS",
        intensities=Intensities(unit="percentiles", lower=1, upper=99),
        spacing=(1.2, 1.2, 1.2),
        grid=(32, 32, 32),
    )
    card = Card(preparation=preparation, data="", numbers={}, licence="")
    rt.save(rt.DisplacementRegistration(network), tmp_path / "model", card=card)
    return tmp_path / "model"


def test_what_a_model_says_is_a_start_and_no_excuse_for_folds(found, wild_model):
    moving, fixed = found.moving, found.fixed
    registered = open_model(wild_model)(Scan(moving), Scan(fixed))
    maps = registered.between(moving.grid, fixed.grid)
    alone = Transform.from_maps(maps.AB, fixed, moving, inverse=maps.BA)
    assert alone.jacobian().data.min() < 0 and alone.round_trip_error().data.mean() > 1
    result = rt.register(moving, fixed, model=wild_model, effort="fast")
    assert result.metrics["folds"] == {"count": 0, "percent": 0, "non_diffeomorphic_volume_percent": 0}
    assert result.metrics["roundtrip_error_mm"]["mean"] < 0.1
    assert result.settings["model"] == str(wild_model) and result.settings["linear"] is None


def noise(like, seed):
    generator = torch.Generator().manual_seed(seed)
    return rt.Volume(torch.rand(like.data.shape, generator=generator), like.world_from_voxel)


@pytest.mark.parametrize("modality", ["same", "different", "auto"])
def test_noise_is_like_nothing_and_that_is_said(found, modality):
    for moving, fixed in ((noise(found.moving, 0), found.fixed), (found.moving, noise(found.fixed, 1))):
        result = rt.register(moving, fixed, effort="fast", modality=modality)
        assert not result.ok, result.outcome.similarity
        assert "in common" in result.reasons[0] or "not more alike" in result.reasons[0]


def test_another_contrast_is_registered_without_folds_both_ways(found):
    """Not monotone: the body is as dark as what is around it, and its border bright."""
    other = rt.Volume(torch.sin(math.pi * found.moving.data / 1.7), found.moving.world_from_voxel)
    result = rt.register(other, found.fixed, modality="different")
    generator = torch.Generator().manual_seed(0)
    points = 6 * torch.randn(200, 3, generator=generator, dtype=torch.float64)
    points = points[bent(points).norm(dim=1) < 9]
    error = (result.transform.points(points) - bent(points)).norm(dim=1)
    before = (points - bent(points)).norm(dim=1)
    assert error.mean() < 0.4 * before.mean() and result.ok
    assert result.metrics["folds"]["count"] == 0
    assert result.metrics["roundtrip_error_mm"]["mean"] < 0.1


def test_a_model_that_would_mirror_an_image_is_stopped(found, tmp_path):
    """The moving image's first axis runs the other way, and the card does not say which way is wanted."""
    network = rt.UNet(dims=3, down_features=(4, 8), up_features=(4, 8)).eval()
    card = Card(preparation=Preparation(spacing=(1.2,) * 3, grid=(32,) * 3), data="", numbers={}, licence="")
    rt.save(rt.DisplacementRegistration(network), tmp_path / "model", card=card)
    with pytest.raises(ValueError, match=r"LPS and RPS.*would be mirrored"):
        rt.register(found.moving, found.fixed, model=tmp_path / "model")
