"""Figures against the inspection cost, with bands, as PNG and SVG: routing, and bidding at posted prices.

The only home of matplotlib (extra `plots`). Where the paper's numbers are given (`figures.json`), its curves
stand in a panel of their own beside ours: other data, other estimators, so shapes can be compared, not
levels. Bands belong to differences: 1.96 times the larger of the standard errors over prompts and splits.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from pandora_router.errors import UsageError
from pandora_router.evaluate.arms import DEFAULT
from pandora_router.evaluate.bidding import Bids
from pandora_router.evaluate.results import Results
from pandora_router.evaluate.tables import gaps

BAND = 1.96
TICKS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
SHOWN = {  # arm: colour, line, marker
    DEFAULT: ("#0072b2", "-", "o"),
    "committing (paper)": ("#d55e00", "-", "s"),
    "auto": ("#009e73", "-", "^"),
    "margin-N, mean": ("#cc79a7", "--", "v"),
    "mean-only": ("#555555", "--", ""),
    "inspect-all": ("#999999", ":", ""),
    "f-only": ("#c9a400", "-.", ""),
}
BANDED = (DEFAULT, "committing (paper)")
PAPER = {
    "pandora-router": ("the paper's router", SHOWN["committing (paper)"]),
    "margin-npr": ("margin-N, f", SHOWN["margin-N, mean"]),
    "f-only": ("f-only", SHOWN["f-only"]),
    "g-always": ("inspect-all", SHOWN["inspect-all"]),
}


def figure(results: Results, k: int, *, paper: Path | None = None, domain: str = "") -> Any:
    """Regret + cost, distance to the envelope and inspections; the paper's curves where given."""
    sheet = _sheet((10.0, 8.0))
    axes = sheet.subplots(2, 2).ravel()
    arms = [arm for arm in SHOWN if arm in results.arms]
    _totals(axes[0], results, k, arms)
    _above(axes[1], results, k, [arm for arm in BANDED if arm in arms])
    _queries(axes[2], results, k, arms)
    _theirs(axes[3], _paper(paper, domain), domain)
    lines, labels = axes[0].get_legend_handles_labels()
    sheet.legend(lines, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    splits = len(results.seeds)
    sheet.suptitle(f"{results.title}\nf of {k} neighbours, {splits} splits", fontsize=11)
    return sheet


def _sheet(size: tuple[float, float]) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            "plots", expected="matplotlib", came="none installed", do="pip install 'pandora-router[plots]'"
        ) from error
    return Figure(figsize=size, layout="constrained")


def save(sheet: Any, path: Path) -> tuple[Path, Path]:
    """Write a figure as PNG and SVG; returns both paths."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_suffix(".png"), path.with_suffix(".svg")
    sheet.savefig(made[0], dpi=110)
    made[1].write_text(svg(sheet), encoding="utf-8")
    return made


def svg(sheet: Any) -> str:
    """A figure as an SVG element for a page: no declaration, no date."""
    sink = io.StringIO()
    sheet.savefig(sink, format="svg", metadata={"Date": None})
    text = sink.getvalue()
    return text[text.index("<svg") :]


def _line(axis: Any, arm: str, x: Any, y: Any) -> None:
    colour, line, marker = SHOWN[arm]
    axis.plot(x, y, line, color=colour, marker=marker or None, ms=4, label=arm)


def _totals(axis: Any, results: Results, k: int, arms: list[str]) -> None:
    curves = {arm: np.array([results.mean("total", (k, c, arm)) for c in results.costs]) for arm in arms}
    for arm, curve in curves.items():
        _line(axis, arm, results.costs, curve)
    within = [curve for arm, curve in curves.items() if arm != "inspect-all"]
    low, high = min(c.min() for c in curves.values()), max(c.max() for c in within)
    axis.set_ylim(low - 0.08 * (high - low), high + 0.15 * (high - low))
    _axis(axis, results.costs, "Regret + inspection cost", "reward per prompt")


def _above(axis: Any, results: Results, k: int, arms: list[str]) -> None:
    axis.axhline(0.0, color="#555555", lw=1)
    for arm in arms:
        found = gaps(results, k, arm)
        mean = 1e3 * np.array([gap.mean for gap in found])
        half = 1e3 * BAND * np.array([np.fmax(gap.error, gap.split_error) for gap in found])
        _line(axis, arm, results.costs, mean)
        axis.fill_between(results.costs, mean - half, mean + half, color=SHOWN[arm][0], alpha=0.14, lw=0)
        stars = [i for i, gap in enumerate(found) if gap.star]
        axis.plot(
            [results.costs[i] for i in stars], mean[stars], "*", ms=13, color=SHOWN[arm][0], mec="white"
        )
    title = "Above the best static arm (95 % bands, stars)"
    _axis(axis, results.costs, title, "1e-3 of reward; below 0 is better")


def _queries(axis: Any, results: Results, k: int, arms: list[str]) -> None:
    for arm in arms:
        if not arm.startswith("margin"):  # the router's own number, by construction
            _line(axis, arm, results.costs, [results.mean("queries", (k, c, arm)) for c in results.costs])
    _axis(axis, results.costs, "Inspections", "per prompt")


def _theirs(axis: Any, curves: dict[str, list[list[float]]], domain: str) -> None:
    """The paper's panel, or an empty corner."""
    if not curves:
        axis.axis("off")
        return
    shown = {name: np.array(curves[name], dtype=float) for name in PAPER if name in curves}
    for name, points in shown.items():
        label, (colour, line, marker) = PAPER[name]
        axis.plot(points[:, 0], points[:, 1], line, color=colour, marker=marker or None, ms=4, label=label)
    low = min(points[:, 1].min() for points in shown.values())
    high = max(points[:, 1].max() for name, points in shown.items() if name != "g-always")
    axis.set_ylim(low - 0.08 * (high - low), high + 0.15 * (high - low))
    costs = tuple(next(iter(shown.values()))[:, 0].tolist())
    _axis(axis, costs, f"The paper's own figure, {domain} (other data)", "regret + inspection cost")
    axis.legend(fontsize=7)


