"""Figures for papers show what was computed, in slices one chooses, and touch nothing global."""

import dataclasses

import matplotlib
import numpy as np
import pytest
import torch
from pairs import bend, pair

import roundtrip as rt
from roundtrip.reports.curves import curves
from roundtrip.reports.figures import FOLD
from roundtrip.training.records import StepRecord, ValidationRecord


def images(figure) -> list[np.ndarray]:
    """Of the panels; the colour scale has none."""
    return [np.asarray(ax.images[0].get_array()) for ax in figure.axes if ax.images]


def lines(figure, panel: int = 0) -> list[np.ndarray]:
    (collection,) = figure.axes[panel].collections
    return collection.get_segments()


def folding(height: float = 0.6) -> rt.DisplacementMap:
    return bend((30, 40), height)


def test_a_pair_is_four_pictures_to_a_slice():
    registered = pair()
    figure = rt.plot.pair(registered)
    shown = images(figure)
    assert figure.get_figwidth() == 3.5 and len(shown) == 12
    assert [picture.shape for picture in shown[::4]] == [(16, 20), (12, 20), (12, 16)]
    for fixed, _, warped, difference in zip(shown[::4], shown[1::4], shown[2::4], shown[3::4], strict=True):
        np.testing.assert_allclose(warped - fixed, difference, atol=1e-6)
    assert len(images(rt.plot.pair(registered, slices=("coronal",)))) == 4


def test_slices_go_through_the_point_that_is_asked_for():
    registered = pair()
    here = (registered.fixed.world_from_voxel @ torch.tensor([4.0, 9, 2, 1], dtype=torch.float64))[:3]
    axial, coronal, sagittal = images(rt.plot.jacobian(registered, at=here.tolist()))
    # The second axis of this file runs to the front, the page shows it to the back; heads are on top.
    growth = registered.transform.jacobian().data[0].flip(1)
    np.testing.assert_allclose(axial, growth[:, :, 2].mT.log2(), atol=1e-5)
    np.testing.assert_allclose(coronal, growth[:, 16 - 1 - 9].mT.flip(0).log2(), atol=1e-5)
    np.testing.assert_allclose(sagittal, growth[4].mT.flip(0).log2(), atol=1e-5)


