"""What a gateway learns beside its requests: verdicts on trials, drift of specialists, alerts.

Every worker runs `keep_learning`. One worker of all hosts, whoever comes first when it is due, reads new
ratings in one transaction: adds them to the evidence of the running trial, promotes or drops the candidate if
the configuration allows it, goes back to the router of before if the evidence turns, and runs the drift
detectors. Every worker then takes what was found from the store. Alerts are sent to a webhook, with retries.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pandora_router.errors import PandoraError
from pandora_router.gateway.generation import LearningRules
from pandora_router.learn.drift import ALARM, FIRST, DriftState
from pandora_router.learn.evidence import Evidence, Rated, counted, verdict
from pandora_router.learn.mix import MixState
from pandora_router.router.decision import base_id
from pandora_router.store import alerts, explored, maintenance, versions
from pandora_router.store.alerts import Alert
from pandora_router.store.database import Transaction
from pandora_router.store.money import dollars
from pandora_router.store.rows import LiveTrial
from pandora_router.transport.client import HttpCall
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.failures import Failed

if TYPE_CHECKING:
    from pandora_router.gateway.http.app import Gateway

logger = logging.getLogger("pandora_router.gateway")
EVERY = 2.0
"""Seconds between two readings of new ratings, by one of all workers."""
KEPT = 0.1
"""Share of disputed requests that the router of before decides after a promotion."""
SOONEST, LATEST = 60.0, 86_400.0
"""A request counts after so many seconds at the soonest, and after so many at the latest."""
PATIENCE = 5.0
"""Seconds for sending one alert."""


@dataclass
class Lesson:
    """What one reading has found: alerts to raise, and lines for the log."""

    alerts: list[Alert] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


async def keep_learning(gateway: Gateway) -> None:
    """Read new ratings, raise and send alerts, until cancelled; an unreachable store is tried again."""
    looking = False
    while True:
        with contextlib.suppress(PandoraError):
            now, rules = time.time(), gateway.site.settings.learning
            lines = await gateway.store.run(functools.partial(learn, rules=rules, now=now))
            for line in lines:
                logger.warning("%s", line)
            states = await gateway.store.run(alerts.drifts)
            if (moved := distrust(states)) != gateway.site.distrust:
                gateway.site = replace(gateway.site, distrust=moved)
            looking = await _watch(gateway, now, looking=looking)
            if rules.webhook is not None:
                await send(gateway, rules.webhook)
        await asyncio.sleep(EVERY / 2.0)


def learn(open_: Transaction, rules: LearningRules, now: float) -> list[str]:
    """Read new ratings if that is due, and write what follows from them; returns lines for the log."""
    if not maintenance.due(open_, "learn", now, EVERY):
        return []
    lesson = Lesson()
    _trial(open_, rules, now, lesson)
    _drift(open_, rules, now, lesson)
    _mix(open_, rules, now, lesson)
    lesson.alerts += alerts.budgets(open_, now)
    return [
        *lesson.lines,
        *(alert.message for alert in lesson.alerts if alerts.raise_alert(open_, alert)),
    ]


def _trial(open_: Transaction, rules: LearningRules, now: float, lesson: Lesson) -> None:
    """Add rated requests to the evidence of the running trial, and end it if the rules say so."""
    trial = versions.lineup(open_).trial
    delay = 0.0 if trial is None else usual_delay(open_, rules)
    waiting = [] if trial is None else versions.waiting(open_, trial.id, rules.metric, now - delay)
    if trial is None or not waiting:
        return
    rows = [
        Rated(
            *(
                row.decision,
                row.session,
                row.key,
                bool(row.candidate),
                row.share,
                row.expected_a,
                row.expected_b,
            ),
            row.score,
            dollars(row.cost) / row.right_answer if row.right_answer else 0.0,
        )
        for row in waiting
    ]
    before = versions.counted_sessions(open_, trial.id, sorted({row.session for row in rows}))
    keys = versions.keys_counted(open_, trial.id)
    start = Evidence.from_dict(versions.evidence(open_, trial.id))
    evidence, differences = counted(start, rows, before, keys, rules.per_key)
    error = evidence.standard_error if evidence.rated > 1 else None
    point = evidence.rated, evidence.mean, error, evidence.promote, evidence.drop
    versions.count(open_, trial.id, differences, evidence.to_dict(), point, now)
    if rules.promote != "hand":
        judge(open_, trial, evidence, now, lesson)


def usual_delay(open_: Transaction, rules: LearningRules) -> float:
    """Seconds after which a request counts: as configured, else the time in which 95 % of ratings came."""
    if rules.delay is not None:
        return rules.delay
    return min(max(explored.delay(open_, rules.metric).most, SOONEST), LATEST)


def judge(open_: Transaction, trial: LiveTrial, evidence: Evidence, now: float, lesson: Lesson) -> None:
    """End a trial by its rule: promote the candidate, drop it, or go back to the router of before."""
    said = verdict(evidence, trial.rule)
    if said == "go on":
        return
    figures = (
        f"{evidence.rated:,} rated disagreements, difference {evidence.mean:+.3f}, evidence "
        f"{evidence.promote:,.3g} for and {evidence.drop:,.3g} against"
    )
    if trial.watch and said == "promote":
        versions.go_back(open_, f"went back: {figures}", now)
        message = f"The router {trial.path} serves again: {figures}."
    elif trial.watch:
        versions.end(open_, f"stays: {figures}", now)
        message = f"The router {trial.against_path} stays: {figures} of going back."
    elif said == "promote":
        promote(open_, trial, f"promoted ({trial.rule}): {figures}", now)
        message = f"The candidate {trial.path} was promoted by the rule {trial.rule}: {figures}."
    else:
        versions.end(open_, f"dropped: {figures}", now)
        message = f"The candidate {trial.path} was dropped: {figures}."
    lesson.alerts.append(Alert("trial", trial.path, trial.id, now, message))


def promote(open_: Transaction, trial: LiveTrial, why: str, now: float) -> None:
    """Serve the candidate of a trial; the router of before keeps a share of what the two dispute."""
    versions.promote(open_, trial, why, now)
    versions.end(open_, why, now)
    watch = replace(
        trial,
        id=uuid.uuid4().hex,
        path=trial.against_path,
        artifact=trial.against,
        against_path=trial.path,
        against=trial.artifact,
        rule="proof",
        share=KEPT,
        watch=True,
        started=now,
    )
    versions.begin(open_, watch, Evidence.start().to_dict())


def _drift(open_: Transaction, rules: LearningRules, now: float, lesson: Lesson) -> None:
    """Run the drift detectors over new ratings; an alarm moves the trust in its specialist."""
    found = alerts.surprises(open_, rules.metric, now)
    if not found:
        return
    states = {name: DriftState.from_dict(state) for name, state in alerts.drifts(open_).items()}
    changed: dict[tuple[str, str], DriftState] = {}
    for surprise in found:
        name = base_id(surprise.artifact), surprise.specialist
        state = changed.get(name) or states.get(name) or DriftState()
        if not state.admits(surprise.key, rules.per_key):
            continue
        state = state.by(surprise.key).after(surprise.difference)
        if state.evidence >= ALARM:
            message = (
                f"{surprise.specialist} earns {state.change:+.2f} of a right answer against what was "
                f"expected of it, over its last {len(state.recent)} rated answers: until the router is "
                "fitted again it is trusted by that much less or more."
            )
            state = state.alarmed()
            occasion = f"{name[0]} {state.alarms}"
            lesson.alerts.append(Alert("drift", surprise.specialist, occasion, now, message))
        changed[name] = state
    for (artifact, specialist), state in changed.items():
        alerts.write_drift(open_, artifact, specialist, state.to_dict(), now)


def _mix(open_: Transaction, rules: LearningRules, now: float, lesson: Lesson) -> None:
    """Run the detectors of the mix of prompts over new requests."""
    found = alerts.sent_prompts(open_, now)
    if not found:
        return
    states = {name: MixState.from_dict(state) for name, state in alerts.mixes(open_).items()}
    changed: dict[str, MixState] = {}
    for name, key, ranks in found:
        state = (changed.get(name) or states.get(name) or MixState()).after(ranks, key, rules.per_key)
        if state.raises:
            message = (
                f"The mix of prompts has changed, most in {state.most}, over {state.prompts - FIRST:,} "
                "requests: what the router knows fits them less. Have some of the new ones scored and fit "
                "again, or learn from rated ones (pandora learn refit)."
            )
            state = state.alarmed()
            lesson.alerts.append(Alert("drift", "prompts", f"{name} {state.alarms}", now, message))
        changed[name] = state
    for name, state in changed.items():
        alerts.write_drift(open_, name, alerts.PROMPTS, state.to_dict(), now)


def distrust(states: dict[tuple[str, str], dict[str, float]]) -> dict[str, dict[str, float]]:
    """By artifact and specialist, what alarms have measured, from the stored states of the detectors."""
    moved: dict[str, dict[str, float]] = {}
    for (artifact, specialist), state in states.items():
        if state["shift"]:
            moved.setdefault(artifact, {})[specialist] = state["shift"]
    return moved


async def _watch(gateway: Gateway, now: float, *, looking: bool) -> bool:
    """Raise alerts of what this worker sees, open circuits and looks that ended; returns whether it looks."""
    found, clock, hour = [], time.monotonic(), f"{int(now // 3600.0)}"
    for name in gateway.site.names:
        if gateway.circuits[name].state(clock) == "open":
            message = f"{name} has failed repeatedly and is left alone for a while."
            found.append(Alert("circuit", name, hour, now, message))
    outlooks = gateway.outlooks()
    looks = any(not outlook.off for outlook in outlooks)
    if looking and not looks:
        why = outlooks[0].off if outlooks else "no specialist"
        message = f"No looks are made any more: {why}."
        found.append(Alert("looks", "all", str(gateway.site.generation), now, message))
    if found:
        raised = await gateway.store.run(
            lambda open_: [alert.message for alert in found if alerts.raise_alert(open_, alert)]
        )
        for line in raised:
            logger.warning("%s", line)
    return looks


async def send(gateway: Gateway, webhook: str) -> None:
    """Send the alerts that are due to `webhook`, each as one JSON object; a failure is tried again later."""
    due = await gateway.store.run(functools.partial(alerts.claim, now=time.time()))
    address, _, path = webhook.rpartition("/")
    if address.endswith((":", "/")):  # the address has no path
        address, path = webhook, ""
    for alert in due:
        body = {"kind": alert.kind, "subject": alert.subject, "at": alert.at, "text": alert.message}
        try:
            endpoint = Endpoint(address, timeout=PATIENCE, retries=0)
            call = await HttpCall.open(endpoint, path, body)
            call.close()
        except PandoraError as error:
            why = error.failure if isinstance(error, Failed) else "the address is not valid"
            logger.error("an alert was not sent to alerts.webhook: %s", why)
            await gateway.store.run(functools.partial(alerts.not_sent, alert=alert, now=time.time()))
        else:
            await gateway.store.run(functools.partial(alerts.sent, alert=alert, now=time.time()))
