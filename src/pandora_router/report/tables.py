"""Results as Markdown tables.

Regret + cost is in units of reward. Differences are in 1e-3 of reward, followed in brackets by two standard
errors: over prompts (clustered bootstrap) and over splits. A star marks a difference that is significant in
both tests.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pandora_router.evaluate.arms import DEFAULT, PAPER
from pandora_router.evaluate.experiments import UsdPrices, cheap_name
from pandora_router.evaluate.reliability import COVERED, PREDICTORS, Checks
from pandora_router.evaluate.results import Key, Results
from pandora_router.evaluate.statistics import Comparison, Estimate
from pandora_router.report import paired
from pandora_router.report.paired import Way, against, gaps, has, statics, verdict_on

OVERALL = (
    "total",
    "regret",
    "inspection_cost",
    "inspections",
    "inspected",
    "accuracy",
    "fee",
    "gain",
    "fee_saving",
)
GROUPS = {  # prefix of the names of variations: the arm they are compared with, and the title of the table
    "calibration": (DEFAULT, "calibration prompts"),
    "S": (PAPER, "simulated outcomes S (the paper: 100)"),
    "K": (PAPER, "neighbours K of the signal model; compared with the paper's Gaussian"),
}


def base_arms(results: Results, k: int) -> list[str]:
    """The names of the arms that were run and are not variations of another ("group: variation")."""
    return [arm for arm in results.arms if ": " not in arm and has(results, k, arm)]


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def difference(comparison: Comparison, at: int) -> str:
    """Format the difference number `at` of a comparison: in 1e-3, with both standard errors and star."""
    star = "*" if comparison.star[at] else ""
    errors = f"{1e3 * comparison.error[at]:.1f}; {1e3 * comparison.split_error[at]:.1f}"
    return f"{1e3 * comparison.mean[at]:+.1f} ({errors}){star}"


def level(estimate: Estimate) -> str:
    """Format a regret with the larger of its standard errors."""
    return f"{estimate.mean:.4f} ({estimate.doubt:.4f})"


def signed(estimate: Estimate) -> str:
    """Format a difference in 1e-3 with both standard errors and star."""
    errors = f"{1e3 * estimate.error:.1f}; {1e3 * estimate.split_error:.1f}"
    return f"{1e3 * estimate.mean:+.1f} ({errors}){'*' if estimate.star else ''}"


def totals(results: Results, k: int) -> str:
    """Regret + cost of every arm at every cost; a star marks a significant difference to the router."""
    arms = base_arms(results, k)
    pairs: list[tuple[Key, Key]] = [
        ((k, c, a), (k, c, DEFAULT)) for a in arms if a != DEFAULT for c in results.costs
    ]
    star = dict(zip([pair[0] for pair in pairs], results.compare(pairs).star, strict=True))
    best = {
        c: min((a for a in arms if a != "oracle"), key=lambda a: results.mean("total", (k, c, a)))
        for c in results.costs
    }
    rows = []
    for arm in arms:
        cells = []
        for cost in results.costs:
            text = f"{results.mean('total', (k, cost, arm)):.4f}"
            cells.append(
                (f"**{text}**" if best[cost] == arm else text) + ("*" if star.get((k, cost, arm)) else "")
            )
        rows.append([bold(arm), *cells])
    return grid(["arm", *(f"{c:g}" for c in results.costs)], rows)


def overall(results: Results, k: int) -> str:
    """Every metric of every arm, averaged over costs; the last two columns use the paper's accounting.

    The paper's cost is mean(inspections) x mean(c), and its regret is the total minus that. Compare totals
    (docs/method.md, section 5).
    """
    names = [name.replace("_", " ") for name in OVERALL]
    rows, middle = [], float(np.mean(results.costs))
    for arm in base_arms(results, k):
        keys = [(k, c, arm) for c in results.costs]
        mean = {m: float(np.mean([results.mean(m, key) for key in keys])) for m in OVERALL}
        paper = mean["inspections"] * middle
        error = (
            paired.averages(results, (((k, arm), (k, "oracle")),)).doubt[0]
            if has(results, k, "oracle") and arm != "oracle"
            else 0.0
        )
        cells = [f"{mean[m]:.4f}" for m in OVERALL]
        rows.append([bold(arm), *cells, f"{error:.4f}", f"{mean['total'] - paper:.4f}", f"{paper:.4f}"])
    return grid(["arm", *names, "s.e. of total", "regret, paper's way", "cost, paper's way"], rows)


def envelope(results: Results, k: int, arms: Sequence[str]) -> str:
    """How far each of `arms` is above the envelope (`verdicts`), in 1e-3, at every cost and on average."""
    rows = []
    for arm in arms:
        if has(results, k, arm):
            gaps_ = gaps(results, k, arm)
            average = 1e3 * np.mean([g.mean for g in gaps_])
            rows.append([bold(arm), *(str(g) for g in gaps_), f"{average:+.2f}"])
    rows.append(["best static arm", *(g.static for g in gaps(results, k)), ""])
    return grid(["1e-3 above the envelope", *(f"{c:g}" for c in results.costs), "mean"], rows)


def each_static(results: Results, k: int) -> str:
    """The difference between the router and each static arm, at every cost and averaged over costs."""
    by_cost, names = against(results, k), statics(results, k)
    mean = paired.averages(results, tuple(((k, DEFAULT), (k, s)) for s in names))
    rows = []
    for i, name in enumerate(names):
        rows.append([name, *(str(each[i]) for each in by_cost.values()), difference(mean, i)])
    return grid(["1e-3 above", *(f"{c:g}" for c in results.costs), "averaged"], rows)


def estimators(checks: Checks, ks: Sequence[int]) -> str:
    """Mean squared error of each predictor of rewards, and its paired difference to the mean's (1e-3)."""
    rows = []
    for k in ks:
        columns = [f"error|{name}" for name in PREDICTORS]
        level, gain = checks.compare(k, columns), checks.compare(k, columns, "error|mean")
        for i, name in enumerate(PREDICTORS):
            if k == ks[0] or name in ("f", "h(f)"):
                named = {"f": cheap_name(k), "h(f)": f"the mean given {cheap_name(k)}"}.get(name, name)
                rows.append([named, f"{level.mean[i]:.4f}", "" if name == "mean" else difference(gain, i)])
    return grid(["predictor", "MSE", "1e-3 above the mean's"], rows)


