"""How subcommands talk: results on standard output, progress on standard error and only to a terminal."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


def announce(
    lines: Sequence[str], values: Mapping[str, Any], *, as_json: bool = False, quiet: bool = False
) -> None:
    """A result, as text, or as one JSON object that stands alone; `quiet` silences the text."""
    if as_json:
        print(json.dumps(values, indent=2, allow_nan=False))
    elif not quiet:
        print("\n".join(lines))


@contextlib.contextmanager
def progress(title: str, total: int, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A bar of `total` steps; call what it yields after each of them, with a word on how it goes."""
    if quiet or not sys.stderr.isatty():
        yield lambda note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(title, total=total, note="")
        yield lambda note: bars.update(task, advance=1, note=note)
