"""Alerts, and what they are raised from: the state of drift by specialist, new ratings, budgets.

An alert has a kind, a subject and an occasion, and is raised once for these three, whichever worker or host
notices it first. It is sent at least once: a process claims it for a minute, sends it and records that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pandora_router.store import accounts
from pandora_router.store.budgets import status
from pandora_router.store.database import Transaction
from pandora_router.store.money import dollars, in_dollars, period_of

Kind = Literal["drift", "budget", "circuit", "looks", "trial"]
SETTLED = 2.0
"""Seconds after which ratings are read: a commit of another host may be on its way."""
MOST = 500
"""At most this many new ratings are read at once."""
CLAIMED = 60.0
"""Seconds for which an alert that is being sent is left to its process."""
TRIES = 12
"""Attempts to send an alert; the pause between two doubles, up to `LONGEST`."""
LONGEST = 3600.0
PROMPTS = ""
"""In place of a specialist: the detector is that of the mix of prompts."""
SHARES = (0.8, 1.0)
"""Shares of a budget at which an alert is raised."""


@dataclass(frozen=True)
class Alert:
    """One alert; `message` is a sentence without texts of requests."""

    kind: Kind
    subject: str
    occasion: str
    at: float
    message: str
    tries: int = 0


@dataclass(frozen=True)
class Surprise:
    """A new rating: reward minus expected reward of an answer by `specialist`, chosen by `artifact`.

    key: the API key of the request, "" without one.
    """

    at: float
    id: str
    artifact: str
    specialist: str
    difference: float
    key: str = ""


def raise_alert(open_: Transaction, alert: Alert) -> bool:
    """Write an alert; false if it was raised before."""
    return bool(
        open_.run(
            "INSERT INTO alerts (kind, subject, occasion, at, message, tries, next_at) "
            "VALUES (?, ?, ?, ?, ?, 0, 0) ON CONFLICT (kind, subject, occasion) DO NOTHING",
            *(alert.kind, alert.subject, alert.occasion, alert.at, alert.message),
        )
    )


def claim(open_: Transaction, now: float, most: int = 5) -> list[Alert]:
    """The alerts to send now; no other process gets them for `CLAIMED` seconds."""
    columns = "kind, subject, occasion, at, message, tries"
    rows = open_.rows(
        f"SELECT {columns} FROM alerts WHERE sent_at IS NULL AND next_at <= ? AND tries < ? "
        "ORDER BY at LIMIT ?",
        *(now, TRIES, most),
    )
    for kind, subject, occasion, *_ in rows:
        open_.run(
            "UPDATE alerts SET next_at = ?, tries = tries + 1 "
            "WHERE kind = ? AND subject = ? AND occasion = ?",
            *(now + CLAIMED, kind, subject, occasion),
        )
    return [Alert(*row) for row in rows]


def sent(open_: Transaction, alert: Alert, now: float) -> None:
    """Record that a claimed alert was sent."""
    open_.run(
        "UPDATE alerts SET sent_at = ? WHERE kind = ? AND subject = ? AND occasion = ?",
        *(now, alert.kind, alert.subject, alert.occasion),
    )


def not_sent(open_: Transaction, alert: Alert, now: float) -> None:
    """Try a claimed alert again after a pause."""
    open_.run(
        "UPDATE alerts SET next_at = ? WHERE kind = ? AND subject = ? AND occasion = ?",
        *(now + min(5.0 * 2.0**alert.tries, LONGEST), alert.kind, alert.subject, alert.occasion),
    )


def newest(open_: Transaction, most: int = 20) -> list[tuple[Alert, float | None]]:
    """The newest alerts, newest first, with the time at which each was sent."""
    rows = open_.rows(
        "SELECT kind, subject, occasion, at, message, tries, sent_at FROM alerts ORDER BY at DESC LIMIT ?",
        most,
    )
    return [(Alert(*row[:6]), row[6]) for row in rows]


def totals(open_: Transaction) -> dict[str, int]:
    """How many alerts were raised, by kind."""
    rows = open_.rows("SELECT kind, count(*) FROM alerts GROUP BY kind ORDER BY kind")
    return {str(kind): int(many) for kind, many in rows}


def surprises(open_: Transaction, metric: str, now: float) -> list[Surprise]:
    """Ratings since the last call, in order of time; only the first rating of a decision is new.

    Left out: decisions without a router, and answers of another specialist than the one that was asked.
    """
    place = open_.rows("SELECT at, id FROM positions WHERE name = ?", f"ratings of {metric}")
    at, id_ = (float(place[0][0]), str(place[0][1])) if place else (0.0, "")
    rows = open_.rows(_NEW, metric, at, at, id_, now - SETTLED, MOST)
    if rows:
        open_.run(
            "INSERT INTO positions (name, at, id) VALUES (?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET at = excluded.at, id = excluded.id",
            *(f"ratings of {metric}", rows[-1][0], rows[-1][1]),
        )
    found = []
    for at, id_, artifact, specialist, asked, worth, detail, score, key, cost, earlier in rows:
        if worth is None or specialist != asked or earlier:
            continue
        right = json.loads(str(detail)).get("value", {}).get("right_answer")
        fee = dollars(int(cost)) / float(right) if right else 0.0
        rated = float(at), str(id_), str(artifact), str(specialist)
        found.append(Surprise(*rated, score - fee - float(worth), str(key or "")))
    return found


_NEW = """
    SELECT f.at, f.id, d.artifact, d.specialist, d.asked, d.worth, d.detail, f.value, d.key,
           (SELECT coalesce(sum(a.cost), 0) FROM attempts a
            WHERE a.decision = d.id AND a.specialist = d.specialist AND a.kind <> 'loser'),
           (SELECT count(*) FROM feedback g WHERE g.decision = f.decision AND g.metric = f.metric
            AND (g.at < f.at OR (g.at = f.at AND g.id < f.id)))
    FROM feedback f JOIN decisions d ON d.id = f.decision
    WHERE f.metric = ? AND (f.at > ? OR (f.at = ? AND f.id > ?)) AND f.at < ?
    ORDER BY f.at, f.id LIMIT ?