def signals(results: Results, k: int, checks: Checks | None) -> str:
    """Regret + cost, inspections and coverage of signal models, averaged over costs."""
    shown = [DEFAULT, *(a for a in results.arms if a.startswith("signal: "))]
    shown += [PAPER, *(a for a in results.arms if a.startswith("committing on: "))]
    cover = {DEFAULT: "calibrated", PAPER: "Gaussian (paper)", "signal: empirical draws": "empirical draws"}
    for name in (
        "signal: Gaussian joint (paper)",
        "signal: Gaussian independent",
        "committing on: Gaussian independent",
    ):
        cover[name] = "Gaussian (paper)"
    for name in ("signal: neighbours, K=16 (paper)", "committing on: neighbours, K=16 (paper)"):
        cover[name] = "neighbours, K=16 (paper)"
    inside = {}
    if checks is not None:
        for name in COVERED:
            inside[name] = checks.compare(k, [f"inside1|{name}", f"inside2|{name}"]).mean
    others = [a for a in shown if a not in (DEFAULT, PAPER)]
    base = [PAPER if a.startswith("committing") else DEFAULT for a in others]
    against_base = paired.averages(
        results, tuple(((k, a), (k, b)) for a, b in zip(others, base, strict=True))
    )
    rows = []
    for arm in shown:
        mean = [
            np.mean([results.mean(m, (k, c, arm)) for c in results.costs]) for m in ("total", "inspections")
        ]
        covered = [f"{x:.3f}" for x in inside[cover[arm]]] if arm in cover and inside else ["", ""]
        gap = difference(against_base, others.index(arm)) if arm in others else "0"
        rows.append([bold(arm), f"{mean[0]:.4f}", gap, f"{mean[1]:.2f}", *covered])
    head = ["policy or signal model", "regret + cost", "1e-3 above its policy's usual model", "inspections"]
    return grid([*head, "within 1 s.d.", "within 2 s.d."], rows)


def sweep(results: Results, k: int, group: str) -> str:
    """The variations of one group of `GROUPS`, averaged over costs, compared with the arm they vary."""
    base, words = GROUPS[group]
    arms = [arm for arm in results.arms if arm.startswith(f"{group}: ")]
    return _averaged(results, words, [(arm.split(": ", 1)[1], (k, arm), (k, base)) for arm in arms], base)


