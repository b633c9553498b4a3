"""Roll-ups: sums per minute, hour or day, so that a page over a million decisions reads a few thousand rows.

    minutes, hours   requests, errors, money and seconds by specialist and key
    spreads          latencies as histograms, per hour and per day, for quantiles
    calls            attempts by specialist, kind and status, with their tokens, per hour
    looked           looks at each specialist, and after how many it was chosen, per hour
    judged           feedback by specialist and metric, per hour of the decision

When old decisions are deleted, these sums are kept. A sum is written in the same transaction as the row that
it counts, so the two always agree. Counters only grow, with one exception: feedback that replaces earlier
feedback on the same decision also replaces it in `judged`. All additions of one commit to one row are summed
in memory and written once (`Transaction.grow`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pandora_router.store.database import Row, Transaction
from pandora_router.store.rows import Outcome

SUMS = (
    "requests, errors, declined, inspected, looks, cost, inspection_cost, baseline, compared, overhead, "
    "first_token, first_tokens, seconds, timed, changed, gained"
)
CALLS = "calls, cost, fresh, cached, written, output, reasoning, estimated"
MINUTE, HOUR, DAY = 60, 3600, 86_400
FINEST = 0.001
"""Latencies below this many seconds share the lowest bucket."""
PER_OCTAVE = 5
"""Buckets per doubling of the latency: neighbouring buckets are 15% apart."""


def _growing(table: str, key: str, columns: str) -> str:
    """The statement that adds to the `columns` of the row of `table` whose primary key is `key`."""
    grow = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in columns.split(", "))
    marks = ", ".join("?" * (key.count(",") + columns.count(",") + 2))
    return f"INSERT INTO {table} ({key}, {columns}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET {grow}"


_MINUTES = _growing("minutes", "minute, specialist, key", SUMS)
_HOURS = _growing("hours", "hour, specialist, key", SUMS)
_SPREADS = _growing("spreads", "span, start, specialist, measure, bucket", "requests")
_CALLS = _growing("calls", "hour, specialist, kind, status", CALLS)
_LOOKED = _growing("looked", "hour, specialist", "looks, won")
_JUDGED = _growing("judged", "hour, specialist, metric, changed", "judgements, total, squares")


@dataclass(frozen=True)
class LookEffect:
    """Effect of the looks of a decision: whether they changed the choice, and the gain in expected reward."""

    changed: bool = False
    gained: float = 0.0


def look_effect(detail: Mapping[str, Any]) -> LookEffect:
    """Return the effect of looks from the stored form of a decision, `{"decision": Decision.to_dict(), ...}`.

    Without looks the specialist with the highest mean would have answered. `gained` is the expected reward of
    the chosen specialist minus that of this one, both after the looks. For a decision without looks, or one
    that was declined, the result is `LookEffect()`.
    """
    row = detail.get("decision")
    if not isinstance(row, Mapping) or not row.get("purchases") or not row.get("worth"):
        return LookEffect()
    worth: Mapping[str, float] = row["worth"]
    means = {name: row["specialists"][name]["mean"] for name in worth}
    first = max(means, key=lambda name: -math.inf if means[name] is None else means[name])
    chosen = row["specialist"]
    return LookEffect(chosen != first, float(worth.get(chosen, 0.0) - worth[first]))


def opened(detail: Mapping[str, Any]) -> tuple[str, ...]:
    """The specialists that were looked at, from the stored form of a decision."""
    row = detail.get("decision")
    purchases = row.get("purchases", ()) if isinstance(row, Mapping) else ()
    return tuple(dict.fromkeys(str(name) for purchase in purchases for name in purchase["specialists"]))


def bucket(seconds: float) -> int:
    """The bucket of a latency in the histograms.

    >>> bucket(0.0005), bucket(0.001), bucket(0.002), bucket(1.0)
    (0, 0, 5, 49)
    """
    return max(0, math.floor(PER_OCTAVE * math.log2(max(seconds, FINEST) / FINEST)))


def middle(number: int) -> float:
    """The latency in seconds that stands for a bucket: the geometric middle of its ends.

    >>> all(bucket(middle(number)) == number for number in range(200))
    True
    """
    return FINEST * 2.0 ** ((number + 0.5) / PER_OCTAVE)


COUNTED = (
    "at, specialist, coalesce(key, ''), status, declined, inspected, cost, inspection_cost, baseline, "
    "overhead, first_token, seconds, changed, gained, CASE WHEN inspected > 0 THEN detail END"
)
"""What `count_decision` reads of a decision; its detail if looks were made."""


def count_decision(open_: Transaction, row: Row) -> None:
    """Add an ended decision to the sums of its minute and hour; `row` has the columns `COUNTED`."""
    at, specialist, key, status, declined, looks, cost, looks_cost, baseline, *rest = row
    overhead, first, whole, changed, gained, detail = rest
    sums = (
        *(1, int(status != "ok"), int(declined is not None), int(looks > 0), looks, cost, looks_cost),
        *(baseline or 0, 0 if baseline is None else cost, overhead),
        *(first or 0.0, int(first is not None), whole or 0.0, int(whole is not None), changed, gained),
    )
    minute, hour, day = int(at // MINUTE), int(at // HOUR), int(at // DAY)
    open_.grow(_MINUTES, (minute, specialist, key), sums)
    open_.grow(_HOURS, (hour, specialist, key), sums)
    for measure, seconds in (("first", first), ("whole", whole)) if status == "ok" else ():
        if seconds is not None:
            place = specialist, measure, bucket(seconds)
            open_.grow(_SPREADS, (HOUR, hour, *place), (1,))
            open_.grow(_SPREADS, (DAY, day, *place), (1,))
    if looks:
        for name in opened(json.loads(detail)):
            open_.grow(_LOOKED, (hour, name), (1, int(name == specialist)))


def count_cost(open_: Transaction, decision: str, more: int) -> None:
    """Add nanodollars to the sums of a decision that was counted before."""
    rows = open_.rows("SELECT at, specialist, coalesce(key, '') FROM decisions WHERE id = ?", decision)
    at, specialist, key = rows[0]
    sums = [more if name == "cost" else 0 for name in SUMS.split(", ")]
    open_.grow(_MINUTES, (int(at // MINUTE), specialist, key), sums)
    open_.grow(_HOURS, (int(at // HOUR), specialist, key), sums)


def count_call(
    open_: Transaction, at: float, specialist: str, kind: str, outcome: Outcome, *, times: int = 1
) -> None:
    """Add a settled attempt to the sums of the hour in which it began; `times` -1 takes it out again."""
    usage = outcome.usage
    tokens = (usage.fresh, usage.cached, usage.written, usage.output, usage.reasoning)
    sums = (1, outcome.cost, *tokens, int(not usage.complete))
    where = (int(at // HOUR), specialist, kind, outcome.status)
    open_.grow(_CALLS, where, sums if times == 1 else [times * amount for amount in sums])


def count_feedback(
    open_: Transaction, decision: str, metric: str, before: float | None, now: float | None
) -> None:
    """Replace the judgement `before` of a decision, None if there was none, by `now`."""
    if now is None or before == now:
        return
    at, specialist, changed = open_.rows(
        "SELECT at, specialist, changed FROM decisions WHERE id = ?", decision
    )[0]
    old = before or 0.0
    sums = (int(before is None), now - old, now * now - old * old)
    open_.grow(_JUDGED, (int(at // HOUR), specialist, metric, changed), sums)
