"""The sections of what listens: `serve` (the gateway), `market` (a platform of bidders), `bid` (a bidder)."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from pandora_router.config.shared import Above, Amount, Closed, Count, Name, Natural, Share, Text
from pandora_router.types import MechanismName, Until

if TYPE_CHECKING:
    from pandora_router.gateway.lessons import Lessons
    from pandora_router.router import Router

Port = Annotated[int, Field(ge=0, le=65535)]


class MarketSettings(Closed):
    """The platform.

    mechanism, seed: the rules of the auction; see docs/market-network.md.
    router: folder of a fitted router; its cheap estimates set prices and bid for plain endpoints.
    default: the specialist that answers prompts which nobody wins.
    proxies: the specialists of this file for which the platform bids; all of them if left out.
    secret_from, secret_file: source of the platform's secret, from which the keys of bidders are derived.
    forfeit: what a winner that does not deliver loses of its deposit, in units of reward.
    newcomer, evidence: handicap of a bidder without graded answers, and the number of graded answers that
        outweighs it.
    """

    host: Text = "127.0.0.1"
    port: Port = 8090
    store: Text = "pandora.sqlite"
    mechanism: MechanismName = "sequential"
    seed: Natural = 0
    router: Text | None = None
    default: Name | None = None
    proxies: list[Name] | None = None
    secret_from: Text | None = "PANDORA_MARKET_SECRET"
    secret_file: Text | None = None
    keys: bool = False
    deadline_ms: Annotated[Count, Field(le=3_600_000)] = 500
    auction_ms: Count = 5000
    deliver_seconds: Annotated[Above, Field(le=3600)] = 60.0
    forfeit: Amount = 0.1
    newcomer: Amount = 0.0
    evidence: Above = 20.0


class BidSettings(Closed):
    """One bidder: the router with its f and g, the source of its key, its address and its ledger."""

    host: Text = "127.0.0.1"
    port: Port = 9001
    router: Text = "router"
    key_from: Text | None = "PANDORA_BIDDER_KEY"
    key_file: Text | None = None
    ledger: Text | None = None


class LatencySettings(Closed):
    """The most seconds that half (p50), 90, 95 or 99 of 100 requests take; one of them.

    until: what is waited for: the last byte of the answer, or its first token.
    """

    until: Until = "last_byte"
    p50: Above | None = None
    p90: Above | None = None
    p95: Above | None = None
    p99: Above | None = None

    @model_validator(mode="after")
    def _one_level(self) -> Self:
        """Refuse none and several."""
        if len(self.model_fields_set - {"until"}) != 1 or not self.seconds:
            raise ValueError("one of p50, p90, p95 and p99, such as {p95: 2.0}")
        return self

    @property
    def level(self) -> str:
        """Which share of the requests is meant."""
        return next(iter(self.model_fields_set - {"until"}))

    @property
    def seconds(self) -> float:
        """The most seconds that it may take."""
        return float(getattr(self, self.level) or 0.0)


class ProfileSettings(Closed):
    """A named way to route that clients choose by `auto@name`: other values, or fewer specialists.

    right_answer, second: as under `value`, in its currency; by default those of the file.
    keep, of: as under `goal`, instead of `right_answer`.
    budget, per: the most money for the requests of this profile in a day, week or month.
    latency: as under `goal`, instead of `second`.
    only, exclude: names of specialists.
    max_fee: most that one answer may cost.
    """

    right_answer: Above | None = None
    second: Amount | None = None
    keep: Share | None = None
    of: Name | None = None
    budget: Above | None = None
    per: Literal["day", "week", "month"] | None = None
    latency: LatencySettings | None = None
    only: list[Name] | None = None
    exclude: list[Name] | None = None
    max_fee: Amount | None = None

    @model_validator(mode="after")
    def _one_worth(self) -> Self:
        """Refuse half of a goal, and two statements of what a right answer is worth."""
        if (self.keep is None) != (self.of is None):
            raise ValueError("`keep` and `of` together: keep: 0.95, of: NAME")
        if self.keep is not None and self.right_answer is not None:
            raise ValueError("`keep` or `right_answer`, not both")
        if (self.budget is None) != (self.per is None):
            raise ValueError("`budget` and `per` together: budget: 50, per: week")
        if self.budget is not None and (self.keep is not None or self.right_answer is not None):
            raise ValueError("`budget`, `keep` or `right_answer`: one of them")
        if self.latency is not None and self.second is not None:
            raise ValueError("`latency` or `second`, not both")
        return self

    @property
    def sets_worth(self) -> bool:
        """Whether the worth of a right answer is that of this profile, not of the file."""
        return (self.right_answer, self.keep, self.budget) != (None, None, None)


class GoalSettings(Closed):
    """What routing is to achieve; the worth of a right answer and the price of a second follow from it.

    keep, of: at least the share `keep` of the mean score of the specialist `of`, at the lowest cost.
    budget, per: the most money for all requests in a day, week or month, at the best quality.
    latency: how long requests may take; alone, or beside one of the others.
    """

    keep: Share | None = None
    of: Name | None = None
    budget: Above | None = None
    per: Literal["day", "week", "month"] | None = None
    latency: LatencySettings | None = None

    @model_validator(mode="after")
    def _one_goal(self) -> Self:
        """Refuse half of a goal, and `keep` beside `budget`."""
        stated = [name for name in ("keep", "of", "budget", "per") if getattr(self, name) is not None]
        if stated not in (["keep", "of"], ["budget", "per"]) and (stated or self.latency is None):
            raise ValueError(
                "{keep: 0.95, of: NAME}, {budget: 500, per: month} or {latency: {p95: 2.0}}; latency also "
                "beside one of the others"
            )
        return self

    @property
    def sets_worth(self) -> bool:
        """Whether the worth of a right answer follows from it."""
        return self.keep is not None or self.budget is not None


class StoreSettings(Closed):
    """The database for decisions, keys and budgets.

    address: a SQLite file or a postgresql:// address; `store: FILE` is short for `store: {address: FILE}`.
    on_failure: what becomes of a request whose decision cannot be written. `refuse` answers 503. `serve`
        answers it if its key has no budget; its rows wait in memory until the database is back.
    """

    address: Text = "pandora.sqlite"
    on_failure: Literal["refuse", "serve"] = "refuse"


class SessionSettings(Closed):
    """Conversations.

    switch: `priced` decides anew at each turn of the user, and counts that another specialist reads the
        conversation anew; `always` decides without that price; `never` stays unless the specialist fails.
        Inside a tool loop, and where reasoning is signed or stored at a provider, a conversation stays.
    seconds: for which a conversation is remembered after its last request.
    """

    switch: Literal["priced", "never", "always"] = "priced"
    seconds: Annotated[float, Field(gt=0)] = 3600.0


class ExploreSettings(Closed):
    """Requests that are asked for what they teach, where that is worth more than what they lose.

    budget: dollars a month for their answers.
    """

    budget: Above


class LabelSettings(Closed):
    """Logged prompts that are scored completely by asking every specialist and the judge of `grading`.

    budget: dollars a month for answers and judge.
    """

    budget: Above


class ShadowSettings(Closed):
    """In observe mode: answers and verdicts that show whether the router would have chosen better.

    budget: dollars a month for answers and judge.
    """

    budget: Above


class LearnSettings(Closed):
    """What the gateway learns from ratings of its answers.

    feedback: the metric of POST /v1/feedback that is the score.
    promote: how a trial of a candidate router ends: `veto` promotes it unless it is worse, `proof` once it is
        proven to be better; both drop one that is proven to be worse. `hand` leaves it to you.
    delay_seconds: a request counts when it is older than this, so that slow ratings count like fast ones. If
        left out: the time within which 95 % of the newest ratings came, 60 at least and a day at most.
    per_key: largest share of the evidence of a trial, and of the last ratings that raise an alarm, which may
        come from one API key.
    explore: requests that are asked for what they teach; none without it (see also serve.explore).
    labels: logged prompts that `pandora learn label` has scored completely.
    shadow: what `pandora learn shadow` may spend on comparing an observing router to what it observes.
    """

    feedback: Name = "reward"
    promote: Literal["veto", "proof", "hand"] = "hand"
    delay_seconds: Amount | None = None
    per_key: Annotated[float, Field(gt=0, le=1)] = 0.2
    explore: ExploreSettings | None = None
    labels: LabelSettings | None = None
    shadow: ShadowSettings | None = None

    def lessons(self, router: Router | None, market: object = None) -> Lessons | None:
        """What `explore` says, for this router; None without it, and in a market: the winner answers."""
        if self.explore is None or router is None or market is not None:
            return None
        from pandora_router.gateway.lessons import Lessons

        return Lessons.of(router, self.explore.budget, self.feedback)


class AlertSettings(Closed):
    """Where alerts are sent: changed specialists, ends of trials, budgets, open circuits, looks that ended.

    webhook: address of a POST with a JSON object {kind, subject, at, text}, without a password in it.
    webhook_from: instead, the environment variable that holds the address.
    """

    webhook: Text | None = None
    webhook_from: Text | None = None

    @field_validator("webhook")
    @classmethod
    def _usable(cls, stated: str | None) -> str | None:
        if stated is not None and re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", stated) is None:
            raise ValueError("http:// or https:// with a host, and no password, query or white space in it")
        return stated

    def address(self) -> str | None:
        """The address, None if none is stated."""
        return os.environ.get(self.webhook_from) if self.webhook_from else self.webhook


class ServeSettings(Closed):
    """The gateway.

    store: database for decisions: a SQLite file or a postgresql:// address, or `StoreSettings`.
    router: folder of the fitted router; without it every `auto` request goes to the `default`.
    routing: with `market` every `auto` request is an auction by the rules of the section `market`, among
        bidders that have joined and the specialists of this file.
    keys: whether clients need a key.
    deadline_ms: most milliseconds of a decision (default 200, or 2000 if it waits for specialists or a
        judge); estimates that are not known by then stay sealed.
    observe: the default answers, and the router's choice is only recorded.
    explore: fraction of requests that are routed at random, for feedback.
    bodies: whether texts of requests and answers are stored.
    ping_seconds: a silent stream gets a keep-alive after this time (0: never).
    retention_days: decisions are deleted after this time.
    log, log_bodies: `json` logs one line per request, with the redacted request if `log_bodies` is set.
    traces: export OpenTelemetry spans as the OTEL_* variables say.
    aliases: model names that clients ask for -> `auto`, `auto@name` or a specialist; `*`, `?` and `[0-9]`
        stand for other characters. The first that fits counts. By default names of hosted models (claude-*,
        gpt-*, o[0-9]*, codex-*) mean `auto`; with `aliases: {}` no other names are known.
    sessions: when a conversation may change its specialist.
    """

    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    store: StoreSettings = StoreSettings()
    router: Text | None = None
    routing: Literal["router", "market"] = "router"
    default: Name | None = None
    profiles: dict[Name, ProfileSettings] = Field(default_factory=dict)
    keys: Literal["required", "none"] = "required"
    deadline_ms: Count | None = None
    observe: bool = False
    explore: Annotated[float, Field(ge=0, le=1)] = 0.0
    bodies: bool = False
    ping_seconds: Amount = 15.0
    retention_days: Above | None = None
    log: Literal["text", "json"] = "text"
    log_bodies: bool = False
    traces: bool = False
    aliases: dict[Text, Text] | None = None
    sessions: SessionSettings = SessionSettings()

    @field_validator("store", mode="before")
    @classmethod
    def _addressed(cls, stated: object) -> object:
        return {"address": stated} if isinstance(stated, str) else stated
