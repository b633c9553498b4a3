"""The table holds what it was given, picks what it is asked for and refuses what makes no sense."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pandora_router.data import Table, beside, stack
from pandora_router.errors import UsageError

nan = np.nan


def small(**changes) -> Table:
    fields = {
        "prompt_ids": ("1", "2", "3"),
        "prompts": ("one", "two", "three"),
        "tasks": ("t", "t", "u"),
        "split": np.array(["train", "calibration", "test"]),
        "specialists": ("a", "b"),
        "score": np.array([[1.0, 0.0], [nan, 0.5], [0.25, 1.0]]),
        "fee": np.array([[0.1, 2.0], [nan, 2.0], [0.1, 2.0]]),
        "contexts": np.array([["x", None], [None, "y"], ["z", ""]], dtype=object),
        "fee_weight": 0.5,
    }
    return Table(**(fields | changes))


def test_reward_is_score_minus_weighted_fee():
    expected = [[1 - 0.05, 0 - 1.0], [nan, 0.5 - 1.0], [0.25 - 0.05, 1.0 - 1.0]]
    np.testing.assert_allclose(small().reward, expected)
    np.testing.assert_allclose(small().with_fee_weight(0).reward, small().score)
    assert small().missing.tolist() == [[False, False], [True, False], [False, False]]


def test_a_table_cannot_be_changed_from_outside():
    score = np.zeros((3, 2))
    table = small(score=score, fee=np.zeros((3, 2)))
    score[0, 0] = 9
    assert table.score[0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        table.score[0, 0] = 1
    with pytest.raises(AttributeError):
        table.fee_weight = 2


@pytest.mark.parametrize(
    "which", [np.array([True, False, True]), [0, 2], np.array([0, -1]), slice(None, None, 2)]
)
def test_rows_by_mask_position_and_slice(which):
    table = small().rows(which)
    assert table.prompt_ids == ("1", "3")
    assert table.prompts == ("one", "three")
    assert table.tasks == ("t", "u")
    assert table.split.tolist() == ["train", "test"]
    assert table.score.tolist() == [[1.0, 0.0], [0.25, 1.0]]
    assert table.contexts.tolist() == [["x", None], ["z", ""]]


@pytest.mark.parametrize("which", [[3], [-4], [True, False], [0.5], 1])
def test_rows_that_are_not_there_are_refused(which):
    with pytest.raises(UsageError):
        small().rows(which)


def test_no_rows_is_a_table_too():
    assert small().rows([]).shape == (0, 2)
    assert small().rows(np.zeros(3, dtype=bool)).fingerprint() == small().rows([]).fingerprint()


def test_only_keeps_the_order_it_was_asked_for():
    table = small().only(["b", "a"])
    assert table.specialists == ("b", "a")
    np.testing.assert_array_equal(table.score, small().score[:, ::-1])
    assert table.contexts[0].tolist() == [None, "x"]
    with pytest.raises(UsageError, match="'c'"):
        small().only(["c"])


def test_in_split():
    assert small().in_split("calibration").prompt_ids == ("2",)
    with pytest.raises(UsageError, match="'val'"):
        small().in_split("val")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompt_ids": ("1", "1", "3")}, "'1'"),
        ({"prompt_ids": ("1", "", "3")}, "not empty"),
        ({"specialists": ("a", "a")}, "more than once: 'a'"),
        ({"prompts": ("one", "two")}, r"shape \(3,\)"),
        ({"prompts": ("one", None, "three")}, r"prompts\[1\]"),
        ({"tasks": ("t",)}, "tasks"),
        ({"split": np.array(["train", "val", "test"])}, "'val'"),
        ({"score": np.zeros((3, 3))}, r"\(3, 3\)"),
        ({"score": np.array([[1, 0], [0, np.inf], [0, 0]])}, "score of 'b' on prompt '2'"),
        ({"fee": np.array([[0.1, nan], [nan, 2], [0.1, 2]])}, "fee of 'b' on prompt '1'"),
        ({"fee": np.array([[0.1, 1], [nan, -2], [0.1, 2]])}, "zero or more"),
        ({"contexts": np.array([[1, None]] * 3, dtype=object)}, "context of 'a' on prompt '1'"),
        ({"contexts": np.full((3, 1), None)}, "contexts"),
        ({"fee_weight": nan}, "fee_weight"),
        ({"fee_weight": -1.0}, "fee_weight"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, said):
    with pytest.raises(UsageError, match=said):
        small(**changes)


def test_the_fingerprint_knows_every_part_of_the_content():
    prints = {small().fingerprint()}
    for changes in (
        {"prompt_ids": ("1", "2", "4")},
        {"prompts": ("one", "two", "three ")},
        {"tasks": ("t", "u", "u")},
        {"split": np.array(["train", "", "test"])},
        {"specialists": ("a", "c")},
        {"score": np.array([[1.0, 0.0], [nan, 0.5], [0.25, 0.9]])},
        {"fee": np.array([[0.1, 2.0], [0.1, 2.0], [0.1, 2.0]])},
        {"contexts": None},
        {"contexts": np.array([["x", None], [None, "y"], ["z", None]], dtype=object)},
        {"fee_weight": 0.6},
    ):
        prints.add(small(**changes).fingerprint())
    assert len(prints) == 11


def test_the_fingerprint_is_the_same_for_the_same_content():
    odd_nan = np.array([0x7FF8000000000001], dtype=np.uint64).view(np.float64)[0]
    twin = small(score=np.asfortranarray([[1.0, -0.0], [odd_nan, 0.5], [0.25, 1.0]]))
    assert twin.fingerprint() == small().fingerprint()
    assert small().fingerprint() == "49a0ed333b9fe5d7562c53ff4beb5d764277f59f9814dda544b3626e2f5ca5a3"


def other(**changes) -> Table:
    return small(specialists=("c", "d"), contexts=None, **changes)


def test_beside_matches_prompts_by_id():
    right = other().rows([2, 0, 1])
    joined = beside(small(), right)
    assert joined.specialists == ("a", "b", "c", "d")
    np.testing.assert_array_equal(joined.score[:, 2:], small().score)
    assert joined.contexts[0].tolist() == ["x", None, None, None]


def test_beside_of_different_prompts_needs_a_word():
    right = other().rows([1, 2])
    with pytest.raises(UsageError, match="3 and 2 prompts, 2 in common"):
        beside(small(), right)
    assert beside(small(), right, shared=True).prompt_ids == ("2", "3")
    with pytest.raises(UsageError, match="none"):
        beside(small(), other(prompt_ids=("7", "8", "9")), shared=True)


@pytest.mark.parametrize(
    ("right", "said"),
    [
        (lambda: small(), "'a'"),
        (lambda: other(fee_weight=1.0), "0.5 and 1.0"),
        (lambda: other(prompts=("one", "two", "drei")), "prompt '3'"),
        (lambda: other(split=np.array(["train", "test", "test"])), "prompt '2'"),
    ],
)
def test_beside_refuses_what_does_not_agree(right, said):
    with pytest.raises(UsageError, match=said):
        beside(small(), right())


def test_beside_takes_white_space_lightly():
    assert beside(small(), other(prompts=(" one", "two\n", "three"))).prompts == small().prompts


def test_answered_leaves_out_the_silent():
    table = small(score=np.array([[1.0, nan]] * 3), fee=np.zeros((3, 2)))
    assert table.answered == ("a",)


def test_stack_puts_prompts_below_each_other():
    more = replace(small(), prompt_ids=("4", "5", "6"), contexts=None).only(["b", "a"])
    tall = stack([small(), more])
    assert tall.prompt_ids == tuple("123456")
    np.testing.assert_array_equal(tall.score, np.vstack([small().score, small().score]))
    assert tall.contexts[3:].tolist() == [[None, None]] * 3
    with pytest.raises(UsageError, match="more than once"):
        stack([small(), small()])
    with pytest.raises(UsageError, match=r"'c' in some tables only|'a' in some tables only"):
        stack([small(), other()])


class Stream:
    """A frame of a library that this package does not know: it only speaks the Arrow stream protocol."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)


