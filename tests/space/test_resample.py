"""On another grid everything is still where it was in the world."""

import pytest
import SimpleITK as sitk
import torch
from scenes import CENTRE, GRIDS, VOLUMES, body, centre_of_mass, grid, labelled

from roundtrip.maps.interpolate import interpolate_nearest
from roundtrip.space._itk import to_itk
from roundtrip.space.grid import orientation_of
from roundtrip.space.resample import grid_with_spacing, reoriented, resampled, with_grid
from roundtrip.space.sampling import interpolate_one_hot, unit_points_of
from roundtrip.space.volume import Volume


@pytest.mark.parametrize("code", ["LPS", "RAS", "SRA", "PIL"])
@pytest.mark.parametrize("name", VOLUMES)
def test_turning_renames_voxels_and_leaves_them_where_they_are(name, code):
    volume = body(GRIDS[name])
    turned = reoriented(volume, code)
    assert orientation_of(turned) == code
    assert torch.equal(turned.data.flatten().sort().values, volume.data.flatten().sort().values)
    torch.testing.assert_close(centre_of_mass(turned), centre_of_mass(volume))
    back = reoriented(turned, orientation_of(volume))
    assert torch.equal(back.data, volume.data) and back.grid.same_as(volume.grid, tolerance=1e-9)


def test_turning_agrees_with_itk():
    volume = body(GRIDS["permuted"])
    theirs = sitk.DICOMOrient(to_itk(volume), "LPS")
    ours = reoriented(volume, "LPS")
    assert torch.equal(torch.from_numpy(sitk.GetArrayFromImage(theirs).transpose().copy()), ours.data[0])
    torch.testing.assert_close(torch.tensor(theirs.GetOrigin(), dtype=torch.float64), ours.origin)


def test_a_plane_turns_too():
    volume = body(GRIDS["oblique plane"])
    assert orientation_of(reoriented(volume, "PR")) == "PR"
    torch.testing.assert_close(centre_of_mass(reoriented(volume, "PR")), centre_of_mass(volume))


@pytest.mark.parametrize("shape", [(50, 60, 40), (33, 47, 36), (30, 70, 35)])
def test_cropping_and_padding_move_nothing(shape):
    volume = body(GRIDS["oblique"])
    cut = with_grid(volume, shape, fill=-5.0)
    assert cut.shape == shape
    assert (cut.data == -5).any() == any(n > o for n, o in zip(shape, volume.shape, strict=True))
    same = body(cut.grid).data
    torch.testing.assert_close(torch.where(cut.data == -5, same, cut.data), same)
    off = (cut.world_from_voxel - volume.world_from_voxel)[:3, :3].abs().max()
    assert off == 0


@pytest.mark.parametrize("factor", [0.6, 1.0, 2.0, 2.7])
@pytest.mark.parametrize("name", GRIDS)
def test_another_spacing_keeps_the_box_and_what_is_in_it(name, factor):
    volume = body(GRIDS[name])
    spacing = [factor * size for size in volume.spacing]
    coarse = resampled(volume, spacing=spacing)
    torch.testing.assert_close(torch.tensor(coarse.spacing), torch.tensor(spacing))
    for n, m in zip(coarse.shape, volume.shape, strict=True):
        assert abs(n * factor - m) <= factor / 2 + 1e-9
    torch.testing.assert_close(centre_of_mass(coarse), centre_of_mass(volume), atol=0.05, rtol=0)


@pytest.mark.parametrize("target", VOLUMES)
@pytest.mark.parametrize("name", VOLUMES)
def test_like_another_volume_the_body_is_found_where_it_is_in_the_world(name, target):
    onto = resampled(body(GRIDS[name]), like=GRIDS[target])
    assert onto.grid.same_as(GRIDS[target])
    error = (onto.data - body(GRIDS[target]).data)[0].abs()
    assert error.mean() < 1.5
    centre = (centre_of_mass(onto) - torch.tensor(CENTRE, dtype=torch.float64)).norm()
    assert centre < 0.75


