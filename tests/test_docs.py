"""What the documentation says runs, and what it points to is there."""

import re
from pathlib import Path

import pytest
import torch
import yaml

from roundtrip.cli.main import SUBCOMMANDS
from roundtrip.training.config_file import checked

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The code blocks of a language, each with the line it begins at."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, block.start(1)), block.group(1)) for block in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs_from_top_to_bottom(page):
    namespace: dict[str, object] = {"__name__": page.stem}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for line, code in blocks(page, "python"):
            # Empty lines in front, so that a traceback names the line of the page.
            exec(compile("\n" * line + code, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there."


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for _, code in blocks(page, "(?:bash|sh)"):
        for tool, word in re.findall(r"^(make|roundtrip|python) ([\w./-]+)", code, flags=re.MULTILINE):
            known = {
                "make": word in targets,
                "roundtrip": word in SUBCOMMANDS,
                "python": (ROOT / word).exists(),
            }
            assert known[tool], f"{page.name} says `{tool} {word}`, which does not exist."


def test_configurations_are_right():
    """Every block of YAML is a whole configuration of a training."""
    found = [block for page in PAGES for block in blocks(page, "yaml")]
    assert found
    for line, text in found:
        checked(yaml.safe_load(text), source=f"line {line}")


def test_the_picture_is_small():
    assert (ROOT / "docs" / "images" / "demo.png").stat().st_size < 300_000
