"""`pandora route --live`: look at answers that specialists begin while the decision is made."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pandora_router.cli.options import Wanted
from pandora_router.config import open_router, read_config
from pandora_router.config.file import Config
from pandora_router.config.shared import Builder
from pandora_router.config.worth import revalued, stated_worth
from pandora_router.errors import UpstreamError, UsageError
from pandora_router.estimators.looking import Looking, plain, with_log_probabilities
from pandora_router.router import Decision, Router
from pandora_router.specialists.specialist import Answer, Request, Specialist, Unanswered


@dataclass(frozen=True)
class RoutedLive:
    """A decision made with live looks.

    looked: the beginning of the answer of each specialist that was looked at, or why there is none.
    answer: the answer of the chosen specialist; None if it was not requested.
    lost: money for looks at specialists that were not chosen.
    """

    decision: Decision
    looked: Mapping[str, str]
    answer: Answer | None
    lost: float
    currency: str

    def to_dict(self) -> dict[str, Any]:
        """The decision as `--json` prints it, with looks, answer and lost money."""
        answer = None if self.answer is None else asdict(self.answer)
        return {**self.decision.to_dict(), "looked": dict(self.looked), "answer": answer, "lost": self.lost}


def route_live(artifact: Path, path: Path, prompt: str, wanted: Wanted, *, answering: bool) -> RoutedLive:
    """Route a prompt with the specialists of the config file at `path`.

    With `answering` the chosen specialist also answers. Raises `UsageError` if the config does not match the
    router or no look is possible, and `UpstreamError` if the chosen specialist fails.
    """
    config = read_config(path)
    router = open_router(artifact, config)
    router = revalued(router, stated_worth(config, router))
    if not router.needs and not answering:
        raise UsageError(
            "--live",
            expected="a router whose costly estimate reads beginnings of answers",
            came="one whose costly estimate reads only prompts",
            do="Leave --live out, or pass --answer; fit with `costly: {peek: ...}` to look at answers.",
        )
    builder = Builder(config, path.parent)
    specialists = {name: builder.specialist(name) for name in router.specialists}
    return asyncio.run(_routed(router, config, specialists, prompt, wanted, answering))


async def _routed(
    router: Router,
    config: Config,
    specialists: Mapping[str, Specialist],
    prompt: str,
    wanted: Wanted,
    answering: bool,
) -> RoutedLive:
    request, among = Request.of(prompt), wanted.among(router)
    if router.predictor is None:  # a judge: it reads the prompt alone
        decision = await router.aroute(prompt, among=among)
        answer = await _answer(specialists[decision.specialist].answer(request)) if answering else None
        return RoutedLive(decision, {}, answer, 0.0, config.value.currency)
    recorded = with_log_probabilities if config.collect and config.collect.log_probabilities else plain
    with Looking(request, router.predictor, specialists, context_of=recorded) as looking:
        decision = await replace(router, costly=looking).aroute(prompt, among=among)
        answer = await _answer(looking.answer(decision.specialist)) if answering else None
    seen = {name: begun.context or "" for name, begun in looking.begun.items()}
    failed = {name: f"nothing: {error}" for name, error in looking.failures.items()}
    return RoutedLive(decision, {**seen, **failed}, answer, looking.lost, config.value.currency)


async def _answer(coming: Any) -> Answer:
    try:
        answer: Answer = await coming
    except Unanswered as error:
        raise UpstreamError(f"the chosen specialist gave no answer: {error}") from error
    return answer
