"""The laws the paper states, in the numbers we published (`docs/results/*.json`), and the page of them."""

from pathlib import Path

import pytest

from roundtrip.experiments.page import results_page
from roundtrip.experiments.results import RESULTS, result_named
from roundtrip.experiments.table import Table, read_table

DOCS = Path(__file__).parents[2] / "docs"
TABLES = sorted((DOCS / "results").glob("*.json"))


def test_some_are_stored():
    assert TABLES


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_what_was_run_is_what_is_stored(path):
    table = read_table(path)
    assert path.stem == f"{table.result}-{table.scale}" and table.scale in ("hours", "full")
    assert table.made and all(row["scale"] == table.scale for row in table.rows)
    cells = [cell.name for cell in result_named(table.result).cells(table.scale)]
    assert sorted([*table.made, *table.not_run]) == sorted(cells)
    assert {row["cell"] for row in table.rows} == set(table.made)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_the_numbers_show_what_the_paper_says(path):
    """Judged anew, by the table alone; what was not run is passed over.

    At the paper's own protocol a law has to hold. Where it does not at a smaller one, the notes beside the
    table have to name it and say why.
    """
    table = read_table(path)
    claims = result_named(table.result).claims(table.rows)
    assert claims == table.claims, "python benchmarks/results_page.py"
    notes = DOCS / "results" / f"{table.result}.md"
    explained = notes.read_text(encoding="utf-8") if notes.exists() and table.scale != "full" else ""
    for claim in claims:
        assert claim.holds is not False or f'"{claim.says}"' in explained, f"{claim.says}: {claim.numbers}"


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_a_table_comes_back_from_json(path):
    table = read_table(path)
    assert Table.from_dict(table.as_dict()).as_dict() == table.as_dict()


def test_the_page_is_made_of_them():
    page = results_page(DOCS / "results")
    assert page == (DOCS / "results.md").read_text(encoding="utf-8"), "python benchmarks/results_page.py"
    for result in RESULTS:
        assert f"## {result.name}: " in page


def test_the_pictures_are_small():
    for path in (DOCS / "results").glob("*.png"):
        assert path.stat().st_size < 400_000 and path.stem in {result.name for result in RESULTS}
