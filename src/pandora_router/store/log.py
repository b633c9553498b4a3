"""The decision log: decisions, attempts, feedback, sessions, generations, retention.

    begin      write a decision and its first attempts, before the answer's headers are sent
    attempt    write another call before it is made
    settle     record the end of an attempt, once
    close      end a decision: release the rest of its reservation and add it to the `rollups`
    recover    settle and close what a dead process left open

All of them are idempotent: a second call has no effect. So they can be repeated if the answer of the database
to a commit was lost.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Any

from pandora_router.store import budgets, rollups, versions
from pandora_router.store.database import Row, Transaction
from pandora_router.store.rows import Attempt, DecisionRow, Feedback, Outcome, Session, Settlement

DECISION = (
    "id, at, key, wire, mode, policy, artifact, generation, specialist, proposed, propensity, session, "
    "declined, inspected, inspection_cost, baseline, overhead, worth, asked, randomised, detail"
)
NEWS = "changed, gained"
ENDED = "status, cost, first_token, seconds, closed_at"
ATTEMPT = (
    "id, decision, kind, specialist, at, estimate, status, cost, fresh, cached, written, output, reasoning, "
    "usage_complete, first_token, seconds, reason, settled_at"
)
_COLUMNS = (*DECISION.split(", "), *NEWS.split(", "))
_JSON = json.JSONEncoder(allow_nan=False).encode
_PLAIN = operator.attrgetter(*DECISION.split(", ")[:-3])
_BEGIN = (
    f"INSERT INTO decisions ({DECISION}, {NEWS}, worker, status, cost) "
    f"VALUES ({', '.join('?' * (len(_COLUMNS) + 1))}, 'open', ?) ON CONFLICT (id) DO NOTHING"
)
_REVISE = (
    f"UPDATE decisions SET {', '.join(f'{name} = ?' for name in _COLUMNS[1:])} "
    "WHERE id = ? AND closed_at IS NULL"
)
_SETTLE = (
    "UPDATE attempts SET status = ?, cost = ?, fresh = ?, cached = ?, written = ?, output = ?, "
    "reasoning = ?, usage_complete = ?, first_token = ?, seconds = ?, reason = ?, settled_at = ?, "
    "kind = coalesce(?, kind) WHERE id = ? AND settled_at IS NULL "
    "RETURNING decision, at, specialist, kind"
)
_CLOSE = (
    "UPDATE decisions SET status = ?, first_token = ?, seconds = ?, closed_at = ?, cost = cost + "
    "CASE WHEN EXISTS (SELECT 1 FROM attempts WHERE id = ? AND settled_at IS NULL) THEN ? ELSE 0 END, "
    "baseline = coalesce(?, baseline){} WHERE id = ? AND closed_at IS NULL "
    f"RETURNING key, {rollups.COUNTED}"
)
_PIN = (
    "INSERT INTO sessions (id, specialist, expires_at, at, tokens, held) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET specialist = excluded.specialist, expires_at = excluded.expires_at, "
    "at = excluded.at, tokens = excluded.tokens, held = excluded.held"
)
LATE = 30.0
"""Seconds after the expiry of a lease before another process settles it."""
BLOCK = 1000
"""At most this many decisions are deleted at once."""


def begin(
    open_: Transaction,
    decision: DecisionRow,
    attempts: Iterable[Attempt] = (),
    *,
    prompt: str | None = None,
    request: str | None = None,
    cost: int = 0,
    worker: str | None = None,
) -> None:
    """Write a decision and the attempts made so far; `prompt` and `request` only if bodies are kept.

    `worker` is the process that will close it (`maintenance.Process.id`), None if it has not been registered.
    `cost` is what deciding has cost besides attempts: estimates computed here or bought from a judge.
    """
    open_.put(_BEGIN, *_values(decision), worker, cost)
    if prompt is not None or request is not None:
        open_.put(
            "INSERT INTO bodies (decision, prompt, request) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            *(decision.id, prompt, request),
        )
    versions.draw(open_, decision)
    for attempt_ in attempts:
        attempt(open_, attempt_)


def _values(decision: DecisionRow) -> list[Any]:
    """The columns `DECISION` and `NEWS` of a row."""
    effect = rollups.look_effect(decision.detail)
    detail = _JSON(decision.detail)
    asked = decision.specialist if decision.asked is None else decision.asked
    return [*_PLAIN(decision), asked, int(decision.randomised), detail, int(effect.changed), effect.gained]


def attempt(open_: Transaction, begun: Attempt) -> None:
    """Write an attempt before it is made."""
    open_.put(
        "INSERT INTO attempts (id, decision, kind, specialist, at, estimate, status) "
        "VALUES (?, ?, ?, ?, ?, ?, 'open') ON CONFLICT (id) DO NOTHING",
        *(begun.id, begun.decision, begun.kind, begun.specialist, begun.at, begun.estimate),
    )


def revise(open_: Transaction, decision: DecisionRow) -> None:
    """Update an open decision after looks."""
    open_.put(_REVISE, *_values(decision)[1:], decision.id)


def settle(open_: Transaction, settlement: Settlement) -> bool:
    """Record the end of an attempt and charge its cost; false, without effect, if it was settled before.

    An attempt that `recover` had marked as lost, although its process was alive, is corrected.
    """
    decision = _settled(open_, settlement, open_.changed(*_settling(settlement)))
    if decision is None:
        return _corrected(open_, settlement)
    _charge(open_, decision, settlement.outcome.cost)
    return True


def _settling(settlement: Settlement) -> tuple[Any, ...]:
    """The statement that records the end of an attempt that is open."""
    outcome, usage = settlement.outcome, settlement.outcome.usage
    return (
        _SETTLE,
        *(outcome.status, outcome.cost, usage.fresh, usage.cached, usage.written, usage.output),
        *(usage.reasoning, int(usage.complete), outcome.first_token, outcome.seconds, outcome.reason),
        *(settlement.at, settlement.kind, settlement.id),
    )


def _settled(open_: Transaction, settlement: Settlement, rows: Sequence[Row]) -> str | None:
    """Count an attempt that `_settling` has ended; returns its decision, None if it was settled before."""
    if not rows:
        return None
    decision, at, specialist, kind = rows[0]
    rollups.count_call(open_, float(at), str(specialist), str(kind), settlement.outcome)
    return str(decision)


def _corrected(open_: Transaction, settlement: Settlement) -> bool:
    """Replace the estimated cost of an attempt that was marked as lost; false if it was not."""
    rows = open_.rows(
        "SELECT decision, at, specialist, kind, cost FROM attempts WHERE id = ? AND status = 'lost'",
        settlement.id,
    )
    if not rows or settlement.outcome.status == "lost":
        return False
    decision, at, specialist, kind, cost = rows[0]
    open_.run("UPDATE attempts SET settled_at = NULL WHERE id = ?", settlement.id)
    _settled(open_, settlement, open_.changed(*_settling(settlement)))
    more = settlement.outcome.cost - int(cost)
    _charge(open_, str(decision), more)
    lost = Outcome("lost", int(cost))
    rollups.count_call(open_, float(at), str(specialist), str(kind), lost, times=-1)
    rollups.count_cost(open_, str(decision), more)
    return True


def _charge(open_: Transaction, decision: str, cost: int) -> None:
    """Add `cost` to a decision and to what its key has spent."""
    if open_.run("UPDATE decisions SET cost = cost + ? WHERE id = ?", cost, decision):
        budgets.charge(open_, decision, cost)


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
    last: Settlement | None = None,
) -> bool:
    """End a decision: release its reservation and add it to its minute; false if it had ended before.

    `specialist` is the one that answered, if not the first one asked: `asked` and its propensity stay, and
    the row no longer counts as randomised. Latencies are in seconds since the request arrived. `baseline`
    replaces the estimate in the row. `last` is settled first, if it is open.
    """
    renamed = () if specialist is None else (specialist,)  # indexes over that column are not written in vain
    ending = (
        _CLOSE.format(", specialist = ?, randomised = 0" if renamed else ""),
        *(status, first_token, seconds, now, *((None, 0) if last is None else (last.id, last.outcome.cost))),
        *(baseline, *renamed, id_),
    )
    settling = () if last is None else (_settling(last),)
    (_, rows), (_, lease), *settled = open_.together(ending, budgets.lock_lease(id_), *settling)
    open_last = last is not None and bool(settled) and _settled(open_, last, settled[0][1]) is not None
    cost = last.outcome.cost if last is not None and open_last else 0
    if not rows:
        if cost:
            _charge(open_, id_, cost)
            rollups.count_cost(open_, id_, cost)
        elif last is not None:
            _corrected(open_, last)
        return False
    reservation = budgets.lease_of(lease)
    if reservation is not None:
        budgets.release(open_, reservation, now, cost)
    if response is not None:
        open_.put("UPDATE bodies SET response = ? WHERE decision = ?", response, id_)
    rollups.count_decision(open_, rows[0][1:])
    return True


def recover(open_: Transaction, now: float) -> int:
    """Settle and close decisions whose process died; returns their number.

    A process is dead once it is no longer registered (`maintenance`). Decisions of unregistered processes are
    closed when their lease has expired, without a lease after ten minutes. An open attempt is charged at its
    estimate, since the provider may have charged for it.
    """
    ended = 0
    for id_ in _dead(open_, now):
        begun = open_.rows("SELECT id, estimate FROM attempts WHERE decision = ? AND settled_at IS NULL", id_)
        for attempt_id, estimate in begun:
            lost = Outcome("lost", int(estimate), reason="its process died")
            settle(open_, Settlement(str(attempt_id), lost, now))
        ended += close(open_, id_, now, status="lost")
    for id_ in _orphans(open_, now):
        lease = budgets.lease_of(open_.changed(*budgets.lock_lease(id_)))
        if lease is not None:
            budgets.release(open_, lease, now)
    return ended


def abandoned(open_: Transaction, now: float) -> bool:
    """Whether `recover` has anything to do."""
    return bool(_dead(open_, now, 1) or _orphans(open_, now, 1))


def _dead(open_: Transaction, now: float, most: int = BLOCK) -> list[str]:
    """Open decisions whose process is dead."""
    rows = open_.rows(
        "SELECT d.id FROM decisions d LEFT JOIN leases l ON l.decision = d.id "
        "LEFT JOIN workers w ON w.id = d.worker WHERE d.closed_at IS NULL AND "
        "((d.worker IS NOT NULL AND w.id IS NULL) OR "
        "coalesce(l.expires_at, CASE WHEN d.worker IS NULL THEN d.at + 600 END) < ?) LIMIT ?",
        *(now - LATE, most),
    )
    return [str(row[0]) for row in rows]


def _orphans(open_: Transaction, now: float, most: int = BLOCK) -> list[str]:
    """Leases of which no decision was written, and which have expired."""
    rows = open_.rows(
        "SELECT l.decision FROM leases l LEFT JOIN decisions d ON d.id = l.decision "
        "WHERE l.closed_at IS NULL AND l.expires_at < ? AND d.id IS NULL LIMIT ?",
        *(now - LATE, most),
    )
    return [str(row[0]) for row in rows]


def give_feedback(open_: Transaction, feedback: Feedback, key: str | None) -> str:
    """Append feedback by `key` (None: the operator): "added", "late" (a trial has counted one), "known" (the
    same id again), "full" (`versions.RATINGS`), "unknown", or "foreign" (a decision of another key).
    """
    # the update locks the row of the decision, so that concurrent feedback is serialised
    if not open_.run("UPDATE decisions SET cost = cost WHERE id = ?", feedback.decision):
        return "unknown"
    owner = open_.rows("SELECT key FROM decisions WHERE id = ?", feedback.decision)
    if key not in (None, owner[0][0]):
        return "foreign"
    if versions.full(open_, feedback.decision):
        return "full"
    before = judgement(open_, feedback.decision, feedback.metric)
    *rated, comment, correction = astuple(feedback)
    added = open_.run(
        "INSERT INTO feedback (id, decision, at, metric, value, source, observed_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        *rated,
    )
    if not added:
        return "known"
    if comment is not None or correction is not None:
        open_.run("INSERT INTO remarks VALUES (?, ?, ?, ?)", feedback.id, rated[1], comment, correction)
    now = judgement(open_, feedback.decision, feedback.metric)
    rollups.count_feedback(open_, feedback.decision, feedback.metric, before, now)
    return "added" if versions.rate(open_, feedback.decision) else "late"


def judgement(open_: Transaction, decision: str, metric: str) -> float | None:
    """The last feedback on a decision for a metric, or None."""
    rows = open_.rows(
        "SELECT value FROM feedback WHERE decision = ? AND metric = ? ORDER BY at DESC, id DESC LIMIT 1",
        *(decision, metric),
    )
    return float(rows[0][0]) if rows else None


def pinned(open_: Transaction, session: str, now: float) -> Session | None:
    """What is known of a session, or None."""
    open_.flush(_PIN)
    sql = "SELECT specialist, at, tokens, held FROM sessions WHERE id = ? AND expires_at > ?"
    rows = open_.changed(sql, session, now)
    return Session(*rows[0]) if rows else None


def pin(open_: Transaction, session: str, known: Session, now: float, seconds: float) -> None:
    """Keep what is known of a session for `seconds` after its last request."""
    open_.replace(_PIN, (session,), (known.specialist, now + seconds, known.at, known.tokens, known.held))


def generation(open_: Transaction, hash_: str, artifact: str, now: float) -> int:
    """The number of the configuration with this content hash; a new one gets the next number."""
    while not (rows := open_.rows("SELECT number FROM generations WHERE hash = ?", hash_)):
        open_.run(  # no effect, and repeated, if another host takes the same number first
            "INSERT INTO generations (number, at, hash, artifact) "
            "SELECT coalesce(max(number), 0) + 1, ?, ?, ? FROM generations WHERE true "
            "ON CONFLICT DO NOTHING",
            *(now, hash_, artifact),
        )
    return int(rows[0][0])


def prune(open_: Transaction, before: float, bodies_before: float) -> int:
    """Delete decisions older than `before`, bodies and remarks older than `bodies_before`; sums stay.

    At most `BLOCK` of each, the oldest first: other operations wait. Returns the number of decisions deleted.
    """
    for table in ("bodies", "remarks"):
        old = f"SELECT b.decision FROM {table} b JOIN decisions d ON d.id = b.decision WHERE d.at < ? LIMIT ?"
        open_.run(f"DELETE FROM {table} WHERE decision IN ({old})", bodies_before, BLOCK)
    for table, id_, ended in (("leases", "decision", "closed_at"), ("sessions", "id", "expires_at")):
        old = f"SELECT {id_} FROM {table} WHERE {ended} < ? LIMIT ?"
        open_.run(f"DELETE FROM {table} WHERE {id_} IN ({old})", before, BLOCK)
    old = "SELECT id FROM decisions WHERE at < ? AND closed_at IS NOT NULL ORDER BY at LIMIT ?"
    return open_.run(f"DELETE FROM decisions WHERE id IN ({old})", before, BLOCK)


def decision(open_: Transaction, id_: str) -> dict[str, Any] | None:
    """One decision with its attempts and feedback, as JSON values; None if there is none of this id."""
    rows = open_.rows(f"SELECT {DECISION}, {ENDED}, {NEWS} FROM decisions WHERE id = ?", id_)
    if not rows:
        return None
    attempts = open_.rows(f"SELECT {ATTEMPT} FROM attempts WHERE decision = ? ORDER BY at, id", id_)
    names = ("id", "at", "metric", "value", "source", "observed_at", "comment", "correction")
    rated = "feedback f LEFT JOIN remarks r ON r.feedback = f.id WHERE f.decision = ? ORDER BY at"
    feedback = open_.rows(f"SELECT {', '.join(names)} FROM {rated}", id_)
    return {
        **_decision(rows[0]),
        "attempts": [_named(ATTEMPT.split(", "), row) for row in attempts],
        "feedback": [_named(names, row) for row in feedback],
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
    return dict(zip(names, row, strict=True))
