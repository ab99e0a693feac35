"""A figure of volumes shows the slices it says, from the side it says, and what was computed."""

import io

import numpy as np
import pytest
import torch
from pairs import ball, bend, grid, pair

from roundtrip.reports.figures import FOLD
from roundtrip.reports.volume_figures import volume_pair_figure
from roundtrip.space.grid import Grid
from roundtrip.space.transform import Transform
from roundtrip.space.volume import Volume

COLUMNS = 6


def panels(figure) -> list[list]:
    """Rows of panels; colour scales are left out."""
    shown = [ax for ax in figure.axes if ax.images]
    return [shown[start : start + COLUMNS] for start in range(0, len(shown), COLUMNS)]


def pixels(ax) -> np.ndarray:
    return np.asarray(ax.images[0].get_array())


def dotted(index, world_from_voxel) -> Volume:
    data = torch.zeros(1, 11, 9, 7)
    data[(0, *index)] = 1
    return Volume(data, world_from_voxel)


@pytest.mark.parametrize(
    "flips", [(1, 1, 1), (-1, 1, 1), (1, -1, -1)], ids=lambda flips: "".join("-+"[f > 0] for f in flips)
)
def test_right_is_left_front_is_up_and_the_head_on_top(flips):
    """A dot at the patient's right, front and head end is left, on top, and left and on top again."""
    matrix = torch.diag(torch.tensor([*flips, 1.0], dtype=torch.float64))
    index = [0 if sign > 0 else n - 1 for sign, n in zip(flips, (11, 9, 7), strict=True)]
    index[2] = (7 - 1) - index[2]
    image = dotted(index, matrix)
    at = (matrix @ torch.tensor([*index, 1.0], dtype=torch.float64))[:3].tolist()
    nothing = Transform.from_affine(torch.eye(4), image, image)
    rows = panels(volume_pair_figure(image, image, nothing, at=at))
    assert [pixels(row[0]).shape for row in rows] == [(9, 11), (7, 11), (7, 9)]
    for row in rows:
        for column in range(3):
            assert np.argwhere(pixels(row[column]) > 0.5).tolist() == [[0, 0]]


def test_the_panels_show_what_was_computed():
    registered = pair()
    transform, moving, fixed = registered.transform, registered.moving, registered.fixed
    at = (fixed.world_from_voxel @ torch.tensor([10.0, 8, 6, 1], dtype=torch.float64))[:3].tolist()
    axial = panels(volume_pair_figure(moving, fixed, transform, at=at))[0]
    warped = transform.warp(moving).data[0, :, :, 6].flip(1).mT.numpy()
    growth = transform.jacobian().data[0, :, :, 6].flip(1).mT.numpy()
    top = moving.data[moving.data > 0].quantile(0.995).item()
    np.testing.assert_allclose(pixels(axial[2]), (warped / top).clip(0, 1), atol=0.02)
    np.testing.assert_allclose(pixels(axial[3]), pixels(axial[2]) - pixels(axial[0]), atol=1e-6)
    np.testing.assert_allclose(pixels(axial[5]), np.log2(growth), atol=1e-4)


def test_a_linear_transform_leaves_the_grid_straight():
    registered = pair()
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[0, 1], matrix[2, 3] = 0.2, 40.0
    linear = Transform.from_affine(matrix, registered.fixed, registered.moving)
    rows = panels(volume_pair_figure(registered.moving, registered.fixed, linear))
    lines = [line for row in rows for line in row[4].collections[0].get_segments()]
    assert all(min(np.ptp(line[:, 0]), np.ptp(line[:, 1])) < 1e-3 for line in lines)
    bent = volume_pair_figure(registered.moving, registered.fixed, registered.transform)
    lines = panels(bent)[0][4].collections[0].get_segments()
    assert any(min(np.ptp(line[:, 0]), np.ptp(line[:, 1])) > 0.1 for line in lines)


def test_folds_are_marked():
    registered = pair(height=0.6)
    assert (registered.transform.jacobian().data <= 0).any()
    rows = panels(volume_pair_figure(registered.moving, registered.fixed, registered.transform))
    marks = [mark for row in rows for mark in row[5].collections]
    assert sum(len(mark.get_offsets()) for mark in marks) > 0
    from matplotlib.colors import to_rgba

    assert all(tuple(colour) == to_rgba(FOLD) for mark in marks for colour in mark.get_facecolors())


def test_millimetres_are_equally_long_in_every_panel():
    place = Grid((20, 16, 12), torch.diag(torch.tensor([1.0, 1.5, 4.0, 1.0], dtype=torch.float64)))
    image = ball(place)
    figure = volume_pair_figure(image, image, Transform.from_affine(torch.eye(4), image, image))
    figure.savefig(io.BytesIO(), dpi=72)
    extents = [(20, 24), (20, 48), (24, 48)]
    scales = []
    for row, (across, down) in zip(panels(figure), extents, strict=True):
        box = row[0].get_window_extent()
        scales += [box.width / across, box.height / down]
    np.testing.assert_allclose(scales, scales[0], rtol=0.02)


def test_an_image_of_two_axes_is_one_row():
    place = grid((20, 16))
    fixed, moving = ball(place), ball(place, 0.55)
    transform = Transform.from_maps(bend((20, 16), 0.05), fixed, moving)
    figure = volume_pair_figure(moving, fixed, transform, width=3.4)
    assert len(panels(figure)) == 1 and pixels(panels(figure)[0][0]).shape == (16, 20)
