"""`Problems`: everything that is wrong at once, so that nobody has to find it one by one."""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from safetensors import SafetensorError

Result = TypeVar("Result")

FAULTS_OF_A_FILE = (ValueError, OSError, EOFError, ArithmeticError, RuntimeError, SafetensorError)
"""What reading, preparing and storing a file may raise; anything else is a fault of the program."""

SHOWN = 40


class ManyProblems(ValueError):
    """What the user must change, in several lines."""


class Problems:
    """Collects what is wrong, a line each, and raises it as one error."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.lines)

    def add(self, where: str, what: str) -> None:
        """`where`: the file, and the line in it."""
        line = " ".join(f"{where}: {what}".split())
        if line not in self.lines:
            self.lines.append(line)

    def mention(self, where: str) -> bool:
        """Whether something is wrong there already."""
        return any(line.startswith(f"{where}: ") for line in self.lines)

    def attempt(self, where: str, act: Callable[[], Result]) -> Result | None:
        """What `act` returns; None where it fails, which is added."""
        try:
            return act()
        except FAULTS_OF_A_FILE as error:
            self.add(where, str(error) or type(error).__name__)
            return None

    def raise_any(self, about: str) -> None:
        """One error that says all, with every line on its own; nothing where nothing is wrong."""
        if not self.lines:
            return
        count, shown = len(self.lines), _in_order(self.lines)[:SHOWN]
        left = [f"... and {count - SHOWN} more"] if count > SHOWN else []
        things = "one thing is" if count == 1 else f"{count} things are"
        raise ManyProblems("\n  ".join([f"{things} wrong with {about}:", *shown, *left]))


def _in_order(lines: Sequence[str]) -> list[str]:
    """Files as they came, and what is wrong in one by its lines."""
    files: dict[str, int] = {}

    def place(line: str) -> tuple[int, int]:
        found = re.match(r"(.*?):(\d+): ", line)
        file, number = (found[1], int(found[2])) if found else (line, 0)
        return files.setdefault(file, len(files)), number

    return sorted(lines, key=place)
