r"""The price of changing the specialist in the middle of a conversation, as part of the worth of each.

The provider that answered the last turn has the conversation in its cache; any other reads it anew. With P
tokens of conversation, of which h are held by the cache of the present specialist i, and prices per token of
input (in), of cached input (cached) and of input that is written to a cache (write), the conversation costs

    staying with i        h cached_i + (P - h) write_i
    leaving for j         P write_j

in this turn, plus P cached_j in each of the `turns` that are expected to follow, whoever answers. A cache
holds nothing after its lifetime. The router is moved by minus the weighted cost (`revalue.weighed`), so
that looks, reservation prices and the choice all know it, and nothing else about the decision changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pandora_router.prices import Tariff
from pandora_router.router.revalue import weighed
from pandora_router.router.router import Router
from pandora_router.store.rows import Session

FOLLOWING = 0.0
"""Turns that are expected to follow; `benchmarks.sessions --develop` found none that earns more than zero."""


@dataclass(frozen=True)
class Stay:
    """Why a turn stayed with the specialist of its conversation, or what staying was worth when it decided.

    because: the reason in words. refund: dollars that the cache of `specialist` saves in this turn. costs:
    dollars that each candidate charges for the conversation so far; empty if nothing was compared.
    """

    specialist: str
    because: str
    tokens: int = 0
    held: int = 0
    refund: float = 0.0
    costs: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `sentence` reads them."""
        return {**{name: getattr(self, name) for name in self.__dataclass_fields__}, "costs": {**self.costs}}


def prefix_costs(
    tariffs: Mapping[str, Tariff], session: Session, now: float, turns: float = FOLLOWING
) -> dict[str, float]:
    """Dollars that each specialist is expected to charge for the conversation so far; see the module.

    >>> tariffs = {"a": Tariff(1.0, 5.0, cached_in=0.1), "b": Tariff(2.0, 5.0)}
    >>> prefix_costs(tariffs, Session("a", at=0.0, tokens=10_000, held=10_000), now=60.0)
    {'a': 0.001, 'b': 0.02}
    >>> prefix_costs(tariffs, Session("a", at=0.0, tokens=10_000, held=10_000), now=600.0)
    {'a': 0.01, 'b': 0.02}
    """
    costs = {}
    for name, tariff in tariffs.items():
        here = name == session.specialist and now - session.at < tariff.cached_seconds
        later = tariff.reading(session.tokens, session.tokens if tariff.cached_in is not None else 0)
        cost = tariff.reading(session.tokens, session.held if here else 0)
        costs[name] = cost + turns * later if turns else cost
    return costs


def in_conversation(
    router: Router, tariffs: Mapping[str, Tariff], session: Session, now: float, turns: float = FOLLOWING
) -> tuple[Router, Stay]:
    """The router with the conversation so far priced, and what staying is worth.

    `tariffs` has those of all specialists of the router.
    """
    costs = prefix_costs({name: tariffs[name] for name in router.specialists}, session, now, turns)
    anew = tariffs[session.specialist].reading(session.tokens)
    warm = prefix_costs({session.specialist: tariffs[session.specialist]}, session, now, 0.0)
    stay = Stay(
        session.specialist,
        "priced",
        session.tokens,
        session.held,
        refund=anew - warm[session.specialist],
        costs=costs,
    )
    bonus = [-router.fee_weight * costs[name] for name in router.specialists]
    return weighed(router, router.fee_weight, bonus), stay


def sentence(stay: Mapping[str, Any], chosen: str) -> str:
    """`Stay.to_dict` in words, for logs and pages, after `chosen` was asked.

    >>> sentence(Stay("a", "a tool call is under way").to_dict(), "a")
    'a stays: a tool call is under way'
    """
    name = stay["specialist"]
    if not stay["costs"]:
        return f"{name} stays: {stay['because']}"
    what = "stays" if chosen == name else f"is left for {chosen}"
    costs = ", ".join(f"{other} ${cost:.3g}" for other, cost in sorted(stay["costs"].items()))
    return (
        f"{name} {what}: its cache holds {stay['held']:,} of the conversation's {stay['tokens']:,} tokens, "
        f"which saves ${stay['refund']:.3g}; the conversation so far costs {costs}"
    )
