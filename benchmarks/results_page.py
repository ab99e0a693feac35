"""Takes tables and figures of `roundtrip reproduce` into docs/results, and writes docs/results.md of them.

python benchmarks/results_page.py reproduced

Without a folder, what is stored is judged again and the page written again.
"""

import argparse
import shutil
from dataclasses import replace
from pathlib import Path
from typing import get_args

from roundtrip._files import write_whole
from roundtrip.experiments.page import results_page
from roundtrip.experiments.result import Scale
from roundtrip.experiments.results import RESULTS, result_named
from roundtrip.experiments.table import read_table
from roundtrip.reports.files import write_json

DOCS = Path(__file__).parents[1] / "docs"


def collect(reproduced: Path, folder: Path) -> None:
    """The table of every result and scale, and the figure of the largest whole one; `quick` is for tests."""
    for result in RESULTS:
        for scale in get_args(Scale)[1:]:
            made = reproduced / f"{result.name}-{scale}"
            if (made / "table.json").exists():
                shutil.copyfile(made / "table.json", folder / f"{result.name}-{scale}.json")
                table = read_table(made / "table.json")
                if scale == "hours" or not table.not_run:
                    shutil.copyfile(made / "figure.png", folder / f"{result.name}.png")
                print(f"{result.name} {scale}")


def judge_again(folder: Path) -> None:
    """What the stored tables show, by what results have to show today; their numbers stay as they are."""
    for path in folder.glob("*.json"):
        table = read_table(path)
        claims = result_named(table.result).claims(table.rows)
        write_json(path, replace(table, claims=claims).as_dict())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reproduced", type=Path, nargs="?", help="the --output of `roundtrip reproduce`")
    reproduced = parser.parse_args().reproduced
    folder = DOCS / "results"
    folder.mkdir(exist_ok=True)
    if reproduced is not None:
        collect(reproduced, folder)
    judge_again(folder)
    page = results_page(folder)
    write_whole(DOCS / "results.md", lambda beside: beside.write_text(page, encoding="utf-8"))


if __name__ == "__main__":
    main()
