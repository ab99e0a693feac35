"""What the documentation says runs, and what it points to is there."""

import re

import pytest
import torch
import yaml

import documented
from documented import PAGES, ROOT, SCENES, blocks, commands, run_shell
from roundtrip.cli import main as command_line
from roundtrip.cli.main import SUBCOMMANDS
from roundtrip.training.config_file import checked

SHELL = "bash|sh"
SLOW = {"cohort", "refine"}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] if page.stem in SLOW else []) for page in PAGES],
    ids=lambda page: page.name,
)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    """Python everywhere; commands too, where there are small files to stand in for the reader's."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": page.stem}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if page.stem in SCENES:
            SCENES[page.stem](tmp_path)
        runs_commands = page.stem in SCENES and page.stem != "README"
        for block in blocks(page, f"python|{SHELL}" if runs_commands else "python"):
            if block.language == "python":
                # Empty lines in front, so that a traceback names the line of the page.
                exec(compile("\n" * block.line + block.code, str(page), "exec"), namespace)
            else:
                run_shell(block.code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there."


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for block in blocks(page, SHELL):
        for tool, word in re.findall(r"^(make|roundtrip|python) ([\w./-]+)", block.code, flags=re.MULTILINE):
            known = {
                "make": word in targets,
                "roundtrip": word in SUBCOMMANDS,
                "python": (ROOT / word).exists(),
            }
            assert known[tool], f"{page.name} says `{tool} {word}`, which does not exist."


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_understood(page, monkeypatch, capsys):
    """Every option is known, and none that is needed is left out; nothing is run."""
    monkeypatch.setattr(command_line, "_run", lambda run, debug: command_line.DONE)
    for block in blocks(page, SHELL):
        for words in commands(block.code):
            code = command_line.main(words)
            said = capsys.readouterr().err
            assert code == command_line.DONE, f"{page.name}: `roundtrip {' '.join(words)}`: {said}"


def test_commands_are_found_in_whatever_starts_them():
    code = (
        "roundtrip a -o b \\\n --c\n# roundtrip no\nsrun -n 2 roundtrip d > e\nx $(which roundtrip) f | g\n"
    )
    assert list(commands(code)) == [["a", "-o", "b", "--c"], ["d"], ["f"]]


def test_configurations_are_right():
    """Every block of YAML is a whole configuration of a training."""
    found = [block for page in PAGES for block in blocks(page, "yaml")]
    assert found
    for block in found:
        checked(yaml.safe_load(block.code), source=f"line {block.line}")


def test_the_picture_is_small():
    assert (ROOT / "docs" / "images" / "demo.png").stat().st_size < 300_000


def test_every_page_has_its_place_in_the_navigation():
    trees = blocks(ROOT / "docs" / "index.md", r"\{toctree\}")
    named = {word.strip("<>") for tree in trees for word in tree.code.split()}
    assert {page.stem for page in PAGES if page.parent == ROOT / "docs"} - {"index"} <= named


def test_every_picture_is_shown():
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for picture in (ROOT / "docs" / "images").iterdir():
        assert f"images/{picture.name}" in shown, f"no page shows {picture.name}: remove it."


def test_every_example_is_on_its_page():
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    for example in (ROOT / "examples").glob("*.py"):
        assert f"literalinclude}} ../examples/{example.name}\n" in page, (
            f"docs/examples.md lacks {example.name}."
        )


def test_every_scene_is_of_a_page():
    assert set(documented.SCENES) <= {page.stem for page in PAGES}
