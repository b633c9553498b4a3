"""The gateway that a `pandora.yaml` describes: backends, settings and the fitted router, as one `Site`."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pandora_router.bidding.rules import Reputation
from pandora_router.config import open_router, read_config
from pandora_router.config.callables import FunctionSettings, McpSettings
from pandora_router.config.file import Config, curve_of, traced
from pandora_router.config.price_parts import PriceParts, prices_of
from pandora_router.config.services import GoalSettings, ProfileSettings
from pandora_router.config.shared import Builder
from pandora_router.config.specialists import ChatSettings
from pandora_router.config.worth import (
    goal_worth,
    price_of_second,
    promises,
    revalued,
    shared_budget,
    stated_budgets,
    stated_worth,
    worth_of,
)
from pandora_router.dashboard.page_request import ROOT
from pandora_router.dashboard.site import Dashboard, Serving
from pandora_router.errors import UsageError
from pandora_router.folders import MANIFEST
from pandora_router.gateway.generation import (
    ALIASES,
    Challenger,
    LearningRules,
    PacedRouter,
    Profile,
    Settings,
    Site,
)
from pandora_router.gateway.http.app import Gateway
from pandora_router.gateway.incumbent import lined_up
from pandora_router.gateway.providers.backend import ABILITIES, NOT_TEXT, Backend, Tool
from pandora_router.learn.mix import Mix
from pandora_router.learn.pace import Pace
from pandora_router.prices import Tariff
from pandora_router.router import Router
from pandora_router.router.curve import Curve
from pandora_router.router.revalue import weighed
from pandora_router.store.rows import SharedBudget
from pandora_router.store.versions import Lineup
from pandora_router.transport.asgi import Address
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.failures import RateLimit
from pandora_router.types import Until
from pandora_router.wires.look import LookLength

if TYPE_CHECKING:
    from pandora_router.bidding.auctioneer import Auctioneer

logger = logging.getLogger("pandora_router.gateway")
DEADLINE, DEADLINE_OF_LOOKS = 200, 2000
"""Default milliseconds for a decision: without waiting, and with looks or a judge."""


@dataclass(frozen=True)
class ServePlan:
    """How a worker builds its `Site` from the file `path`; picklable, and quick to detect changes.

    kept: a configuration that is used instead of what is in the file now. lineup: the router that was
    promoted, and the candidate that is on trial, as the store says.
    """

    path: Path
    kept: Config | None = None
    lineup: Lineup = field(default_factory=Lineup)

    def read(self) -> Config:
        """The configuration that was kept, else as it is in the file now."""
        return read_config(self.path) if self.kept is None else self.kept

    def following(self, lineup: Lineup) -> ServePlan:
        """The plan with the router that was promoted, and the candidate that is on trial."""
        return replace(self, lineup=lineup)

    def fixed(self) -> ServePlan:
        """The plan with the configuration as it is now, whatever becomes of the file."""
        return replace(self, kept=self.read())

    @property
    def store(self) -> str:
        """The address of the store; a plain file name is relative to the configuration."""
        return self.read().store_address(self.path.parent)

    def address(self, host: str | None, port: int | None) -> Address:
        """The address to listen on: `host` and `port` if given, else those of the file."""
        serve = self.read().serve
        return Address(host or serve.host, serve.port if port is None else port)

    def site(self) -> Site:
        """Read the file and the artifact and build a site; raises `UsageError` if they are invalid."""
        config, folder = self.read(), self.path.parent
        builder = Builder(config, folder)
        artifact = None if config.serve.router is None else folder / config.serve.router
        if artifact is not None and not artifact.exists():
            first = next((name for name in config.answering), "NAME")
            raise UsageError(
                str(artifact),
                expected="a fitted router",
                came="no such folder",
                do=f"Fit one: pandora fit {self.path.name} -o {config.serve.router}. To serve before that, "
                f"write `default: {first}` in place of `router: {config.serve.router}`.",
            )
        router = None if artifact is None else open_router(artifact, config)
        router, candidate = (None, None) if router is None else learnt(router, self.lineup, config)
        far = None if router is None else router.record.peek
        backends = tuple(backend(name, config, builder, far) for name in config.answering)
        default = config.serve.default or config.fit.default or (router.default if router else None)
        if default is None:
            raise UsageError(
                "serve.default",
                expected="the specialist for requests that nobody decides about",
                came="none",
                do="Name it, serve: {default: NAME}, or what `pandora fit` wrote, serve: {router: router}.",
            )
        written = json.dumps(config.model_dump(mode="json", by_alias=True), sort_keys=True)
        routers = f"{router.id if router else ''}{f' {candidate.trial}' if candidate else ''}"
        content = hashlib.sha256(f"{written} {routers}".encode()).hexdigest()[:16]
        profiles = {name: profile(name, config, router) for name in config.serve.profiles}
        chosen = settings(config, default, router)
        market = auctioneer(config, self.path)
        goal, price = config.goal, None
        if router is not None and goal is not None and goal.latency is not None:
            price = price_of_second(router, goal.latency)
        pace = None
        if router is not None and goal is not None and goal.budget is not None and traced(router):
            shared = shared_budget("", goal.budget, goal.per)
            pace = paced_router(router, goal.budget, shared, price)
        second = money_of_second(router, price, config.value.second)
        until: Until = "last_byte" if goal is None or goal.latency is None else goal.latency.until
        parts = (backends, chosen, router, profiles, second, market, pace, candidate)
        promised = () if router is None else promises(config)
        lessons = config.learn.lessons(router, market)
        mix = None if router is None else Mix.of(router.cheap)
        stops = {} if router is not None and traced(router) else stated_budgets(config)
        if router is None and (stops or any((goal.keep or goal.latency) for goal in config.goals.values())):
            logger.warning(
                "only a fitted router follows a goal (serve.router): until there is one, a budget is a hard "
                "stop and everything is asked of the default"
            )
        elif stops:
            logger.warning(
                "a budget is a hard stop and nothing more: the fit measured no curve of quality against "
                "cost, since fees do not differ or no test prompt has every score"
            )
        known = Site(*parts, lessons=lessons, mix=mix, promises=promised, until=until, hash=content)
        return replace(known, stops=stops)

    def mount(self, gateway: Gateway, closing: ExitStack) -> None:
        """Add the dashboard to the gateway."""
        mount_dashboard(self.store, gateway, closing)

    def fingerprint(self) -> str:
        """Size and modification time of the configuration and of the artifact's manifest."""
        config = _changed(self.path)
        router = _named_router(self.path, config)
        return config if router is None else f"{config} {_changed(self.path.parent / router / MANIFEST)}"