@pytest.mark.parametrize("name", VOLUMES)
def test_finer_grids_are_sampled_as_itk_does_to_the_last_voxel(name):
    volume, fine = body(GRIDS[name]), grid((60, 66, 58), (0.7, 0.7, 0.7), angle=-20)
    theirs = sitk.Resample(to_itk(volume), to_itk(body(fine)), sitk.Transform(), sitk.sitkLinear, -9.0)
    ours = resampled(volume, like=fine, fill=-9.0).data[0]
    error = (ours - torch.from_numpy(sitk.GetArrayFromImage(theirs).transpose().copy())).abs()
    # Where a point lies on the faces of the box of all voxels, to rounding noise, either answer is right.
    x = unit_points_of(fine, volume.grid, like=error.double())
    sizes = torch.tensor(volume.shape).view(3, 1, 1, 1)
    beyond = ((x[0] - 0.5) * (sizes - 1)).abs() - sizes / 2
    clear = (beyond.abs() > 1e-3).all(dim=0)
    assert clear.double().mean() > 0.9 and error[clear].max() < 1e-3 * 160
    assert (ours == -9).any()


def test_the_same_grid_costs_nothing():
    volume = body(GRIDS["oblique"])
    assert resampled(volume, like=volume).data is volume.data
    assert resampled(volume, spacing=volume.spacing).data is volume.data


def test_a_coarser_grid_does_not_see_what_it_cannot_hold():
    stripes = torch.zeros(1, 40, 40)
    stripes[:, ::2] = 1
    volume = Volume(stripes, torch.eye(3, dtype=torch.float64))
    coarse = resampled(volume, spacing=(3.0, 1.0)).data[:, 1:-1]
    assert (coarse - 0.5).abs().max() < 0.05
    ones = Volume(torch.ones(1, 40, 40), volume.world_from_voxel)
    torch.testing.assert_close(resampled(ones, spacing=2.5).data, torch.ones(1, 16, 16))


def test_the_width_of_the_blur_is_the_difference_of_the_two_voxels():
    point = torch.zeros(1, 81, 5, dtype=torch.float64)
    point[0, 40] = 1
    volume = Volume(point, torch.eye(3, dtype=torch.float64))
    from roundtrip.space.smoothing import antialiased

    blurred = antialiased(volume, grid_with_spacing(volume, (4.0, 1.0))).data[0, :, 2]
    at = torch.arange(81, dtype=torch.float64) - 40
    assert (blurred * at**2).sum().item() == pytest.approx((16 - 1) / 5.545, rel=0.01)


def test_labels_come_from_the_nearest_voxel_and_stay_labels():
    volume = labelled(GRIDS["straight"])
    coarse = resampled(volume, spacing=2.0)
    assert coarse.is_labels and set(coarse.data.unique().tolist()) == {0, 1, 2}
    fine = resampled(volume, like=GRIDS["oblique"])
    theirs = sitk.Resample(
        to_itk(volume), to_itk(body(GRIDS["oblique"])), sitk.Transform(), sitk.sitkNearestNeighbor
    )
    same = torch.from_numpy(sitk.GetArrayFromImage(theirs).transpose().copy()) == fine.data[0]
    assert same.double().mean() > 0.9999


def test_halfway_between_labels_is_no_lottery():
    labels = torch.arange(32, dtype=torch.int32).expand(1, 8, 32).contiguous()
    half = resampled(Volume(labels, torch.eye(3, dtype=torch.float64)), spacing=2.0)
    assert half.data[0, 0].tolist() == list(range(1, 32, 2))


def test_interpolating_labels_as_one_hot_images_smooths_their_border():
    volume, fine = labelled(GRIDS["anisotropic"]), grid((70, 70, 60), (0.6, 0.6, 0.8))
    truth = labelled(fine).data
    wrong = [
        (resampled(volume, like=fine, interpolation=rule).data != truth).sum()
        for rule in (interpolate_nearest, interpolate_one_hot)
    ]
    assert wrong[1] < 0.8 * wrong[0]


def test_wrong_requests():
    volume = body(GRIDS["straight"])
    for wrong in ({}, {"spacing": 1.0, "like": volume}):
        with pytest.raises(ValueError, match="either `spacing`"):
            resampled(volume, **wrong)
    with pytest.raises(ValueError, match="one positive number"):
        resampled(volume, spacing=(1.0, 0.0, 1.0))
    with pytest.raises(ValueError, match="a slice goes with a slice"):
        resampled(volume, like=GRIDS["plane"])
    with pytest.raises(ValueError, match="needs 3 sizes"):
        with_grid(volume, (3, 3))
