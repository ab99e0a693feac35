"""A configuration as a YAML file and as words on a command line; and what is wrong with one, by line.

A file holds exactly the fields of `TrainingConfig`. `key=value` replaces one of them, by its path with dots,
`stages.0.batch=8`; the value is read as YAML.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from roundtrip._problems import ManyProblems
from roundtrip.training.config import TrainingConfig

Path_ = tuple[str | int, ...]
"""The keys and numbers that lead to a field."""


def read_plain(path: Path) -> tuple[dict[str, Any], dict[Path_, int]]:
    """What a file says, not yet checked, and the line on which each of its fields stands."""
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        lines = list(_lines(node, ())) if node is not None else []
        plain = yaml.safe_load(text)
    except OSError as error:
        raise ValueError(f"the configuration {path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"the configuration {path} is no YAML: {' '.join(str(error).split())}.") from error
    except RecursionError as error:
        raise ValueError(f"the configuration {path} contains itself, by an anchor.") from error
    if not isinstance(plain, dict) or node is None:
        raise ValueError(f"the configuration {path} holds no fields; needed are {_listed(TrainingConfig)}.")
    first = dict(reversed(lines))
    for field, line in lines:
        if line != first[field]:
            name = ".".join(map(str, field))
            raise ValueError(
                f"the configuration {path} is not right. Line {line}: `{name}` stands in line {first[field]} "
                "already."
            )
    return plain, first


def with_overrides(plain: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration with each `key=value` in its place."""
    changed = _copied(plain)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise ValueError(f"--set {override} has no `=`; write e.g. `--set stages.0.batch=8`.")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(
                f"--set {override}: the value is no YAML ({error.__class__.__name__})."
            ) from error
        _put(changed, key.split("."), value, override)
    return changed


def checked(
    plain: Mapping[str, Any], *, source: str, lines: Mapping[Path_, int] | None = None
) -> TrainingConfig:
    """The configuration, or one `ValueError` that names all that is wrong with it."""
    try:
        return TrainingConfig.model_validate(plain)
    except ValidationError as error:
        # Every field once: of a union each member may complain.
        wrong = list(dict.fromkeys(_complaint(one, lines or {}) for one in _causes(error)))
        if len(wrong) == 1:
            raise ValueError(f"the configuration {source} is not right. {wrong[0]}") from error
        about = f"{len(wrong)} things are wrong with the configuration {source}:"
        raise ManyProblems("\n  ".join([about, *wrong])) from error


def as_yaml(plain: Mapping[str, Any]) -> str:
    """A configuration as a file holds it."""
    return yaml.safe_dump(dict(plain), sort_keys=False, allow_unicode=True, width=100)


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """The fields in which two plain configurations differ, as one would type them."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        keys = dict.fromkeys([*a, *b])
        return [d for key in keys for d in differences(a.get(key), b.get(key), f"{path}.{key}".lstrip("."))]
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        pairs = zip(a, b, strict=True)
        return [d for i, (x, y) in enumerate(pairs) for d in differences(x, y, f"{path}.{i}")]
    return [] if a == b else [path]


def _causes(error: ValidationError) -> list[Any]:
    """Without lists that are only too short because what is in them is wrong."""
    causes = error.errors()
    return [
        one
        for one in causes
        if one["type"] != "too_short"
        or not any(
            len(o["loc"]) > len(one["loc"]) and o["loc"][: len(one["loc"])] == one["loc"] for o in causes
        )
    ]


def _complaint(error: Any, lines: Mapping[Path_, int]) -> str:
    where: Path_ = tuple(error["loc"])
    line = next((lines[where[:n]] for n in range(len(where), 0, -1) if where[:n] in lines), None)
    at = f"Line {line}: " if line is not None else ""
    name = ".".join(map(str, where)) or "the whole"
    if error["type"] == "extra_forbidden":
        known = _fields_at(TrainingConfig, where[:-1])
        near = difflib.get_close_matches(str(where[-1]), known, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(known)}."
        return f"{at}`{name}` is not known; {hint}"
    if error["type"] == "missing":
        return f"{at}`{name}` is missing."
    message = error["msg"].removeprefix("Value error, ").rstrip(".")
    return f"{at}`{name}`: {message}."


def _fields_at(annotation: Any, where: Path_) -> list[str]:
    """The names of the fields that a model has at a place; a member of a union is named by its tag."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = {field.serialization_alias or name: field for name, field in annotation.model_fields.items()}
        if not where:
            return list(fields)
        if where[0] in fields:
            return _fields_at(fields[str(where[0])].annotation, where[1:])
        tags = [field.default for name, field in fields.items() if name in ("kind", "name")]
        return _fields_at(annotation, where[1:]) if where[0] in tags else []
    inside = where[1:] if where and isinstance(where[0], int) else where
    return next((found for part in get_args(annotation) if (found := _fields_at(part, inside))), [])


def _listed(model: type[BaseModel]) -> str:
    return ", ".join(_fields_at(model, ()))


def _lines(node: yaml.Node, path: Path_) -> Iterator[tuple[Path_, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, key.value)
            yield here, key.start_mark.line + 1
            yield from _lines(value, here)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield (*path, number), value.start_mark.line + 1
            yield from _lines(value, (*path, number))


def _copied(plain: Any) -> Any:
    """Dictionaries and lists of its own: YAML's anchors share them."""
    if isinstance(plain, Mapping):
        return {key: _copied(value) for key, value in plain.items()}
    return [_copied(value) for value in plain] if isinstance(plain, list | tuple) else plain


def _put(inside: Any, keys: Sequence[str], value: Any, override: str) -> None:
    key: str | int = keys[0]
    if isinstance(inside, list):
        if not keys[0].isdigit() or int(keys[0]) >= len(inside):
            raise ValueError(
                f"--set {override}: `{keys[0]}` is no entry; there are {len(inside)}, numbered from 0."
            )
        key = int(keys[0])
    elif not isinstance(inside, dict):
        raise ValueError(f"--set {override}: there is nothing inside `{inside}` to set `{keys[0]}` of.")
    if len(keys) == 1:
        inside[key] = value
        return
    if isinstance(inside, dict) and inside.get(key) is None:
        inside[key] = {}
    _put(inside[key], keys[1:], value, override)