def test_the_lines_of_a_grid_end_where_the_map_sends_them():
    """Axis 0 runs down, as in a picture of the image; the corners of this map stay."""
    phi = bend((30, 40), 0.1)
    drawn = lines(rt.plot.grid(phi))
    for line in drawn:
        x = torch.tensor(np.stack([line[:, 1] / 29, line[:, 0] / 39])[None])
        assert x.min() > -0.01 and x.max() < 1.01
    horizontal = [line for line in drawn if abs(line[0, 0]) < 1e-3 and abs(line[-1, 0] - 39) < 1e-3]
    start = horizontal[len(horizontal) // 2]
    along = torch.linspace(0, 1, len(start), dtype=torch.float64)
    at = torch.stack([torch.full_like(along, start[0, 1] / 29), along])[None]
    expected = phi.to(torch.float64)(at)[0].numpy()
    np.testing.assert_allclose(start, np.stack([39 * expected[1], 29 * expected[0]], axis=1), atol=1e-3)


def test_of_a_transform_the_linear_part_is_taken_away_and_of_a_map_it_is_not():
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[0, 3] = 5.0
    registered = pair()
    moved = rt.Transform.from_affine(matrix, registered.fixed, registered.moving)
    for line in lines(rt.plot.grid(moved)):
        assert np.ptp(line[:, 0]) < 1e-4 or np.ptp(line[:, 1]) < 1e-4
        assert line.min() > -1e-4
    turn = rt.AffineMap(torch.tensor([[[0.0, -1.0], [1.0, 0.0]]]), torch.tensor([[1.5, 0.0]]))
    drawn = np.concatenate(lines(rt.plot.grid(turn, shape=(11, 11))))
    assert drawn[:, 1].max() == pytest.approx(15, abs=1e-4)


def test_folds_are_dots_and_counted():
    figure = rt.plot.jacobian(folding())
    growth = rt.determinant(rt.jacobian(folding(), rt.unit_grid((30, 40))))
    assert (growth <= 0).any()
    dots = figure.axes[0].collections[0]
    count = len(dots.get_offsets())
    assert matplotlib.colors.to_hex(dots.get_facecolor()[0]) == FOLD
    assert count == int(rt.folds_central(rt.on_grid_of(folding(), torch.zeros(1, 1, 30, 40))).count)
    assert f"{count} folded voxels" in [text.get_text() for text in figure.texts]
    assert not any("folded" in text.get_text() for text in rt.plot.jacobian(bend((30, 40), 0.05)).texts)


@pytest.mark.parametrize("shape", [(30, 40), (12, 14, 16)])
def test_maps_of_two_and_three_dimensions_are_drawn(shape):
    phi = bend(shape, 0.1)
    panels = 1 if len(shape) == 2 else 3
    assert len(images(rt.plot.grid(phi))) == len(images(rt.plot.jacobian(phi))) == panels
    assert len(images(rt.plot.grid(phi @ phi, shape=shape, width=7.0))) == panels
    assert len(images(rt.plot.grid(lambda x: phi(x), shape=shape))) == panels


def test_what_cannot_be_drawn_is_said(as_users_see_it):
    with pytest.raises(ValueError, match=r"`shape=\(64, 64\)`"):
        rt.plot.grid(rt.Identity())
    with pytest.raises(ValueError, match="choose among axial"):
        rt.plot.pair(pair(), slices=("oblique",))
    with pytest.raises(ValueError, match="does not know a fixed image"):
        rt.plot.jacobian(rt.Transform.from_affine(torch.eye(4)))
    with pytest.raises(ValueError, match="a Tensor is not a map"):
        rt.plot.grid(torch.zeros(1, 2, 4, 4))
    with pytest.raises(ValueError, match="a point of 3 coordinates"):
        rt.plot.grid(pair(), at=(1.0, 2.0))
    with pytest.raises(ValueError, match="two or three"):
        rt.plot.grid(rt.DisplacementMap(torch.zeros(1, 1, 9)))


def test_nothing_global_is_touched():
    import matplotlib.pyplot as plt

    before = dict(matplotlib.rcParams)
    for figure in (rt.plot.pair(pair()), rt.plot.grid(folding()), rt.plot.jacobian(folding()), curves(log())):
        figure.draw_without_rendering()
    assert dict(matplotlib.rcParams) == before and plt.get_fignums() == []


def test_text_has_eight_points_and_stays_on_the_figure():
    for figure in (rt.plot.pair(pair()), rt.plot.jacobian(folding())):
        figure.draw_without_rendering()
        for text in [text for text in figure.texts if text.get_text()]:
            box = text.get_window_extent()
            assert text.get_fontsize() == 8 and box.x0 >= 0 and box.y0 >= 0
            assert box.x1 <= figure.bbox.width and box.y1 <= figure.bbox.height


def step(stage: str, number: int, **changes) -> StepRecord:
    values = dict(total=1.0, similarity=0.5, inverse_consistency=0.1, folds=2.0, magnitude=0.01)
    return StepRecord(stage=stage, step=number, lambda_=3.0, learning_rate=1e-3, **(values | changes))


def log() -> list:
    first = [step("low", n, similarity=float(n)) for n in range(1, 11)]
    judged = [
        ValidationRecord("low", 10, 0.6, {"dice": 0.6}),
        ValidationRecord("high", 5, 0.7, {"dice": 0.7}),
    ]
    return [*first, judged[0], *(step("high", n) for n in range(1, 6)), judged[1]]


def test_curves_count_steps_through_all_stages():
    figure = curves(log())
    titles = [ax.get_ylabel() for ax in figure.axes]
    assert titles == ["λ", "regularity", "similarity", "folds", "Dice"] and figure.get_figwidth() == 3.5
    similarity, dice = figure.axes[2].lines[0], figure.axes[4].lines[0]
    assert list(similarity.get_xdata()) == list(range(1, 16))
    assert list(dice.get_xdata()) == [10, 15] and list(dice.get_ydata()) == [0.6, 0.7]
    # The border between the stages.
    assert list(figure.axes[0].lines[1].get_xdata()) == [10, 10]
    assert [ax.get_ylabel() for ax in curves(log()[:10]).axes] == titles[:-1]


def test_curves_are_read_from_a_run(tmp_path):
    from roundtrip.training.log import Log

    for record in log():
        Log(tmp_path / "log.jsonl").append(record)
    for run in (tmp_path, str(tmp_path), tmp_path / "log.jsonl"):
        assert len(rt.plot.curves(run).axes) == 5
    with pytest.raises(ValueError, match="holds no steps"):
        rt.plot.curves(tmp_path / "elsewhere")


def test_what_only_looks_like_a_result_is_drawn_too():
    registered = pair()
    lookalike = dataclasses.make_dataclass("Pair", ["fixed", "moving", "transform"])
    given = lookalike(registered.fixed, registered.moving, registered.transform)
    assert len(images(rt.plot.grid(given))) == 3
