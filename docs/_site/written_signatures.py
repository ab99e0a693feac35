"""Signatures as the source writes them, where `Image` is `Image`, and docstrings as the Markdown they are.

autodoc would print what the names of shapes stand for, and read our docstrings as reStructuredText.
"""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx


# Code, formulas, and all that reStructuredText would take for markup.
TOKENS = re.compile(r"`(?P<code>[^`]+)`|\$(?P<formula>[^$]+)\$|(?P<special>[\\*|]|(?<=\w)_(?!\w))")


def as_restructured(text: str) -> str:
    """A docstring of ours, whose backticks and indents are code and whose dollars are formulas."""
    paragraphs = re.split(r"\n{2,}", TOKENS.sub(_token, text))
    return "\n\n".join(f"::\n\n{one}" if one.startswith("    ") else one for one in paragraphs)


def _token(found: re.Match[str]) -> str:
    if found["code"]:
        return f"``{found['code']}``"
    if found["formula"]:
        return f":math:`{' '.join(found['formula'].split())}`"
    return f"\\{found['special']}"


def signature_of(thing: Any) -> tuple[str, str | None]:
    """The arguments in brackets, and what comes back; of a class, what it is made of."""
    if inspect.isclass(thing):
        parameters = inspect.signature(thing).parameters if _is_constructed(thing) else {}
        return f"({', '.join(_as_written(thing, parameters))})" if parameters else "", None
    function = _parsed(thing)
    arguments = [one for one in _arguments(function.args) if one.split(":")[0] not in ("self", "cls")]
    return f"({', '.join(arguments)})", function.returns and _annotation(function.returns)


def _is_constructed(kind: type) -> bool:
    return _has_fields(kind) or "__init__" in vars(kind)


def _has_fields(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or hasattr(kind, "model_fields")


def _as_written(kind: type, parameters: dict[str, inspect.Parameter]) -> Iterator[str]:
    if not _has_fields(kind):
        yield from [one for one in _arguments(_parsed(kind.__init__).args) if one != "self"]
        return
    lines = [
        line
        for base in kind.__mro__
        if _has_fields(base) and base.__module__.startswith("roundtrip")
        for line in _parsed(base).body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    ]
    written = {line.target.id: line for line in reversed(lines)}
    for name in parameters:
        default = "" if written[name].value is None else f" = {ast.unparse(written[name].value)}"
        yield f"{name}: {_annotation(written[name].annotation)}{default}"


def _parsed(thing: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(thing)))).body[0]


def _arguments(written: ast.arguments) -> list[str]:
    """One by one, with `*` and defaults where they stand."""
    for argument in [*written.posonlyargs, *written.args, *written.kwonlyargs]:
        if argument.annotation is not None:
            argument.annotation = ast.parse(_annotation(argument.annotation), mode="eval").body
    # Commas inside brackets do not part arguments.
    parts, depth = [""], 0
    for letter in ast.unparse(written):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _annotation(written: ast.expr) -> str:
    """A name in quotes is the name; the layout of a tensor is not repeated."""
    return ast.unparse(_Unquoted().visit(written))


class _Unquoted(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id in {"Literal", "Annotated"}:
            return node
        if isinstance(node.value, ast.Name) and node.value.id in {"Float", "Int", "Shaped", "Bool"}:
            return ast.Name("Tensor")
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.Name(node.value) if isinstance(node.value, str) else node


def _replace_signature(app, what, name, thing, options, signature, returned):
    if what in {"function", "method", "class"}:
        return signature_of(thing)
    return None


def _replace_docstring(app, what, name, thing, options, lines: list[str]) -> None:
    lines[:] = as_restructured("\n".join(lines)).split("\n")


def _skip_defaults(app, what, name, thing, skip, options) -> bool | None:
    """A function that is the default of a field is no method; what pydantic keeps for itself is no field."""
    is_default = what == "class" and inspect.isfunction(thing) and "." not in thing.__qualname__
    return True if is_default or name == "model_config" else None


def setup(app: "Sphinx") -> dict[str, bool]:
    app.connect("autodoc-process-signature", _replace_signature)
    app.connect("autodoc-process-docstring", _replace_docstring)
    app.connect("autodoc-skip-member", _skip_defaults)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
