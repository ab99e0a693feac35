"""The page `reference`: under each heading that is a public name go its signature and its docstring.

So the page itself holds the order, and code to try; what a name does is said once, in the source. On other
pages, a public name in code leads there.
"""

import inspect
import re
from typing import TYPE_CHECKING

import roundtrip

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

RESULTS = {
    "register": ("roundtrip.pairwise.registration.Registration",),
    "InverseConsistent": ("roundtrip.algorithms.objective.ObjectiveTerms",),
    "DirectOptimisation": ("roundtrip.algorithms.direct.DirectResult",),
    "fit": ("roundtrip.training.engine.History", "roundtrip.training.engine.Step"),
    "invert": ("roundtrip.maps.inverse.Inversion",),
}
"""What comes back from a public name, where that is an object of its own: shown beneath it."""

HEADING = re.compile(r"^### `(\w+)`$", flags=re.MULTILINE)


def with_entries(page: str) -> str:
    """The page with an autodoc entry under every such heading."""
    return HEADING.sub(lambda found: f"{found[0]}\n\n{_entry(found[1])}", page)


def _entry(name: str) -> str:
    thing = getattr(roundtrip, name)
    lines = [".. currentmodule:: roundtrip", ""]
    if inspect.ismodule(thing):
        lines += [f".. autofunction:: roundtrip.{name}.{function}\n" for function in thing.__all__]
    elif inspect.isclass(thing):
        lines += [f".. autoclass:: roundtrip.{name}\n   :members:"]
    else:
        lines += [f".. autofunction:: roundtrip.{name}"]
    for result in RESULTS.get(name, ()):
        lines += ["", f".. autoclass:: {result}\n   :members:"]
    return "\n".join(["```{eval-rst}", *lines, "```"])


def name_in(code: str) -> str | None:
    """The public name, or its member, that code speaks of: `rt.warp(...)`, or a class by its name alone."""
    found = re.fullmatch(r"(rt\.)?(\w+)(\.\w+)?(\(.*\))?", code)
    if not found or found[2] not in roundtrip.__all__ or not (found[1] or found[2][0].isupper()):
        return None
    return found[2] + (found[3] or "")


def _on_resolving(app: "Sphinx", document: "nodes.document", page: str) -> None:
    from docutils import nodes

    if page == "reference":
        return
    for code in list(document.findall(nodes.literal)):
        name = name_in(code.astext())
        if name and not isinstance(code.parent, nodes.reference | nodes.title):
            where = f"{app.builder.get_relative_uri(page, 'reference')}#roundtrip.{name}"
            link = nodes.reference("", "", internal=True, refuri=where)
            code.replace_self(link)
            link += code


def _on_reading(app: "Sphinx", page: str, content: list[str]) -> None:
    if page == "reference":
        content[0] = with_entries(content[0])


def setup(app: "Sphinx") -> dict[str, bool]:
    app.connect("source-read", _on_reading)
    app.connect("doctree-resolved", _on_resolving)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
