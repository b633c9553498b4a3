"""`pandora route --live`: answers are begun on a real server while the decision is made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pandora_router.data import save
from pandora_router.router import Router
from tests.support.command import pandora
from tests.support.tables import generate
from tests.support.upstream import Upstream

CONFIG = """
fit:
  inspection: 0.0001
  costly: {peek: 40, rounds: 10, folds: 2}
  policy: {kind: always}
endpoints:
  here: {base_url: "URL", at_once: 8}
specialists:
"""
PROMPT = "count the king"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Upstream]]:
    """A folder with pandora.yaml and a router that looks at every answer, and the server it looks at."""
    folder = tmp_path_factory.mktemp("live")
    table = generate(contexts=True)
    save(table, folder / "table")
    with Upstream() as upstream:
        text = CONFIG.replace("URL", upstream.url)
        for name in table.specialists:
            asked = f"{{kind: chat, endpoint: here, model: {name}, stream: true, context_tokens: 4"
            text += f"  {name}: {asked}, tokens: 16, prices: {{in: 1, out: 2}}}}\n"
        (folder / "pandora.yaml").write_text(text)
        fitted = pandora("fit", folder / "pandora.yaml", "-o", folder / "router")
        assert fitted.exit_code == 0, fitted.output
        yield folder, upstream


def live(folder: Path, *words: object, prompt: str = PROMPT) -> Any:
    return pandora(
        "route", prompt, "--live", "-r", folder / "router", "--config", folder / "pandora.yaml", *words
    )


def test_a_live_decision_is_that_of_a_router_shown_the_same_beginnings(place: tuple[Path, Upstream]) -> None:
    folder, upstream = place
    before = upstream.asked.total()
    found = live(folder, "--json")
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    router = Router.load(folder / "router")
    assert set(told["looked"]) == set(router.specialists)
    assert upstream.asked.total() - before == len(router.specialists)
    assert all(told["looked"].values())
    shown = router.route(PROMPT, told["looked"])
    assert told["specialist"] == shown.specialist
    bought = [(one["specialists"], one["estimates"]) for one in told["purchases"]]
    assert bought == [(one["specialists"], one["estimates"]) for one in shown.to_dict()["purchases"]]
    assert bought
    assert told["answer"] is None
    assert told["lost"] > 0.0
    assert router.route(PROMPT).trace.inspected == ()


def test_the_chosen_specialist_goes_on_and_is_not_asked_twice(place: tuple[Path, Upstream]) -> None:
    folder, upstream = place
    before = upstream.asked.total()
    found = live(folder, "--answer")
    assert found.exit_code == 0, found.output
    name, _, answer = found.stdout.strip().partition(": ")
    assert answer == "The answer is 0"
    assert upstream.asked.total() - before == len(Router.load(folder / "router").specialists)
    assert f"looked at {name}: " in found.stderr
    assert "for looks that led to no answer" in found.stderr


def test_a_declined_prompt_says_why(place: tuple[Path, Upstream]) -> None:
    found = live(place[0], prompt=" ")
    assert found.stdout.strip() == Router.load(place[0] / "router").default
    assert "the router declined: the prompt is empty" in found.stderr


def test_who_cannot_be_looked_at_costs_only_its_look(place: tuple[Path, Upstream]) -> None:
    folder, upstream = place
    victim = Router.load(folder / "router").specialists[0]
    upstream.faults = lambda model, *_: "401" if model == victim else None
    try:
        told = json.loads(live(folder, "--json").stdout)
    finally:
        upstream.faults = lambda *_: None
    assert told["looked"][victim].startswith("nothing: ")
    assert told["specialist"] in told["looked"]


@pytest.mark.parametrize(
    "words", [["--answer"], ["--live", "--context", "a=b"], ["--live", "--batch", "prompts.csv"]]
)
def test_orders_that_do_not_go_together_are_refused(place: tuple[Path, Upstream], words: list[str]) -> None:
    prompt = [] if "--batch" in words else [PROMPT]
    found = pandora("route", *prompt, "-r", place[0] / "router", *words)
    assert found.exit_code == 2


def test_a_router_that_reads_prompts_alone_has_nothing_to_look_at(
    place: tuple[Path, Upstream], tmp_path: Path
) -> None:
    folder, _ = place
    text = (folder / "pandora.yaml").read_text().replace("peek: 40", "peek: 0")
    (tmp_path / "pandora.yaml").write_text(text)
    save(generate(), tmp_path / "table")
    fitted = pandora("fit", tmp_path / "pandora.yaml", "-o", tmp_path / "router")
    assert fitted.exit_code == 0, fitted.output
    found = live(tmp_path)
    assert found.exit_code == 2
    assert "reads only prompts" in found.output
