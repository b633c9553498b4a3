"""Which specialist answers: by name, by session, or by a decision of the router; always with a reason.

The router decides through `deciding`, as in the library, with live looks if its costly estimate needs them.
This module limits the candidates, explores, observes, and ranks the specialists that take over on failure.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pandora_router.gateway.generation import Profile, Settings, Site
from pandora_router.gateway.lessons import Lessons
from pandora_router.gateway.providers.cost_bound import Quote
from pandora_router.gateway.request.attempts import RunningAttempt
from pandora_router.gateway.request.looks import LiveLooks
from pandora_router.gateway.request.trial import Opening
from pandora_router.learn.exploration import COIN
from pandora_router.learn.mix import Mix
from pandora_router.router import Decision, Router
from pandora_router.router.conversation import Stay, in_conversation
from pandora_router.store.explored import EXPLORE
from pandora_router.store.money import dollars
from pandora_router.store.rows import Draw, Session
from pandora_router.wires.wire import Turn


def best_single(profile: Profile | None) -> str | None:
    """The specialist of the highest mean reward in training; None if the request was not routed."""
    if profile is None or profile.router is None:
        return None
    router = profile.router
    standing = router.record.standing
    single = standing.get("single", router.default)
    return single if single in router.specialists else router.default


def single_cost(compared: Quote, answered: RunningAttempt | None, now: float) -> int:
    """What the call `compared`, which is not made, would have cost, in nanodollars.

    `answered` is the call that answered. If it is the same specialist, its own cost; otherwise its input
    tokens at the prices of the other, with the other's usual output (or the same output, if not measured
    yet).
    """
    if answered is None:
        return compared.expected_cost(now)
    if answered.backend.name == compared.backend.name:
        return answered.cost
    if answered.reader.usage is None or not answered.reader.usage.complete:
        return compared.expected_cost(now)
    output = min(compared.lengths.output.given(answered.reader.usage.output), compared.most)
    return compared.backend.cost(replace(answered.reader.usage, output=round(output)))


@dataclass(frozen=True)
class Choice:
    """The specialists to ask, in order; the router's proposal, the probability of this choice, the reason.

    `propensity` is the probability of what was picked; `randomised`: whether a coin picked it. `picked` is
    set if another specialist is asked first, because the look at the one that was picked has failed.
    `estimates` is the cost, in dollars, of estimates other than looks; `outside`: whether a judge made them.
    `stay` is the reason or the price of staying with the specialist of the conversation.
    `value` turns the worths of a decision into scores and dollars (`valued`). `lesson`: `asked` is asked for
    what it teaches (`gateway.lessons`).
    """

    ranked: tuple[str, ...]
    proposed: str
    policy: str
    artifact: str = ""
    propensity: float = 1.0
    declined: str | None = None
    inspected: tuple[str, ...] = ()
    estimates: float = 0.0
    outside: bool = False
    detail: Mapping[str, Any] = field(default_factory=dict)
    value: Mapping[str, Any] = field(default_factory=dict)
    lesson: bool = False
    randomised: bool = False
    picked: str | None = None
    stay: Stay | None = None

    @property
    def specialist(self) -> str:
        """The specialist that is asked first."""
        return self.ranked[0]

    @property
    def asked(self) -> str:
        """The specialist that was picked, to which `propensity` belongs."""
        return self.ranked[0] if self.picked is None else self.picked

    @property
    def worth(self) -> float | None:
        """The expected reward of `asked` at the end of the decision; None if no router decided."""
        worth: float | None = self.detail.get("worth", {}).get(self.asked)
        return worth

    @property
    def pick(self) -> dict[str, Any]:
        """The fields of a stored decision that say who was picked, with which chance, and its worth."""
        randomised = self.randomised and self.asked == self.specialist
        picked = {"asked": self.asked, "randomised": randomised, "worth": self.worth}
        return {**picked, "propensity": self.propensity}

    def stored(self, model: object, excluded: Mapping[str, str], would_look: Sequence[str]) -> dict[str, Any]:
        """The detail of a stored decision: what the client named, who could not answer and why, and so on."""
        return {
            "model": model,
            "decision": self.detail,
            "excluded": excluded,
            "ranked": self.ranked,
            **({"value": self.value} if self.value else {}),
            **({"would_look": would_look} if would_look else {}),
            **({"session": self.stay.to_dict()} if self.stay else {}),
        }

    def mode(self, settings: Settings) -> str:
        """The mode of the stored decision: that of the gateway, or that it was asked for its lesson."""
        return EXPLORE if self.lesson else settings.mode

    def reordered(self, order: tuple[str, ...]) -> Choice:
        """The same pick, with specialists asked in another order."""
        return self if order == self.ranked else replace(self, ranked=order, picked=self.asked)


def by_name(name: str) -> Choice:
    """The specialist that the request names; no other takes over."""
    return Choice((name,), name, "named")


def pinned(known: Session, others: Sequence[str], because: str) -> Choice:
    """The specialist of this conversation; others take over only if it cannot answer."""
    name, stay = known.specialist, Stay(known.specialist, because, known.tokens, known.held)
    return Choice((name, *(other for other in others if other != name)), name, "session", stay=stay)


def locked(
    known: Session | None, turn: Turn, settings: Settings, profile: Profile, offered: Sequence[str]
) -> Choice | None:
    """The specialist of a conversation that must stay with it; None if the router may decide anew."""
    if known is None or known.specialist not in offered:
        return None
    reasons = {
        "the response that it continues is stored there": turn.previous is not None,
        "it has reasoning that only that provider can read": turn.locked,
        "a tool call is under way": turn.loops,
        "serve.sessions says `switch: never`": settings.switch == "never",
        "no router is fitted": profile.router is None,
        "the request has no text to judge": not turn.prompt.strip(),
    }
    reason = next((reason for reason, applies in reasons.items() if applies), None)
    return None if reason is None else pinned(known, offered, reason)


def in_session(made: Choice, known: Session | None, offered: Sequence[str]) -> Choice:
    """The same choice; but a conversation of which nobody can judge the turn stays where it is."""
    if made.declined is not None and known is not None and known.specialist in offered:
        return pinned(known, offered, made.declined)
    return made


def priced(router: Router, site: Site, known: Session | None, now: float) -> tuple[Router, Stay | None]:
    """The router with the price of leaving the conversation's specialist, if that is to be counted."""
    if known is None or site.settings.switch != "priced" or known.specialist not in site.names:
        return router, None
    tariffs = {backend.name: backend.prices for backend in site.backends}
    return in_conversation(router, tariffs, known, now)


