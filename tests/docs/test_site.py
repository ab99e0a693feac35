"""What the site adds to the pages: signatures and docstrings, the help of the commands, and pictures."""

import importlib
import inspect
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import roundtrip as rt
from roundtrip.cli.main import SUBCOMMANDS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def extensions(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "_site"))


def test_a_docstring_keeps_its_code_formulas_and_stars():
    from written_signatures import as_restructured

    assert as_restructured("`a * b` of (B, *S)") == "``a * b`` of (B, \\*S)"
    assert as_restructured("is $x_1\n+ |y|$, lambda_ too") == "is :math:`x_1 + |y|`, lambda\\_ too"
    assert as_restructured("So:\n\n    a = 1") == "So:\n\n::\n\n    a = 1"


def test_signatures_are_as_written():
    from written_signatures import signature_of

    assert signature_of(rt.unit_grid)[0].startswith("(shape: ")
    assert signature_of(rt.points_off_grid) == (
        "(image: Image, generator: torch.Generator | None=None)",
        "Tensor",
    )
    assert signature_of(rt.Identity) == ("", None)
    assert "weight: float, similarity: Similarity = mse" in signature_of(rt.PairObjective)[0]
    assert signature_of(rt.Card)[0].startswith("(preparation: Preparation | None, data: str")


@pytest.mark.parametrize("name", rt.__all__)
def test_every_public_name_has_a_signature(name):
    from written_signatures import signature_of

    thing = getattr(rt, name)
    if inspect.ismodule(thing):
        pytest.skip("its functions have theirs")
    arguments, _ = signature_of(thing)
    for parameter in inspect.signature(thing).parameters if not inspect.isclass(thing) else ():
        assert parameter in arguments


def test_every_heading_of_the_reference_gets_its_entry():
    from reference_entries import with_entries

    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    entries = re.findall(
        r"^\.\. auto\w+:: roundtrip\.(\w+)(?:\.\w+)?$", with_entries(page), flags=re.MULTILINE
    )
    assert set(entries) == set(rt.__all__)


def test_code_that_speaks_of_a_public_name_leads_to_it():
    from reference_entries import name_in

    assert name_in("rt.warp") == name_in("rt.warp(moving, phi)") == "warp"
    assert name_in("TwoStep") == "TwoStep" and name_in("Transform.inverse()") == "Transform.inverse"
    assert name_in("warp") is name_in("roundtrip warp") is name_in("rt.nothing") is None


def test_what_comes_back_is_there_and_is_what_functions_say():
    from reference_entries import RESULTS
    from written_signatures import signature_of

    for name, paths in RESULTS.items():
        for path in paths:
            module, _, kind = path.rpartition(".")
            assert inspect.isclass(getattr(importlib.import_module(module), kind))
        if not inspect.isclass(getattr(rt, name)):
            assert signature_of(getattr(rt, name))[1] == paths[0].rpartition(".")[2]


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_every_option_of_a_command_is_on_its_page(command):
    from command_help import as_markdown, help_of

    options = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", help_of(command).split("╭", 1)[1]))
    terms = re.findall(r"^`(.*)`\n: (.+)$", as_markdown(command), flags=re.MULTILINE)
    named = {word for name, _ in terms for word in name.replace(",", "").split() if word.startswith("--")}
    assert {"--quiet", "--output"} & named and named <= options
    assert {
        one for one in options if re.search(rf"^│ (-\w [^,]*, )?{one}\b", help_of(command), re.MULTILINE)
    } <= (named | {"--debug"})
    assert all(said and "(default" not in said for _, said in terms)


@pytest.mark.parametrize("name", ["coordinates", "directions", "noise", "off_grid", "folds", "regularity"])
def test_a_picture_is_drawn(name):
    pictures = runpy.run_path(str(DOCS / "pictures.py"))
    figure = pictures[name](steps=2) if name == "regularity" else pictures[name]()
    assert len(figure.axes) >= 1 and name in pictures["PICTURES"]
    assert (DOCS / "images" / f"{name}.png").stat().st_size < 200_000


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_without_network(tmp_path):
    if not shutil.which("sphinx-build", path=str(Path(sys.executable).parent)):
        pytest.skip("needs Sphinx: `make docs` installs it")
    build = [
        sys.executable,
        "-m",
        "sphinx",
        "--quiet",
        "--fail-on-warning",
        "--keep-going",
        str(DOCS),
        str(tmp_path),
    ]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(
            r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//[^"]+|<link[^>]+href="https?:[^"]+', text
        )
        assert not fetched, f"{page.name} needs the network: {fetched}"
