"""The command line as an interface: its flags, its exit codes, what it prints where, and what it loads."""

import json
import re
import subprocess
import sys

import pytest

import roundtrip
from roundtrip._problems import ManyProblems
from roundtrip.cli import main as command_line
from roundtrip.cli.main import main

HEAVY = ("torch", "numpy", "numba", "matplotlib", "pydantic", "rich")

FLAGS = {
    "demo": {
        "--help",
        "-h",
        "--debug",
        "--output",
        "-o",
        "--effort",
        "--seed",
        "--threads",
        "--json",
        "--quiet",
    },
    "cohort": {
        *("--help", "-h", "--debug", "--output", "-o", "--pairs", "--to-template", "--images"),
        *("--template-labels", "--linear", "--modality", "--effort", "--device", "--devices", "--nodes"),
        *("--threads", "--json", "--quiet"),
    },
    "convert": {
        *("--help", "-h", "--debug", "--output", "-o", "--grid", "--spacing", "--data", "--licence"),
        *("--json", "--quiet"),
    },
    "register": {
        *("--help", "-h", "--debug", "--fixed", "-f", "--moving", "-m", "--output", "-o", "--linear"),
        *("--modality", "--effort", "--fixed-labels", "--moving-labels", "--fixed-mask", "--moving-mask"),
        *("--fixed-landmarks", "--moving-landmarks", "--fixed-guide", "--moving-guide", "--points-world"),
        *("--fixed-rigid", "--moving-rigid"),
        *("--model", "--fixed-volume", "--moving-volume", "--orientation", "--replace-nan", "--device"),
        *("--threads", "--json", "--quiet"),
    },
    "warp": {
        *("--help", "-h", "--debug", "--transform", "-t", "--output", "-o", "--labels", "-l", "--points"),
        *("-p", "--reference", "-r", "--interpolation", "--label-interpolation", "--points-world"),
        *("--fill", "--volume", "--orientation", "--replace-nan", "--device", "--threads"),
        *("--json", "--quiet"),
    },
    "inspect": {
        *("--help", "-h", "--debug", "--inverse", "-i", "--fixed", "-f", "--moving", "-m", "--threads"),
        *("--json", "--quiet"),
    },
    "train": {
        *("--help", "-h", "--debug", "--output", "-o", "--seed", "--resume", "--set", "--cache", "--device"),
        *("--devices", "--nodes", "--precision", "--threads", "--json", "--quiet"),
    },
    "reproduce": {
        *("--help", "-h", "--debug", "--scale", "--output", "-o", "--data", "--cells", "--device"),
        *("--precision", "--threads", "--json", "--quiet"),
    },
    "evaluate": {
        *("--help", "-h", "--debug", "--data", "--output", "-o", "--part", "--split", "--pairs"),
        *("--within-subject", "--count", "--refine", "--refine-similarity", "--refine-lambda"),
        *("--refine-rate", "--transforms", "--orientation", "--replace-nan", "--device", "--devices"),
        *("--nodes", "--threads", "--seed", "--json", "--quiet", "--reports"),
    },
}


