"""More sheets of an experiment: the paper's remaining figures, and what variations change.

`more` has backup price against mean as outside option, and regret against USD; `sweeps` has one panel per
number that was varied and one for signal models; `bidding` has posted prices. Sheets are those of `plots`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pandora_router.evaluate import reliability
from pandora_router.evaluate.arms import DEFAULT, PAPER
from pandora_router.evaluate.bids import Bids
from pandora_router.evaluate.experiments import Experiment, UsdPrices, cheap_name
from pandora_router.evaluate.reliability import Checks
from pandora_router.evaluate.results import Results
from pandora_router.report import paired, plots
from pandora_router.report.plots import BAND, SHOWN
from pandora_router.report.tables import GROUPS, usd

HOLDOUT = (PAPER, "committing, mean outside", "never inspect", "always inspect, raw g", "f-only")
PAID = (DEFAULT, PAPER, "margin", "never inspect", "always inspect, raw g", "f-only")
UNITS = {"MATH": 1e-3, "RAG": 1.0, "EmbedLLM": 1.0}  # the paper's USD per million or per thousand prompts


def sheets(results: Results, setting: Experiment, paper: Path | None = None) -> dict[str, Any]:
    """Every sheet of an experiment by the ending of its file name; the main one has none."""
    k = results.neighbours[0]
    made = {"": plots.figure(results, k, paper=paper, domain=setting.domain)}
    told = reliability.of(results)
    if paired.has(results, k, "committing, mean outside"):
        made["-more"] = more(results, k, told, setting, paper)
    if any(": " in arm for arm in results.arms) or len(results.neighbours) > 2:
        made["-sweeps"] = sweeps(results, k, told)
    return made


def more(results: Results, k: int, told: Checks | None, setting: Experiment, paper: Path | None) -> Any:
    """Backup price against mean, and regret against USD, ours above the paper's."""
    prices = setting.usd if told is not None else None
    holdout = plots.theirs_of(paper, "holdout_backup_vs_mean", setting.domain)
    money = plots.theirs_of(paper, "monetary_cost_vs_regret", setting.domain) if prices else {}
    page = plots.sheet((9.0, 7.4 if holdout else 4.0) if prices else (5.0, 7.4 if holdout else 4.0))
    axes = page.subplots(2 if holdout else 1, 2 if prices else 1, squeeze=False)
    arms = [arm for arm in HOLDOUT if paired.has(results, k, arm)]
    plots.totals(axes[0, 0], results, k, arms, "Backup price or mean as outside option: regret + cost")
    axes[0, 0].legend(fontsize=7)
    if holdout:
        title = f"The paper's {setting.domain} (other data)"
        plots.draw_theirs(axes[1, 0], holdout, title, "regret + inspection cost")
    if told is not None and prices is not None:
        _money(axes[0, 1], results, k, told, prices)
        if holdout:
            _their_money(axes[1, 1], money, setting.domain)
    plots.titled(page, results.title)
    return page


def _money(axis: Any, results: Results, k: int, told: Checks, prices: UsdPrices) -> None:
    for arm in PAID:
        if not paired.has(results, k, arm):
            continue
        points = np.array([usd(results, k, told, prices, arm, c) for c in results.costs])
        keys = [(k, c, arm) for c in results.costs]
        each = np.array([[seed.rows[key]["regret"] for key in keys] for seed in results.seeds.values()])
        order = np.argsort(points[:, 0], kind="stable")
        half = BAND * each.std(axis=0, ddof=1) / np.sqrt(len(each)) if len(each) > 1 else None
        plots.line(axis, arm, points[order, 0], points[order, 1], None if half is None else half[order])
        if np.ptp(points[:, 0]) == 0.0:  # a single point in USD
            axis.plot(points[:1, 0], points[:1, 1], "X", color=SHOWN[arm][0], ms=8)
    _usd_axis(axis, "Regret against USD (bands over splits)", "USD per 1000 prompts")


