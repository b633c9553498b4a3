"""Where the paper's findings hold on this data and where not, in plain words computed from results.

Each finding is a rule with a threshold that is written here and printed with its numbers. "Holds" and "the
reverse" need a star (both tests at 5 %) or two standard deviations over splits; anything else is "not seen".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pandora_router.evaluate import reliability
from pandora_router.evaluate.arms import DEFAULT, PAPER
from pandora_router.evaluate.reliability import Checks
from pandora_router.evaluate.results import Results
from pandora_router.report import paired
from pandora_router.report.paired import Way, gaps, has
from pandora_router.report.tables import difference, grid

Says = Literal["holds", "reverse", "not seen"]
CORRELATED = 0.3  # residuals that share more than this are called correlated


@dataclass(frozen=True)
class Found:
    """What one experiment says about one finding."""

    says: Says
    numbers: str


Rule = Callable[[Results, Checks | None], Found | None]


@dataclass(frozen=True)
class Finding:
    """A claim, where it comes from, and the rule that judges it on an experiment."""

    claim: str
    judge: Rule


def _pair(results: Results, worse: Way, better: Way) -> Found | None:
    """Holds where the first is worse than the second, averaged over costs, with a star."""
    if not has(results, *worse) or not has(results, *better):
        return None
    found = paired.averages(results, ((worse, better),))
    says: Says = "not seen" if not found.star[0] else "holds" if found.mean[0] > 0.0 else "reverse"
    return Found(says, difference(found, 0))


def _inspections(results: Results, way: Way) -> float:
    return float(np.mean([results.mean("inspections", (way[0], c, way[1])) for c in results.costs]))


def _over_inspection(results: Results, checked: Checks | None) -> Found | None:
    k = results.neighbours[0]
    pair = _pair(results, (k, PAPER), (k, DEFAULT))
    if pair is None or checked is None:
        return None
    shared, _ = checked.number(k, "residual_correlation")
    more = _inspections(results, (k, PAPER)), _inspections(results, (k, DEFAULT))
    numbers = f"r = {shared:.2f}; {more[0]:.2f} against {more[1]:.2f} inspections; {pair.numbers}"
    correlated = shared > CORRELATED and more[0] > more[1]
    return Found(pair.says if correlated or pair.says == "reverse" else "not seen", numbers)


def _weak_f(k: int) -> Rule:
    def judge(results: Results, checked: Checks | None) -> Found | None:
        if checked is None or k not in results.neighbours:
            return None
        found = checked.compare(k, ["error|f"], "error|mean")
        says: Says = "not seen" if not found.star[0] else "holds" if found.mean[0] > 0.0 else "reverse"
        return Found(says, difference(found, 0))

    return judge


def _over_dispersed(results: Results, checked: Checks | None) -> Found | None:
    if checked is None:
        return None
    mean, spread = checked.number(results.neighbours[0], "slope")
    if not np.isfinite(mean) or not np.isfinite(spread):
        return None
    says: Says = "holds" if mean + 2 * spread < 1.0 else "reverse" if mean - 2 * spread > 1.0 else "not seen"
    return Found(says, f"slope {mean:.2f} ({spread:.2f})")


def _tracks(results: Results, checked: Checks | None) -> Found | None:
    k = results.neighbours[0]
    if not has(results, k, PAPER):
        return None
    worst = max(gaps(results, k, PAPER), key=lambda gap: gap.errors_behind)
    says: Says = "holds" if not worst.behind else "reverse" if worst.star else "not seen"
    return Found(says, f"worst at c = {worst.cost:g}: {worst}")


def _simple(worse: str, better: str) -> Rule:
    return lambda results, _: _pair(results, (results.neighbours[0], worse), (results.neighbours[0], better))


FINDINGS = (
    Finding(
        "Inspecting pays: the router loses less than never inspecting, averaged over costs.",
        _simple("never inspect", DEFAULT),
    ),
    Finding(
        "The paper's router follows the lower envelope of the static ways at every cost (holds: nowhere more "
        "than one standard error above it; the reverse: somewhere above it with a star).",
        _tracks,
    ),
    Finding(
        f"Over-inspection under correlated residuals: where residuals of g correlate (r > {CORRELATED:g}) "
        "the paper's policy opens more boxes than the correlated knowledge gradient and loses more.",
        _over_inspection,
    ),
    Finding(
        "Weak f: with 3 neighbours f has a larger squared error than the mean of each specialist.", _weak_f(3)
    ),
    Finding("The same with 50 neighbours.", _weak_f(50)),
    Finding(
        "Over-dispersed g: rewards of specialists differ by less than g says (slope of reward differences on "
        "g differences below 1 by two standard deviations over splits).",
        _over_dispersed,
    ),
    Finding("Trusting g at its word (no slope) costs something.", _simple("signal: no slope", DEFAULT)),
    Finding(
        "As outside option the mean is worse than the paper's backup price.",
        _simple("committing, mean outside", PAPER),
    ),
    Finding("Having to open what is taken costs something.", _simple("obligatory", PAPER)),
    Finding(
        "With its kNN signal model the paper's policy loses more than with its Gaussian one.",
        _simple("committing on: neighbours, K=16 (paper)", PAPER),
    ),
    Finding(
        "Look-ahead of two steps is worth having: one step loses more.",
        _simple("one step", DEFAULT),
    ),
)


def markdown(found: Sequence[Results]) -> str:
    """Each finding with a sentence on where it holds and a folded table of the numbers."""
    known = [(one, reliability.of(one)) for one in found]
    parts = []
    for finding in FINDINGS:
        judged = {
            one.name: told for one, checked in known if (told := finding.judge(one, checked)) is not None
        }
        if judged:
            parts += [f"**{finding.claim}** {_sentence(judged)}", ""]
            rows = [[name, told.says, told.numbers] for name, told in judged.items()]
            parts += [
                "<details><summary>numbers</summary>",
                "",
                grid(["experiment", "", "1e-3, or as named"], rows),
            ]
            parts += ["", "</details>", ""]
    return "\n".join(parts)


def _sentence(judged: dict[str, Found]) -> str:
    named = {
        says: [name for name, told in judged.items() if told.says == says] for says in ("holds", "reverse")
    }
    count = len(judged)
    if not named["holds"] and not named["reverse"]:
        return f"Not seen on any of {count}."
    parts = []
    if named["holds"]:
        parts.append(f"Holds on {len(named['holds'])} of {count}: {', '.join(named['holds'])}.")
    else:
        parts.append(f"Holds on none of {count}.")
    if named["reverse"]:
        parts.append(f"The reverse on {len(named['reverse'])}: {', '.join(named['reverse'])}.")
    return " ".join(parts)
