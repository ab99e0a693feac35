"""Drawn knees: what makes them a test of the paper's recipe, above all that sides differ by a mirror."""

import csv

import pytest
import torch

from roundtrip.data.config import DataConfig
from roundtrip.data.dataset import open_dataset
from roundtrip.data.knees import FEMORAL, TIBIAL, draw_knee, preparation_of_knees, write_knees
from roundtrip.evaluation.overlap import dice
from roundtrip.space.files import read
from roundtrip.space.grid import orientation_of
from roundtrip.space.preparation import prepare_labels

PREPARATION = preparation_of_knees((20, 48, 48))


def inwards(side: str, person: int, *, mirrored: bool) -> float:
    """How many voxels along axis 0 the femoral cartilage lies beside the tibial one, on average."""
    labels = prepare_labels(draw_knee(side, person=person).labels, PREPARATION, mirrored=mirrored).data[0]
    at = torch.arange(len(labels)).double()
    along = [(labels == label).sum(dim=(1, 2)).double() for label in (FEMORAL, TIBIAL)]
    femoral, tibial = ((at * count).sum() / count.sum() for count in along)
    return float(femoral - tibial)


def test_a_left_knee_looks_like_a_right_one_only_in_the_mirror():
    for person in range(1, 6):
        assert inwards("right", person, mirrored=False) > 0.5 < inwards("left", person, mirrored=True)
        assert inwards("left", person, mirrored=False) < -0.5


def test_both_cartilages_are_there_and_bright():
    knee = draw_knee("right", person=7)
    labels, image = knee.labels.data, knee.image.data
    for label in (FEMORAL, TIBIAL):
        assert (labels == label).sum() > 300
        assert image[labels == label].median() > 1.2 * image[labels == 0].quantile(0.75)


def test_people_and_scans_differ_and_the_seed_decides():
    first, again, other = draw_knee("left"), draw_knee("left"), draw_knee("left", seed=1)
    assert first.image.data.equal(again.image.data) and first.image.grid.same_as(again.image.grid)
    assert not first.image.grid.same_as(other.image.grid)
    knees = [draw_knee(side, person=person).image for side in ("left", "right") for person in range(6)]
    assert len({knee.shape for knee in knees}) > 6 and len({orientation_of(knee) for knee in knees}) > 1
    scales = [float(knee.data.quantile(0.99)) for knee in knees]
    assert max(scales) > 5 * min(scales)


def test_files_and_manifest_belong_together(tmp_path):
    manifest = write_knees(tmp_path, people=2, spacing=6.0)
    with manifest.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["subject"], row["side"]) for row in rows] == [
        ("001", "left"),
        ("001", "right"),
        ("002", "left"),
        ("002", "right"),
    ]
    for row in rows:
        image, labels = read(tmp_path / row["image"]), read(tmp_path / row["labels"], labels=True)
        assert image.grid.same_as(labels.grid) and set(labels.data.unique().tolist()) == {0, 1, 2}
    drawn = draw_knee("right", spacing=6.0, person=2)
    torch.testing.assert_close(image.data, drawn.image.data)
    assert image.grid.same_as(drawn.image.grid)


def test_the_papers_recipe_goes_from_files_to_pairs_that_look_alike(tmp_path):
    manifest = write_knees(tmp_path, people=6, spacing=6.0)
    config = DataConfig.model_validate(
        {
            "source": {"kind": "manifest", "path": manifest},
            "preparation": preparation_of_knees((16, 24, 24)),
            "split": {"kind": "counts", "train": 4, "test": 2},
        }
    )
    train = open_dataset(config, cache=tmp_path / "cache").train
    batch = train.load(train.pairs(None), torch.device("cpu"))
    assert train.grid == (16, 24, 24) and len(train.names) == 8 and len(batch.moving) == 8 * 6
    # From the first percentile to the 99th of each image, before voxels are averaged.
    assert (batch.moving.amin((1, 2, 3, 4)) == 0).all() and (batch.moving.amax((1, 2, 3, 4)) > 0.9).all()
    assert batch.moving.max() <= 1

    def overlap(batch) -> float:
        return float(dice(batch.moving_labels, batch.fixed_labels).mean.mean())

    kept = config.model_copy(update={"preparation": config.preparation.model_copy(update={"mirror": None})})
    unmirrored = open_dataset(kept, cache=tmp_path / "cache").train
    assert unmirrored.names == train.names
    plain = unmirrored.load(unmirrored.pairs(None), torch.device("cpu"))
    assert overlap(batch) > 1.15 * overlap(plain)


def test_nobody_is_nobody(tmp_path):
    with pytest.raises(ValueError, match="at least one person"):
        write_knees(tmp_path, people=0)