"""


def sent_prompts(open_: Transaction, now: float) -> list[tuple[str, str, list[float]]]:
    """New prompts since the last call, in order of time: the known prompts that they were compared to
    (`learn.mix.Mix.name`), the API key ("" without one), and their ranks.

    The first call finds none. Of more than `MOST` prompts the newest are returned.
    """
    place = open_.rows("SELECT at, id FROM positions WHERE name = 'prompts'")
    until = now - SETTLED
    at, id_ = (float(place[0][0]), str(place[0][1])) if place else (until, "")
    rows = open_.rows(
        "SELECT at, id, key, detail FROM decisions WHERE (at > ? OR (at = ? AND id > ?)) AND at < ? "
        "ORDER BY at DESC, id DESC LIMIT ?",
        *(at, at, id_, until, MOST),
    )
    if rows or not place:
        newest = (rows[0][0], rows[0][1]) if rows else (until, "")
        open_.run(
            "INSERT INTO positions (name, at, id) VALUES ('prompts', ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET at = excluded.at, id = excluded.id",
            *newest,
        )
    found = []
    for _, _, key, detail in reversed(rows):
        mix = json.loads(str(detail)).get("value", {}).get("mix")
        if mix:
            found.append((str(mix["of"]), str(key or ""), list(mix["ranks"])))
    return found


def mixes(open_: Transaction) -> dict[str, dict[str, Any]]:
    """The states of the detectors of the mix of prompts, as JSON values, by `learn.mix.Mix.name`."""
    rows = open_.rows("SELECT artifact, state FROM drifts WHERE specialist = ? ORDER BY changed_at", PROMPTS)
    return {str(name): json.loads(state) for name, state in rows}


def drifts(open_: Transaction) -> dict[tuple[str, str], dict[str, Any]]:
    """The states of the detectors of specialists, as JSON values, by artifact and specialist."""
    rows = open_.rows(
        "SELECT artifact, specialist, state FROM drifts WHERE specialist <> ? ORDER BY artifact, specialist",
        PROMPTS,
    )
    return {(str(artifact), str(name)): json.loads(state) for artifact, name, state in rows}


def write_drift(
    open_: Transaction, artifact: str, specialist: str, state: Mapping[str, Any], now: float
) -> None:
    """Write the state of one detector; that of a mix of prompts with its name and `PROMPTS`."""
    open_.run(
        "INSERT INTO drifts (artifact, specialist, state, changed_at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (artifact, specialist) DO UPDATE SET state = excluded.state, "
        "changed_at = excluded.changed_at",
        *(artifact, specialist, json.dumps(state), now),
    )


def budgets(open_: Transaction, now: float) -> list[Alert]:
    """An alert for each budget of which 80% or all is spent in its present period, at every level.

    Levels are keys, groups of keys, and the budgets of profiles and of all requests that a gateway followed
    in the last hour.
    """
    near = open_.rows(
        "SELECT DISTINCT k.id FROM keys k JOIN budgets b ON b.key = k.id "
        "WHERE k.revoked_at IS NULL AND k.budget > 0 AND b.spent >= ? * k.budget",
        SHARES[0],
    )
    keys = [key for (id_,) in near if (key := accounts.key_of(open_, str(id_))) is not None]
    found = []
    for level in status(open_, [*accounts.groups(open_), *keys], now):
        passed = [share for share in SHARES if level.budget and level.spent >= share * level.budget]
        if passed:
            paid, allowed = in_dollars(level.spent), in_dollars(level.budget)
            message = f"Spent by {level.name}: {paid} of {allowed} per {level.period}."
            occasion = f"{period_of(level.period, now)} {passed[-1]:.0%}"
            found.append(Alert("budget", level.name, occasion, now, message))
    return found