def after_answer(attempt: RunningAttempt, known: Session | None, now: float) -> Session:
    """What is known of a conversation after this answer; without token counts, what was known before."""
    usage, name = attempt.reader.usage, attempt.backend.name
    if usage is None or not usage.complete:
        return Session(name, tokens=0 if known is None else known.tokens)
    tokens = usage.fresh + usage.cached + usage.written + usage.output
    return Session(name, now, tokens, attempt.backend.prices.holds(usage))


def fallback(settings: Settings, offered: Sequence[str], reason: str) -> Choice:
    """The default specialist, with the reason why the router did not decide; another if it is excluded."""
    order = sorted(offered, key=lambda name: name != settings.default)
    return Choice(tuple(order), order[0], "default", declined=reason)


async def decide(
    router: Router,
    turn: Turn,
    offered: Sequence[str],
    settings: Settings,
    rng: random.Random,
    looks: LiveLooks | None = None,
    stay: Stay | None = None,
    begun: Opening | None = None,
    *,
    call: bool = True,
    lessons: Lessons | None = None,
) -> Choice:
    """Let the router choose among `offered`; explore and observe as the settings say.

    With `looks`, answers are begun during the decision, except in observe mode, which must not call others.
    Without `call` nobody is called, not even a judge: what it would have said stays sealed. With `stay`,
    the price of leaving a conversation's specialist, nothing is explored: that would be paid for learning.
    `begun` is a decision that a trial has begun; if a coin was tossed for it, nothing else is explored.
    """
    known = [name for name in router.specialists if name in offered]
    if not known:
        return fallback(settings, offered, "no specialist the router knows may answer this request")
    if begun is not None:
        decision = await begun.decide(settings.deadline)
    elif looks is None:
        deadline = settings.deadline if call or router.predictor is not None else 0.0
        decision = await router.aroute(asked(turn), among=known, timeout=deadline)
    else:
        decision = await looks.decide(asked(turn), known, settings.deadline)
    ranked = tuple(ranking(decision, known))
    choice = Choice(
        ranked,
        ranked[0],
        decision.policy,
        decision.artifact,
        declined=decision.declined_because,
        inspected=decision.inspected,
        estimates=0.0 if looks is not None else spent(router, decision),
        outside=router.predictor is None,
        detail=decision.to_dict(),
        value=valued(router),
        stay=stay,
    )
    if decision.declined_because is not None:
        order = fallback(settings, offered, decision.declined_because).ranked
        choice = _asking(choice, order[0], order, 1.0)
    if settings.mode == "observe":
        default = fallback(settings, offered, "").ranked
        return _asking(choice, default[0], default, 1.0)
    if begun is not None and begun.draw is not None:
        return _drawn(choice, begun.draw)
    if stay is not None:
        return choice
    if lessons is not None and call and choice.declined is None:
        choice = _taught(choice, router, asked(turn), known, lessons, rng)
    return choice if choice.randomised else _explored(choice, known, settings.explore, rng)


def compared(choice: Choice, mix: Mix | None, turn: Turn, first: bool) -> Choice:
    """The same choice; that of a `first` prompt records where it ranks among those that the router knows."""
    if mix is None or not first or turn.continues or choice.declined is not None:
        return choice
    return replace(choice, value={**choice.value, "mix": {"of": mix.name, "ranks": mix.ranks(asked(turn))}})


