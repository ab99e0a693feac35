"""The journal of an evaluation and the loop that keeps it: killed anywhere, what was done is not lost."""

import math

import pytest

from roundtrip.evaluation.cohort import judge_pairs
from roundtrip.evaluation.journal import Journal, Judged
from roundtrip.evaluation.quality import FoldCounts, LabelScores, PairQuality, SimilarityChange
from roundtrip.evaluation.round_trip import RoundTripStatistics

PAIRS = [("a", "b"), ("b", "c"), ("c", "a")]


def quality(dice: float = 0.5) -> PairQuality:
    scores = LabelScores(before={1: 0.25, 2: math.nan}, after={1: dice, 2: 0.0})
    return PairQuality(
        unit="mm",
        similarity=SimilarityChange("ncc", 0.5, 0.25),
        folds=FoldCounts(0, 0.0, 0.0),
        roundtrip_error=RoundTripStatistics(0.1, 0.2, 0.3),
        magnitude=2.0,
        dice=scores,
        hd95=scores,
        surface_distance=scores,
    )


def succeed(pair) -> Judged:
    return Judged(*pair, quality=quality(), seconds=1.5)


def test_what_is_written_is_read_again_whoever_wrote_it(tmp_path):
    first, second = Judged("a", "b", quality(), 0.25), Judged("ä|\n", "c", error="why\nnot")
    Journal(tmp_path / "new", rank=0).append(first)
    Journal(tmp_path / "new", rank=3).append(second)
    read = Journal(tmp_path / "new", rank=1).read()
    assert read[first.pair].as_dict() == first.as_dict() and read[second.pair] == second
    assert Journal(tmp_path / "nowhere").read() == {}


@pytest.mark.parametrize("kept", [1, 20, 200])
def test_a_line_that_was_never_finished_is_ignored_and_damages_no_other(tmp_path, kept):
    journal = Journal(tmp_path)
    journal.append(succeed(PAIRS[0]))
    whole = (tmp_path / "0000.jsonl").read_bytes()
    (tmp_path / "0000.jsonl").write_bytes(whole + whole[:kept])
    assert journal.read().keys() == {PAIRS[0]}
    journal.append(succeed(PAIRS[1]))
    assert journal.read().keys() == {PAIRS[0], PAIRS[1]}


def test_a_pair_that_succeeded_stays_so(tmp_path):
    journal = Journal(tmp_path)
    for judged in (Judged("a", "b", error="no"), succeed(("a", "b")), Judged("a", "b", error="no")):
        journal.append(judged)
    assert journal.read()["a", "b"].error is None


def judge_all(folder, judge, **more):
    return judge_pairs(PAIRS, judge, name=lambda pair: pair, journal=Journal(folder), **more)


def test_every_pair_is_judged_once_in_order(tmp_path):
    asked, told = [], []
    for _ in range(2):
        judged = judge_all(
            tmp_path, lambda pair: asked.append(pair) or succeed(pair), on_pair=lambda j: told.append(j.pair)
        )
    assert asked == PAIRS == told and [one.pair for one in judged] == PAIRS


def test_a_pair_that_fails_gives_its_reason_and_is_tried_again(tmp_path):
    def fail_once(pair):
        if pair == PAIRS[1] and not broken:
            broken.append(pair)
            raise ValueError("the image\n is empty")
        return succeed(pair)

    broken = []
    judged = judge_all(tmp_path, fail_once)
    assert [one.error for one in judged] == [None, "the image is empty", None]
    assert [one.error for one in judge_all(tmp_path, fail_once)] == [None, None, None]


def test_a_fault_of_the_program_is_no_reason(tmp_path):
    with pytest.raises(TypeError):
        judge_all(tmp_path, lambda pair: len(3))


def test_when_interrupted_only_the_pair_at_work_is_lost(tmp_path):
    def stop_at_the_second(pair):
        if pair == PAIRS[1]:
            raise KeyboardInterrupt
        return succeed(pair)

    with pytest.raises(KeyboardInterrupt):
        judge_all(tmp_path, stop_at_the_second)
    asked = []
    judge_all(tmp_path, lambda pair: asked.append(pair) or succeed(pair))
    assert asked == PAIRS[1:]
