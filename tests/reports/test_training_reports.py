"""What a training leaves to look at: curves of all stages, TensorBoard's scalars and pictures."""

import pytest
import torch

from roundtrip.maps.affine import AffineMap
from roundtrip.maps.map import Identity
from roundtrip.reports.curves import training_figure
from roundtrip.reports.watchers import Curves, TensorBoard, pictures
from roundtrip.training.records import StepRecord, ValidationRecord
from roundtrip.training.watch import Example
from training_samples import UNET, run, stage


def step(stage: str, number: int, **changes) -> StepRecord:
    values = dict(total=1.0, similarity=0.5, inverse_consistency=0.1, folds=2.0, magnitude=0.01)
    return StepRecord(stage=stage, step=number, lambda_=3.0, learning_rate=1e-3, **(values | changes))


def test_a_row_of_curves_for_every_stage():
    judged = ValidationRecord("low", 3, 0.6, {"dice": 0.6})
    records = [*(step("low", n, similarity=float(n)) for n in range(1, 1001)), judged, step("high", 1)]
    figure = training_figure(records)
    titles = [ax.get_title(loc="left") for ax in figure.axes if ax.get_title(loc="left")]
    assert titles[0] == "low: lambda" and titles[4] == "high: lambda" and "Dice" in titles[3]
    x, y = figure.axes[2].lines[0].get_data()
    # Averaged in threes: the mean of a straight line over neighbours lies on it.
    assert len(x) == 334 and list(x) == list(y)


def test_curves_of_maps_that_never_move_can_be_drawn():
    training_figure([step("low", 1, inverse_consistency=0.0, folds=0.0)]).draw_without_rendering()


def test_a_run_leaves_curves_and_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    watchers = [Curves(tmp_path), TensorBoard(tmp_path / "tensorboard")]
    trained = run(tmp_path, stage("a", steps=3, algorithm=UNET), watchers=watchers)
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
    events = EventAccumulator(str(tmp_path / "tensorboard" / "01-a"))
    events.Reload()
    tags = events.Tags()
    assert {f"pair/{name}" for name in ("moving", "fixed", "warped", "difference", "grid")} == set(
        tags["images"]
    )
    seen = [(event.step, event.value) for event in events.Scalars("training/total")]
    assert [number for number, _ in seen] == [1, 2, 3]
    assert seen[0][1] == pytest.approx(trained.records[0].total)
    assert "validation/dice" in tags["scalars"]


@pytest.mark.parametrize("shape", [(12,), (12, 9), (5, 12, 9)])
def test_pictures_of_any_dimension(shape):
    image = torch.rand(1, 1, *shape, generator=torch.Generator().manual_seed(0))
    shown = dict(pictures(Example(image, image, Identity(), Identity())))
    assert list(shown) == ["moving", "fixed", "warped", "difference", "grid"]
    for picture in shown.values():
        assert picture.ndim == 3 and picture.min() >= 0 and picture.max() <= 1
    torch.testing.assert_close(shown["warped"], shown["fixed"])
    torch.testing.assert_close(shown["difference"], torch.full_like(shown["fixed"], 0.5))


def test_the_grid_is_deformed_as_the_map_says():
    image = torch.zeros(1, 1, 24, 24)
    image[..., 0, 0] = 1
    shift = AffineMap(torch.eye(2)[None], torch.tensor([[0.0, 1 / 23]]))
    still, moved = (dict(pictures(Example(image, image, phi, phi)))["grid"][0] for phi in (Identity(), shift))
    # A map to the right shows at each pixel what was one pixel further: lines move to the left.
    torch.testing.assert_close(moved[1, :-1], still[1, 1:])
    assert still[1].max() == 1 and still[1].min() < 1e-5
