"""Where a volume says that it is."""

import nibabel as nib
import pytest
import torch
from scenes import GRIDS, VOLUMES, body, grid

from roundtrip.space.grid import Grid, axes_of_code, nearest_axes, orientation_of
from roundtrip.space.volume import Volume, require_contrast


@pytest.mark.parametrize("name", GRIDS)
def test_geometry_and_matrix_say_the_same(name):
    place = GRIDS[name]
    again = place.direction * torch.tensor(place.spacing, dtype=torch.float64)
    torch.testing.assert_close(again, place.world_from_voxel[:-1, :-1])
    torch.testing.assert_close(
        place.direction.mT @ place.direction, torch.eye(place.dims, dtype=torch.float64)
    )
    first = torch.tensor([0.0] * place.dims + [1.0], dtype=torch.float64)
    torch.testing.assert_close((place.world_from_voxel @ first)[:-1], place.origin)


@pytest.mark.parametrize("name", GRIDS)
def test_unit_coordinates_are_0_and_1_at_the_outermost_voxels(name):
    place = GRIDS[name]
    last = torch.tensor([n - 1.0 for n in place.shape] + [1.0], dtype=torch.float64)
    at = place.unit_from_world @ place.world_from_voxel @ last
    torch.testing.assert_close(at, torch.ones_like(at))
    torch.testing.assert_close(
        place.unit_from_world @ place.world_from_unit, torch.eye(place.dims + 1, dtype=torch.float64)
    )


def test_an_axis_of_one_voxel_lies_at_0_and_is_as_thick_as_its_slice():
    place = Grid((4, 1), torch.diag(torch.tensor([2.0, 5.0, 1.0], dtype=torch.float64)))
    assert place.world_from_unit.diag().tolist() == [6, 5, 1]


@pytest.mark.parametrize("name", VOLUMES)
def test_orientation_is_that_of_nibabel(name):
    matrix = GRIDS[name].world_from_voxel
    ras = torch.diag(torch.tensor([-1.0, -1, 1, 1], dtype=torch.float64)) @ matrix
    assert orientation_of(GRIDS[name]) == "".join(nib.aff2axcodes(ras.numpy()))


@pytest.mark.parametrize("code", ["LPS", "RAS", "SAL", "ipr"])
def test_a_code_and_the_axes_it_asks_for(code):
    linear = torch.zeros(3, 3, dtype=torch.float64)
    for axis, (world, negative) in enumerate(axes_of_code(code, 3)):
        linear[world, axis] = -2 if negative else 2
    matrix = torch.block_diag(linear, torch.eye(1, dtype=torch.float64))
    assert nearest_axes(matrix) == axes_of_code(code, 3)
    assert orientation_of(Grid((2, 2, 2), matrix)) == code.upper()


@pytest.mark.parametrize("code", ["LPL", "LP", "LPSX", "XYZ"])
def test_a_code_that_is_none(code):
    with pytest.raises(ValueError, match=r"e\.g\. 'LPS'"):
        axes_of_code(code, 3)


@pytest.mark.parametrize("column", [[0.0, 0.0], [2.0, 0.0], [float("nan"), 1.0]])
def test_axes_that_span_nothing_are_refused(column):
    matrix = torch.eye(3, dtype=torch.float64)
    matrix[:2, 1] = torch.tensor(column)
    with pytest.raises(ValueError, match="cannot be inverted"):
        Volume(torch.zeros(1, 4, 4), matrix)


def test_values_without_channels_or_voxels_are_refused():
    with pytest.raises(ValueError, match=r"data\[None\]"):
        Volume(torch.zeros(1, 0, 3), torch.eye(3, dtype=torch.float64))


def test_a_volume_moves_with_its_values_and_keeps_its_place_in_full_precision():
    volume = body(grid(angle=10))
    half = volume.to(torch.float16)
    assert half.data.dtype == torch.float16 and half.world_from_voxel.dtype == torch.float64
    assert half.grid.same_as(volume.grid, tolerance=1e-12)


def test_grids_are_the_same_only_where_every_corner_is():
    place = grid(angle=10)
    shifted, turned = place.world_from_voxel.clone(), grid(angle=10.5).world_from_voxel
    shifted[0, 3] += 0.1
    assert place.same_as(Grid(place.shape, place.world_from_voxel + 1e-7))
    assert not place.same_as(Grid(place.shape, shifted)) and not place.same_as(Grid(place.shape, turned))
    assert not place.same_as(Grid((40, 50, 37), place.world_from_voxel))


def test_an_image_without_contrast_is_refused():
    eye = torch.eye(3, dtype=torch.float64)
    with pytest.raises(ValueError, match="every voxel of the fixed image is 3"):
        require_contrast(Volume(torch.full((1, 4, 4), 3.0), eye), "the fixed image")
    with pytest.raises(ValueError, match="holds 1 values that are NaN"):
        require_contrast(Volume(torch.tensor([[[0.0, float("nan")]]]), eye), "the fixed image")
    require_contrast(body(grid()), "the fixed image")
