"""A routing plug-in for litellm (1.95 or newer): litellm calls the models, pandora-router chooses one.

In Python:

    litellm.Router(model_list=..., plugins=[PandoraRouting("router")])

In the YAML of the proxy, with the folder of the fitted router in the environment variable PANDORA_ROUTER:

    router_settings: {plugins: [pandora_router.gateway.litellm.plugin]}
    litellm_settings: {callbacks: [pandora_router.gateway.litellm.headers]}

Of the deployments with the requested name, the plug-in keeps the one that the router chooses. If the router
declines, or knows none of them, all are kept and litellm chooses. The decision is in the request's metadata
(`routing_plugin_signals.pandora`) and, with the callback `headers`, in headers of the response. The plug-in
imports nothing from litellm: any object with an asynchronous `run` is a plug-in.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pandora_router.errors import UsageError
from pandora_router.router import Decision, Router
from pandora_router.router.revalue import weighed

SIGNAL = "pandora"
VARIABLE = "PANDORA_ROUTER"
WORTH = "PANDORA_RIGHT_ANSWER"


class RoutingContext(Protocol):
    """What litellm passes to a plug-in: the messages of a chat completion, and the candidates.

    `candidate_models` are the values of `litellm_params.model` of the deployments that may answer.
    """

    structured_messages: list[dict[str, Any]]
    candidate_models: list[str]
    signals: dict[str, Any]


class PandoraRouting:
    """The plug-in.

    router: a fitted router, or the folder that holds one; by default the folder in PANDORA_ROUTER. A folder
        is read at the first request.
    models: the model of litellm, such as "openai/gpt-large", of each specialist. By default a specialist
        answers to candidates of its own name, with or without a provider before a slash.
    timeout: seconds for deciding, after which nothing more is inspected.
    right_answer: what a right answer is worth, in the currency of the fees; by default the number in
        PANDORA_RIGHT_ANSWER, or else what it was worth in the fit. `pandora.yaml` is not read.
    """

    def __init__(
        self,
        router: Router | Path | str | None = None,
        models: Mapping[str, str] | None = None,
        timeout: float = 2.0,
        right_answer: float | None = None,
    ) -> None:
        self._router = router if not isinstance(router, Router) else priced(router, right_answer)
        self._right_answer = right_answer
        self._models = models
        self._timeout = timeout
        self._reading = threading.Lock()

    async def run(self, context: RoutingContext) -> RoutingContext:
        """Keep the chosen candidate, or all of them without a decision; returns the same context."""
        router = self._router
        if not isinstance(router, Router):
            router = await asyncio.to_thread(self._loaded)
        known = self._known(router, context.candidate_models)
        text = prompt(context.structured_messages)
        if not known or not text.strip():
            why = "the request has no text to judge" if known else "the router knows none of the candidates"
            context.signals[SIGNAL] = {"declined_because": why}
            return context
        decision = await router.aroute(text, among=list(known), timeout=self._timeout)
        context.signals[SIGNAL] = told(decision)
        if decision.declined_because is None:
            context.candidate_models = [known[decision.specialist]]
        return context

    def _loaded(self) -> Router:
        """The router, read once; raises `UsageError` if there is none."""
        with self._reading:
            if not isinstance(self._router, Router):
                folder = self._router or os.environ.get(VARIABLE)
                if not folder:
                    raise UsageError(
                        "the routing plug-in",
                        expected=f"the folder of a fitted router in the environment variable {VARIABLE}",
                        came="nothing",
                        do="Run pandora fit, then set the variable.",
                    )
                self._router = priced(Router.load(Path(folder)), self._right_answer)
            return self._router

    def _known(self, router: Router, candidates: Sequence[str]) -> dict[str, str]:
        """The candidate of each specialist that is offered, by the specialist's name."""
        known: dict[str, str] = {}
        for candidate in candidates:
            for name in router.specialists:
                mine = self._models.get(name) if self._models is not None else None
                same = candidate == mine if mine else candidate == name or candidate.partition("/")[2] == name
                if same:
                    known.setdefault(name, candidate)
        return known


def priced(router: Router, right_answer: float | None) -> Router:
    """The router where a right answer is worth `right_answer`, by default what the environment says.

    Raises `UsageError` unless it is a positive number.
    """
    stated = os.environ.get(WORTH, "") if right_answer is None else str(right_answer)
    if not stated:
        return router
    try:
        worth = float(stated)
    except ValueError:
        worth = 0.0
    if not 0.0 < worth < math.inf:
        raise UsageError(
            "the worth of a right answer", expected="a positive number", came=repr(stated), do=f"Set {WORTH}."
        )
    return weighed(router, 1.0 / worth, name=f"{worth:g}")


def told(decision: Decision) -> dict[str, Any]:
    """Summary of a decision for metadata and headers; costs are in units of reward."""
    return {
        "decision_id": decision.id,
        "specialist": decision.specialist,
        "policy": decision.policy,
        "inspected": list(decision.inspected),
        "inspection_cost": decision.trace.spent,
        "declined_because": decision.declined_because,
    }


def prompt(messages: Sequence[Mapping[str, Any]]) -> str:
    """The text that is judged, as the gateway judges it: the last user turn, its system prompt before it."""
    system = "\n".join(
        _text(message) for message in messages if message.get("role") in ("system", "developer")
    )
    asked = next((_text(message) for message in reversed(messages) if message.get("role") == "user"), "")
    return f"{system}\n\n{asked}" if system and asked else asked


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping) and part.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


def response_headers(request: Mapping[str, Any]) -> dict[str, str]:
    """The headers on the decision for a litellm request; empty without one."""
    for member in ("metadata", "litellm_metadata"):
        signals = (request.get(member) or {}).get("routing_plugin_signals") or {}
        if SIGNAL in signals and "decision_id" in signals[SIGNAL]:
            made = signals[SIGNAL]
            return {
                "x-pandora-decision-id": str(made["decision_id"]),
                "x-pandora-specialist": str(made["specialist"]).encode("ascii", "replace").decode(),
                "x-pandora-inspected": ",".join(made["inspected"]).encode("ascii", "replace").decode(),
                "x-pandora-inspection-cost": f"{made['inspection_cost']:.9g}",
            }
    return {}


def _callback() -> Any:
    """The callback that adds the headers; created on demand, because its base class is litellm's."""
    from litellm.integrations.custom_logger import CustomLogger

    class PandoraHeaders(CustomLogger):
        """Adds headers to answers of the proxy, and to `_hidden_params` of answers of the SDK."""

        async def async_post_call_response_headers_hook(
            self, data: dict[str, Any], user_api_key_dict: Any, response: Any, **_: Any
        ) -> dict[str, str] | None:
            return response_headers(data) or None

        async def async_post_call_success_deployment_hook(
            self, request_data: dict[str, Any], response: Any, call_type: Any
        ) -> Any:
            hidden = response._hidden_params
            hidden["additional_headers"] = {
                **(hidden.get("additional_headers") or {}),
                **response_headers(request_data),
            }
            return response

    return PandoraHeaders()


plugin = PandoraRouting()
"""The plug-in for the proxy's YAML."""


def __getattr__(name: str) -> Any:
    """Create the callback `headers` on first use."""
    if name != "headers":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()["headers"] = made = _callback()
    return made
