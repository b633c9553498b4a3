"""Learning page: score by week, the trial of a candidate, specialists that changed, versions, alerts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from pandora_router.dashboard.layout import (
    Entry,
    Page,
    PageTable,
    chart,
    charts,
    count,
    cut,
    note,
    number,
    tile,
    tiles,
    when,
)
from pandora_router.dashboard.markup import Html, tag
from pandora_router.dashboard.page_request import ROOT, PageRequest
from pandora_router.learn.drift import ALARM, FIRST, DriftState
from pandora_router.learn.evidence import CERTAIN, LEAST, Evidence
from pandora_router.store import alerts, explored, queries, versions
from pandora_router.store.database import Transaction
from pandora_router.store.money import in_dollars, period_bounds
from pandora_router.store.queries import Window
from pandora_router.store.rows import Version
from pandora_router.store.versions import PastTrial

WEEK = 7 * 86_400
WEEKS = 13
PATH = "learning/back"
"""Path of the form that goes back to the router of before."""


def learning(open_: Transaction, request: PageRequest, wrong: str = "") -> Page:
    """The page; `wrong` says why a change was not made, "" if none was asked for."""
    past, known = versions.past(open_), versions.versions(open_)
    trial = past[0] if past else None
    return Page(
        "Learning",
        [
            tag("p", wrong, class_="bad", role="alert") if wrong else note(_summary(trial, known)),
            *([] if trial is None else [_head(trial)]),
            charts(_scores(open_, request), *[_curve(open_, one) for one in past if one[3]["rated"]][:1]),
            *_lessons(open_, request),
            _drifts(open_),
            _versions(known),
            *([] if not known or known[0].parent is None else [_back(known[0])]),
            _trials(past),
            _alerts(open_),
            note(
                "Evidence may be read at any time: if the candidate is not better, the chance that the "
                f"evidence for it ever reaches {CERTAIN:g} is at most {1 / CERTAIN:.0%}. The curve ends at "
                "the upper line (better), at the lower line (worse), or by the rule veto after "
                f"{LEAST:,} rated disagreements. Scores are {request.scored('those of feedback')}."
            ),
        ],
        ranged=False,
    )


def _summary(trial: PastTrial | None, known: Sequence[Version]) -> str:
    serving = f"Serving {known[0].path}: {known[0].why}." if known else "The router of the file is served."
    if trial is None:
        return f"{serving} No candidate was tried yet: pandora learn trial FOLDER"
    one, ended, verdict, _ = trial
    if ended is not None:
        return f"{serving} The last trial, of {one.path}, has ended: {verdict}."
    if one.watch:
        return f"{serving} The router of before, {one.path}, keeps {one.share:.0%} of disputed requests."
    return f"{serving} The candidate {one.path} decides {one.share:.0%} of disputed requests."


def _head(trial: PastTrial) -> Html:
    evidence = Evidence.from_dict(trial[3])
    error = f"standard error {evidence.standard_error:.3f}" if evidence.rated > 1 else "too few to say"
    return tiles(
        tile("Trial", "running" if trial[1] is None else "ended", f"rule {trial[0].rule}"),
        tile("Rated disagreements", f"{evidence.rated:,}", "one for each session"),
        tile("Difference", f"{evidence.mean:+.3f}", f"of a right answer each; {error}"),
        tile("Evidence that it is better", f"{evidence.promote:,.3g}", f"{CERTAIN:g} proves it"),
        tile("Evidence that it is worse", f"{evidence.drop:,.3g}", f"{CERTAIN:g} proves it"),
    )


def _lessons(open_: Transaction, request: PageRequest) -> list[Html]:
    """What requests of this month cost that were asked for what they teach; nothing if none was."""
    since = period_bounds("month", request.now)[0]
    asked = explored.explored(open_, request.metric, since)
    if not asked.requests:
        return []
    cost = tile("Their answers cost", in_dollars(asked.cost), "part of every total")
    return [tiles(tile("Asked for what they teach", f"{asked.requests:,}", f"{asked.rated:,} rated"), cost)]


def _scores(open_: Transaction, request: PageRequest) -> Html:
    """Mean score of each week with its 95% interval."""
    window = Window(request.now - WEEKS * WEEK, request.now)
    rows = queries.judged_over_time(open_, window, request.metric, WEEKS + 1)
    at = [row["at"] for row in rows]
    means = [row["total"] / row["judgements"] for row in rows]
    wide = [
        1.96
        * math.sqrt(max(row["squares"] / row["judgements"] - mean**2, 0.0) / max(row["judgements"] - 1, 1))
        for row, mean in zip(rows, means, strict=True)
    ]
    low = [mean - half for mean, half in zip(means, wide, strict=True)]
    high = [mean + half for mean, half in zip(means, wide, strict=True)]
    return chart("Score by week", at, {"score": means, "low": low, "high": high}, ends=window, means=True)


def _curve(open_: Transaction, trial: PastTrial) -> Html:
    """Evidence for the candidate above zero, against it below; with the lines at which a trial ends."""
    points = versions.points(open_, trial[0].id)
    line = math.log10(CERTAIN)
    lines: Mapping[str, Sequence[float]] = {
        "evidence": [math.log10(max(point[4], 1.0)) - math.log10(max(point[5], 1.0)) for point in points],
        "proven better": [line] * len(points),
        "proven worse": [-line] * len(points),
    }
    return chart(
        f"Evidence for {Path(trial[0].path).name}", [point[0] for point in points], lines, "powers of ten"
    )


def _drifts(open_: Transaction) -> PageTable:
    rows = []
    for (artifact, name), stored in alerts.drifts(open_).items():
        state = DriftState.from_dict(stored)
        said = "as expected" if state.answers > FIRST else f"{FIRST} ratings are needed"
        said = "changed" if state.alarms else said
        rows.append(
            [
                Entry(name, cut(name)),
                Entry(artifact, cut(artifact)),
                Entry(said, tag("span", said, class_="bad" if state.alarms else None)),
                count(state.answers),
                number(state.change),
                number(state.shift),
                number(state.evidence, 0),
            ]
        )
    columns = ("specialist", "router", "state", "rated answers", "change of reward", "trust moved by",
               "evidence")  # fmt: skip
    title = f"Specialists that changed (alarm at {ALARM:,.0f})"
    return PageTable("drift", title, columns, rows, words=3, empty="No answer of a router was rated yet.")


def _versions(known: Sequence[Version]) -> PageTable:
    rows = [
        [
            count(one.number),
            Entry(one.path, cut(one.path, 60)),
            Entry(one.artifact),
            Entry(one.parent, "–" if one.parent is None else str(one.parent)),
            when(one.at),
            Entry(one.why, cut(one.why, 120)),
        ]
        for one in known
    ]
    columns = ("number", "router", "id", "parent", "served since", "why")
    empty = "No router was promoted yet."
    return PageTable("versions", "Versions", columns, rows, words=6, empty=empty)


def _back(present: Version) -> Html:
    """The form that goes back to the parent of the present version, which has to be confirmed."""
    sure = tag("input", type="checkbox", name="confirm", value=str(present.number), required=True)
    sentence = f" Serve version {present.parent} again instead of version {present.number}."
    form = tag(
        "form",
        tag("label", sure, sentence),
        tag("p", tag("button", "Go back")),
        method="post",
        action=f"{ROOT}/{PATH}",
    )
    return tag("details", tag("summary", "Go back to the router of before"), form, class_="confirm")


def _trials(past: Sequence[PastTrial]) -> PageTable:
    rows = []
    for trial, ended, verdict, state in past:
        evidence = Evidence.from_dict(state)
        rows.append(
            [
                Entry(trial.path, cut(trial.path, 60)),
                Entry("watch" if trial.watch else trial.rule),
                when(trial.started),
                Entry(None, "running") if ended is None else when(ended),
                Entry(verdict, cut(verdict or "–", 120)),
                count(evidence.rated),
                number(evidence.mean),
                number(evidence.promote, 2),
                number(evidence.drop, 2),
            ]
        )
    columns = ("candidate", "rule", "since", "until", "verdict", "rated", "difference", "better", "worse")
    return PageTable("trials", "Trials", columns, rows, words=5, empty="No candidate was tried yet.")


def _alerts(open_: Transaction) -> PageTable:
    rows = [
        [
            when(alert.at),
            Entry(alert.kind),
            Entry(alert.subject, cut(alert.subject)),
            Entry(alert.message, cut(alert.message, 160)),
            Entry(None, "–") if sent is None else when(sent),
        ]
        for alert, sent in alerts.newest(open_)
    ]
    columns = ("time", "kind", "subject", "alert", "sent")
    return PageTable("alerts", "Alerts", columns, rows, words=5, empty="No alert was raised yet.")
