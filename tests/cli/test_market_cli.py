"""`pandora market` from the outside."""

from __future__ import annotations

import json

import pytest

from tests.support.command import pandora


def run(*arguments: str) -> str:
    result = pandora("market", *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_simulate_prints_one_row_per_mechanism_and_one_column_per_instance():
    shown = run("simulate", "-m", "3", "-m", "5", "--prompts", "20", "--seeds", "3")
    for words in (
        "descending, announced holdout",
        "second price",
        "router: rollout",
        "weak f",
        "strong f",
        "M = 5",
    ):
        assert words in shown


def test_simulate_as_json_is_reproducible_and_complete():
    arguments = (
        "simulate",
        "-m",
        "3",
        "--prompts",
        "20",
        "--seeds",
        "3",
        "--cost",
        "0",
        "--cost",
        "0.05",
        "--json",
    )
    first = json.loads(run(*arguments))
    assert first == json.loads(run(*arguments))
    assert {(row["signal"], row["cost"]) for row in first["rows"]} == {
        (signal, cost) for signal in ("weak", "strong") for cost in (0.0, 0.05)
    }
    for row in first["rows"]:
        assert row["regret"]["mean"] >= -1e-12
        assert (row["revenue"]["mean"] is None) == row["mechanism"].startswith("router")


def test_best_response_as_json():
    found = json.loads(run("best-response", "-m", "3", "--prompts", "50", "--signal", "weak", "--json"))
    assert {row["mechanism"] for row in found["rows"]} == {"descending", "ascending", "second price"}
    assert all(row["error"] >= 0.0 for row in found["rows"])


def test_best_response_prints_a_table():
    assert "never look" in run("best-response", "-m", "3", "--prompts", "50")


@pytest.mark.parametrize(
    "arguments", [("simulate", "-m", "1"), ("simulate", "--cost", "-1"), ("simulate", "--signal", "odd")]
)
def test_wrong_input_is_refused(arguments):
    result = pandora("market", *arguments)
    assert result.exit_code == 2
    assert "Invalid value" in result.output


@pytest.mark.parametrize("verb", ["simulate", "best-response"])
def test_help_has_examples(verb):
    assert "Examples:" in run(verb, "--help")
