"""Takes tables and figures of `roundtrip reproduce` into docs/results, and writes docs/results.md of them.

python benchmarks/results_page.py reproduced

Without a folder the page is only written again, of what is stored.
"""

import argparse
import shutil
from pathlib import Path
from typing import get_args

from roundtrip._files import write_whole
from roundtrip.experiments.page import results_page
from roundtrip.experiments.result import Scale
from roundtrip.experiments.results import RESULTS
from roundtrip.experiments.table import read_table

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
    page = results_page(folder)
    write_whole(DOCS / "results.md", lambda beside: beside.write_text(page, encoding="utf-8"))


if __name__ == "__main__":
    main()