def learnt(router: Router, lineup: Lineup, config: Config) -> tuple[Router, Challenger | None]:
    """The router to serve where the file names `router`, and the candidate on trial beside it, repriced."""
    served, candidate = lined_up(router, lineup, lambda folder: open_router(folder, config))
    if candidate is not None and config.serve.routing == "router":
        other = revalued(candidate.router, stated_worth(config, candidate.router))
        candidate = replace(candidate, router=other)
    else:
        candidate = None
    return revalued(served, stated_worth(config, served)), candidate


def money_of_second(router: Router | None, price: float | None, stated: float) -> float:
    """Dollars of a second: its price in right answers at the router's worth, or else `stated`."""
    worth = worth_of(router)
    return stated if price is None or worth is None else price * worth


def paced_router(
    router: Router, budget: float, shared: SharedBudget, second: float | None = None
) -> PacedRouter:
    """The router that follows a budget, at first at its own worth; `second`: see `PacedRouter`."""
    worth = worth_of(router)
    assert worth is not None
    return PacedRouter(router, Pace(curve_of(router), budget, worth), shared, second)


def auctioneer(config: Config, path: Path) -> Auctioneer | None:
    """How auctions are opened with `routing: market`, else None; raises `UsageError` for what excludes it."""
    if config.serve.routing == "router":
        return None
    if config.serve.observe or config.serve.explore > 0.0:
        raise UsageError(
            "serve.routing: market",
            expected="neither serve.observe nor serve.explore",
            came="observe" if config.serve.observe else f"explore: {config.serve.explore:g}",
            do="Leave them out: who wins an auction answers.",
        )
    from pandora_router.config.market_objects import MarketPlan

    return MarketPlan(config, path).auctioneer()


def mount_dashboard(url: str, gateway: Gateway, closing: ExitStack) -> None:
    """Serve the dashboard of the store at `url` under /dashboard, until `closing` is closed."""

    def serving() -> Serving:
        site, now = gateway.site, time.monotonic()
        return Serving(
            circuits={name: gateway.circuits[name].state(now) for name in site.names},
            models={backend.name: backend.model for backend in site.backends},
            keys=site.settings.keys,
            reputation=Reputation() if site.market is None else site.market.reputation,
            market=site.market is not None,
            bodies=site.settings.bodies,
            right_answer=worth_of(site.router),
            curve=None if site.router is None else measured_curve(site.router),
            profiles={
                f"auto@{name}": worth
                for name, profile in site.profiles.items()
                if (worth := worth_of(profile.router)) is not None
            },
            looks=[outlook.sentence for outlook in gateway.outlooks()],
            promises=site.promises,
            metric=site.settings.learning.metric,
        )

    dashboard = Dashboard(url, gateway.store, serving)
    closing.callback(dashboard.close)
    gateway.mounted[ROOT] = dashboard


def measured_curve(router: Router) -> Curve | None:
    """Quality against cost as the fit measured it; None if it could not."""
    facts = router.record.report.get("routing", {}).get("curve")
    return Curve.from_dict(facts) if facts else None