def _their_money(axis: Any, curves: plots.Points, domain: str) -> None:
    for name, points in curves.items():
        label, arm = plots.THEIRS[name]
        known = np.array(points, dtype=float)
        plots.line(axis, arm, known[:, 0] * UNITS[domain], known[:, 1], label=label)
        if len(known) == 1:
            axis.plot(known[:, 0] * UNITS[domain], known[:, 1], "X", color=SHOWN[arm][0], ms=8)
    _usd_axis(axis, f"The paper's {domain} (other data)", "USD per 1000 prompts")


def _usd_axis(axis: Any, title: str, label: str) -> None:
    axis.set_title(title, fontsize=9)
    axis.set_xlabel(label, fontsize=9)
    axis.set_ylabel("regret", fontsize=9)
    axis.grid(alpha=0.25)
    axis.tick_params(labelsize=8)
    axis.legend(fontsize=7)


def sweeps(results: Results, k: int, told: Checks | None) -> Any:
    """Averaged over costs: each varied number against what it varies, and each signal model."""
    groups = [g for g in GROUPS if any(arm.startswith(f"{g}: ") for arm in results.arms)]
    several = len(results.neighbours) > 2
    signals = [arm for arm in results.arms if arm.startswith("signal: ")]
    panels = len(groups) + several + bool(signals)
    page = plots.sheet((4.2 * min(panels, 3), 3.7 * -(-panels // 3)))
    axes = page.subplots(-(-panels // 3), min(panels, 3), squeeze=False).ravel()
    for axis in axes[panels:]:
        axis.axis("off")
    for axis, group in zip(axes, groups, strict=False):
        base, words = GROUPS[group]
        arms = [arm for arm in results.arms if arm.startswith(f"{group}: ")]
        found = paired.averages(results, tuple(((k, arm), (k, base)) for arm in arms))
        x = [int(arm.split(": ")[1]) for arm in arms]
        _varied(axis, x, found.mean, found.doubt, words.split(";")[0], base)
    if several:
        others = results.neighbours[1:]
        found = paired.averages(results, tuple(((n, DEFAULT), (k, DEFAULT)) for n in others))
        title = "neighbours k behind f"
        order = np.argsort(others)
        _varied(
            axes[len(groups)], np.array(others)[order], found.mean[order], found.doubt[order], title, f"k={k}"
        )
    if signals:
        found = paired.averages(results, tuple(((k, arm), (k, DEFAULT)) for arm in signals))
        axis, names = axes[panels - 1], [arm.split(": ")[1] for arm in signals]
        axis.barh(names, 1e3 * found.mean, xerr=1e3 * BAND * found.doubt, color="#9ecae1", ecolor="#333333")
        axis.axvline(0.0, color="#555555", lw=1)
        axis.invert_yaxis()
        axis.set_title("signal model", fontsize=9)
        axis.set_xlabel("1e-3 above the calibrated one", fontsize=9)
        axis.tick_params(labelsize=7)
    what = "regret + cost averaged over costs; 95 % bars of paired differences"
    plots.titled(page, f"{results.title}\n{what}")
    return page


def _varied(axis: Any, x: Any, mean: Any, doubt: Any, title: str, base: str) -> None:
    axis.errorbar(x, 1e3 * mean, yerr=1e3 * BAND * doubt, fmt="o-", color=SHOWN[DEFAULT][0], ms=4, capsize=3)
    axis.axhline(0.0, color="#555555", lw=1)
    axis.set_xscale("log")
    axis.set_xticks(list(x), [str(n) for n in x])
    axis.set_xticks([], minor=True)
    axis.set_title(title, fontsize=9)
    axis.set_ylabel(f"1e-3 above {base}", fontsize=9)
    axis.grid(alpha=0.25)
    axis.tick_params(labelsize=8)


CONDUCT = {  # conduct: the paper's name for it, style
    "bidder": ("pandora-bidder", ("#0072b2", "-", "o")),
    "never inspect": ("f-only", ("#555555", "--", "")),
    "always inspect": ("g-always", ("#999999", ":", "")),
    "f-only": ("", SHOWN["f-only"]),
}


def bidding(bids: Bids, *, paper: Path | None = None) -> Any:
    """Surplus and efficiency regret against c, with strong and weak opponents, and the paper's curves."""
    theirs = {who: _paper_bidding(paper, who, bids.domain) for who in ("strong", "weak")}
    page = plots.sheet((12.0, 6.5) if theirs["strong"] else (8.0, 6.5))
    axes = page.subplots(2, 4 if theirs["strong"] else 2, squeeze=False)
    for column, measure in enumerate(("surplus", "efficiency")):
        for row, who in enumerate(("strong", "weak")):
            title = f"{measure.capitalize()} regret, {who} opponents"
            _bid_curves(axes[row, column], _ours(bids, who, measure), title)
            if theirs["strong"]:
                curves = theirs[who][f"{measure}_regret"]
                own = {name: curves[their] for name, (their, _) in CONDUCT.items() if their in curves}
                _bid_curves(axes[row, column + 2], own, f"{title}\nthe paper's, {bids.domain} (other data)")
    lines, labels = axes[0, 0].get_legend_handles_labels()
    page.legend(lines, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    facts = f"{cheap_name(bids.neighbours)}, {len(bids.splits)} splits, against hindsight on R"
    plots.titled(page, f"{bids.title}\n{facts}; bands: 95 % of the difference to never inspecting")
    return page


def _ours(bids: Bids, who: str, measure: str) -> dict[str, list[list[float]]]:
    """[cost, regret, half width of the band] by conduct."""
    curves: dict[str, list[list[float]]] = {}
    for ((opponents, conduct, cost), kind), regret in bids.regrets.items():
        if opponents == who and kind == (measure, "hindsight", False):
            gap = bids.gaps[(opponents, conduct, cost), kind[0]]
            curves.setdefault(conduct, []).append([cost, regret.mean, BAND * gap.doubt])
    return curves


def _bid_curves(axis: Any, curves: dict[str, list[list[float]]], title: str) -> None:
    shown = {name: np.array(curves[name], dtype=float) for name in CONDUCT if name in curves}
    for name, points in shown.items():
        colour, line, marker = CONDUCT[name][1]
        axis.plot(points[:, 0], points[:, 1], line, color=colour, marker=marker or None, ms=4, label=name)
        if name == "bidder" and points.shape[1] > 2:
            low, high = points[:, 1] - points[:, 2], points[:, 1] + points[:, 2]
            axis.fill_between(points[:, 0], low, high, color=colour, alpha=0.14, lw=0)
    edges = [points[:, 1] for name, points in shown.items() if name != "always inspect"]
    if shown["bidder"].shape[1] > 2:
        edges += [shown["bidder"][:, 1] + sign * shown["bidder"][:, 2] for sign in (-1.0, 1.0)]
    low, high = float(np.concatenate(edges).min()), float(np.concatenate(edges).max())
    span = max(high - low, 1e-3)
    axis.set_ylim(low - 0.08 * span, high + 0.08 * span)
    costs = next(iter(shown.values()))[:, 0]
    plots.label_costs(axis, tuple(costs.tolist()), title, "reward per prompt")
    ticks = 10.0 ** np.arange(np.ceil(np.log10(costs.min()) - 1e-9), np.log10(costs.max()) + 1e-9)
    axis.set_xticks(ticks, [f"{c:g}" for c in ticks])


def _paper_bidding(path: Path | None, who: str, domain: str) -> dict[str, dict[str, list[list[float]]]]:
    if path is None or not path.is_file():
        return {}
    figures = json.loads(path.read_text(encoding="utf-8"))["figures"]
    return dict(figures[f"bidding_{who}_opponents"]["domains"].get(domain, {}))
