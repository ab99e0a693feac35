"""The house rules that a machine can hold: who imports whom, what is public, who prints, what files say."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import roundtrip

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "roundtrip"

# A room may import rooms before it. The private modules beside the rooms lie below all of them.
ROOMS = (
    "maps",
    "losses",
    "networks",
    "algorithms",
    "space",
    "data",
    "evaluation",
    "pairwise",
    "training",
    "reports",
    "experiments",
    "cli",
)
# Public modules that gather what rooms offer, as `roundtrip` itself does: `rt.plot.grid`.
NAMESPACES = ("plot",)

MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def room_of(module: str) -> str:
    """The room of a module named without `roundtrip.`; "" for front doors and the private modules."""
    first = module.split(".")[0]
    return "" if first.startswith("_") or first in NAMESPACES else first


def imported_modules(path: Path) -> list[tuple[int, str]]:
    """Every import of ours in a file, wherever it stands: its line and the module without `roundtrip.`."""
    package = list(path.relative_to(PACKAGE).parent.parts)
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ["roundtrip", *package[: len(package) + 1 - node.level]] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            # `from roundtrip import maps` names a room in what it imports.
            names = [f"{source}.{alias.name}" for alias in node.names] if source == "roundtrip" else [source]
            found += [(node.lineno, name) for name in names]
    return [(line, name.removeprefix("roundtrip").lstrip(".")) for line, name in found if is_ours(name)]


def is_ours(module: str) -> bool:
    return module.split(".")[0] == "roundtrip"


def wrong_way(importer: str, imported: str) -> bool:
    """Whether a module of room `importer` may not import from room `imported`."""
    rank = {"": -1, **{room: number for number, room in enumerate(ROOMS, start=1)}}
    return rank[imported] > rank[importer]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_up_the_list_of_rooms(path):
    here = name_of(path)
    if here == "" or here in NAMESPACES:
        pytest.skip("front doors name everything")
    for line, module in imported_modules(path):
        there = room_of(module)
        assert not wrong_way(room_of(here), there), (
            f"{path.relative_to(ROOT)}:{line} imports {module}, but room `{there}` comes after "
            f"`{room_of(here) or 'the private modules'}`. Move what is needed from {module} down into "
            f"`{room_of(here) or 'a private module'}` or a room before it, or move the part that needs it up "
            f"into `{there}`."
        )


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_networks_do_not_know_what_a_map_is(path):
    if room_of(name_of(path)) == "networks":
        assert not [line for line, module in imported_modules(path) if room_of(module) in ("maps", "losses")]


def test_the_import_rule_notices():
    assert wrong_way("maps", "losses") and wrong_way("", "maps") and wrong_way("space", "training")
    assert not wrong_way("cli", "maps") and not wrong_way("maps", "maps") and not wrong_way("maps", "")


def test_every_room_is_on_the_list():
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()} <= set(ROOMS)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_says_in_a_sentence_what_it_is(path):
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert re.match(r"[A-Z`(].*?\.(\s|$)", docstring, flags=re.DOTALL), (
        f"{path.relative_to(ROOT)} needs a docstring whose first sentence says what it is."
    )


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_command_line_prints(path):
    prints = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not prints or room_of(name_of(path)) == "cli", (
        f"{path.relative_to(ROOT)}:{prints[0]} prints. The library returns values; `cli/` prints them."
    )


@pytest.mark.parametrize("name", roundtrip.__all__)
def test_a_public_name_can_be_imported_and_explains_itself(name):
    thing = getattr(roundtrip, name)
    docstring = getattr(thing, "__doc__", None) or ""
    # A dataclass without a docstring gets its signature as one.
    assert docstring and not docstring.startswith(f"{name}("), f"`rt.{name}` needs a docstring."
    assert "." in docstring, f"the docstring of `rt.{name}` has no sentence."


@pytest.mark.parametrize("name", roundtrip.__all__)
def test_a_public_name_has_its_place_in_the_reference(name):
    headings = re.findall(
        r"^#+ (.*)$", (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert any(f"`{name}`" in heading or f"`{name}(" in heading for heading in headings), (
        f"docs/reference.md has no heading with `{name}`."
    )


def test_the_reference_names_nothing_that_is_not_public():
    headings = re.findall(
        r"^### (.*)$", (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    named = {name for heading in headings for name in re.findall(r"`(\w+)", heading)}
    assert named == set(roundtrip.__all__)


def test_the_public_names_fit_one_screen():
    lines = (PACKAGE / "__init__.pyi").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= 120
    assert len([name for name in roundtrip.__all__ if name not in NAMESPACES]) <= 64


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_namespace_holds_a_few_functions_that_explain_themselves_and_no_code(namespace):
    module = getattr(roundtrip, namespace)
    assert len(module.__all__) <= 8 and all("." in getattr(module, name).__doc__ for name in module.__all__)
    tree = ast.parse((PACKAGE / f"{namespace}.py").read_text(encoding="utf-8"))
    assert all(isinstance(node, ast.Expr | ast.ImportFrom | ast.Assign) for node in tree.body)
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert all(f"rt.{namespace}.{name}(" in reference for name in module.__all__)


def test_the_public_names_are_exactly_those_imported_in_the_stub():
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    imported = [
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert sorted(imported) == sorted(roundtrip.__all__)


def test_importing_the_package_loads_neither_torch_nor_numba():
    heavy = {"torch", "numba", "numpy", "matplotlib", "SimpleITK"}
    code = f"import roundtrip, sys; print(sorted({heavy} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_every_module_can_be_imported():
    for path in MODULES:
        importlib.import_module(f"roundtrip.{name_of(path)}".rstrip("."))


def files_of_the_repository() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file()]


MACHINE_PATHS = re.compile(r"(?<![\w.$}>/-])/(?:work|tmp|home|root|Users)/\w")
HOSTS = re.compile(r"https?://[^\s)>\"'`/]*(?:index|registry|mirror|artifactory|nexus|proxy)", re.IGNORECASE)


@pytest.mark.parametrize("pattern", [MACHINE_PATHS, HOSTS], ids=["machine paths", "package registries"])
def test_no_file_names_a_machine(pattern):
    for path in files_of_the_repository():
        if path.suffix in {".png", ".nbi", ".nbc", ".pt", ".npz"}:
            continue
        for number, line in enumerate(
            path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1
        ):
            assert not pattern.search(line), (
                f"{path.relative_to(ROOT)}:{number} names a machine: {line.strip()}"
            )


def test_the_machine_patterns_notice():
    # Put together here, so that no line of this file names a machine either.
    assert MACHINE_PATHS.search(f"see /{'work'}/main/x") and MACHINE_PATHS.search(f'"/{"tmp"}/a"')
    assert not MACHINE_PATHS.search("https://example.org/tmp/x") and not MACHINE_PATHS.search("a/work/b")
    assert HOSTS.search(f"https://{'mirror'}.example.org/simple")
    assert not HOSTS.search("https://arxiv.org/abs/2105.04459")


def test_files_of_tests_have_names_of_their_own():
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, f"pytest cannot collect files of one name together: rename {', '.join(twice)}."
