"""The reader of YAML files: strict, with limits, and with a line number in every error.

Only plain data is accepted. Refused are duplicate keys, keys that are not text, aliases (a few lines of them
can expand to gigabytes), tags (they name types to construct), more than one document, and everything beyond
the limits below. Values follow the rules of YAML 1.2: `yes`, `on` and `2024-01-01` are text, and `1e-3` is a
number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pandora_router.errors import UsageError

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
