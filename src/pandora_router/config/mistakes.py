"""Validate a YAML document with a pydantic model; errors name the line and the nearest valid name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from pandora_router.config.document import Document, Place
from pandora_router.errors import UsageError
from pandora_router.text import did_you_mean

M = TypeVar("M", bound=BaseModel)

LONGEST_SHOWN = 80
"""Most characters of a wrong value that an error message repeats."""

_EXPECTED = {
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text (in quotes if it looks like something else)",
    "string_too_short": "a text that is not empty",
    "list_type": "a list: [first, second]",
    "too_short": "{min_length} or more values",
    "too_long": "{max_length} values at most",
    "dict_type": "names with values under them",
    "model_type": "names with values under them",
    "model_attributes_type": "names with values under them",
    "greater_than_equal": "a number of at least {ge:g}",
    "greater_than": "a number above {gt:g}",
    "less_than_equal": "a number of at most {le:g}",
    "less_than": "a number below {lt:g}",
}
"""What was expected, for each kind of error that pydantic reports."""


def validated(model: type[M], document: Document) -> M:
    """The document's values as `model`; raises `UsageError` for the first mistake, with its line."""
    try:
        return model.model_validate({} if document.content is None else document.content)
    except ValidationError as error:
        raise _mistake(model, document, error) from error


def _mistake(model: type[BaseModel], document: Document, error: ValidationError) -> UsageError:
    """The first mistake in full (unknown keys before others), and the number of further ones."""
    mistakes = sorted(error.errors(), key=lambda mistake: mistake["type"] != "extra_forbidden")
    first = mistakes[0]
    place = _written(first["loc"], document)
    more = f" ({len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    where = f"{document.name}, line {document.line(place)}"
    named = ".".join(part if (part := str(step)).isprintable() else repr(part) for step in place)
    if first["type"] == "extra_forbidden":
        key, keys = str(first["loc"][-1]), _keys(model, first["loc"][:-1])
        do = did_you_mean(key, keys, "Remove it.")
        return UsageError(where, expected=f"one of the keys {', '.join(keys)}", came=repr(key) + more, do=do)
    if first["type"] in {"missing", "union_tag_not_found"}:
        key = str(first["loc"][-1]) if first["type"] == "missing" else "kind"
        inside = f" in {named}" if named else ""
        return UsageError(where, expected=f"the key {key}{inside}", came="none" + more, do="Add it.")
    came = f"{_shown(first.get('input'))} for {named or 'the file'}{more}"
    if first["type"] in {"literal_error", "union_tag_invalid"}:
        context = first["ctx"]
        allowed = [word.strip("'") for word in _listed(context.get("expected") or context["expected_tags"])]
        word = context.get("tag") or first.get("input")
        do = did_you_mean(str(word), allowed, "Write one of them.")
        came = f"{_shown(word)} for {named}{more}"
        return UsageError(where, expected=f"one of {', '.join(allowed)}", came=came, do=do)
    if first["type"] == "value_error":
        return UsageError(where, expected=str(first["ctx"]["error"]), came=came, do="Change the value.")
    expected = _EXPECTED.get(first["type"], first["msg"]).format(**first.get("ctx", {}))
    return UsageError(where, expected=expected, came=came, do="Change the value.")


def _listed(text: str) -> list[str]:
    """The alternatives in pydantic's "'a', 'b' or 'c'"."""
    return [word.strip() for word in text.replace(" or ", ",").split(",") if word.strip()]


def _written(location: tuple[int | str, ...], document: Document) -> Place:
    """A pydantic location without names of union members, which are not in the file."""
    place: Place = ()
    content = document.content
    for part in location:
        exists = (
            part in content
            if isinstance(content, dict)
            else isinstance(content, list) and part in range(len(content))
        )
        if exists:
            place, content = (*place, part), content[part]
    return place


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "names with values"
    shown = repr(value)
    return shown if len(shown) <= LONGEST_SHOWN else f"{shown[:LONGEST_SHOWN]}... ({len(shown):,} characters)"


def _keys(annotation: Any, location: tuple[int | str, ...]) -> list[str]:
    """The keys that are allowed at a location within an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = {field.alias or name: field for name, field in annotation.model_fields.items()}
        if not location:
            return list(fields)
        if location[0] in fields:
            return _keys(fields[str(location[0])].annotation, location[1:])
        return []
    inner = [part for part in get_args(annotation) if part is not type(None)]
    if get_origin(annotation) in {dict, list} and location:
        return _keys(inner[-1], location[1:])
    for part in inner:
        if location and location[0] in _tags(part):
            return _keys(part, location[1:])
    return next((keys for part in inner if (keys := _keys(part, location))), [])


def _tags(annotation: Any) -> tuple[Any, ...]:
    """The values of `kind` of a model, or the tag of a member of a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get("kind")
        return get_args(field.annotation) if field is not None else ()
    return tuple(
        tag for part in getattr(annotation, "__metadata__", ()) if (tag := getattr(part, "tag", None))
    )