def _drawn(choice: Choice, draw: Draw) -> Choice:
    """The choice with the probability of its coin, where the coin alone decided between two specialists."""
    if None in draw.choices:  # what the other router would have chosen is not known
        return choice
    chance = draw.share if draw.candidate else 1.0 - draw.share
    return replace(choice, propensity=chance, randomised=True)


def valued(router: Router) -> dict[str, Any]:
    """What a reader of the log needs to turn worths into scores and dollars.

    right_answer: dollars that a score of 1 is worth, None if money does not count. fee: the expected fee of
    each specialist in dollars. deducted: expected score minus expected worth.
    """
    return {
        "right_answer": 1.0 / router.fee_weight if router.fee_weight > 0.0 else None,
        "fee": dict(zip(router.specialists, router.fees.tolist(), strict=True)),
        "deducted": dict(zip(router.specialists, router.deducted.tolist(), strict=True)),
    }


def spent(router: Router, decision: Decision) -> float:
    """Cost of a decision's estimates in dollars: their stated fees, else their prices at the fit."""
    weight = router.fee_weight if router.fee_weight > 0.0 else 1.0
    return sum(
        purchase.cost / weight if purchase.fee is None else purchase.fee for purchase in decision.purchases
    )


def _explored(choice: Choice, known: Sequence[str], share: float, rng: random.Random) -> Choice:
    """With probability `share` a specialist drawn uniformly; the choice records its probability."""
    if share <= 0.0:
        return choice
    even = share / len(known)
    picked = rng.choice(list(known)) if rng.random() < share else choice.specialist
    chance = even + (1.0 - share if picked == choice.specialist else 0.0)
    return replace(_asking(choice, picked, choice.ranked, chance), randomised=True)


def _taught(
    choice: Choice, router: Router, prompt: str, known: Sequence[str], lessons: Lessons, rng: random.Random
) -> Choice:
    """The choice, or by a coin the specialist whose answer is worth its price as a lesson."""
    lesson = lessons.worth_asking(router, prompt, choice.detail.get("worth", {}), known)
    if lesson is None:
        return choice
    name = router.specialists[lesson.column]
    value = {**choice.value, "lesson": {"specialist": name, "worth": lesson.worth, "loss": lesson.loss}}
    if rng.random() >= COIN:
        return replace(choice, propensity=1.0 - COIN, randomised=True, value=value)
    lessons.ask(prompt, name)
    picked = _asking(choice, name, choice.ranked, COIN)
    return replace(picked, randomised=True, value=value, lesson=True)


def _asking(choice: Choice, first: str, order: Sequence[str], propensity: float) -> Choice:
    rest = tuple(name for name in order if name != first)
    return replace(choice, ranked=(first, *rest), propensity=propensity)


def asked(turn: Turn) -> str:
    """The text that is routed: the system prompt and the last user message."""
    return f"{turn.system}\n\n{turn.prompt}" if turn.system and turn.prompt else turn.prompt


def ranking(decision: Decision, offered: Sequence[str]) -> list[str]:
    """The chosen specialist, then the others by what they were worth at the end of the search."""
    worth = decision.worth
    rest = sorted(offered, key=lambda name: -worth.get(name, -np.inf))
    return [decision.specialist, *(name for name in rest if name != decision.specialist)]


def about(
    choice: Choice, id_: str, attempt: RunningAttempt, kind: str, inspection_cost: int, overhead: float
) -> list[tuple[bytes, bytes]]:
    """The headers of an answer of the content type `kind`: its specialist, and the cost of the decision.

    `inspection_cost` is in nanodollars and shown in dollars; `overhead` is in seconds.
    """
    headers = {
        "content-type": kind,
        "x-pandora-specialist": attempt.backend.name,
        "x-pandora-decision-id": id_,
        "x-pandora-policy": choice.policy,
        "x-pandora-inspected": ",".join(choice.inspected),
        "x-pandora-inspection-cost": f"{dollars(inspection_cost):.9g}",
        "x-pandora-overhead-ms": f"{1000.0 * overhead:.2f}",
    }
    if attempt.translator is not None:
        headers["x-pandora-translated"] = attempt.translator.header
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]


def session_of(turn: Turn, headers: Mapping[str, str], key: str | None) -> str:
    """The name of the conversation that a request belongs to.

    An explicit header `x-pandora-session`, else the provider's cache key, else a hash of the API key, the
    system prompt and the first user message. Names of different API keys never meet.
    """
    stated = headers.get("x-pandora-session") or turn.cache_key
    identity = f"{key}\0stated\0{stated}" if stated else f"{key}\0{turn.system}\0{turn.first}"
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def response_session(response: str, key: str | None) -> str:
    """The name of the session that continues a response; clients with another API key cannot name it."""
    return f"response:{key}:{response}"
