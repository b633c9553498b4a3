"""Traffic as files: decisions as Parquet, and traffic with feedback as a routing table to fit on.

A routing table needs the prompt, so it has only decisions whose bodies were kept. Each decision fills one
cell: that of the specialist that answered, with the last feedback of one metric as score and the cost of the
answer in dollars as fee. All other cells are missing.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from pandora_router.data import Table
from pandora_router.errors import UsageError
from pandora_router.folders import replacing
from pandora_router.store.database import Row, Transaction
from pandora_router.store.log import DECISION, ENDED
from pandora_router.store.money import dollars
from pandora_router.types import Matrix

BLOCK = 10_000
"""Rows in memory at once while decisions are written to Parquet."""
DERIVED = ("fixed", "looks", "feedback", "remarks")
MONEY = ("cost", "inspection_cost", "baseline")


def write_parquet(open_: Transaction, path: Path, since: float, until: float) -> int:
    """Write all decisions of [since, until) to `path`, atomically, and return their number.

    Money is in dollars; `detail` is JSON text, and so are `looks`, what was bought before the decision with
    its estimates, `feedback`, the last value of each metric, and `remarks`, the list of comments and
    corrections that clients sent. `fixed` says why no coin picked the specialist, "" if one did. Raises
    `UsageError` if `path` exists.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.exists():
        raise UsageError(str(path), expected="a new file", came="one that exists", do="Name another file.")
    columns = [*DECISION.split(", "), *ENDED.split(", ")]
    schema = pa.schema([(name, _kind(name, pa)) for name in (*columns, *DERIVED)])
    rows = 0
    with replacing(path) as draft, pq.ParquetWriter(draft, schema) as sink:
        for block in _blocks(_decisions(open_, since, until)):
            named = [_plain(columns, row) for row in block]
            rated = _last_feedback(open_, named[0]["at"], named[-1]["at"])
            said = _remarks(open_, named[0]["at"], named[-1]["at"])
            for decision in named:
                decision |= {"looks": _looks(decision), "fixed": fixed(decision)}
                decision["feedback"] = json.dumps(rated.get(decision["id"], {}), sort_keys=True)
                decision["remarks"] = json.dumps(said.get(decision["id"], []), sort_keys=True)
            sink.write_table(pa.Table.from_pylist(named, schema=schema))
            rows += len(block)
    return rows


def fixed(decision: Mapping[str, Any]) -> str:
    """Why no coin picked who was asked in this row of the log; "" if one did.

    >>> fixed({"randomised": 0, "mode": "observe"})
    'observed'
    """
    if decision["randomised"]:
        return ""
    if decision["mode"] == "observe":
        return "observed"
    if decision["asked"] != decision["specialist"]:
        return "failed over"
    if decision["declined"] is not None:
        return "declined"
    return {"named": "by name", "session": "session"}.get(decision["policy"], "no coin was tossed")


def _looks(decision: Mapping[str, Any]) -> str:
    """What was bought before the decision, as JSON: a list of purchases with their estimates and costs."""
    return json.dumps(json.loads(decision["detail"]).get("decision", {}).get("purchases", []))


def _last_feedback(open_: Transaction, first: float, last: float) -> dict[str, dict[str, float]]:
    """The last value of each metric for the decisions made from `first` to `last`."""
    found: dict[str, dict[str, float]] = {}
    for decision, metric, value in open_.rows(
        "SELECT f.decision, f.metric, f.value FROM feedback f JOIN decisions d ON d.id = f.decision "
        "WHERE d.at >= ? AND d.at <= ? ORDER BY f.at, f.id",
        *(first, last),
    ):
        found.setdefault(str(decision), {})[str(metric)] = float(value)
    return found


def _remarks(open_: Transaction, first: float, last: float) -> dict[str, list[dict[str, str | None]]]:
    """Comments and corrections on the decisions made from `first` to `last`, oldest first."""
    found: dict[str, list[dict[str, str | None]]] = {}
    for decision, comment, correction in open_.rows(
        "SELECT r.decision, r.comment, r.correction FROM remarks r JOIN feedback f ON f.id = r.feedback "
        "JOIN decisions d ON d.id = r.decision WHERE d.at >= ? AND d.at <= ? ORDER BY f.at, f.id",
        *(first, last),
    ):
        found.setdefault(str(decision), []).append({"comment": comment, "correction": correction})
    return found


