"""The page `commands`: its marker becomes what `--help` of every command says, without the boxes."""

import contextlib
import functools
import io
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

from roundtrip.cli.main import SUBCOMMANDS, main

if TYPE_CHECKING:
    from sphinx.application import Sphinx

MARKER = "<!-- what `roundtrip COMMAND --help` says -->"


@functools.cache
def help_of(command: str) -> str:
    """As a terminal prints it that is wide enough for every line."""
    # In bytes: the boxes, by which options are found, are drawn for UTF-8 only.
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(said), mock.patch.dict(os.environ, {"COLUMNS": "2000", "NO_COLOR": "1"}):
        main([command, "--help"])
    said.seek(0)
    return re.sub(r"\x1b\[[0-9;]*m", "", said.read())


def as_markdown(command: str) -> str:
    """A section: what it does, how it is called, and a definition list of what it may be told."""
    text = help_of(command)
    _, *paragraphs = text.split("╭")[0].strip().split("\n\n")
    lines = [f"## `roundtrip {command}`", "", *[f"{paragraph}\n" for paragraph in paragraphs]]
    for name, said in _options(text):
        lines += [f"`{name}`", f": {said}", ""]
    return "\n".join(lines)


def _options(text: str) -> Iterator[tuple[str, str]]:
    """Every argument, by its names, with what is said about it."""
    rows = [line.strip("│")[1:].rstrip() for line in text.splitlines() if line.startswith("│")]
    found: list[tuple[str, list[str]]] = []
    for row in rows:
        if row.startswith("  "):
            found[-1][1].append(row)
        else:
            name, _, said = row.partition("  ")
            found.append((name, [said]))
    for name, parts in found:
        if name not in ("-h, --help", "--debug"):
            yield _plain_name(name), _plain_default(" ".join(" ".join(parts).split()))


def _plain_name(name: str) -> str:
    """`-t, --transform STR ...` of `-t [STR [STR ...]], --transform [STR [STR ...]]`."""
    name = re.sub(r"(?<!\[)\b(\w+) \[\1 \.\.\.\]", r"\1 ...", name)
    name = re.sub(r"\[+([^\[\]]+?)(?: \[\1)? \.\.\.\]+", r"\1 ...", name.replace("{None}|", ""))
    *others, last = name.split(", ")
    return ", ".join([*(one.split(" ")[0] for one in others), last])


def _plain_default(said: str) -> str:
    said = re.sub(r" \(default: (None|False|)\)$", "", said)
    said = re.sub(r" \(default: (.*)\)$", r" Unless given: `\1`.", said)
    return said.replace(" (required)", " *Needed.*")


def _on_reading(app: "Sphinx", page: str, content: list[str]) -> None:
    if page == "commands":
        content[0] = content[0].replace(MARKER, "\n\n".join(map(as_markdown, SUBCOMMANDS)))


def setup(app: "Sphinx") -> dict[str, bool]:
    app.connect("source-read", _on_reading)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