@functools.lru_cache(maxsize=4)
def _named_router(path: Path, changed: str) -> str | None:
    """The artifact that the file `path` names, None if there is none; read once for each state `changed`."""
    try:
        return read_config(path).serve.router
    except UsageError:
        return None


def _changed(file: Path) -> str:
    try:
        status = os.stat(file)
    except OSError:
        return "missing"
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"


def profile(name: str, config: Config, router: Router | None) -> Profile:
    """The profile `name` of the file: the same router with the values of the profile."""
    stated, value = config.serve.profiles[name], config.value
    if router is not None:
        worth = stated.right_answer
        if stated.keep is not None and stated.of is not None:
            worth = goal_worth(router, stated.keep, stated.of)
        router = weighed(router, router.fee_weight if worth is None else 1.0 / worth, name=name)
    latency, paced = stated.latency, None
    if latency is None and stated.second is None and config.goal is not None:
        latency = config.goal.latency
    price = None if router is None or latency is None else price_of_second(router, latency)
    follows: GoalSettings | ProfileSettings
    follows = stated if stated.sets_worth or config.goal is None else config.goal
    if router is not None and follows.budget is not None and traced(router):
        shared = shared_budget(name if follows is stated else "", follows.budget, follows.per)
        paced = paced_router(router, follows.budget, shared, price)
    second = value.second if stated.second is None else stated.second
    return Profile(
        router,
        second=money_of_second(router, price, second),
        only=None if stated.only is None else frozenset(stated.only),
        exclude=frozenset(stated.exclude or ()),
        max_fee=stated.max_fee,
        paced=paced,
        until="last_byte" if latency is None else latency.until,
    )


def settings(config: Config, default: str, router: Router | None = None) -> Settings:
    """The section `serve` as settings of the gateway; `router` tells whether a decision waits for others."""
    serve = config.serve
    waits = router is not None and (router.predictor is None or bool(router.needs))
    usual = DEADLINE_OF_LOOKS if waits else DEADLINE
    return Settings(
        default,
        mode="observe" if serve.observe else "route",
        explore=serve.explore,
        deadline=(serve.deadline_ms or usual) / 1000.0,
        bodies=serve.bodies,
        keys=serve.keys == "required",
        ping=serve.ping_seconds,
        retention=serve.retention_days,
        log=serve.log,
        log_bodies=serve.log_bodies,
        traces=serve.traces,
        on_failure=serve.store.on_failure,
        switch=serve.sessions.switch,
        session=serve.sessions.seconds,
        aliases=ALIASES if serve.aliases is None else serve.aliases,
        learning=LearningRules(
            config.learn.feedback,
            config.learn.promote,
            config.learn.delay_seconds,
            config.learn.per_key,
            config.alerts.address(),
        ),
    )


def backend(name: str, config: Config, builder: Builder, far: int | None = None) -> Backend:
    """A specialist as backend of the gateway; raises `UsageError` for a kind that it does not serve.

    `far` is the number of characters of an answer that the router's costly estimate reads, None if unknown.
    """
    stated = config.specialists[name]
    if isinstance(stated, FunctionSettings | McpSettings):
        tool = Tool(builder.specialist(name), RateLimit(stated.at_once))
        about = {"abilities": frozenset[str](), "refuses": NOT_TEXT, "looks": False, "tool": tool}
        return Backend(name, Endpoint("http://localhost"), name, prices(name, stated.prices), **about)  # type: ignore[arg-type]
    if not isinstance(stated, ChatSettings):
        raise UsageError(
            f"specialists.{name}",
            expected="kind: chat, a model behind an HTTP endpoint, or kind: function or mcp",
            came=f"kind: {stated.kind}",
            do="Put it behind an OpenAI-compatible server, or mark it `hidden: true`.",
        )
    endpoint, _ = builder.endpoint(stated.endpoint)
    options: dict[str, Any] = (
        {} if stated.max_output_tokens is None else {"max_output": stated.max_output_tokens}
    )
    return Backend(
        name,
        endpoint,
        stated.model,
        prices(name, stated.prices),
        wires=frozenset(stated.wires),
        abilities=ABILITIES if stated.supports is None else frozenset(stated.supports),
        learns=stated.supports is None,
        longest=stated.max_output_tokens,
        context=stated.window,
        tokens_as=stated.tokens_as,
        cancel=stated.cancel,
        looks=stated.looks,
        own=stated.own,
        peek=LookLength(
            min(stated.context_characters or LookLength.characters, far or LookLength.characters),
            stated.context_tokens,
            config.collect is not None and config.collect.log_probabilities,
        ),
        **options,
    )


def prices(name: str, stated: PriceParts | Literal["free"]) -> Tariff:
    """The prices of a specialist; raises `UsageError` if they are per second."""
    tariff = prices_of(stated)
    if tariff.per_second:
        raise UsageError(
            f"specialists.{name}.prices",
            expected="prices per token or per call",
            came="a price per second",
            do="The gateway bills tokens and calls: state `in` and `out`, or `call`.",
        )
    return tariff
