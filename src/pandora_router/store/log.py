"""The decision log: decisions, attempts, feedback, sessions, generations, retention.

    begin      a decision and its first attempts, readable before the answer's headers leave
    attempt    one more call, written before it is made
    settle     how an attempt ended: counted once, whoever says it first
    close      the decision is answered: the rest of its reservation goes back, the sums of `rollups` grow
    recover    settle and close what a dead process left open

`settle` and `close` are idempotent: a second call changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Any

from pandora_router.store import accounts, rollups
from pandora_router.store.database import Row, Transaction
from pandora_router.store.rows import Attempt, DecisionRow, Feedback, Kind, Outcome

DECISION = (
    "id, at, key, wire, mode, policy, artifact, generation, specialist, proposed, propensity, session, "
    "declined, inspected, inspection_cost, baseline, overhead, detail"
)
NEWS = "changed, gained"
ENDED = "status, cost, first_token, seconds, closed_at"
ATTEMPT = (
    "id, decision, kind, specialist, at, estimate, status, cost, fresh, cached, written, output, reasoning, "
    "usage_complete, first_token, seconds, reason, settled_at"
)
LATE = 30.0
"""Seconds after the expiry of a lease before another process settles it."""


def begin(
    open_: Transaction,
    decision: DecisionRow,
    attempts: Iterable[Attempt] = (),
    *,
    prompt: str | None = None,
    request: str | None = None,
    cost: int = 0,
) -> None:
    """Write a decision and the attempts made so far; `prompt` and `request` only if bodies are kept.

    `cost` is what deciding has cost besides attempts: estimates computed here or bought from a judge.
    """
    values = _values(decision)
    news = rollups.news(decision.detail)
    marks = ", ".join("?" * (len(values) + 2))
    open_.run(
        f"INSERT INTO decisions ({DECISION}, {NEWS}, status, cost) VALUES ({marks}, 'open', ?)",
        *(*values, int(news.changed), news.gained, cost),
    )
    if prompt is not None or request is not None:
        open_.run(
            "INSERT INTO bodies (decision, prompt, request) VALUES (?, ?, ?)", decision.id, prompt, request
        )
    for attempt_ in attempts:
        attempt(open_, attempt_)


def _values(decision: DecisionRow) -> list[Any]:
    """The columns `DECISION` of a row. Not `astuple`, which would copy the whole detail piece by piece."""
    plain = [getattr(decision, name) for name in DECISION.split(", ")[:-1]]
    return [*plain, json.dumps(decision.detail, allow_nan=False)]


def attempt(open_: Transaction, begun: Attempt) -> None:
    """Write an attempt before it is made."""
    open_.run(
        "INSERT INTO attempts (id, decision, kind, specialist, at, estimate, status) "
        "VALUES (?, ?, ?, ?, ?, ?, 'open')",
        *(begun.id, begun.decision, begun.kind, begun.specialist, begun.at, begun.estimate),
    )


def revise(open_: Transaction, decision: DecisionRow) -> None:
    """Rewrite a decision that is still open, once looks have decided it."""
    names, values = DECISION.split(", ")[1:], _values(decision)[1:]
    news = rollups.news(decision.detail)
    columns = ", ".join(f"{name} = ?" for name in (*names, *NEWS.split(", ")))
    open_.run(
        f"UPDATE decisions SET {columns} WHERE id = ? AND closed_at IS NULL",
        *(*values, int(news.changed), news.gained, decision.id),
    )


def settle(open_: Transaction, id_: str, outcome: Outcome, now: float, *, kind: Kind | None = None) -> bool:
    """Record how an attempt ended and charge its cost; False if it was settled before (nothing changes).

    `kind` replaces the kind it was written with: a look has become the answer, or a loser.
    """
    usage = outcome.usage
    if not open_.run(
        "UPDATE attempts SET status = ?, cost = ?, fresh = ?, cached = ?, written = ?, output = ?, "
        "reasoning = ?, usage_complete = ?, first_token = ?, seconds = ?, reason = ?, settled_at = ?, "
        "kind = coalesce(?, kind) WHERE id = ? AND settled_at IS NULL",
        *(outcome.status, outcome.cost, usage.fresh, usage.cached, usage.written, usage.output),
        *(usage.reasoning, int(usage.complete), outcome.first_token, outcome.seconds, outcome.reason, now),
        *(kind, id_),
    ):
        return False
    row = open_.rows("SELECT decision, at, specialist, kind FROM attempts WHERE id = ?", id_)[0]
    decision = str(row[0])
    open_.run("UPDATE decisions SET cost = cost + ? WHERE id = ?", outcome.cost, decision)
    rollups.count_call(open_, float(row[1]), str(row[2]), str(row[3]), outcome)
    accounts.charge(open_, decision, outcome.cost)
    return True


def close(
    open_: Transaction,
    id_: str,
    now: float,
    *,
    status: str,
    specialist: str | None = None,
    first_token: float | None = None,
    seconds: float | None = None,
    response: str | None = None,
    baseline: int | None = None,
) -> bool:
    """End a decision: release its reservation and add it to its minute; False if it had ended before.

    `specialist` is who answered in the end, if that is another one than was asked first. Latencies are in
    seconds since the request arrived. `baseline` replaces the estimate of the row, now that counts are known.
    """
    if not open_.run(
        "UPDATE decisions SET status = ?, specialist = coalesce(?, specialist), first_token = ?, "
        "seconds = ?, closed_at = ?, baseline = coalesce(?, baseline) WHERE id = ? AND closed_at IS NULL",
        *(status, specialist, first_token, seconds, now, baseline, id_),
    ):
        return False
    accounts.release(open_, id_, now)
    if response is not None:
        open_.run("UPDATE bodies SET response = ? WHERE decision = ?", response, id_)
    rollups.count_decision(open_, id_)
    return True


def recover(open_: Transaction, now: float) -> int:
    """Settle and close decisions whose process died; return how many there were.

    An attempt that was begun and never settled counts at its estimate, since the provider may have charged
    for it. A decision without a lease is given up after the same time.
    """
    dead = open_.rows(
        "SELECT d.id FROM decisions d LEFT JOIN leases l ON l.decision = d.id "
        "WHERE d.closed_at IS NULL AND coalesce(l.expires_at, d.at + 600) < ? LIMIT 1000",
        now - LATE,
    )
    ended = 0
    for (id_,) in dead:
        begun = open_.rows("SELECT id, estimate FROM attempts WHERE decision = ? AND settled_at IS NULL", id_)
        for attempt_id, estimate in begun:
            settle(open_, str(attempt_id), Outcome("lost", int(estimate), reason="its process died"), now)
        ended += close(open_, str(id_), now, status="lost")
    orphans = open_.rows(
        "SELECT l.decision FROM leases l LEFT JOIN decisions d ON d.id = l.decision "
        "WHERE l.closed_at IS NULL AND l.expires_at < ? AND d.id IS NULL LIMIT 1000",
        now - LATE,
    )
    for (id_,) in orphans:
        accounts.release(open_, str(id_), now)
    return ended


def give_feedback(open_: Transaction, feedback: Feedback, key: str | None) -> str:
    """Append feedback; returns "added", "known" (the same id again), "unknown" or "foreign".

    Only the key that owns a decision may judge it; `key` None stands for the operator.
    """
    # the update locks the row of the decision, so that two who judge it at once take turns
    if not open_.run("UPDATE decisions SET cost = cost WHERE id = ?", feedback.decision):
        return "unknown"
    owner = open_.rows("SELECT key FROM decisions WHERE id = ?", feedback.decision)
    if key is not None and owner[0][0] != key:
        return "foreign"
    values = astuple(feedback)
    before = judgement(open_, feedback.decision, feedback.metric)
    added = open_.run(
        "INSERT INTO feedback (id, decision, at, metric, value, source, observed_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        *values,
    )
    if not added:
        return "known"
    now = judgement(open_, feedback.decision, feedback.metric)
    rollups.count_feedback(open_, feedback.decision, feedback.metric, before, now)
    return "added"


def judgement(open_: Transaction, decision: str, metric: str) -> float | None:
    """The feedback of a decision and metric that counts, the last one; None if there is none."""
    rows = open_.rows(
        "SELECT value FROM feedback WHERE decision = ? AND metric = ? ORDER BY at DESC, id DESC LIMIT 1",
        *(decision, metric),
    )
    return float(rows[0][0]) if rows else None


def pinned(open_: Transaction, session: str, now: float) -> str | None:
    """The specialist that a session stays with, or None."""
    rows = open_.rows("SELECT specialist FROM sessions WHERE id = ? AND expires_at > ?", session, now)
    return str(rows[0][0]) if rows else None


def pin(open_: Transaction, session: str, specialist: str, now: float, seconds: float) -> None:
    """Keep a session with a specialist for `seconds` after its last request."""
    open_.run(
        "INSERT INTO sessions (id, specialist, expires_at) VALUES (?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET specialist = excluded.specialist, expires_at = excluded.expires_at",
        *(session, specialist, now + seconds),
    )


def generation(open_: Transaction, hash_: str, artifact: str, now: float) -> int:
    """The number of the configuration with this content hash; a new one gets the next number."""
    while not (rows := open_.rows("SELECT number FROM generations WHERE hash = ?", hash_)):
        open_.run(  # another host may take the same number first: then this changes nothing and is repeated
            "INSERT INTO generations (number, at, hash, artifact) "
            "SELECT coalesce(max(number), 0) + 1, ?, ?, ? FROM generations WHERE true "
            "ON CONFLICT DO NOTHING",
            *(now, hash_, artifact),
        )
    return int(rows[0][0])


def prune(open_: Transaction, before: float, bodies_before: float) -> int:
    """Delete decisions older than `before` and bodies older than `bodies_before`; sums per minute stay."""
    open_.run("DELETE FROM bodies WHERE decision IN (SELECT id FROM decisions WHERE at < ?)", bodies_before)
    open_.run("DELETE FROM leases WHERE closed_at < ?", before)
    open_.run("DELETE FROM sessions WHERE expires_at < ?", before)
    return open_.run("DELETE FROM decisions WHERE at < ? AND closed_at IS NOT NULL", before)


def decision(open_: Transaction, id_: str) -> dict[str, Any] | None:
    """One decision with its attempts and feedback, as JSON values; None if there is none of this id."""
    rows = open_.rows(f"SELECT {DECISION}, {ENDED}, {NEWS} FROM decisions WHERE id = ?", id_)
    if not rows:
        return None
    attempts = open_.rows(f"SELECT {ATTEMPT} FROM attempts WHERE decision = ? ORDER BY at, id", id_)
    said = open_.rows(
        "SELECT id, at, metric, value, source, observed_at FROM feedback WHERE decision = ? ORDER BY at", id_
    )
    names = ("id", "at", "metric", "value", "source", "observed_at")
    return {
        **_decision(rows[0]),
        "attempts": [_named(ATTEMPT.split(", "), row) for row in attempts],
        "feedback": [_named(names, row) for row in said],
    }


def recent(
    open_: Transaction, *, most: int = 50, before: tuple[float, str] | None = None, **equal: str
) -> list[dict[str, Any]]:
    """The newest decisions, newest first; `before` is (at, id) of the last row of the page before.

    `equal` filters by column: specialist, key, policy, mode, wire, status, session.
    """
    allowed = ("specialist", "key", "policy", "mode", "wire", "status", "session")
    names = [name for name in allowed if name in equal]
    where = "".join(f" AND {name} = ?" for name in names)
    values: list[Any] = [equal[name] for name in names]
    if before is not None:
        where += " AND (at < ? OR (at = ? AND id < ?))"
        values += [before[0], before[0], before[1]]
    rows = open_.rows(
        f"SELECT {DECISION}, {ENDED}, {NEWS} FROM decisions WHERE 1 = 1{where} "
        "ORDER BY at DESC, id DESC LIMIT ?",
        *values,
        most,
    )
    return [_decision(row) for row in rows]


def minutes(open_: Transaction, since: float, until: float) -> list[dict[str, Any]]:
    """The sums per minute, specialist and key of decisions that came in [since, until)."""
    columns = ["minute", "specialist", "key", *rollups.SUMS.split(", ")]
    rows = open_.rows(
        f"SELECT {', '.join(columns)} FROM minutes WHERE minute >= ? AND minute < ? ORDER BY minute",
        *(int(since // 60), int(-(-until // 60))),
    )
    return [_named(columns, row) for row in rows]


def _decision(row: Row) -> dict[str, Any]:
    columns = _named([*DECISION.split(", "), *ENDED.split(", "), *NEWS.split(", ")], row)
    return {**columns, "detail": json.loads(columns["detail"])}


def _named(names: Sequence[str], row: Row) -> dict[str, Any]:
    named: Mapping[str, Any] = dict(zip(names, row, strict=True))
    return dict(named)
