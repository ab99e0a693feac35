"""Many pairs side by side: rows by hand from a few qualities."""

import dataclasses
import math

import pytest

from roundtrip.evaluation.quality import (
    FoldCounts,
    LabelScores,
    LandmarkErrors,
    PairQuality,
    SimilarityChange,
)
from roundtrip.evaluation.round_trip import RoundTripStatistics
from roundtrip.evaluation.summary import (
    as_markdown,
    label_rows,
    label_summary_rows,
    pair_row,
    summary_rows,
)

NAN = math.nan


def quality(*, dice: dict[int, float], hd95: dict[int, float] | None = None, folds: int = 0) -> PairQuality:
    distances = LabelScores(before=dict.fromkeys(dice, 9.0), after=hd95 or dict.fromkeys(dice, 1.0))
    return PairQuality(
        unit="mm",
        similarity=SimilarityChange("mse", 0.5, 0.25),
        folds=FoldCounts(folds, folds / 10, folds / 100),
        roundtrip_error=RoundTripStatistics(0.1, 0.2, 0.3),
        magnitude=2.0,
        dice=LabelScores(before=dict.fromkeys(dice, 0.5), after=dice),
        hd95=distances,
        surface_distance=distances,
    )


def of(rows, measure):
    return next(row for row in rows if row["measure"] == measure)


def test_a_pair_is_a_row_of_numbers():
    row = pair_row(quality(dice={1: 0.6, 2: 0.8}, folds=3))
    assert row["dice"] == pytest.approx(0.7) and row["dice_before"] == 0.5 and row["labels"] == 2
    assert (row["mse_before"], row["mse"], row["folds"]) == (0.5, 0.25, 3)
    assert row["roundtrip_error_p99_mm"] == 0.2
    assert "landmark_error_mm" not in row


def test_the_summary_has_mean_median_and_before():
    pairs = [quality(dice={1: score}, folds=n) for score, n in ((0.6, 0), (0.7, 2), (0.95, 10))]
    dice = of(summary_rows(pairs), "dice")
    assert dice["mean"] == pytest.approx(0.75) and dice["median"] == 0.7 and dice["before_mean"] == 0.5
    assert (dice["min"], dice["max"], dice["pairs"]) == (0.6, 0.95, 3)
    folds = of(summary_rows(pairs), "folds")
    assert (folds["mean"], folds["median"], folds["before_mean"]) == (4, 2, None)


def test_what_a_pair_lacks_is_left_out_of_its_mean():
    without = dataclasses.replace(quality(dice={1: 0.5}), dice=None, hd95=None, surface_distance=None)
    nothing_shared = quality(dice={})
    rows = summary_rows([without, nothing_shared, quality(dice={1: 0.5})])
    assert of(rows, "dice")["pairs"] == 1 and of(rows, "dice")["mean"] == 0.5
    assert of(rows, "folds")["pairs"] == 3
    assert pair_row(nothing_shared)["dice"] is None


def test_labels_are_summed_up_over_the_pairs_that_have_them():
    pairs = [quality(dice={1: 0.6, 2: 0.2}), quality(dice={2: 0.4}, hd95={2: NAN})]
    assert [row["label"] for row in label_rows(pairs[0])] == [1, 2]
    one, two = label_summary_rows(pairs)
    assert (one["label"], one["pairs"], one["dice_mean"]) == (1, 1, 0.6)
    assert two["pairs"] == 2 and two["dice_mean"] == pytest.approx(0.3)
    assert two["hd95_mm_mean"] == 1.0 and two["dice_before_median"] == 0.5


def test_landmarks_are_a_measure_too():
    pair = dataclasses.replace(quality(dice={1: 1.0}), landmark_error=LandmarkErrors(4.0, 1.5, 2.0, 7))
    assert of(summary_rows([pair]), "landmark_error_mm")["before_mean"] == 4.0


def test_a_table_in_markdown():
    table = as_markdown([{"file": "a|b", "dice": 0.123456, "folds": None}, {"file": "c", "dice": 1.0}])
    assert table.splitlines() == [
        "| file |   dice | folds |",
        "| ---- | -----: | ----: |",
        "| a\\|b | 0.1235 |     - |",
        "| c    |      1 |     - |",
    ]
    assert as_markdown([]) == ""
