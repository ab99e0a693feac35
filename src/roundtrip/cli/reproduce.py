"""`roundtrip reproduce`: every result of the paper, one command each."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from roundtrip.experiments.reproduce import Reproduced


def reproduce(
    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = None,
    *,
    scale: Literal["quick", "hours", "full"] = "hours",
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")] = Path("reproduced"),
    data: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None,
    cells: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[CELL ...]")] = (),
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: Literal["32", "bf16-mixed", "16-mixed"] = "32",
    threads: int | None = None,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Make a result of the paper again: figure, table, and what they must show. Without NAME, list them.

    Writes figure.png, table.md, table.json, table.csv and settings.json into DIR/NAME-SCALE. Stopped, also by
    `kill -9`, it goes on where it was when the same command is given again: cells of a table that are done
    are not done again, and trainings, which lie in DIR/trainings, go on from their checkpoints.

    Args:
        name: Which result.
        scale: full is the paper's own protocol, hours fits an evening on two cores, quick takes seconds.
        output: Folder for all results.
        data: MNIST: a folder with its files, or an .npz; fetched once into DIR/mnist unless given. For curves
            at full scale: the manifest of the OAI's knees.
        cells: Only these cells of the table, e.g. `--cells unet-512 unet-2048`.
        device: What to compute on; a GPU if there is one.
        precision: Of the networks.
        threads: Processor threads; all unless given.
        json: Print the table as one JSON object, alone, on standard output.
        quiet: Print nothing but errors.
    """
    if name is None:
        _list(as_json=json)
        return

    from roundtrip._launch import Resources, launched
    from roundtrip.cli.console import announce, progress
    from roundtrip.cli.training_bar import TrainingBar
    from roundtrip.experiments.reproduce import reproduce as run
    from roundtrip.experiments.results import result_named
    from roundtrip.experiments.workplace import Workplace

    result = result_named(name)
    _require_usable(output, data)
    total = len(cells or result.cells(scale))
    with launched(Resources(precision=precision, threads=threads, accelerator=device)) as ranks:
        # Trainings tell what went wrong with checkpoints; their bars would disturb that of the cells.
        watchers = (TrainingBar(None, quiet=quiet),)
        with progress(name, total, quiet=quiet) as advance, _notes(quiet) as note:
            place = Workplace(output, ranks, data, watchers, note)
            made = run(result, scale, place, only=cells, on_cell=lambda cell: advance(cell))
    announce(_lines(made, result), made.table.as_dict(), as_json=json, quiet=quiet)


def _list(*, as_json: bool) -> None:
    from roundtrip.cli.console import announce
    from roundtrip.experiments.results import RESULTS

    values = {result.name: {"paper": result.paper, "shows": result.shows} for result in RESULTS}
    width = max(len(name) for name in values) + 2
    lines = [f"{name:{width}}{one['paper']:12}{one['shows']}" for name, one in values.items()]
    announce(lines, values, as_json=as_json)


def _require_usable(output: Path, data: Path | None) -> None:
    if output.exists() and not output.is_dir():
        raise ValueError(f"{output} is a file; name a folder, e.g. `--output reproduced`.")
    if data is not None and not data.exists():
        raise ValueError(f"{data} does not exist; name MNIST's folder, or leave out `--data` to fetch it.")


@contextlib.contextmanager
def _notes(quiet: bool) -> Iterator[Any]:
    """Lines of their own on standard error, but only to a terminal."""
    shown = not quiet and sys.stderr.isatty()
    yield lambda text: print(f"roundtrip: {text}", file=sys.stderr) if shown else None


def _lines(made: "Reproduced", result: Any) -> list[str]:
    from roundtrip.experiments.table import as_lines

    table = made.table
    rows = [{key: value for key, value in row.items() if key != "scale"} for row in table.rows]
    lines = [f"{table.result}, {table.paper}, scale {table.scale}", "", result.markdown(rows), ""]
    lines += as_lines(table)
    if table.not_run:
        lines += ["", f"not run: {', '.join(table.not_run)}"]
    return [*lines, "", f"{made.folder}  figure.png, table.md, table.json, table.csv, settings.json"]
