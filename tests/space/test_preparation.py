"""Preparing an image moves no anatomy: each voxel still shows what is at its place in the world."""

import itertools

import pytest
import torch

from roundtrip.algorithms.card import Intensities, Mirror, Preparation
from roundtrip.maps.grid import voxel_from_unit
from roundtrip.space.grid import orientation_of
from roundtrip.space.preparation import prepare, prepare_labels, prepare_points
from roundtrip.space.volume import Volume

MIRROR = Mirror(column="side", value="left", axis=0)


def oblique(dims, generator):
    """Some axes of some lengths, none along the world's, some running backwards."""
    matrix = torch.eye(dims + 1, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(dims, dims, generator=generator, dtype=torch.float64)).Q
    matrix[:dims, :dims] = turn * (0.5 + torch.rand(dims, generator=generator, dtype=torch.float64))
    matrix[:dims, dims] = 30 * torch.randn(dims, generator=generator, dtype=torch.float64)
    return matrix


def places(volume):
    """The world coordinates of all voxels, one to a row."""
    index = torch.cartesian_prod(*(torch.arange(n, dtype=torch.float64) for n in volume.shape))
    index = torch.cat([index.view(-1, volume.dims), torch.ones(len(index), 1)], dim=1)
    return (volume.world_from_voxel @ index.mT)[:-1].mT


def slope(shape, seed=0):
    """An image whose intensity at x is a . x, on an oblique grid; and a."""
    generator = torch.Generator().manual_seed(seed)
    volume = Volume(torch.zeros(1, *shape), oblique(len(shape), generator))
    a = torch.randn(len(shape), generator=generator, dtype=torch.float64)
    return Volume((places(volume) @ a).view(1, *shape).float(), volume.world_from_voxel), a


