"""Reads a YAML document and validates it; every error has a line number.

The reader of YAML files: strict, with limits, and with a line number in every error.

Only plain data is accepted. Refused are duplicate keys, keys that are not text, aliases (a few lines of them
can expand to gigabytes), tags (they name types to construct), more than one document, and everything beyond
the limits below. Values follow the rules of YAML 1.2: `yes`, `on` and `2024-01-01` are text, and `1e-3` is a
number.

Validate a YAML document with a pydantic model; errors name the line and the nearest valid name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from pandora_router.errors import UsageError
from pandora_router.text import did_you_mean

LARGEST = 256 * 1024
"""Most bytes of a file."""
DEEPEST = 20
"""Most levels of nested mappings and lists."""
LONGEST_NUMBER = 40
"""Most characters of a number."""

Place = tuple[str | int, ...]
"""Path of a value: keys of mappings and positions in lists, from the outside in."""

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WHOLE = re.compile(r"[-+]?\d+")
_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTH = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}


@dataclass(frozen=True)
class Document:
    """The values of a YAML file, and the line of each place in it.

    `name` is the name of the file in errors.
    """

    name: str
    content: Any
    lines: dict[Place, int]

    def line(self, place: Place) -> int:
        """The line of a place, or of the nearest enclosing place that is in the file."""
        while place not in self.lines and place:
            place = place[:-1]
        return self.lines.get(place, 1)


def read_document(path: Path) -> Document:
    """Read the YAML file `path`; raises `UsageError` with file and line if it is not strict YAML."""
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise UsageError(
            str(path),
            expected=f"a configuration of at most {LARGEST:,} bytes",
            came="a larger file",
            do="Name the file that you meant.",
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _refusal(str(path), line, "YAML in UTF-8", "other bytes", "Save the file as UTF-8.") from error
    return parse_document(text, str(path))


def parse_document(text: str, name: str) -> Document:
    """Read the YAML `text` of a file called `name`; raises `UsageError` as `read_document` does."""
    try:
        lines: dict[Place, int] = {(): 1}
        events = _checked(text, name)
        content = _value(next(events), events, (), lines, name)
        for _ in events:  # check the rest of the file too
            pass
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        came = " ".join(str(getattr(error, "problem", None) or error).split())[:200]
        line = mark.line + 1 if mark is not None else 1
        raise _refusal(name, line, "YAML", came, "Correct this line or the one before it.") from error
    return Document(name, content, lines)


def _checked(text: str, name: str) -> Iterator[Any]:
    """The parsing events of one document, without those of the stream; raises `UsageError` beyond a limit."""
    depth, documents = 0, 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            came = f"the alias *{event.anchor}"
            raise _refusal(name, line, "values written out", came, "Repeat the value instead.")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _refusal(name, line, "one document", "a second one", "Remove the line '---'.")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                came = "more levels"
                raise _refusal(name, line, f"at most {DEEPEST} levels of nesting", came, "Write it flatter.")
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
            if getattr(event, "tag", None) is not None:
                raise _refusal(name, line, "plain values", f"the tag {event.tag}", "Remove the tag.")
            yield event
    if not documents:
        yield yaml.ScalarEvent(None, None, (True, False), "", *[yaml.Mark(name, 0, 0, 0, None, None)] * 2)


def _value(event: Any, events: Iterator[Any], place: Place, lines: dict[Place, int], name: str) -> Any:
    """The value that starts with `event`; further events are taken from `events`."""
    lines.setdefault(place, event.start_mark.line + 1)
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event, name)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Any] = []
        while not isinstance(item := next(events), yaml.SequenceEndEvent):
            items.append(_value(item, events, (*place, len(items)), lines, name))
        return items
    mapping: dict[str, Any] = {}
    while not isinstance(key := next(events), yaml.MappingEndEvent):
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarEvent) or not key.value:
            raise _refusal(name, line, "a name before the colon", "something else", "Write name: value.")
        if key.value in mapping:
            raise _refusal(name, line, "each key once", f"{key.value!r} again", "Remove one of them.")
        lines[*place, key.value] = line
        mapping[key.value] = _value(next(events), events, (*place, key.value), lines, name)
    return mapping


def _scalar(event: Any, name: str) -> Any:
    text: str = event.value
    if not event.implicit[0]:
        return text
    if text in _NOTHING:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if not _NUMBER.fullmatch(text):
        return text
    if len(text) > LONGEST_NUMBER:
        expected = f"a number of at most {LONGEST_NUMBER} characters"
        came = f"one of {len(text):,}"
        raise _refusal(name, event.start_mark.line + 1, expected, came, "Round it, or quote it as text.")
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


def _refusal(name: str, line: int, expected: str, came: str, do: str) -> UsageError:
    return UsageError(f"{name}, line {line}", expected=expected, came=came, do=do)


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