ROWS = {
    "text": ["q", "q", "r"],
    "model": ["small", "large", "large"],
    "score": [0.0, 1.0, 0.5],
    "fee": [0.1, 0.2, 0.3],
    "kind": ["a", "a", "b"],
}


@pytest.mark.parametrize("library", ["pyarrow", "stream", "pandas", "polars"])
def test_a_table_from_a_frame(library: str, tmp_path: Path) -> None:
    if library in ("pandas", "polars"):
        frame = pytest.importorskip(library).DataFrame(ROWS)
    else:
        frame = pa.table(ROWS) if library == "pyarrow" else Stream(pa.table(ROWS))
    table = Table.from_frame(frame, prompt="text", task="kind")
    assert (table.prompts, table.specialists, table.tasks) == (("q", "r"), ("small", "large"), ("a", "b"))
    np.testing.assert_array_equal(table.score, [[0.0, 1.0], [np.nan, 0.5]])
    np.testing.assert_array_equal(table.fee, [[0.1, 0.2], [np.nan, 0.3]])
    table.save(tmp_path / "table")
    assert Table.load(tmp_path / "table").fingerprint() == table.fingerprint()


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(UsageError, match="expected one of pandas, polars or Arrow"):
        Table.from_frame(object())
    with pytest.raises(UsageError, match="colour"):
        Table.from_frame(pa.table(ROWS), prompt="text", colour="kind")
