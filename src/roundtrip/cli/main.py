"""The `roundtrip` command: finds the subcommand, runs it, and turns what goes wrong into an exit code.

Each subcommand is a function in the file of its name beside this one; its signature is its command line and
its docstring its help. They import torch and matplotlib only when they run, so that `--help` is immediate.

Exit codes: 0 done, 2 the user must change something, 1 our fault, 130 interrupted, 143 asked to end.
"""

import contextlib
import functools
import importlib
import io
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Annotated, Any, Union

import tyro

from roundtrip._memory import keep_freed_memory
from roundtrip._problems import ManyProblems

SUBCOMMANDS = ("demo", "register", "warp", "inspect", "cohort", "train", "evaluate", "reproduce", "convert")

DONE, OUR_FAULT, USER_ERROR, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143

# What the library raises at its door: a wrong argument, a file that cannot be read or written, a diverging
# training run. Each message says what to change.
USER_ERRORS = (ValueError, OSError, FloatingPointError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line `arguments` (those of this process unless given) and returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"roundtrip {version('roundtrip')}")
        return DONE
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            run, debug = tyro.cli(_command_line(), prog="roundtrip", args=arguments, config=_STYLE)
    except SystemExit as stop:
        if not stop.code:
            return DONE
        print(_in_one_line(complaint.getvalue()), file=sys.stderr)
        return USER_ERROR
    return _run(run, debug)


def _run(run: Callable[[], None], debug: bool) -> int:
    keep_freed_memory()
    try:
        with _clean_end():
            run()
    except _Terminated:
        print("roundtrip: interrupted", file=sys.stderr)
        return TERMINATED
    except KeyboardInterrupt:
        print("roundtrip: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, ManyProblems):
            print(f"roundtrip: {error}", file=sys.stderr)
            return USER_ERROR
        if isinstance(error, USER_ERRORS):
            print(f"roundtrip: {_words(_said(error))}", file=sys.stderr)
            return USER_ERROR
        if _is_out_of_memory(error):
            print(
                f"roundtrip: there is not enough memory ({_words(str(error)) or 'none is left'}). Coarser "
                "images, a smaller batch or fewer processes need less.",
                file=sys.stderr,
            )
            return USER_ERROR
        print(
            f"roundtrip: {type(error).__name__}: {_words(str(error))}. This is a fault of Roundtrip, not "
            "yours; `--debug` shows where it happened.",
            file=sys.stderr,
        )
        return OUR_FAULT
    return DONE


def _said(error: Exception) -> str:
    """What the system says of a file, without its number."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{os.fsdecode(error.filename)}: {error.strerror}."
    return str(error)


def _is_out_of_memory(error: Exception) -> bool:
    """Of Python and numpy; of torch, whose error on the CPU has no name of its own."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)


class _Terminated(BaseException):
    """The system asked this process to end."""


@contextlib.contextmanager
def _clean_end() -> Iterator[None]:
    """Being asked to end is like Ctrl-C: unfinished files are taken away before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


_STYLE = (
    tyro.conf.FlagCreatePairsOff,
    tyro.conf.OmitArgPrefixes,
    tyro.conf.OmitSubcommandPrefixes,
    # `--debug` may stand before or after the subcommand.
    tyro.conf.CascadeSubcommandArgs,
)


def _command_line() -> Callable[..., tuple[Callable[[], None], bool]]:
    """A function whose signature is that of the whole command line, for tyro to read."""
    choices = tuple(
        Annotated[Any, tyro.conf.subcommand(name=name, constructor=_deferred(name))] for name in SUBCOMMANDS
    )

    def command_line(subcommand: Any, *, debug: bool = False) -> tuple[Callable[[], None], bool]:
        """Image registration by inverse consistency. `roundtrip --version` says which version this is.

        Args:
            subcommand: What to do.
            debug: Show the traceback of an error.
        """
        return subcommand, debug

    command_line.__annotations__["subcommand"] = Union[choices]  # noqa: UP007
    return command_line


def _deferred(name: str) -> Callable[..., Callable[[], None]]:
    """The subcommand's function, which only binds its arguments, so that all parsing comes before running."""
    function = getattr(importlib.import_module(f"roundtrip.cli.{name}"), name)

    @functools.wraps(function)
    def bind(*args: Any, **kwargs: Any) -> Callable[[], None]:
        return functools.partial(function, *args, **kwargs)

    return bind


def _in_one_line(complaint: str) -> str:
    """What tyro says about a command line, without its box and colours, and in plainer words."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", complaint)
    sections = re.split(r"^.*(?:──|-{9}).*$", text, flags=re.MULTILINE)
    said = [_words(re.sub("[│╭╮╰╯]", " ", section)) for section in sections]
    for pattern, plainer in _PLAINER:
        said = [re.sub(pattern, plainer, words) for words in said]
    return "roundtrip: " + "; ".join(words for words in said if words)


_PLAINER = (
    (r" \(applied to [^)]*\)", ""),
    (r" Arguments are applied to the directly preceding subcommand.*", ""),
    # Of options like it that other subcommands have, the first is enough.
    (r"^(Perhaps you meant: .*?) in roundtrip .*", r"\1"),
    (
        r"no type matching (\{None\}\|)?(\S+) could be instantiated from \[(.*?)\]\..*",
        r"\2 is needed, not \3.",
    ),
    (r"invalid literal for int\(\) with base 10: ", "INT is needed, not "),
    (r"could not convert string to float: ", "FLOAT is needed, not "),
    (r"^Argument helptext: .*", ""),
    (r"'subcommand\.", "'"),
)


def _words(text: str) -> str:
    return " ".join(text.split())
