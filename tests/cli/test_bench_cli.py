"""`pandora bench`: submissions in the format that a public benchmark reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pandora_router.router import Router
from tests.support.command import pandora

QUESTIONS = [
    {"global index": "A_1", "prompt_formatted": "count the river king number 7", "prompt": "bare"},
    {"global index": "A_2", "prompt": "name the winter song number 3"},
]


def test_a_submission_has_the_choices_that_route_makes(saved_router: Path, tmp_path: Path) -> None:
    dataset, output = tmp_path / "questions.json", tmp_path / "predictions.json"
    dataset.write_text(json.dumps(QUESTIONS))
    router = Router.load(saved_router)
    renamed = router.specialists[0]
    result = pandora(
        "bench", "routerarena", str(dataset), "-r", str(saved_router), "-o", str(output),
        "--model", f"{renamed}=their-name",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = json.loads(output.read_text())
    prompts = ["count the river king number 7", "name the winter song number 3"]
    assert [row["prompt"] for row in rows] == prompts
    assert [row["global index"] for row in rows] == ["A_1", "A_2"]
    chosen = [router.route(prompt).specialist for prompt in prompts]
    assert [row["prediction"] for row in rows] == [
        "their-name" if name == renamed else name for name in chosen
    ]
    fields = {
        "global index",
        "prompt",
        "prediction",
        "generated_result",
        "cost",
        "accuracy",
        "for_optimality",
    }
    assert all(set(row) == fields for row in rows)
    assert "2 choices written" in result.output


@pytest.mark.parametrize("text", ["{}", "[1]", '[{"prompt": "x"}]', "no JSON", "[]"])
def test_another_file_is_refused_with_what_was_expected(
    saved_router: Path, tmp_path: Path, text: str
) -> None:
    dataset = tmp_path / "questions.json"
    dataset.write_text(text)
    result = pandora(
        "bench", "routerarena", str(dataset), "-r", str(saved_router), "-o", str(tmp_path / "out.json")
    )
    assert result.exit_code == 2
    assert "expected" in result.output
    assert not (tmp_path / "out.json").exists()


def test_a_price_list_replaces_the_fees_of_the_fit(saved_router: Path, tmp_path: Path) -> None:
    dataset, listed, output = (tmp_path / name for name in ("q.json", "model_cost.json", "out.json"))
    dataset.write_text(json.dumps(QUESTIONS))
    router = Router.load(saved_router)
    dear, *others = router.specialists

    def chosen(one: float, rest: float) -> set[str]:
        """Who is chosen if a million tokens cost so many dollars from `dear`, and from all others."""

        def at(dollars: float) -> dict[str, float]:
            return {"input_token_price_per_million": 0.0, "output_token_price_per_million": dollars}

        prices = {name: at(rest) for name in others} | {"their-name": at(one)}
        listed.write_text(json.dumps(prices | {"another": at(1.0)}))
        result = pandora(
            "bench", "routerarena", str(dataset), "-r", str(saved_router), "-o", str(output),
            "--model", f"{dear}=their-name", "--prices", str(listed),
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        return {row["prediction"] for row in json.loads(output.read_text())}

    assert router.fee_weight > 0.0
    assert "their-name" not in chosen(1e9, 0.0)
    assert chosen(0.0, 1e9) == {"their-name"}


def test_a_price_list_without_a_specialist_is_refused(saved_router: Path, tmp_path: Path) -> None:
    dataset, listed = tmp_path / "questions.json", tmp_path / "model_cost.json"
    dataset.write_text(json.dumps(QUESTIONS))
    listed.write_text("{}")
    result = pandora(
        "bench", "routerarena", str(dataset), "-r", str(saved_router), "-o", str(tmp_path / "out.json"),
        "--prices", str(listed),
    )  # fmt: skip
    assert result.exit_code == 2
    assert "input_token_price_per_million" in result.output
