"""What is wrong with a config file, told with its line and the nearest key that exists."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from pandora_router.config.settings import Config
from pandora_router.errors import UsageError


def mistake(path: Path, root: yaml.Node | None, error: ValidationError) -> UsageError:
    """The first mistake in full, and how many more there are."""
    found = error.errors()
    first = sorted(found, key=lambda one: one["type"] != "extra_forbidden")[0]
    where = first["loc"]
    names = [str(part) for part in where]
    place = f"{path}, line {_line(root, where)}" if root is not None else str(path)
    more = f" ({len(found) - 1} more)" if len(found) > 1 else ""
    if first["type"] == "extra_forbidden":
        key = names[-1]
        valid = _keys(Config, where[:-1])
        near = difflib.get_close_matches(key, valid, 1, 0.4)
        do = f"Did you mean {near[0]!r}?" if near else "Remove it."
        return UsageError(place, expected=f"one of the keys {', '.join(valid)}", came=repr(key) + more, do=do)
    if first["type"] == "missing":
        return UsageError(place, expected=f"the key {'.'.join(names)}", came="none" + more, do="Add it.")
    came = f"{first.get('input')!r} for {'.'.join(names)}{more}"
    return UsageError(place, expected=first["msg"], came=came, do="Mend the value.")


def _child(node: yaml.Node | None, part: int | str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == str(part)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        found: yaml.Node = node.value[part]
        return found
    return None


def _line(root: yaml.Node, where: tuple[int | str, ...]) -> int:
    """The line of the deepest key of a path that is written in the file (tags of unions are not)."""
    node: yaml.Node = root
    line = root.start_mark.line
    for part in where:
        inner = _child(node, part)
        if inner is None:
            continue
        if isinstance(node, yaml.MappingNode):
            line = next(key.start_mark.line for key, _ in node.value if key.value == str(part))
        else:
            line = inner.start_mark.line
        node = inner
    return int(line) + 1


def _keys(model: type[BaseModel], where: tuple[int | str, ...]) -> list[str]:
    """The keys allowed at a path; of a union told apart by `kind`, those of the kind that was given."""
    for part in where:
        if part in model.model_fields:
            inner = _models(model.model_fields[str(part)].annotation)
            rest = where[where.index(part) + 1 :]
            tagged = [m for m in inner if rest and rest[0] in _kinds(m)] or inner
            if not tagged:
                return []
            model = tagged[0]
    return list(model.model_fields)


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _kinds(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("kind")
    return (*get_args(field.annotation), model.__name__) if field is not None else (model.__name__,)


def refuse_twice(path: Path, node: yaml.Node | None) -> None:
    """YAML lets the last of two equal keys win; here that is a mistake."""
    if isinstance(node, yaml.SequenceNode):
        for inner in node.value:
            refuse_twice(path, inner)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    for key, value in node.value:
        if key.value in seen:
            raise UsageError(
                f"{path}, line {key.start_mark.line + 1}",
                expected="each key once",
                came=f"{key.value!r} again",
                do="Remove one of them.",
            )
        seen.add(key.value)
        refuse_twice(path, value)
