"""The page over many pairs: worst first, small, with every picture where it belongs; nothing of it runs."""

import base64
import io
import re

import pytest
from many import COLUMNS, colour_of, draw_thumbnail, entry, overview
from PIL import Image
from unpacking import facts_of

from roundtrip.evaluation.quality import FoldCounts, LabelScores, PairQuality, SimilarityChange
from roundtrip.evaluation.round_trip import RoundTripStatistics
from roundtrip.reports.evaluation import doubts_of
from roundtrip.reports.overview import Entry, worst_first, write_overview
from roundtrip.reports.stamps import PER_SHEET, stamps_of

NASTY = "</script><img src=x onerror=alert(1)>\"'&.nii.gz"


def page(tmp_path, shown, **how) -> str:
    write_overview(tmp_path / "index.html", shown, **how)
    return (tmp_path / "index.html").read_text(encoding="utf-8")


def test_the_failed_come_first_then_the_doubtful_then_the_others_by_the_first_column():
    given = [
        entry(7),
        entry(3, values={"dice": 0.9, "folds": 0}, doubts=["the maps disagree."]),
        entry(5, values={}, error="a truncated file"),
        entry(2),
        entry(4, values={"folds": 0}),
        entry(1, values={"dice": 0.502, "folds": 9}),
    ]
    names = [one.name[-1] for one in worst_first(given, COLUMNS)]
    # 1 and 2 have one Dice: more folds are worse. What was not measured comes last.
    assert names == ["5", "3", "1", "2", "7", "4"]


def test_the_facts_are_those_of_the_pairs(tmp_path):
    text = page(tmp_path, overview([entry(5), entry(6, error="no such file", values={}, report=None)]))
    facts = facts_of(text)
    failed, done = facts["rows"]
    assert failed == {"n": "pair-0006", "v": [None, None, None], "e": "no such file"}
    assert done["v"] == [0.505, 15, pytest.approx(1 / 6, rel=1e-4)] and done["b"] == [0.4, None, None]
    assert done["r"] == "./pair-0005/report.html"


def test_columns_that_nobody_has_are_left_out(tmp_path):
    facts = facts_of(page(tmp_path, overview([entry(1, values={"folds": 2})])))
    assert [column["key"] for column in facts["columns"]] == ["folds"]


def test_what_is_not_a_number_is_null(tmp_path):
    facts = facts_of(page(tmp_path, overview([entry(1, values={"dice": float("nan"), "folds": 1})])))
    assert facts["rows"][0]["v"] == [1]


def test_names_never_become_markup_and_links_stay_relative(tmp_path):
    nasty = entry(1, name=NASTY, error=None, doubts=[NASTY], texts={NASTY: NASTY}, report=f"{NASTY}/x.html")
    sly = entry(2, report="javascript:alert(1)")
    shown = overview([nasty, sly], title=NASTY, about={NASTY: NASTY}, tables={NASTY: [{NASTY: NASTY}]})
    text = page(tmp_path, shown)
    assert "<img" not in text and "onerror" in text
    assert (
        text.count("<script")
        == text.count("</script")
        == page(tmp_path, overview([entry(1)])).count("<script")
    )
    links = [row["r"] for row in facts_of(text)["rows"]]
    assert all(re.fullmatch(r"\./[\w%./~-]+", link) for link in links), links


def test_the_policy_lets_nothing_be_fetched(tmp_path):
    text = page(tmp_path, overview([entry(1)]))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "http" not in policy
    assert not re.findall(r"""\s(?:src|href|on\w+)\s*=\s*["'](?!data:,|#)""", text)


def picture_of(stamps, number: int) -> tuple[int, ...]:
    sheet, row = divmod(stamps.places[number], PER_SHEET)
    data = base64.b64decode(list(stamps.blocks.values())[sheet])
    with Image.open(io.BytesIO(data)) as image:
        return image.getpixel((stamps.side // 2, row * stamps.side + stamps.side // 2))


def test_every_stamp_is_where_it_is_said_to_be(tmp_path):
    """Also where others are missing, and on the second sheet."""
    paths = [draw_thumbnail(tmp_path / f"{n}.jpg", n) if n % 7 else None for n in range(60)]
    paths[8] = tmp_path / "gone.jpg"
    stamps = stamps_of(paths)
    assert len(stamps.blocks) == 2 and stamps.places[0] is stamps.places[7] is stamps.places[8] is None
    for number in (1, 2, 9, 33, 50, 59):
        assert picture_of(stamps, number) == pytest.approx(colour_of(number), abs=6)


def test_stamps_shrink_until_they_fit_and_then_the_last_are_left_out(tmp_path):
    for n in range(8):
        noise = Image.effect_noise((288, 96), 90).convert("RGB")
        noise.save(tmp_path / f"{n}.jpg", quality=95)
    paths = [tmp_path / f"{n % 8}.jpg" for n in range(200)]
    sides = []
    for budget in (8_000_000, 500_000, 100_000):
        stamps = stamps_of(paths, budget=budget)
        assert sum(map(len, stamps.blocks.values())) <= budget
        sides.append(stamps.side)
    assert sides[0] == 96 and sides == sorted(sides, reverse=True) and sides[2] < 64
    assert stamps.places[0] == 0 and stamps.places[-1] is None


def test_five_thousand_pairs_are_a_small_page(tmp_path):
    text = page(tmp_path, overview([entry(number) for number in range(5000)]))
    assert len(text) < 1_200_000


def test_pictures_that_are_missing_do_not_matter(tmp_path):
    facts = facts_of(page(tmp_path, overview([Entry(name="a", thumbnail=tmp_path / "none.jpg")])))
    assert facts["stamps"]["sheets"] == [] and "p" not in facts["rows"][0]


def quality(**changes) -> PairQuality:
    parts = {
        "unit": "mm",
        "similarity": SimilarityChange("ncc", 0.5, 0.2),
        "folds": FoldCounts(0, 0.0, 0.0),
        "roundtrip_error": RoundTripStatistics(0.1, 0.2, 0.3),
        "magnitude": 1.0,
        "dice": LabelScores({1: 0.5}, {1: 0.8}),
    }
    return PairQuality(**{**parts, **changes})


def test_a_judged_pair_is_doubted_for_reasons_alone():
    assert doubts_of(quality()) == []
    assert "fold" in doubts_of(quality(folds=FoldCounts(900, 3.0, 2.0)))[0]
    assert "overlap less" in doubts_of(quality(dice=LabelScores({1: 0.8}, {1: 0.5})))[0]
    assert "less alike" in doubts_of(quality(similarity=SimilarityChange("ncc", 0.2, 0.5)))[0]