def neighbours(results: Results) -> str:
    """The router, never inspecting and the paper's policy for each number of neighbours k of f."""
    first, rows = results.neighbours[0], []
    for k in results.neighbours:
        cells = [cheap_name(k)]
        for arm in (DEFAULT, "never inspect", PAPER):
            if has(results, k, arm):
                against_first = paired.averages(results, (((k, arm), (first, arm)),))
                mean = np.mean([results.mean("total", (k, c, arm)) for c in results.costs])
                cells.append(f"{mean:.4f}" + ("" if k == first else f", {difference(against_first, 0)}"))
            else:
                cells.append("")
        rows.append(cells)
    return grid(["neighbours k behind f", DEFAULT, "never inspect", PAPER], rows)


def choices(results: Results, k: int) -> str:
    """Design choices (outside option, payoffs, obligation, depth), each compared with the present one.

    Returns "" if no such arm was run.
    """
    rows: list[tuple[str, Way, Way]] = []
    for name, arm, base in (
        ("outside option: mean in place of backup price", "committing, mean outside", PAPER),
        ("payoffs: exact on marginals in place of S=100", "committing, exact", PAPER),
        ("inspection: obligatory in place of not", "obligatory", PAPER),
        ("knowledge gradient: one step in place of two", "one step", DEFAULT),
        ("the paper's policy in place of the router", PAPER, DEFAULT),
    ):
        if has(results, k, arm) and has(results, k, base):
            rows.append((name, (k, arm), (k, base)))
    return _averaged(results, "what is changed", rows, "it") if rows else ""


def _averaged(results: Results, title: str, rows: Sequence[tuple[str, Way, Way]], base: str) -> str:
    against_usual = paired.averages(results, tuple((way, usual) for _, way, usual in rows))
    lines = []
    for i, (name, (k, arm), _) in enumerate(rows):
        mean = [
            np.mean([results.mean(m, (k, c, arm)) for c in results.costs]) for m in ("total", "inspections")
        ]
        lines.append([name, f"{mean[0]:.4f}", difference(against_usual, i), f"{mean[1]:.2f}"])
    return grid([title, "regret + cost", f"1e-3 above {base}", "inspections"], lines)


def money(results: Results, k: int, checks: Checks, prices: UsdPrices, arms: Sequence[str]) -> str:
    """USD per thousand prompts and regret, by arm and inspection cost."""
    rows = []
    for arm in arms:
        if has(results, k, arm):
            points = [usd(results, k, checks, prices, arm, c) for c in results.costs]
            rows.append([bold(arm), *(f"{x:.4g}, {y:.4f}" for x, y in points)])
    return grid(["USD per 1000 prompts, regret", *(f"{c:g}" for c in results.costs)], rows)


def usd(
    results: Results, k: int, checks: Checks, prices: UsdPrices, arm: str, cost: float
) -> tuple[float, float]:
    """USD per thousand prompts and regret of one run."""
    fact = next(iter(checks.facts.values()))
    inspections, specialists = results.mean("inspections", (k, cost, arm)), len(fact["specialists"])
    looks = arm not in ("always inspect, raw g", "best single", "cheapest", "random", "oracle")
    spent = prices.prompt(fact["characters"], specialists, inspections, cheap=looks)
    return 1e3 * spent, results.mean("regret", (k, cost, arm))


def verdict(results: Results, k: int) -> str:
    """One or two sentences that say at which costs the router is better or worse than static arms."""
    outcome = verdict_on(results, k)
    parts = []
    if outcome.better_than_all:
        parts.append(f"beats every static arm with a star at c = {listed(outcome.better_than_all)}")
    if outcome.behind:
        parts.append(
            f"**misses** the best of them by more than one standard error at c = {listed(outcome.behind)}"
        )
    if not parts:
        parts.append("is at every cost within one standard error of the best static arm, or below it")
    mean = outcome.average
    return (
        f"The default router {' and '.join(parts)}. Averaged over costs it is {mean} e-3 against the best "
        f"single static arm ({mean.static}), {len(results.seeds)} splits."
    )


def listed(costs: Sequence[float]) -> str:
    """Costs as a list separated by commas, "none" if empty."""
    return ", ".join(f"{c:g}" for c in costs) or "none"


def bold(arm: str) -> str:
    """The name of an arm in Markdown; bold for the router under test."""
    return f"**{arm}**" if arm == DEFAULT else arm
