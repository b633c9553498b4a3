"""The plug-in for litellm without litellm: it chooses as `Router.route` does, else it changes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pandora_router.errors import UsageError
from pandora_router.gateway.litellm import SIGNAL, PandoraRouting, prompt, response_headers
from pandora_router.router.revalue import weighed
from tests.support.routers import fitted

PROMPTS = [
    "count the river king number 7",
    "tell about the river",
    "sum of stars 12",
    "x",
    "a king and a star",
]


@dataclass
class Context:
    """The members of litellm's RoutingContext that the plug-in reads and writes."""

    structured_messages: list[dict[str, Any]]
    candidate_models: list[str]
    signals: dict[str, Any] = field(default_factory=dict)


def said(text: str, **more: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text, **more}]


@pytest.mark.parametrize("text", PROMPTS)
@pytest.mark.parametrize("left_out", [0, 1])
def test_the_candidate_that_stays_is_the_one_the_router_chooses(text: str, left_out: int) -> None:
    router = fitted()
    names = router.specialists[left_out:]
    candidates = [f"openai/{name}" for name in names] + ["openai/stranger"]
    context = Context(said(text), list(candidates))
    asyncio.run(PandoraRouting(router).run(context))
    decision = router.route(text, among=list(names))
    assert decision.declined_because is None
    assert context.candidate_models == [f"openai/{decision.specialist}"]
    told = context.signals[SIGNAL]
    assert told["specialist"] == decision.specialist
    assert told["inspected"] == list(decision.inspected)
    assert told["inspection_cost"] == pytest.approx(decision.trace.spent)
    headers = response_headers({"metadata": {"routing_plugin_signals": context.signals}})
    assert headers["x-pandora-decision-id"] == told["decision_id"]
    assert float(headers["x-pandora-inspection-cost"]) == pytest.approx(decision.trace.spent)


def test_another_worth_of_a_right_answer_counts_without_a_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = fitted()
    router.save(tmp_path / "router")
    monkeypatch.setenv("PANDORA_RIGHT_ANSWER", "0.001")
    chosen = []
    for plugin in (PandoraRouting(tmp_path / "router"), PandoraRouting(router, right_answer=1e6)):
        context = Context(said(PROMPTS[0]), list(router.specialists))
        asyncio.run(plugin.run(context))
        chosen += context.candidate_models
    at = [weighed(router, 1.0 / worth).route(PROMPTS[0]).specialist for worth in (0.001, 1e6)]
    assert chosen == at
    assert len(set(chosen)) == 2  # money counts in the first, and not in the second
    for wrong in ("much", "-1", "nan"):
        monkeypatch.setenv("PANDORA_RIGHT_ANSWER", wrong)
        with pytest.raises(UsageError, match="a positive number"):
            PandoraRouting(router)


def test_names_of_models_can_be_stated(tmp_path: Path) -> None:
    router = fitted()
    router.save(tmp_path / "router")
    models = {name: f"azure/deployment-{i}" for i, name in enumerate(router.specialists)}
    plugin = PandoraRouting(tmp_path / "router", models)
    context = Context(said("count the river king"), list(models.values()))
    asyncio.run(plugin.run(context))
    assert context.candidate_models == [models[router.route("count the river king").specialist]]


@pytest.mark.parametrize(
    ("messages", "candidates"),
    [
        (said("hello"), ["openai/stranger", "other"]),
        (said("  "), [f"openai/{name}" for name in ("small", "large")]),
        ([], ["openai/stranger"]),
        (said("count"), []),
    ],
)
def test_what_it_cannot_judge_stays_as_it_was(messages: list[dict[str, Any]], candidates: list[str]) -> None:
    context = Context(messages, list(candidates))
    asyncio.run(PandoraRouting(fitted()).run(context))
    assert context.candidate_models == candidates
    assert context.signals[SIGNAL]["declined_because"]
    assert response_headers({"metadata": {"routing_plugin_signals": context.signals}}) == {}
    assert response_headers({}) == {}


def test_a_declined_decision_leaves_all_candidates() -> None:
    router = fitted()
    text = "half of a surrogate pair \ud83d"
    assert router.route(text).declined_because is not None
    candidates = list(router.specialists)
    context = Context(said(text), list(candidates))
    asyncio.run(PandoraRouting(router).run(context))
    assert context.candidate_models == candidates


def test_the_text_is_that_of_the_gateway() -> None:
    from pandora_router.gateway.request.choice import asked
    from pandora_router.wires.known import BY_NAME

    for messages in (
        said("one"),
        [
            {"role": "system", "content": "be brief"},
            *said("one"),
            {"role": "assistant", "content": "a"},
            *said("two"),
        ],
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
    ):
        assert prompt(messages) == asked(BY_NAME["chat"].read({"model": "auto", "messages": messages}))


def test_without_a_router_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PANDORA_ROUTER", raising=False)
    with pytest.raises(UsageError, match="PANDORA_ROUTER"):
        asyncio.run(PandoraRouting().run(Context(said("x"), ["a"])))