@pytest.fixture
def demo_does(monkeypatch):
    """Makes `roundtrip demo` do something else."""

    def replace(action):
        monkeypatch.setattr(command_line, "_deferred", lambda name: lambda: action)
        return main(["demo"])

    return replace


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["demo", "--help"],
        ["convert", "--help"],
        ["warp", "--help"],
        ["train", "--help"],
        ["evaluate", "--help"],
        ["cohort", "--help"],
        ["reproduce", "--help"],
        ["--version"],
    ],
)
def test_help_loads_nothing_heavy(arguments):
    code = (
        "import sys; from roundtrip.cli.main import main; assert main(sys.argv[1:]) == 0; "
        f"print('loaded', sorted({set(HEAVY)} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "loaded []"
    assert done.stderr == ""


@pytest.mark.parametrize("name", FLAGS)
def test_flag_names_are_an_interface(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main([name, "--help"]) == 0
    flags = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", capsys.readouterr().out))
    assert flags == FLAGS[name]


def test_every_subcommand_has_pinned_flags():
    assert set(FLAGS) == set(command_line.SUBCOMMANDS)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"roundtrip {roundtrip.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "demo"),
        (["deom"], "demo, register"),
        (["demo"], "--output"),
        (["demo", "-o", "x", "--seeed", "3"], "--seed"),
        (["demo", "-o", "x", "--seed", "many"], "'many'"),
        (["demo", "-o", "x", "--seed", "many"], "INT is needed"),
        (["convert", "-o", "x"], "PATH"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_2(arguments, says, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("roundtrip: ")
    assert says in err and "--help" in err
    assert not set(err) & set("│─╭╰\x1b")
    assert not any(words in err for words in ("subcommand.", "applied to", "class", "{None}"))


def test_an_option_of_other_subcommands_is_said_in_a_few_words(capsys):
    assert main(["inspect", "x.h5", "--devices", "2"]) == 2
    err = capsys.readouterr().err
    assert "--devices" in err and len(err) < 250


@pytest.mark.parametrize(
    "error",
    [
        ValueError("too\nlarge"),
        OSError(28, "No space left"),
        FloatingPointError("nan"),
        FileNotFoundError("x"),
    ],
)
def test_what_the_user_must_change_is_one_line_and_code_2(error, demo_does, capsys):
    def fail():
        raise error

    assert demo_does(fail) == 2
    out, err = capsys.readouterr()
    assert out == "" and err == f"roundtrip: {' '.join(str(error).split())}\n"


def test_many_things_to_change_have_a_line_each(demo_does, capsys):
    def fail():
        raise ManyProblems("two things:\n  a.csv:1: x\n  a.csv:2: y")

    assert demo_does(fail) == 2
    assert capsys.readouterr().err.splitlines() == ["roundtrip: two things:", "  a.csv:1: x", "  a.csv:2: y"]


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 12 bytes")],
)
def test_too_little_memory_is_for_the_user_to_solve(error, demo_does, capsys):
    def fail():
        raise error

    assert demo_does(fail) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "not enough memory" in err and "batch" in err


def test_our_fault_is_code_1(demo_does, capsys):
    def fail():
        raise RuntimeError("broken")

    assert demo_does(fail) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert "RuntimeError: broken" in err and "--debug" in err


@pytest.mark.parametrize("arguments", [["--debug", "demo"], ["demo", "--debug"]])
def test_debug_shows_where(arguments, monkeypatch, capsys):
    def fail():
        raise ValueError("why")

    monkeypatch.setattr(command_line, "_deferred", lambda name: lambda: fail)
    assert main(arguments) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_is_code_130(demo_does, capsys):
    def interrupt():
        raise KeyboardInterrupt

    assert demo_does(interrupt) == 130
    assert capsys.readouterr().err == "roundtrip: interrupted\n"


def test_done_is_code_0(demo_does, capsys):
    assert demo_does(lambda: None) == 0
    assert capsys.readouterr() == ("", "")


def test_json_stands_alone(capsys):
    from roundtrip.cli.console import announce

    announce(["a line"], {"dice": 0.5}, as_json=True, quiet=True)
    assert json.loads(capsys.readouterr().out) == {"dice": 0.5}
    announce(["a line"], {"dice": 0.5}, quiet=True)
    assert capsys.readouterr().out == ""
    announce(["a line"], {"dice": 0.5})
    assert capsys.readouterr().out == "a line\n"


@pytest.mark.parametrize(
    ("terminal", "quiet", "shown"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_progress_shows_on_a_terminal_only(terminal, quiet, shown, monkeypatch, capsys):
    from roundtrip.cli.console import progress

    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with progress("training", 3, quiet=quiet) as advance:
        for _ in range(3):
            advance("loss 0.5")
    out, err = capsys.readouterr()
    assert out == "" and ("training" in err) == shown