def routing_table(
    open_: Transaction,
    metric: str,
    since: float,
    until: float,
    allowance: Callable[[Mapping[str | None, int]], int] | None = None,
) -> Table:
    """The routing table of all decisions in [since, until) with a kept prompt and feedback of `metric`.

    allowance: how many ratings of one API key are used, given how many each key gave; of a key with more a
    fair sample is used. Raises `UsageError` if there is no rating.
    """
    given: dict[str | None, list[str]] = {}
    for id_, key in open_.stream(_RATERS, metric, since, until) if allowance is not None else ():
        given.setdefault(key, []).append(str(id_))
    most = 0 if allowance is None else allowance({key: len(ids) for key, ids in given.items()})
    beyond = {id_ for ids in given.values() for id_ in sorted(ids, key=_lot)[most:]}
    cells: dict[str, dict[str, tuple[float, float]]] = {}
    for prompt, specialist, cost, score, id_ in open_.stream(_FEEDBACK, metric, since, until):
        if id_ not in beyond:
            cells.setdefault(str(prompt), {})[str(specialist)] = (float(score), dollars(int(cost)))
    if not cells:
        raise UsageError(
            "a routing table from the log",
            expected=f"decisions with a kept prompt and feedback of the metric {metric!r}",
            came="none",
            do="Keep bodies (`serve: {bodies: true}`) and send POST /v1/feedback; see: pandora log tail",
        )
    specialists = tuple(sorted({name for row in cells.values() for name in row}))
    score = np.full((len(cells), len(specialists)), np.nan)
    fee = np.full(score.shape, np.nan)
    for i, row in enumerate(cells.values()):
        for name, (value, cost) in row.items():
            score[i, specialists.index(name)], fee[i, specialists.index(name)] = value, cost
    prompts = tuple(cells)
    return Table(
        prompt_ids=tuple(f"log-{i}" for i in range(len(prompts))),
        prompts=prompts,
        tasks=("",) * len(prompts),
        split=np.full(len(prompts), ""),
        specialists=specialists,
        score=score,
        fee=fee,
    )


def news_of_looks(
    open_: Transaction, prompts: Sequence[str], specialists: Sequence[str], since: float, until: float
) -> Matrix:
    """What looks changed in decisions of [since, until) on these prompts (prompts, specialists).

    A cell is the value of a specialist after the looks of the decision minus its mean before them, NaN where
    it was not looked at. Of equal prompts the last decision with looks counts.
    """
    news = np.full((len(prompts), len(specialists)), np.nan)
    row = {prompt: i for i, prompt in enumerate(prompts)}
    column = {name: j for j, name in enumerate(specialists)}
    for prompt, detail in open_.stream(_LOOKED, since, until):
        if (i := row.get(str(prompt))) is None:
            continue
        changes = changed_by_looks(json.loads(str(detail)).get("decision", {}))
        if changes:
            news[i] = np.nan
        for name in changes.keys() & column.keys():
            news[i, column[name]] = changes[name]
    return news


def changed_by_looks(decision: Mapping[str, Any]) -> dict[str, float]:
    """By specialist that was looked at, its value at the end minus its mean before; of `Decision.to_dict`.

    >>> mean = {"a": {"mean": 0.5}, "b": {"mean": 0.25}}
    >>> one = {"specialists": ["a"], "values": [0.75], "means": []}
    >>> changed_by_looks({"specialists": mean, "purchases": [one]})
    {'a': 0.25}
    >>> changed_by_looks({"specialists": mean, "purchases": [{**one, "means": [1.0, 0.0]}]})
    {'a': 0.5}
    """
    lines = decision.get("specialists", {})
    before: dict[str, Any] = {name: line.get("mean") for name, line in lines.items()}
    values: dict[str, Any] = {}
    for purchase in decision.get("purchases", []):
        values |= dict(zip(purchase["specialists"], purchase["values"], strict=True))
        if purchase.get("means"):  # estimates depend on everything opened: later looks change earlier values
            now = dict(zip(before, purchase["means"], strict=True))
            values = {name: now[name] for name, value in values.items() if value is not None}
    return {
        name: value - before[name]
        for name, value in values.items()
        if value is not None and before.get(name) is not None
    }


def sampled_prompts(open_: Transaction, most: int, since: float, until: float) -> list[tuple[str, str]]:
    """A fair sample of at most `most` kept prompts of [since, until), each with the id of its decision.

    The order of the ids' hashes decides, so that a sample of the same log is the same again, and a larger one
    contains it. Prompts of the same text are drawn once. Raises `UsageError` if no prompt was kept.
    """
    rows = open_.stream(
        "SELECT d.id, b.prompt FROM decisions d JOIN bodies b ON b.decision = d.id "
        "WHERE d.at >= ? AND d.at < ? AND b.prompt IS NOT NULL ORDER BY d.at, d.id",
        *(since, until),
    )
    first = {str(prompt): str(id_) for id_, prompt in rows if str(prompt).strip()}
    if not first:
        raise UsageError(
            "a sample of the log",
            expected="decisions with a kept prompt",
            came="none",
            do="Keep bodies (`serve: {bodies: true}`); see: pandora log tail",
        )
    drawn = heapq.nsmallest(most, first.items(), key=lambda kept: _lot(kept[1]))
    return [(id_, prompt) for prompt, id_ in drawn]


@dataclass(frozen=True)
class Dispute:
    """A request that a router observed: `asked` answered, and the router would have asked `proposed`."""

    id: str
    prompt: str
    asked: str
    proposed: str


