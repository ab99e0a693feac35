"""A verdict says what is so, points at the place, and worries when there is reason to."""

import dataclasses

import pytest
import torch
from pairs import LAS, pair

from roundtrip.reports.content import content_of
from roundtrip.space.volume import Volume

BRIGHT = (10, 8, 6)
"""A voxel in the foreground of the fixed image."""


def verdict(**changes) -> dict:
    registered = pair()
    perfect = {
        "jacobian": Volume(torch.ones_like(registered.fixed.data), LAS),
        "roundtrip_error": Volume(torch.full_like(registered.fixed.data, 0.1), LAS),
        "metrics": {},
    }
    return content_of(dataclasses.replace(registered, **{**perfect, **changes})).facts["verdict"]


def changed(name: str, value: float, *voxels) -> dict:
    data = torch.ones(1, 20, 16, 12) if name == "jacobian" else torch.full((1, 20, 16, 12), 0.1)
    for voxel in voxels:
        data[(0, *voxel)] = value
    return {name: Volume(data, LAS)}


def place_of(voxel) -> tuple:
    return tuple((LAS @ torch.tensor([*voxel, 1.0], dtype=torch.float64))[:3].tolist())


def finding(said: dict, start: str) -> dict:
    (found,) = [one for one in said["findings"] if start in one["text"]]
    return found


def test_nothing_wrong_is_said_where_nothing_is():
    said = verdict()
    assert said["level"] == "good" and said["headline"] == "Nothing wrong was found."
    assert finding(said, "No folds")["level"] == "good"
    assert "to within 0.1 mm (0.1 mm on average)" in finding(said, "There and back")["text"]


@pytest.mark.parametrize(("count", "level"), [(1, "look"), (60, "bad")])
def test_folds_are_counted_and_the_worst_is_pointed_at(count, level):
    folded = [(10, 8, z % 12) if n < 12 else (11, 4 + n % 8, n // 12) for n, z in enumerate(range(count))]
    growth = changed("jacobian", -0.5, *folded)
    growth["jacobian"].data[(0, *BRIGHT)] = -2
    said = verdict(**growth)
    found = finding(said, "fold")
    expected = int((growth["jacobian"].data <= 0).sum())
    assert found["text"].startswith(f"{expected} voxel") and found["level"] == said["level"] == level
    assert found["at"] == pytest.approx(place_of(BRIGHT)) and found["map"] == "jacobian"


def test_folds_in_the_background_are_said_to_be_there():
    found = finding(verdict(**changed("jacobian", -1.0, (0, 0, 0))), "fold")
    assert "none of them in the foreground" in found["text"]
    assert found["at"] == pytest.approx(place_of((0, 0, 0)))


def test_what_is_not_a_number_is_a_fold_and_a_miss():
    assert "1 voxel folds" in finding(verdict(**changed("jacobian", float("nan"), BRIGHT)), "fold")["text"]
    found = finding(verdict(**changed("roundtrip_error", float("nan"), BRIGHT)), "disagree")
    assert found["at"] == pytest.approx(place_of(BRIGHT))


def test_maps_that_disagree_are_pointed_at():
    said = verdict(**changed("roundtrip_error", 4.5, BRIGHT))
    found = finding(said, "disagree")
    assert "more than 2 mm" in found["text"] and "4.5 mm at worst" in found["text"]
    assert found["at"] == pytest.approx(place_of(BRIGHT)) and found["map"] == "error"
    assert found["level"] == "look"


def test_misses_in_the_background_worry_nobody():
    assert verdict(**changed("roundtrip_error", 50.0, (0, 0, 0)))["level"] == "good"


def test_labels_that_fell_are_named():
    metrics = pair().metrics
    found = finding(verdict(metrics=metrics), "label 70000")
    assert found["label"] == 70_000 and "from 0.90 to 0.80" in found["text"]


@pytest.mark.parametrize(("better", "level"), [("lower", "good"), ("higher", "bad")])
def test_similarity_is_judged_by_which_way_is_better(better, level):
    change = {"name": "x", "before": -0.4, "after": -0.7, "better": better}
    assert verdict(metrics={"similarity": change})["level"] == level


def test_a_registration_that_failed_says_why():
    said = verdict(metrics={"ok": False, "reasons": ["the maps tear"], "notes": ["cropped to the head"]})
    assert said["level"] == "bad" and finding(said, "The maps tear.")["level"] == "bad"
    assert finding(said, "Cropped to the head.")["level"] == "look"
    assert said["findings"][0]["text"] == "The maps tear."
    assert verdict(metrics={"ok": False})["level"] == "bad"


def test_an_image_that_is_sent_away_has_no_counterpart():
    registered = pair()
    far = torch.eye(4, dtype=torch.float64)
    far[0, 3] = 500.0
    transform = type(registered.transform).from_affine(far, registered.fixed, registered.moving)
    found = finding(verdict(transform=transform), "no counterpart")
    assert found["level"] == "bad" and found["text"].startswith("100 %")


def test_growth_beyond_anatomy_is_pointed_at():
    found = finding(verdict(**changed("jacobian", 20.0, BRIGHT)), "factor of more than 8")
    assert found["at"] == pytest.approx(place_of(BRIGHT))
