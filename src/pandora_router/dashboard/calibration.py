"""Calibration page: predicted scores and scores of feedback, coverage of looks, drift of prompts and scores.

A score is compared with a score: what a decision is worth has a weighted fee taken off, which is put back.
Everything is computed from the newest stored decisions, at most `NEWEST` of each kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from scipy.special import kolmogorov

from pandora_router.dashboard.layout import Entry, Page, PageTable, count, note, number, share, tile, tiles
from pandora_router.dashboard.markup import Html, tag
from pandora_router.dashboard.net_value import score_of
from pandora_router.dashboard.page_request import PageRequest
from pandora_router.store import queries
from pandora_router.store.database import Transaction

NEWEST = 600
BINS = 10
LEVELS = {0.5: 0.674490, 0.8: 1.281552, 0.95: 1.959964}
"""Fraction of a normal distribution within this many standard deviations of its mean."""
UNLIKELY = 0.01
"""Significance level below which a drift is reported."""


def calibration(open_: Transaction, request: PageRequest) -> Page:
    """The page."""
    judged = [
        (score_of(orjson.loads(detail), specialist), value)
        for detail, specialist, value in queries.judged_details(open_, request.metric, NEWEST)
    ]
    pairs = [(score, value) for score, value in judged if score is not None]
    looked = map(orjson.loads, queries.details(open_, NEWEST, inspected=True))
    newest = map(orjson.loads, queries.details(open_, NEWEST))
    bins = reliability(pairs)
    scores = [z for detail in looked for z in surprises(detail)]
    prompts = [best for detail in newest if (best := best_cheap(detail)) is not None]
    rewards = [value for _, value in reversed(judged)]
    return Page(
        "Calibration",
        [
            _tiles(bins, scores),
            tag("h2", "Predicted score and feedback"),
            _curve(bins),
            _bins(bins),
            _coverage(scores),
            _drift(prompts, rewards),
            note(
                f"From the newest {NEWEST:,} decisions of each kind. A point on the diagonal: scores are "
                "what was predicted. Whiskers: 95% of the mean of feedback. Drift: the newer half against "
                "the older."
            ),
        ],
        ranged=False,
    )


def surprises(detail: Mapping[str, Any]) -> list[float]:
    """Difference of each look from the belief before the first one, in standard deviations."""
    made = detail.get("decision") or {}
    scores = []
    for purchase in made.get("purchases") or ():
        for name, value in zip(purchase["specialists"], purchase["values"], strict=True):
            known = made["specialists"][name]
            if value is not None and known["mean"] is not None and known["std"]:
                scores.append((value - known["mean"]) / known["std"])
    return scores


def best_cheap(detail: Mapping[str, Any]) -> float | None:
    """The highest cheap estimate of the prompt."""
    known = (detail.get("decision") or {}).get("specialists") or {}
    values = [belief["cheap"] for belief in known.values() if belief["cheap"] is not None]
    return max(values) if values else None


def reliability(pairs: Sequence[tuple[float, float]]) -> list[dict[str, float]]:
    """Bins of equal count over what was expected: size, mean expected, mean real, half width of 95%."""
    if not pairs:
        return []
    ordered = np.array(sorted(pairs))
    bins = []
    for part in np.array_split(ordered, min(BINS, max(1, len(ordered) // 10))):
        predicted, real = part[:, 0], part[:, 1]
        # if all rewards are equal: 3 / n, the 95% bound for a rare event
        half = (
            max(1.96 * real.std(ddof=1) / math.sqrt(len(real)), 3 / len(real)) if len(real) > 1 else math.inf
        )
        bins.append({"n": len(part), "expected": predicted.mean(), "real": real.mean(), "half": float(half)})
    return bins


def changed(values: Sequence[float]) -> float | None:
    """Probability of such a difference between the newer and the older half by chance (p-value).

    The two-sample Kolmogorov-Smirnov test with its asymptotic distribution; None with fewer than 40 values.
    """
    if len(values) < 40:
        return None
    older, newer = np.sort(values[: len(values) // 2]), np.sort(values[len(values) // 2 :])
    both = np.concatenate([older, newer])
    below = [np.searchsorted(half, both, side="right") / len(half) for half in (older, newer)]
    scale = math.sqrt(len(older) * len(newer) / len(values))
    return float(kolmogorov(scale * np.abs(below[0] - below[1]).max()))


def _tiles(bins: Sequence[Mapping[str, float]], scores: Sequence[float]) -> Html:
    n = sum(bin_["n"] for bin_ in bins)
    gap = sum(bin_["n"] * abs(bin_["expected"] - bin_["real"]) for bin_ in bins) / n if n else None
    bias = sum(bin_["n"] * (bin_["real"] - bin_["expected"]) for bin_ in bins) / n if n else None
    inside = sum(abs(z) <= LEVELS[0.8] for z in scores)
    return tiles(
        tile("Judged decisions", f"{int(n):,}", "with a predicted score"),
        tile("Calibration error", number(gap).shown, "mean distance from the diagonal"),
        tile("Bias", number(bias).shown, "feedback minus prediction"),
        tile("Inside the 80% interval", share(inside, len(scores)).shown, f"of {len(scores):,} looks"),
    )


def _curve(bins: Sequence[Mapping[str, float]]) -> Html:
    """Mean of feedback against predicted score, a point per bin."""
    if not bins:
        return note("No feedback yet: POST /v1/feedback.")
    reach = [bin_[kind] for bin_ in bins for kind in ("expected", "real")]
    low, high = min(0.0, *reach), max(1.0, *reach)

    def x(value: float) -> str:
        return f"{50 + 430 * (value - low) / (high - low):.1f}"

    def y(value: float) -> str:
        held = min(max(value, low), high)
        return f"{330 - 300 * (held - low) / (high - low):.1f}"

    parts = [tag("path", d=f"M{x(low)} {y(low)}L{x(high)} {y(high)}", class_="ideal")]
    for level in (low, (low + high) / 2, high):
        parts.append(tag("path", d=f"M{x(low)} {y(level)}H{x(high)}", class_="axis"))
        parts.append(tag("text", f"{level:.1f}", x=42, y=y(level), text_anchor="end"))
        parts.append(tag("text", f"{level:.1f}", x=x(level), y=350, text_anchor="middle"))
    for bin_ in bins:
        ends = (bin_["real"] - bin_["half"], bin_["real"] + bin_["half"])
        parts.append(tag("path", d=f"M{x(bin_['expected'])} {y(ends[0])}V{y(ends[1])}", class_="error"))
        parts.append(tag("circle", cx=x(bin_["expected"]), cy=y(bin_["real"]), r=5, class_="dot"))
    parts.append(tag("text", "predicted score", x=265, y=372, text_anchor="middle"))
    parts.append(tag("text", "mean of feedback", x=50, y=18))
    return tag("figure", tag("svg", parts, viewBox="0 0 500 380", class_="curve", role="img",
                             aria_label="Mean of feedback against predicted score"))  # fmt: skip


def _bins(bins: Sequence[Mapping[str, float]]) -> PageTable:
    rows = [
        [
            Entry(f"{place} of {len(bins)}"),
            count(bin_["n"]),
            number(bin_["expected"]),
            number(bin_["real"]),
            number(bin_["half"] if math.isfinite(bin_["half"]) else None),
            Entry("yes" if abs(bin_["real"] - bin_["expected"]) <= bin_["half"] else "no"),
        ]
        for place, bin_ in enumerate(bins, 1)
    ]
    columns = ("bin", "judged", "predicted", "feedback", "± 95%", "agrees")
    return PageTable("reliability", "By predicted score", columns, rows, empty="No feedback yet.")


def _coverage(scores: Sequence[float]) -> PageTable:
    rows = [
        [
            Entry(f"{level:.0%}"),
            count(len(scores)),
            share(sum(abs(z) <= width for z in scores), len(scores)),
        ]
        for level, width in LEVELS.items()
        if scores
    ]
    columns = ("interval stated before the look", "looks", "values inside")
    return PageTable("coverage", "Coverage of looks", columns, rows, empty="No looks yet.")


def _drift(prompts: Sequence[float], rewards: Sequence[float]) -> PageTable:
    rows = []
    for title, values in (("prompts: highest cheap estimate", prompts), ("scores: feedback", rewards)):
        chance = changed(values)
        middle = len(values) // 2
        older, newer = values[:middle], values[middle:]
        verdict = "too few" if chance is None else "drifts" if chance < UNLIKELY else "no sign of drift"
        rows.append(
            [
                Entry(title),
                Entry(verdict, tag("span", verdict, class_="bad" if verdict == "drifts" else None)),
                count(len(values)),
                number(float(np.mean(older)) if older else None),
                number(float(np.mean(newer)) if newer else None),
                number(chance, 4),
            ]
        )
    columns = ("what", "verdict", "values", "older half", "newer half", "p-value")
    return PageTable("drift", "Drift", columns, rows, words=2)
