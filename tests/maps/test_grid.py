"""Where voxels lie in unit coordinates, and the way between the two ways of counting."""

import pytest
import torch
from torch.testing import assert_close

from roundtrip.maps.grid import (
    along_channels,
    inside_image,
    point_dtype,
    unit_from_voxel,
    unit_grid,
    voxel_from_unit,
    voxel_size,
)

SHAPES = [(5,), (1,), (4, 7), (1, 3), (3, 4, 5), (2, 1, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_grid_runs_from_0_to_1_along_every_axis(shape):
    grid = unit_grid(shape)
    assert grid.shape == (1, len(shape), *shape)
    for axis, n in enumerate(shape):
        lines = grid[0, axis].movedim(axis, 0)
        expected = torch.arange(n) / max(n - 1, 1)
        assert_close(lines, expected.view(n, *[1] * (len(shape) - 1)).expand_as(lines))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_grid_is_where_the_voxels_are(shape):
    index = torch.stack(torch.meshgrid(*(torch.arange(n) for n in shape), indexing="ij"))[None].double()
    grid = unit_grid(shape, like=index)
    assert_close(unit_from_voxel(index, shape), grid)
    # The only voxel of an axis has index 0, and so has every coordinate there.
    assert_close(voxel_from_unit(grid, shape), index)


def test_the_voxel_size_is_the_step_of_the_grid():
    grid, size = unit_grid((4, 7, 5)), voxel_size((4, 7, 5))
    for axis in range(3):
        steps = grid[:, axis].diff(dim=axis + 1)
        assert_close(steps, size[axis].expand_as(steps))
    assert voxel_size((1, 2)).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.int16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_coordinates_have_at_least_single_precision(dtype, expected):
    like = torch.zeros(1, dtype=dtype)
    assert (
        point_dtype(like) == unit_grid((3,), like=like).dtype == voxel_size((3,), like=like).dtype == expected
    )


def test_the_border_belongs_to_the_image():
    x = torch.tensor([[[0.0, 1.0, 0.5, -1e-6, 0.5], [1.0, 0.0, 0.5, 0.5, 1 + 1e-6]]])
    assert inside_image(x).tolist() == [[[True, True, True, False, False]]]
    assert not inside_image(torch.full((1, 2), torch.nan)).any()


def test_along_channels_gives_each_axis_its_number():
    x = torch.ones(2, 3, 4, 5)
    scaled = along_channels(torch.tensor([1.0, 2.0, 3.0]), x) * x
    assert [scaled[:, d].unique().tolist() for d in range(3)] == [[1], [2], [3]]