def disputes(open_: Transaction, since: float, until: float) -> tuple[int, list[Dispute]]:
    """How many requests of [since, until) the newest observing router judged, and those that it disputes.

    Disputes whose prompt was kept, in the order of their ids' hashes, as in `sampled_prompts`.
    """
    rows = open_.rows(
        "SELECT d.id, d.artifact, d.asked, d.proposed, b.prompt FROM decisions d "
        "LEFT JOIN bodies b ON b.decision = d.id WHERE d.mode = 'observe' AND d.declined IS NULL "
        "AND d.artifact <> '' AND d.at >= ? AND d.at < ? ORDER BY d.at DESC, d.id",
        *(since, until),
    )
    artifacts = [re.split("[@/]", str(row[1]))[0] for row in rows]  # without another worth or policy
    mine = [row for row, artifact in zip(rows, artifacts, strict=True) if artifact == artifacts[0]]
    found = [
        Dispute(str(id_), str(prompt), str(asked), str(proposed))
        for id_, _, asked, proposed, prompt in mine
        if asked != proposed and prompt is not None and str(prompt).strip()
    ]
    return len(mine), sorted(found, key=lambda one: _lot(one.id))


def _lot(id_: str) -> bytes:
    """Where a decision comes in an order that nobody can choose and that stays the same."""
    return sha256(id_.encode()).digest()


def surprises(open_: Transaction, metric: str, since: float, until: float) -> dict[str, list[float]]:
    """Reward minus expected reward of each rated answer in [since, until), by specialist, in order of time.

    The reward is the last rating of `metric` minus the cost of the answer, weighed as when it was decided.
    Decisions without a router, and answers of another specialist than the one that was asked, are left out.
    """
    found: dict[str, list[float]] = {}
    for specialist, cost, score, expected, detail in open_.stream(_RATED, metric, since, until):
        worth = json.loads(str(detail)).get("value", {}).get("right_answer")
        fee = dollars(int(cost)) / float(worth) if worth else 0.0
        found.setdefault(str(specialist), []).append(float(score) - fee - float(expected))
    return found


_RATED = """
    SELECT d.specialist,
           (SELECT coalesce(sum(a.cost), 0) FROM attempts a
            WHERE a.decision = d.id AND a.specialist = d.specialist AND a.kind <> 'loser'),
           (SELECT f.value FROM feedback f WHERE f.decision = d.id AND f.metric = m.metric
            ORDER BY f.at DESC, f.id DESC LIMIT 1),
           d.worth, d.detail
    FROM decisions d
    JOIN (SELECT DISTINCT decision, metric FROM feedback) m ON m.decision = d.id
    WHERE m.metric = ? AND d.at >= ? AND d.at < ? AND d.worth IS NOT NULL AND d.specialist = d.asked
    ORDER BY d.at, d.id
"""

_RATERS = """
    SELECT d.id, d.key FROM decisions d
    JOIN bodies b ON b.decision = d.id
    JOIN (SELECT DISTINCT decision, metric FROM feedback) m ON m.decision = d.id
    WHERE m.metric = ? AND d.at >= ? AND d.at < ? AND b.prompt IS NOT NULL
"""

_LOOKED = """
    SELECT b.prompt, d.detail FROM decisions d JOIN bodies b ON b.decision = d.id
    WHERE d.at >= ? AND d.at < ? AND d.inspected > 0 AND b.prompt IS NOT NULL
    ORDER BY d.at, d.id
"""

# the last feedback of a decision counts; of equal prompts the last decision does
_FEEDBACK = """
    SELECT b.prompt, d.specialist,
           (SELECT coalesce(sum(a.cost), 0) FROM attempts a
            WHERE a.decision = d.id AND a.specialist = d.specialist AND a.kind <> 'loser'),
           (SELECT f.value FROM feedback f WHERE f.decision = d.id AND f.metric = m.metric
            ORDER BY f.at DESC, f.id DESC LIMIT 1), d.id
    FROM decisions d
    JOIN bodies b ON b.decision = d.id
    JOIN (SELECT DISTINCT decision, metric FROM feedback) m ON m.decision = d.id
    WHERE m.metric = ? AND d.at >= ? AND d.at < ? AND b.prompt IS NOT NULL
    ORDER BY d.at, d.id
"""


def _decisions(open_: Transaction, since: float, until: float) -> Iterator[Row]:
    return open_.stream(
        f"SELECT {DECISION}, {ENDED} FROM decisions WHERE at >= ? AND at < ? ORDER BY at, id", since, until
    )


def _blocks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    block: list[Row] = []
    for row in rows:
        block.append(row)
        if len(block) == BLOCK:
            yield block
            block = []
    if block:
        yield block


def _plain(columns: Sequence[str], row: Row) -> dict[str, Any]:
    named = dict(zip(columns, row, strict=True))
    return named | {name: None if named[name] is None else dollars(named[name]) for name in MONEY}


def _kind(name: str, pa: Any) -> Any:
    if name in ("generation", "inspected", "randomised"):
        return pa.int64()
    numbers = ("at", "propensity", "worth", "overhead", "first_token", "seconds", "closed_at", *MONEY)
    return pa.float64() if name in numbers else pa.string()
