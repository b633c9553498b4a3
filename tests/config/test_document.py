"""The YAML reader: strict, bounded, with line numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pandora_router.config.document import DEEPEST, LARGEST, parse_document, read_document
from pandora_router.errors import UsageError

LAUGHS = "a: &a [x, x, x]\n" + "".join(
    f"{name}: &{name} [*{before}, *{before}, *{before}]\n"
    for before, name in zip("abcdefghij", "bcdefghijk", strict=True)
)


def parse(text: str) -> Any:
    return parse_document(text, "f.yaml").content


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LAUGHS, r"f\.yaml, line 2: expected values written out, got the alias \*a"),
        ("a:\n  b: 1\n  c: 2\n  b: 3\n", r"line 4: expected each key once, got 'b' again"),
        ("a: " + "[" * 100_000, "levels of nesting"),
        ("\n" + "- " * (DEEPEST + 1) + "x", "line 2: .*levels of nesting"),
        ("a:\n  b: " + "9" * 5_000, "line 2: .*at most 40 characters, got one of 5,000"),
        ("a: 1." + "9" * 5_000, "at most 40 characters"),
        ("a: !!python/object/apply:os.getcwd []\n", "line 1: .*the tag"),
        ("a: !!binary aGk=\n", "the tag"),
        ("a: 1\n---\nb: 2\n", "line 2: expected one document"),
        ("? [1, 2]\n: 3\n", "line 1: expected a name before the colon"),
        ("a: [1\n", "line 2: expected YAML"),
        ("a: 1\n\tb: 2\n", "line 2"),
        ("a: \x07\n", "expected YAML"),
    ],
)
def test_what_is_not_strict_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse(text)


def test_files_are_bounded_and_utf8(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(UsageError, match="line 2: expected YAML in UTF-8"):
        read_document(path)
    path.write_bytes(b"#" * (LARGEST + 1))
    with pytest.raises(UsageError, match="larger file"):
        read_document(path)
    path.write_bytes(b"")
    assert read_document(path).content is None


def test_values_are_those_of_yaml_1_2() -> None:
    text = "[yes, on, 2024-01-01, 1:30, 1e-3, 010, '1', true, ~, .5, -3, 1_000, 0x10, .inf, '']"
    expected = ["yes", "on", "2024-01-01", "1:30", 0.001, 10, "1", True, None, 0.5, -3, "1_000", "0x10"]
    assert parse(text) == [*expected, float("inf"), ""]
    assert parse("no: 1\n1: 2\n") == {"no": 1, "1": 2}


def test_every_place_has_its_line() -> None:
    document = parse_document("a: 1\nb:\n  c:\n    - 5\n    - {d: 6}\n", "f")
    places: list[tuple[str | int, ...]] = [("a",), ("b",), ("b", "c"), ("b", "c", 0), ("b", "c", 1, "d")]
    assert [document.lines[place] for place in places] == [1, 2, 3, 4, 5]
    assert document.line(("b", "c", 1, "nowhere", "at all")) == 5


NAMES = st.text("abcdefgh", min_size=1, max_size=5)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(-1e6, 1e6)
    | st.text(st.characters(codec="ascii", categories=("L", "N", "P", "Zs")), max_size=12)
)
CONTENTS = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)


@given(CONTENTS, st.booleans())
def test_it_agrees_with_a_loader_that_is_not_strict(content: object, flow: bool) -> None:
    text = yaml.safe_dump(content, default_flow_style=flow)
    assert parse(text) == yaml.safe_load(text) == content