PREPARATIONS = {
    "nothing": lambda dims: Preparation(),
    "oriented": lambda dims: Preparation(orientation="RAS"[:dims]),
    "reordered": lambda dims: Preparation(orientation="SLP" if dims == 3 else "AR"),
    "finer": lambda dims: Preparation(spacing=(0.4, 0.3, 0.6)[:dims]),
    "coarser": lambda dims: Preparation(spacing=(2.0, 1.7, 2.6)[:dims]),
    "cropped": lambda dims: Preparation(spacing=(1.0,) * dims, grid=(5, 4, 6)[:dims]),
    "whole field on a smaller grid": lambda dims: Preparation(grid=(5, 7, 4)[:dims]),
    "all": lambda dims: Preparation(
        orientation="LPI"[:dims], mirror=MIRROR, spacing=(0.9,) * dims, grid=(6, 5, 4)[:dims]
    ),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("make", PREPARATIONS.values(), ids=PREPARATIONS.keys())
def test_every_voxel_shows_what_is_at_its_place(make, mirrored, dims, seed):
    preparation = make(dims).model_copy(update={"mirror": MIRROR})
    volume, a = slope((13, 12, 14)[:dims], seed)
    prepared = prepare(volume, preparation, mirrored=mirrored)
    shown, true = prepared.data.flatten().double(), places(prepared) @ a
    assert torch.isfinite(shown).all()
    # Means over a neighbourhood are only exact where all of it lies inside the image.
    unit = prepare_points(places(prepared), volume)[0]
    margin = torch.tensor([max(1, *(preparation.spacing or (3, 3, 3))) / n for n in volume.shape])[:, None]
    inside = ((unit > margin) & (unit < 1 - margin)).all(dim=0)
    assert inside.sum() >= 4  # or nothing was tested
    assert (shown - true)[inside].abs().max() < 1e-4 * true.abs().max()


@pytest.mark.parametrize(
    "code", ["".join(p) for w in itertools.product("RL", "AP", "SI") for p in itertools.permutations(w)]
)
def test_all_orientations_hold_the_same_voxels(code):
    volume, _ = slope((4, 5, 6))
    turned = prepare(volume, Preparation(orientation=code))
    assert orientation_of(turned) == code
    assert sorted(turned.data.flatten().tolist()) == sorted(volume.data.flatten().tolist())
    back = prepare(turned, Preparation(orientation=orientation_of(volume)))
    assert back.grid.same_as(volume.grid) and back.data.equal(volume.data)


def test_a_mirrored_image_is_flipped_and_stays_where_it_was():
    volume, _ = slope((4, 5, 6))
    plain, mirrored = (
        prepare(volume, Preparation(orientation="RAS", mirror=MIRROR), mirrored=m) for m in (False, True)
    )
    assert mirrored.data.equal(plain.data.flip(1))
    assert orientation_of(mirrored) == "LAS"


def test_padding_copies_the_voxels_and_puts_half_on_each_side():
    volume = Volume(1 + torch.rand(1, 3, 4), torch.eye(3, dtype=torch.float64))
    prepared = prepare(volume, Preparation(spacing=(1, 1), grid=(6, 8)))
    assert prepared.data[:, 1:4, 2:6].equal(volume.data)
    assert (prepared.data != volume.data.min()).sum() == 11
    again = prepare(prepared, Preparation(spacing=(1, 1), grid=(3, 4)))
    assert again.data.equal(volume.data) and again.grid.same_as(volume.grid)


def test_what_is_added_is_0_where_intensities_are_adapted():
    volume = Volume(5 + torch.rand(1, 3, 4), torch.eye(3, dtype=torch.float64))
    rule = Intensities(unit="values", lower=0, upper=10)
    prepared = prepare(volume, Preparation(intensities=rule, spacing=(1, 1), grid=(5, 4)))
    assert (prepared.data[:, [0, 4]] == 0).all() and prepared.data[:, 1:4].allclose(volume.data / 10)


def test_percentiles_are_of_the_whole_image_and_outliers_are_clamped():
    values = torch.arange(101.0)
    values[100] = 1e6
    volume = Volume(values.view(1, 101, 1), torch.eye(3, dtype=torch.float64))
    rule = Intensities(unit="percentiles", lower=10, upper=90)
    prepared = prepare(volume, Preparation(intensities=rule, spacing=(1, 1), grid=(3, 1)))
    assert prepared.data.flatten().allclose(torch.tensor([39.0, 40, 41]) / 80)
    whole = prepare(volume, Preparation(intensities=rule)).data.flatten()
    assert whole[:11].eq(0).all() and whole[90:].eq(1).all()


def test_each_channel_has_its_own_percentiles():
    data = torch.rand(1, 8, 9, generator=torch.Generator().manual_seed(0))
    rule = Intensities(unit="percentiles", lower=1, upper=99)
    volume = Volume(torch.cat([data, 1000 * data - 7]), torch.eye(3, dtype=torch.float64))
    first, second = prepare(volume, Preparation(intensities=rule)).data
    assert first.allclose(second, atol=1e-5)


def test_what_a_mask_does():
    volume = Volume(torch.tensor([0.0, 10, 20, 900, 900]).view(1, 5, 1), torch.eye(3, dtype=torch.float64))
    mask = Volume(torch.tensor([0, 1, 1, 0, 0]).view(1, 5, 1), volume.world_from_voxel)
    rule = Intensities(unit="percentiles", lower=0, upper=100)
    measured = prepare(volume, Preparation(mask="intensities", intensities=rule), mask=mask)
    assert measured.data.flatten().tolist() == [0, 0, 1, 1, 1]
    cut = prepare(volume, Preparation(mask="background", intensities=rule), mask=mask)
    assert cut.data.flatten().tolist() == [0, 0, 1, 0, 0]
    unused = prepare(volume, Preparation(intensities=rule), mask=mask)
    assert unused.data.flatten().tolist() == pytest.approx([0, 1 / 90, 2 / 90, 1, 1])


@pytest.mark.parametrize("preparation", [make(3) for make in PREPARATIONS.values()], ids=PREPARATIONS.keys())
def test_labels_lie_where_their_image_does(preparation):
    volume, a = slope((13, 12, 14))
    middle = volume.data.median()
    labels = Volume((volume.data > middle).int(), volume.world_from_voxel)
    mirrored = preparation.mirror is not None
    image, prepared = (
        prepare(volume, preparation, mirrored=mirrored),
        prepare_labels(labels, preparation, mirrored=mirrored),
    )
    assert prepared.grid.same_as(image.grid) and prepared.data.dtype == torch.int32
    # A label of the nearest voxel can differ from that of the interpolated image only near the edge.
    clear = (image.data - middle).abs() > 1.4 * a.norm()
    assert clear.sum() > 10 and prepared.data[clear].bool().equal((image.data > middle)[clear])


def test_points_stay_on_what_they_mark():
    volume, _ = slope((9, 10, 11))
    marked = Volume(torch.zeros(1, 9, 10, 11), volume.world_from_voxel)
    marked.data[0, 4, 5, 6] = 1
    point = (volume.world_from_voxel @ torch.tensor([4, 5, 6, 1.0], dtype=torch.float64))[None, :3]
    preparation = Preparation(orientation="PSR", mirror=MIRROR, grid=(10, 11, 9))
    preparation = preparation.model_copy(
        update={"grid": prepare(marked, preparation.model_copy(update={"grid": None})).shape}
    )
    prepared = prepare(marked, preparation, mirrored=True)
    voxel = voxel_from_unit(prepare_points(point, prepared), prepared.shape)[0, :, 0]
    assert prepared.data[0][tuple(voxel.round().long())] == 1


def test_coarser_voxels_are_means_not_samples():
    checks = (
        torch.arange(64).view(8, 8).sum(dim=0, keepdim=True) * 0 + torch.arange(8)[:, None] + torch.arange(8)
    ) % 2
    volume = Volume(checks[None].float(), torch.eye(3, dtype=torch.float64))
    assert (prepare(volume, Preparation(spacing=(4, 4))).data - 0.5).abs().max() < 0.1


@pytest.mark.parametrize(
    ("preparation", "says"),
    [
        (Preparation(grid=(4, 4)), r"3 spatial axes \(shape \(4, 5, 6\)\).*images of 2"),
        (Preparation(mask="background"), "uses a mask, but no mask was given"),
    ],
)
def test_an_image_that_does_not_fit(preparation, says):
    with pytest.raises(ValueError, match=says):
        prepare(slope((4, 5, 6))[0], preparation)


def test_wrong_masks_labels_and_mirrors():
    volume, _ = slope((4, 5, 6))
    inside = Preparation(mask="intensities")
    with pytest.raises(ValueError, match="mask is empty"):
        prepare(volume, inside, mask=Volume(torch.zeros(1, 4, 5, 6).int(), volume.world_from_voxel))
    with pytest.raises(ValueError, match="mask lies on another grid"):
        prepare(volume, inside, mask=Volume(torch.ones(1, 4, 5, 6).int(), torch.eye(4)))
    with pytest.raises(ValueError, match="whole numbers"):
        prepare_labels(volume, inside)
    with pytest.raises(ValueError, match="does not say along which axis"):
        prepare(volume, Preparation(), mirrored=True)


def test_an_image_of_nearly_one_value_has_no_percentiles():
    data = torch.zeros(1, 20, 20)
    data[0, 3, 3] = 1
    rule = Intensities(unit="percentiles", lower=1, upper=99)
    with pytest.raises(ValueError, match="percentiles 1 and 99 are both 0"):
        prepare(Volume(data, torch.eye(3, dtype=torch.float64)), Preparation(intensities=rule))
