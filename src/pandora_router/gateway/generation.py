"""One generation of a gateway: its specialists, router and settings. Immutable.

A reload replaces the `Site`; requests in progress finish with the old one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Literal

from pandora_router.bidding.auctioneer import Auctioneer
from pandora_router.errors import UsageError
from pandora_router.gateway.lessons import Lessons
from pandora_router.gateway.providers.backend import Backend
from pandora_router.learn.mix import Mix
from pandora_router.learn.pace import Pace
from pandora_router.prices import Lengths
from pandora_router.router import Router
from pandora_router.router.decision import base_id
from pandora_router.router.revalue import at_speed, weighed
from pandora_router.store.promises import Promise
from pandora_router.store.rows import SharedBudget
from pandora_router.store.worker import Store
from pandora_router.transport.relay import LONGEST
from pandora_router.types import Until

Mode = Literal["route", "observe"]
Switch = Literal["priced", "never", "always"]
AUTO = "auto"
ALIASES: Mapping[str, str] = {"claude-*": AUTO, "gpt-*": AUTO, "o[0-9]*": AUTO, "codex-*": AUTO}
"""What names of models mean that agents ask for by themselves, unless `serve.aliases` says otherwise."""


@dataclass(frozen=True)
class LearningRules:
    """How a gateway learns from what it serves.

    metric: the feedback that is the score. promote: which rule ends a trial; `hand` leaves it to a person.
    delay: seconds after which the usual ratings of a request have come; younger ones do not count yet. None:
        as measured (`http.learner.usual_delay`).
    per_key: the largest share of the evidence that may come from one API key.
    webhook: where alerts are sent, None for nowhere.
    """

    metric: str = "reward"
    promote: Literal["veto", "proof", "hand"] = "hand"
    delay: float | None = None
    per_key: float = 0.2
    webhook: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Settings:
    """How requests are served.

    default: the specialist for prompts that the router cannot judge.
    mode: `observe` sends every `auto` request to the default and records what the router would have chosen.
    explore: the share of `auto` requests that go to a specialist drawn at random, with its probability.
    deadline: seconds for deciding, after which nothing more is inspected.
    session: seconds for which a conversation stays with its specialist after its last request.
    switch: when a conversation may change its specialist: at each turn of the user, at the price of reading
        it anew (`priced`); at no price (`always`); only if the specialist fails (`never`).
    lease: seconds after which the reservation of a dead process is given back; longer than any call.
    bodies: whether prompts, requests and answers are kept in the store.
    ping: seconds of silence after which a stream gets a keep-alive; 0 for never.
    retention: days after which decisions are deleted; None for never. Sums per minute and hour stay.
    log, log_bodies: the form of the log, and whether requests are written to it, redacted.
    largest_request, patience: the most bytes that a request may have, and seconds in which it must arrive.
    traces: whether spans are exported by OpenTelemetry.
    on_failure: what becomes of a request without a budget if the store fails; see `Ledger`.
    aliases: patterns of model names that clients may use (`*`, `?`, `[...]`) -> the name that is meant.
    learning: trials, alarms and where they are sent.
    """

    default: str
    mode: Mode = "route"
    explore: float = 0.0
    deadline: float = 2.0
    session: float = 3600.0
    switch: Switch = "priced"
    lease: float = LONGEST + 120.0
    bodies: bool = False
    keys: bool = False
    ping: float = 15.0
    retention: float | None = None
    log: Literal["text", "json"] = "text"
    log_bodies: bool = False
    traces: bool = False
    largest_request: int = 32 * 2**20
    patience: float = 60.0
    on_failure: Literal["refuse", "serve"] = "refuse"
    aliases: Mapping[str, str] = field(default_factory=lambda: ALIASES)
    learning: LearningRules = LearningRules()


@dataclass(frozen=True, eq=False)
class Profile:
    """One way to route: `auto`, or `auto@name`.

    router: decides; None if none is fitted. Routers of several profiles share their estimators and differ in
    what a right answer is worth. second: what a second of waiting costs, in dollars. only, exclude: names of
    specialists that alone may answer, or may not. max_fee: the most that an answer may cost, in dollars.
    paced: how the worth follows the profile's own budget, if it has one. until: what is waited for, to the
    price of whose seconds `second` belongs.
    """

    router: Router | None = None
    second: float = 0.0
    only: frozenset[str] | None = None
    exclude: frozenset[str] = frozenset()
    max_fee: float | None = None
    paced: PacedRouter | None = None
    until: Until = "last_byte"


@dataclass(frozen=True, eq=False)
class PacedRouter:
    """The router of the fit, whose worth of a right answer follows a budget.

    budget: its own, or that of all requests, which a profile that states no worth follows too. second: the
    price of a second in right answers, which stays; None if it is stated in money.
    """

    router: Router
    pace: Pace
    budget: SharedBudget
    second: float | None = None

    @property
    def now(self) -> Router:
        """The router at the present worth."""
        return weighed(self.router, 1.0 / self.pace.worth, name=f"{self.pace.worth:.3g}")

    def money_of_second(self, stated: float) -> float:
        """The price of a second in dollars at the present worth; `stated` if it does not follow the worth."""
        return stated if self.second is None else self.second * self.pace.worth


@dataclass(frozen=True, eq=False)
class Challenger:
    """The other router of a running trial, and the share of disputed requests that it decides."""

    trial: str
    router: Router
    share: float


@dataclass(frozen=True, eq=False)
class Site:
    """Everything needed to answer requests, with a generation number and a hash of its content.

    `router` and `second` belong to `auto`; `profiles` are other ways to route by name, for `auto@name`. With
    `market` every routed request is an auction; the router then says what the platform believes. With
    `paced` the router of `auto` is replaced every few seconds. `candidate` is on trial beside it.
    `distrust` moves the worth of specialists that no longer earn what the router expects, by router and name.
    `lessons` says which requests are asked for what they teach; None if none is. `mix` is that of the prompts
    that the router knows, to which requests are compared, if they are. `promises` are those of
    goals, to be held against live requests. `stops` are budgets that no router follows, by profile, that of
    all requests under "". `until`: see `Profile`.
    """

    backends: tuple[Backend, ...]
    settings: Settings
    router: Router | None = None
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    second: float = 0.0
    market: Auctioneer | None = None
    paced: PacedRouter | None = None
    candidate: Challenger | None = None
    distrust: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    lessons: Lessons | None = None
    mix: Mix | None = None
    promises: tuple[Promise, ...] = ()
    until: Until = "last_byte"
    stops: Mapping[str, SharedBudget] = field(default_factory=dict)
    generation: int = 0
    hash: str = ""

    def __post_init__(self) -> None:
        names = [backend.name for backend in self.backends]
        if len(set(names)) != len(names) or any(name.partition("@")[0] == AUTO for name in names):
            raise UsageError(
                "the specialists",
                expected=f"different names, none of them {AUTO!r}",
                came=", ".join(names),
                do="Rename one.",
            )
        if self.settings.default not in names:
            raise UsageError(
                "the default specialist",
                expected=f"one of {', '.join(names)}",
                came=repr(self.settings.default),
                do="Change `serve.default`.",
            )
        for pattern, meant in self.settings.aliases.items():
            if meant not in self.models():
                raise UsageError(
                    f"serve.aliases: {pattern}",
                    expected=f"one of {', '.join(self.models())}",
                    came=repr(meant[:200]),
                    do="Change it, or leave the alias out.",
                )
        for router in self.routers:
            strangers = [name for name in router.specialists if name not in names]
            if strangers:
                raise UsageError(
                    "the router",
                    expected=f"one fitted for specialists among {', '.join(names)}",
                    came=f"one that also knows {', '.join(strangers)}",
                    do="Add them to the configuration, or fit the router anew.",
                )

    @property
    def routers(self) -> tuple[Router, ...]:
        """The routers of all profiles, that of `auto` first, and the candidate of a trial."""
        candidate = None if self.candidate is None else self.candidate.router
        routers = (self.router, *(profile.router for profile in self.profiles.values()), candidate)
        return tuple(router for router in routers if router is not None)

    @property
    def paced_routers(self) -> Mapping[str, PacedRouter]:
        """The routers that follow a budget, by profile; that of `auto` has the name "" and is the first."""
        all_ = {"": self.paced, **{name: profile.paced for name, profile in self.profiles.items()}}
        return {name: paced for name, paced in all_.items() if paced is not None}

    def budgets(self, model: str) -> tuple[SharedBudget, ...]:
        """The budgets of the profile that `model` names and of all requests, besides those of the key."""
        profile = model.partition("@")[2] if model not in self.names else ""
        limits = {**self.stops, **{name: paced.budget for name, paced in self.paced_routers.items()}}
        above = [limits[name] for name in (profile, "") if name in limits]
        return tuple({limit.id: limit for limit in above}.values())

    def at_pace(self, name: str, paced: PacedRouter) -> Site:
        """The site with another pace, and so another worth, for the profile `name` or "" for `auto`."""
        if not name:
            second = paced.money_of_second(self.second)
            return replace(self, paced=paced, router=paced.now, second=second)
        second = paced.money_of_second(self.profiles[name].second)
        profile = replace(self.profiles[name], paced=paced, router=paced.now, second=second)
        return replace(self, profiles={**self.profiles, name: profile})

    def current(self, router: Router, second: float, measured: Mapping[str, Lengths], until: Until) -> Router:
        """The router with the speed of each specialist priced, and with what alarms took from its worth."""
        moved = self.distrust.get(base_id(router.id))
        if moved:
            bonus = [moved.get(name, 0.0) for name in router.specialists]
            router = weighed(router, router.fee_weight, bonus)
        return at_speed(router, second, measured, until)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the specialists."""
        return tuple(backend.name for backend in self.backends)

    async def refresh_lessons(self, store: Store, now: float) -> None:
        """Read from the store what lessons may still cost; nothing without lessons."""
        if self.lessons is not None:
            await self.lessons.refresh(store, now)

    def backend(self, name: str) -> Backend:
        """The specialist of this name; raises `KeyError`."""
        return self._by_name[name]

    @functools.cached_property
    def _by_name(self) -> Mapping[str, Backend]:
        return {backend.name: backend for backend in self.backends}

    def meant(self, model: str) -> str:
        """The name that `model` stands for: itself if it is known, else what the first alias that fits says.

        A name that no alias fits is returned as it is.
        """
        if model in self.models():
            return model
        aliases = self.settings.aliases.items()
        return next((name for pattern, name in aliases if fnmatchcase(model, pattern)), model)

    def profile(self, model: str) -> Profile | None:
        """The profile for `model`; None if it names a specialist, which is not routed.

        Raises `UsageError` for a model or profile that does not exist.
        """
        if model in self.names:
            return None
        name, _, profile = model.partition("@")
        if model == AUTO:
            return Profile(self.router, self.second, until=self.until)
        if name == AUTO and profile in self.profiles:
            return self.profiles[profile]
        raise UsageError(
            "model",
            expected=", ".join([*self.models(), *self.settings.aliases]),
            came=repr(model[:200]),
            do="See GET /v1/models.",
        )

    def models(self) -> Sequence[str]:
        """The names that clients may use as `model`."""
        return [AUTO, *(f"{AUTO}@{profile}" for profile in self.profiles), *self.names]
