"""Which router serves, and the trial of a candidate: versions, draws of its coin, evidence, its end.

    lineup     what every worker serves now: the newest version and the running trial
    begin, end start a trial; end it with a verdict
    draw, rate write the coin of a request; note that its answer was rated
    waiting    rated draws that the evidence has not counted
    count      write the evidence after more of them
    promote    serve the candidate from now on; go_back: serve the version of before

At most one trial runs. Every change is one transaction: a process that is killed leaves the state of before
or of after.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from pandora_router.errors import UsageError
from pandora_router.store.database import Row, Transaction
from pandora_router.store.rows import DecisionRow, LiveTrial, Version

MOST = 2000
"""At most this many rated draws are counted at once."""
RATINGS = 50
"""At most this many ratings of one decision are kept."""
POINTS = 400
"""At most this many points of the curve of evidence are read."""
PastTrial = tuple[LiveTrial, float | None, str | None, dict[str, Any]]
"""A trial with its end, its verdict and the state of its evidence."""
_VERSION = "number, at, path, artifact, parent, why, basis"
_TRIAL = "id, path, artifact, against_path, against, basis, rule, share, watch, started"


@dataclass(frozen=True)
class Lineup:
    """What is served instead of, and beside, the router of the configuration file."""

    version: Version | None = None
    trial: LiveTrial | None = None


@dataclass(frozen=True)
class RatedDraw:
    """A rated draw that was not counted: `score` is the rating, `cost` of the request is in nanodollars."""

    decision: str
    at: float
    key: str | None
    session: str
    candidate: int
    share: float
    expected_a: float
    expected_b: float
    right_answer: float | None
    cost: int
    score: float


def lineup(open_: Transaction) -> Lineup:
    """The newest version and the running trial."""
    versions = open_.rows(f"SELECT {_VERSION} FROM versions ORDER BY number DESC LIMIT 1")
    running = open_.rows(f"SELECT {_TRIAL} FROM trials WHERE running = 1")
    return Lineup(Version(*versions[0]) if versions else None, _trial(running[0]) if running else None)


def _trial(row: Row) -> LiveTrial:
    terms: dict[str, Any] = dict(zip(_TRIAL.split(", "), row, strict=True))
    return LiveTrial(**{**terms, "watch": bool(terms["watch"])})


def begin(open_: Transaction, trial: LiveTrial, evidence: Mapping[str, Any]) -> None:
    """Start a trial; it ends one that watches over a promotion. `evidence` is the state at its start.

    Raises `UsageError` if another one runs.
    """
    now = lineup(open_).trial
    if now is not None and now.watch:
        end(open_, "replaced by another trial", trial.started)
    elif now is not None:
        raise UsageError(
            "a trial",
            expected="that no other is running",
            came=f"a trial of {now.path}",
            do="Wait for its end, or end it: pandora learn trial --stop",
        )
    values = [int(value) if isinstance(value, bool) else value for value in astuple(trial)]
    open_.run(
        f"INSERT INTO trials ({_TRIAL}, running, evidence) VALUES ({', '.join('?' * 12)})",
        *(*values, 1, json.dumps(evidence)),
    )


def end(open_: Transaction, verdict: str, now: float) -> bool:
    """End the running trial; false if none runs."""
    return bool(
        open_.run("UPDATE trials SET ended = ?, verdict = ?, running = NULL WHERE running = 1", now, verdict)
    )


def draw(open_: Transaction, decision: DecisionRow) -> None:
    """Write the coin of a decision that was just written, if one was tossed."""
    drawn = decision.draw
    if drawn is None:
        return
    open_.put(
        "INSERT INTO draws (decision, trial, at, key, session, candidate, share, choice_a, choice_b, "
        "expected_a, expected_b, right_answer, rated) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0) "
        "ON CONFLICT (decision) DO NOTHING",
        *(decision.id, drawn.trial, decision.at, decision.key, decision.session, int(drawn.candidate)),
        *(drawn.share, *drawn.choices, *drawn.expected, drawn.right_answer),
    )


def full(open_: Transaction, decision: str) -> bool:
    """Whether a decision has `RATINGS`, and takes no more."""
    return bool(open_.rows("SELECT count(*) FROM feedback WHERE decision = ?", decision)[0][0] >= RATINGS)


def rate(open_: Transaction, decision: str) -> bool:
    """Note that a decision was rated; false if a trial has counted it before."""
    if open_.run("UPDATE draws SET rated = 1 WHERE decision = ? AND counted_at IS NULL", decision):
        return True
    return not open_.rows("SELECT 1 FROM draws WHERE decision = ?", decision)


def waiting(open_: Transaction, trial: str, metric: str, before: float) -> list[RatedDraw]:
    """Rated draws of requests that came before a time, in order of time; at most `MOST`.

    Left out: failed requests, and answers of a specialist other than the one that was asked.
    """
    value = "(SELECT f.value FROM feedback f WHERE f.decision = r.decision AND f.metric = ? "
    rows = open_.rows(
        "SELECT * FROM (SELECT r.decision, r.at, r.key, coalesce(r.session, r.decision) AS session, "
        "r.candidate, r.share, r.expected_a, r.expected_b, r.right_answer, d.cost, "
        f"{value} ORDER BY f.at DESC, f.id DESC LIMIT 1) AS score "
        "FROM draws r JOIN decisions d ON d.id = r.decision "
        "WHERE r.trial = ? AND r.rated = 1 AND r.counted_at IS NULL AND r.at < ? AND d.status = 'ok' "
        "AND d.specialist = d.asked) rated WHERE score IS NOT NULL ORDER BY at, decision LIMIT ?",
        *(metric, trial, before, MOST),
    )
    return [RatedDraw(*row) for row in rows]


def counted_sessions(open_: Transaction, trial: str, sessions: Sequence[str]) -> set[str]:
    """Those of `sessions` that the evidence of a trial has counted."""
    found: set[str] = set()
    for first in range(0, len(sessions), 500):
        some = sessions[first : first + 500]
        rows = open_.rows(
            "SELECT DISTINCT coalesce(session, decision) FROM draws WHERE trial = ? "
            f"AND counted_at IS NOT NULL AND coalesce(session, decision) IN ({', '.join('?' * len(some))})",
            *(trial, *some),
        )
        found |= {str(row[0]) for row in rows}
    return found


def keys_counted(open_: Transaction, trial: str) -> dict[str | None, int]:
    """How many sessions the evidence has counted, by key; 0 for a key with draws that were not counted."""
    rows = open_.rows(
        "SELECT key, sum(CASE WHEN difference IS NULL THEN 0 ELSE 1 END) FROM draws WHERE trial = ? "
        "AND rated = 1 GROUP BY key",
        trial,
    )
    return {row[0]: int(row[1]) for row in rows}


def right_answer(open_: Transaction, trial: str) -> float | None:
    """Dollars that a right answer was worth in the newest coin of a trial; None if money does not count."""
    rows = open_.rows(
        "SELECT right_answer FROM draws WHERE trial = ? ORDER BY at DESC, decision LIMIT 1", trial
    )
    return None if not rows or rows[0][0] is None else float(rows[0][0])


def evidence(open_: Transaction, trial: str) -> dict[str, Any]:
    """The state of the evidence of a trial, as JSON values."""
    state: dict[str, Any] = json.loads(open_.rows("SELECT evidence FROM trials WHERE id = ?", trial)[0][0])
    return state


def count(
    open_: Transaction,
    trial: str,
    counted: Mapping[str, float | None],
    state: Mapping[str, Any],
    point: tuple[int, float, float | None, float, float],
    now: float,
) -> None:
    """Write what was counted: the difference by decision, None for one that is left out; and the new state.

    point: rated, mean, its standard error, evidence that the candidate is better, and that it is worse.
    """
    for decision, difference in counted.items():
        open_.run(
            "UPDATE draws SET difference = ?, counted_at = ? WHERE decision = ?", difference, now, decision
        )
    open_.run("UPDATE trials SET evidence = ? WHERE id = ?", json.dumps(state), trial)
    rated, mean, error, better, worse = point
    open_.run(
        "INSERT INTO trial_points (trial, rated, at, mean, error, better, worse) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (trial, rated) DO NOTHING",
        *(trial, rated, now, mean, error, better, worse),
    )


def promote(open_: Transaction, trial: LiveTrial, why: str, now: float) -> Version:
    """Serve the candidate of a trial from now on; the trial, if it runs, has to be ended by the caller.

    The first promotion also writes the version that was served until then.
    """
    before = lineup(open_).version
    if before is None or before.artifact != trial.against or before.basis != trial.basis:
        start = trial.against_path, trial.against, None, "the configuration file", trial.basis
        before = _append(open_, trial.started, *start)
    return _append(open_, now, trial.path, trial.artifact, before.number, why, trial.basis)


def go_back(open_: Transaction, why: str, now: float) -> Version:
    """Serve the parent of the present version again, and end a running trial.

    Raises `UsageError` if there is none.
    """
    present = lineup(open_).version
    parent = None if present is None or present.parent is None else version(open_, present.parent)
    if present is None or parent is None:
        raise UsageError(
            "the router of before",
            expected="a router that was promoted",
            came="none: the router of the configuration file is served",
            do="See: pandora learn status",
        )
    end(open_, why, now)
    return _append(open_, now, parent.path, parent.artifact, parent.parent, why, present.basis)


def version(open_: Transaction, number: int) -> Version | None:
    """The version of this number."""
    rows = open_.rows(f"SELECT {_VERSION} FROM versions WHERE number = ?", number)
    return Version(*rows[0]) if rows else None


def versions(open_: Transaction, most: int = 50) -> list[Version]:
    """The newest versions, newest first."""
    rows = open_.rows(f"SELECT {_VERSION} FROM versions ORDER BY number DESC LIMIT ?", most)
    return [Version(*row) for row in rows]


def past(open_: Transaction, most: int = 20) -> list[PastTrial]:
    """The newest trials, newest first: each with its end, its verdict and the state of its evidence."""
    rows = open_.rows(
        f"SELECT {_TRIAL}, ended, verdict, evidence FROM trials ORDER BY started DESC, id DESC LIMIT ?", most
    )
    return [(_trial(row[:10]), row[10], row[11], json.loads(row[12])) for row in rows]


def points(open_: Transaction, trial: str) -> list[tuple[float, int, float, float | None, float, float]]:
    """The curve of a trial's evidence: time, rated, mean, error, better, worse; at most about `POINTS`."""
    ((many,),) = open_.rows("SELECT count(*) FROM trial_points WHERE trial = ?", trial)
    rows = open_.rows(
        "SELECT at, rated, mean, error, better, worse FROM trial_points WHERE trial = ? ORDER BY rated", trial
    )
    step = max(int(many) // POINTS, 1)
    kept = rows[::step]
    return [tuple(row) for row in (kept if not rows or kept[-1] == rows[-1] else [*kept, rows[-1]])]


def _append(
    open_: Transaction, at: float, path: str, artifact: str, parent: int | None, why: str, basis: str
) -> Version:
    ((newest,),) = open_.rows("SELECT coalesce(max(number), 0) FROM versions")
    made = Version(int(newest) + 1, at, path, artifact, parent, why, basis)
    open_.run(f"INSERT INTO versions ({_VERSION}) VALUES ({', '.join('?' * 7)})", *astuple(made))
    return made
