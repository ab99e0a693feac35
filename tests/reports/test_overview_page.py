"""The page over many pairs in a browser: every control does what it says.

Skipped where there is no chromium. `tests/reports/browser.py` drives it.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from many import colour_of, draw_thumbnail, entry, overview
from pairs import pair

from roundtrip.reports.overview import write_overview
from roundtrip.reports.page import write_report

pytestmark = pytest.mark.slow

NASTY = "<img src=x onerror=document.title='run'>\"'</script><script>document.title='run'</script>.nii.gz"
COUNT = 5000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    started = Browser.start()
    yield started
    started.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("overview")
    stamps = [draw_thumbnail(folder / "stamps" / f"{n}.jpg", n) for n in range(12)]
    entries = [entry(n, thumbnail=stamps[n % 12]) for n in range(COUNT - 3)]
    entries += [entry(9001, values={}, error="the file is truncated", report=None, thumbnail=None)]
    entries += [entry(9002, doubts=["the maps disagree."]), entry(9003, doubts=["the map folds."])]
    few = [entry(n, texts={"method": "ours" if n % 2 else "peer"}, thumbnail=stamps[n]) for n in range(6)]
    nasty = entry(1, name=NASTY, doubts=[NASTY], texts={NASTY: NASTY}, report=f"{NASTY}/x.html")
    written = {
        "many": overview(
            entries, about={"effort": "fast"}, tables={"Over all": [{"measure": "dice", "mean": 0.6}]}
        ),
        "few": overview(few),
        "nasty": overview([nasty, entry(2, name=NASTY, error=NASTY)], title=NASTY, about={NASTY: NASTY}),
        "bare": overview([]),
    }
    for name, shown in written.items():
        write_overview(folder / f"{name}.html", shown)
    write_report(folder / "pair-0000" / "report.html", pair())
    return {name: folder / f"{name}.html" for name in written}


@pytest.fixture
def many(browser, pages) -> Iterator[Browser]:
    browser.screen(1280, 900)
    browser.requested(), browser.logged()
    browser.open(pages["many"])
    yield browser
    assert browser.logged() == []


def names(browser: Browser) -> list[str]:
    return browser.run(
        "return [...document.querySelectorAll('#rows .name')]"
        ".map((e) => e.textContent.match(/pair-[0-9]+/)[0])"
    )


def numbers(browser: Browser, title: str) -> list[float]:
    """Of a column, in the rows that are shown."""
    texts = browser.run(
        "return [...document.querySelectorAll('#rows td.number')]"
        ".filter((e) => e.dataset.title === arguments[0]).map((e) => e.firstChild.textContent)",
        title,
    )
    return [float(text.replace(",", "")) for text in texts]


def fetched(browser: Browser) -> list[str]:
    """What was asked for, but for pictures that are in the page itself."""
    return [address for address in browser.requested() if not address.startswith("data:")]


def said(browser: Browser) -> str:
    return browser.text("#said")


def choose(browser: Browser, name: str, value: str) -> None:
    browser.run(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind))",
        name,
        value,
    )
    browser.settle()


def head(by: str) -> str:
    return f'#head th[data-by="{by}"] button'


def test_five_thousand_pairs_are_there_at_once_and_nothing_is_asked_of_the_network(many, pages):
    assert fetched(many) == [pages["many"].as_uri()]
    assert many.run("return performance.getEntriesByName('first view')[0].startTime") < 2000
    assert many.text("#counts") == "5,000 pairs, 1 failed, 2 not to be relied upon"
    assert said(many) == "1 to 50 of 5,000" and len(names(many)) == 50
    assert names(many)[:4] == ["pair-9001", "pair-9002", "pair-9003", "pair-4800"]
    assert many.text("#rows .reason") == "the file is truncated"
    assert many.text("#rows .why") == "the maps disagree."
    assert "Effort" in many.text("#about") and "Dice" in many.text("#tables")


def test_pages_are_turned(many):
    many.click("#next")
    assert said(many) == "51 to 100 of 5,000" and many.text("#page") == "2 / 100"
    many.click("#previous")
    assert said(many) == "1 to 50 of 5,000"
    assert many.run("return document.getElementById('previous').disabled")


def test_heads_sort_the_bad_end_first_and_turn_around(many):
    many.click(head("value 0"))
    shown = numbers(many, "Dice")
    assert len(shown) == 50 and shown == sorted(shown) and names(many)[0] == "pair-4800"
    many.click(head("value 0"))
    assert (
        many.run("return document.querySelector('[data-by=\"value 0\"]').getAttribute('aria-sort')")
        == "descending"
    )
    assert many.text("#rows .number").startswith("0.899")
    many.click(head("value 1"))
    assert names(many)[0] == "pair-4995"
    many.click(head("name"))
    assert names(many)[:3] == ["pair-0000", "pair-0001", "pair-0002"]
    many.click("#turn")
    assert names(many)[0] == "pair-9003"
    choose(many, "order", "worst")
    assert names(many)[0] == "pair-9001"
    # What has no number comes last, whichever way.
    choose(many, "order", "value 2")
    for _ in range(2):
        for _ in range(99):
            many.run("document.getElementById('next').click()")
        assert names(many)[-1] == "pair-9001"
        many.click("#turn")


def test_search_finds_names_and_reasons(many):
    choose(many, "search", "pair-012")
    assert (
        names(many) == [f"pair-012{n}" for n in range(10)] and said(many) == "1 to 10 of 10 (of 5,000 pairs)"
    )
    choose(many, "search", "TRUNCATED")
    assert names(many) == ["pair-9001"]
    choose(many, "search", "nowhere")
    assert said(many) == "No pair is like that." and names(many) == []
    many.click("#clear")
    assert (
        said(many) == "1 to 50 of 5,000" and many.run("return document.getElementById('search').value") == ""
    )
    many.run("document.activeElement.blur()")
    many.keys("/42")
    assert many.run("return document.getElementById('search').value") == "42"


def test_states_are_chosen(many):
    choose(many, "show", "failed")
    assert names(many) == ["pair-9001"]
    many.click("#counts button:nth-of-type(2)")
    assert names(many) == ["pair-9002", "pair-9003"]
    assert many.run("return document.getElementById('show').value") == "doubtful"
    choose(many, "show", "fine")
    assert said(many).endswith("of 4,997 (of 5,000 pairs)")


def test_a_bar_of_a_histogram_shows_its_pairs_alone(many):
    assert many.run("return document.querySelectorAll('.histogram').length") == 3
    counts = many.run(
        "return [...document.querySelectorAll('.histogram:nth-of-type(1) .bins button')]"
        ".map((e) => Number(e.title.match(/: ([0-9,]+)$/)[1].replace(',', '')))"
    )
    assert sum(counts) == COUNT - 1
    bar = ".histogram:nth-of-type(1) .bins button:nth-of-type(3)"
    many.click(bar)
    assert said(many).endswith(f"of {counts[2]} (of 5,000 pairs)")
    about = "return document.querySelector(arguments[0]).getAttribute(arguments[1])"
    assert many.run(about, bar, "aria-pressed") == "true"
    low, high = map(float, re.match(r"([\d.]+) to ([\d.]+)", many.run(about, bar, "aria-label")).groups())
    assert all(low - 1e-3 <= one < high + 1e-3 for one in numbers(many, "Dice"))
    # The others show how the chosen ones lie among all.
    strong = "return document.querySelector('.histogram:nth-of-type(2) .bins button').lastChild.style.height"
    assert 0 < float(many.run(strong).split(",")[1].strip(" %)")) < 60
    many.run(
        "document.querySelector(arguments[0])"
        ".dispatchEvent(new MouseEvent('click', { shiftKey: true, bubbles: true }))",
        ".histogram:nth-of-type(1) .bins button:nth-of-type(5)",
    )
    assert said(many).endswith(f"of {sum(counts[2:5]):,} (of 5,000 pairs)")
    many.click("#clear")
    assert said(many) == "1 to 50 of 5,000"


def test_stamps_are_drawn_where_they_belong(many):
    choose(many, "search", "pair-0007")
    many.wait("return document.querySelector('#rows canvas').dataset.drawn === 'yes'")
    drawn = many.run(
        "const c = document.querySelector('#rows canvas'), k = document.createElement('canvas');"
        "k.width = k.height = 1; const d = k.getContext('2d');"
        "d.drawImage(c, c.width / 2, c.height / 2, 1, 1, 0, 0, 1, 1);"
        "return [...d.getImageData(0, 0, 1, 1).data].slice(0, 3)"
    )
    assert drawn == pytest.approx(colour_of(7), abs=8)


def test_a_row_opens_its_pair(many, pages):
    choose(many, "search", "pair-0000")
    link = many.run("return document.querySelector('#rows a').href")
    assert link == (pages["many"].parent / "pair-0000" / "report.html").as_uri()
    many.run("document.querySelector('#rows td.number').click()")
    many.wait("return document.title.startsWith('fixed.nii.gz')")
    many.wait("return document.documentElement.dataset.ready === 'yes'")


def test_texts_tell_pairs_apart(browser, pages):
    browser.screen(1280, 900)
    browser.open(pages["few"])
    choose(browser, "text-0", "peer")
    assert names(browser) == ["pair-0000", "pair-0002", "pair-0004"]
    browser.click("#clear")
    browser.click(head("text 0"))
    assert names(browser) == ["pair-0001", "pair-0003", "pair-0005", "pair-0000", "pair-0002", "pair-0004"]
    assert not browser.run("return document.getElementById('pager').checkVisibility()")
    assert browser.logged() == []


def test_light_and_dark_follow_the_system_and_the_button(many):
    paper = "return getComputedStyle(document.body).backgroundColor"
    light = many.run(paper)
    many.screen(1280, 900, dark=True)
    dark = many.run(paper)
    assert light != dark
    many.click("#theme")
    assert many.run(paper) == light


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_is_wider_than_the_screen(browser, pages, width):
    for name in ("many", "few", "nasty"):
        browser.screen(width, 844, mobile=width < 500)
        browser.open(pages[name])
        assert browser.run("return document.documentElement.scrollWidth") <= width


def test_every_control_has_a_name(many):
    nameless = many.run(
        "return [...document.querySelectorAll('button, select, input, canvas')].filter((e) =>"
        "!(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length)).map((e) => e.outerHTML)"
    )
    assert nameless == []


def test_names_from_files_do_no_harm(browser, pages):
    browser.requested()
    browser.open(pages["nasty"])
    browser.settle()
    assert browser.text("#title") == NASTY and browser.text("#rows .name a") == NASTY
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert browser.run("return document.title").startswith("<img src=x")
    folder = pages["nasty"].parent.as_uri()
    assert browser.run(
        "return [...document.querySelectorAll('#rows a')].every((e) => e.href.startsWith(arguments[0]))",
        folder,
    )
    assert fetched(browser) == [pages["nasty"].as_uri()] and browser.logged() == []


def test_a_page_of_no_pairs_opens(browser, pages):
    browser.open(pages["bare"])
    assert said(browser) == "No pair is like that." and browser.logged() == []
