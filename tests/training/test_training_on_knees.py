"""The paper's knee recipe, end to end on drawn knees: files, mirrored left ones, three stages, a model."""

import pytest

from roundtrip.data.knees import write_knees
from roundtrip.experiments.oai_knees import oai_knees, oai_knees_drawn
from roundtrip.training.config_file import checked, with_overrides
from roundtrip.training.run import train
from training_samples import alone


def test_the_recipe_is_the_papers():
    asked = oai_knees()
    assert [(s.resolution, s.steps, s.batch) for s in asked.stages[:2]] == [(2, 16000, 128), (1, 75000, 16)]
    assert asked.stages[2].batch == 16
    preparation = asked.data.preparation
    assert sorted(preparation.grid) == [80, 192, 192]
    assert (preparation.intensities.lower, preparation.intensities.upper) == (1, 99)
    assert (preparation.mirror.column, preparation.mirror.value) == ("side", "left")
    for stage, increment in zip(asked.stages, (0.1, 0.8, 0.8), strict=True):
        assert stage.lambda_.acceptable_folds == 200 and stage.learning_rate.start == 5e-5
        # The package, whose increments the supplement most likely tells, averages over three components.
        assert 3 * stage.lambda_.increment == pytest.approx(increment)
    drawn = oai_knees_drawn()
    assert [s.name for s in drawn.stages] == [s.name for s in asked.stages]
    assert [s.algorithm.keys() for s in drawn.stages] == [s.algorithm.keys() for s in asked.stages]


@pytest.mark.slow
def test_drawn_knees_go_the_whole_way(tmp_path):
    manifest = write_knees(tmp_path / "knees", people=10, spacing=5.0)
    changes = [
        f"data.source.path={manifest}",
        "data.preparation.grid=[12, 24, 24]",
        *(f"stages.{number}.steps={steps}" for number, steps in enumerate((60, 30, 15))),
        "validation.every=30",
    ]
    asked = checked(with_overrides(oai_knees_drawn().as_plain(), changes), source="oai-knees-drawn")
    trained = train(asked, tmp_path / "run", ranks=alone())
    numbers = trained.card.numbers
    assert numbers["dice"] > numbers["dice_before"]
    assert numbers["mse"] < numbers["mse_before"]
    assert trained.card.preparation == asked.data.preparation