def _axis(axis: Any, costs: tuple[float, ...], title: str, label: str) -> None:
    axis.set_xscale("log")
    ticks = [c for c in TICKS if min(costs) * 0.99 <= c <= max(costs) * 1.01]
    axis.set_xticks(ticks, [f"{c:g}" for c in ticks])
    axis.set_xticks([], minor=True)
    axis.set_title(title, fontsize=9)
    axis.set_xlabel("inspection cost c", fontsize=9)
    axis.set_ylabel(label, fontsize=9)
    axis.grid(alpha=0.25)
    axis.tick_params(labelsize=8)


def _paper(path: Path | None, domain: str) -> dict[str, list[list[float]]]:
    if path is None or not domain:
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    domains = found["figures"]["routing_regret_plus_cost"]["domains"]
    return dict(domains.get(domain, {}))


CONDUCT = {  # conduct: the paper's name for it, style
    "bidder": ("pandora-bidder", ("#0072b2", "-", "o")),
    "mean-only": ("f-only", ("#555555", "--", "")),
    "g-always": ("g-always", ("#999999", ":", "")),
    "f-only": ("", SHOWN["f-only"]),
}


def bidding(bids: Bids, *, paper: Path | None = None) -> Any:
    """Surplus and efficiency regret against c, strong and weak opponents; the paper's curves beside ours."""
    theirs = {who: _paper_bidding(paper, who, bids.domain) for who in ("strong", "weak")}
    sheet = _sheet((12.0, 6.5) if theirs["strong"] else (8.0, 6.5))
    axes = sheet.subplots(2, 4 if theirs["strong"] else 2, squeeze=False)
    for column, measure in enumerate(("surplus", "efficiency")):
        for row, who in enumerate(("strong", "weak")):
            title = f"{measure.capitalize()} regret, {who} opponents"
            _bid_curves(axes[row, column], _ours(bids, who, measure), title)
            if theirs["strong"]:
                curves = theirs[who][f"{measure}_regret"]
                own = {name: curves[their] for name, (their, _) in CONDUCT.items() if their in curves}
                _bid_curves(axes[row, column + 2], own, f"{title}\nthe paper's, {bids.domain} (other data)")
    lines, labels = axes[0, 0].get_legend_handles_labels()
    sheet.legend(lines, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    facts = f"f of {bids.neighbours} neighbours, {len(bids.splits)} splits, against hindsight on R"
    sheet.suptitle(f"{bids.title}\n{facts}; bands: 95 % of the difference to mean-only", fontsize=10)
    return sheet


def _ours(bids: Bids, who: str, measure: str) -> dict[str, list[list[float]]]:
    """[cost, regret, half width of the band] by conduct."""
    curves: dict[str, list[list[float]]] = {}
    for ((opponents, conduct, cost), kind), found in bids.regrets.items():
        if opponents == who and kind == (measure, "hindsight", False):
            gap = bids.gaps[(opponents, conduct, cost), kind[0]]
            curves.setdefault(conduct, []).append([cost, found.mean, BAND * gap.doubt])
    return curves


def _bid_curves(axis: Any, curves: dict[str, list[list[float]]], title: str) -> None:
    shown = {name: np.array(curves[name], dtype=float) for name in CONDUCT if name in curves}
    for name, points in shown.items():
        colour, line, marker = CONDUCT[name][1]
        axis.plot(points[:, 0], points[:, 1], line, color=colour, marker=marker or None, ms=4, label=name)
        if name == "bidder" and points.shape[1] > 2:
            low, high = points[:, 1] - points[:, 2], points[:, 1] + points[:, 2]
            axis.fill_between(points[:, 0], low, high, color=colour, alpha=0.14, lw=0)
    edges = [points[:, 1] for name, points in shown.items() if name != "g-always"]
    if shown["bidder"].shape[1] > 2:
        edges += [shown["bidder"][:, 1] + sign * shown["bidder"][:, 2] for sign in (-1.0, 1.0)]
    low, high = float(np.concatenate(edges).min()), float(np.concatenate(edges).max())
    span = max(high - low, 1e-3)
    axis.set_ylim(low - 0.08 * span, high + 0.08 * span)
    costs = next(iter(shown.values()))[:, 0]
    _axis(axis, tuple(costs.tolist()), title, "reward per prompt")
    ticks = 10.0 ** np.arange(np.ceil(np.log10(costs.min()) - 1e-9), np.log10(costs.max()) + 1e-9)
    axis.set_xticks(ticks, [f"{c:g}" for c in ticks])


def _paper_bidding(path: Path | None, who: str, domain: str) -> dict[str, dict[str, list[list[float]]]]:
    if path is None or not path.is_file():
        return {}
    figures = json.loads(path.read_text(encoding="utf-8"))["figures"]
    return dict(figures[f"bidding_{who}_opponents"]["domains"].get(domain, {}))
