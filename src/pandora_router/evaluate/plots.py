"""Figures: regret + cost and inspections against the inspection cost, with bands, as PNG and SVG.

The only home of matplotlib (extra `plots`). Where the paper's numbers are given (`figures.json`), its curves
stand in a panel of their own beside ours: other data, other estimators, so shapes can be compared, not
levels. Bands are 95 % of the difference to mean-only by the clustered bootstrap, drawn around the curve.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from pandora_router.errors import UsageError
from pandora_router.evaluate.arms import DEFAULT
from pandora_router.evaluate.results import Results

BAND = 1.96
SHOWN = {  # arm: colour, line, marker
    DEFAULT: ("#0072b2", "-", "o"),
    "committing (paper)": ("#d55e00", "-", "s"),
    "auto": ("#009e73", "-", "^"),
    "margin-N, mean": ("#cc79a7", "--", "v"),
    "mean-only": ("#555555", "--", ""),
    "inspect-all": ("#999999", ":", ""),
    "f-only": ("#c9a400", "-.", ""),
}
PAPER = {
    "pandora-router": ("the paper's router", SHOWN["committing (paper)"]),
    "margin-npr": ("margin-N, f", SHOWN["margin-N, mean"]),
    "f-only": ("f-only", SHOWN["f-only"]),
    "g-always": ("inspect-all", SHOWN["inspect-all"]),
}


def figure(results: Results, k: int, *, paper: Path | None = None, domain: str = "") -> Any:
    """Regret + cost and inspections per prompt against cost; the paper's curves beside where given."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            "plots", expected="matplotlib", came="none installed", do="pip install 'pandora-router[plots]'"
        ) from error
    theirs = _paper(paper, domain)
    panels = 3 if theirs else 2
    sheet = Figure(figsize=(4.6 * panels, 4.1), layout="constrained")
    axes = sheet.subplots(1, panels)
    arms = [arm for arm in SHOWN if arm in results.arms]
    _totals(axes[0], results, k, arms)
    _queries(axes[1], results, k, arms)
    if theirs:
        for name, (label, (colour, line, marker)) in PAPER.items():
            if name in theirs:
                x, y = np.array(theirs[name], dtype=float).T
                axes[2].plot(x, y, line, color=colour, marker=marker or None, ms=4, label=label)
        _axis(axes[2], f"The paper, {domain} (other data)", "regret + inspection cost")
        axes[2].set_ylim(top=1.25 * max(max(y for _, y in theirs[n]) for n in theirs if n != "g-always"))
        axes[2].legend(fontsize=7, loc="upper left")
    splits = len(results.seeds)
    sheet.suptitle(f"{results.title}\nf of {k} neighbours, {splits} splits, 95 % bands", fontsize=10)
    return sheet


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


def _totals(axis: Any, results: Results, k: int, arms: list[str]) -> None:
    costs = np.array(results.costs)
    other = "mean-only" if "mean-only" in results.arms else DEFAULT
    highest = 0.0
    for arm in arms:
        colour, line, marker = SHOWN[arm]
        mean = np.array([results.mean("total", (k, c, arm)) for c in results.costs])
        axis.plot(costs, mean, line, color=colour, marker=marker or None, ms=4, label=arm)
        if arm != "inspect-all":
            highest = max(highest, float(mean.max()))
        if arm != other:
            found = results.compare([((k, c, arm), (k, c, other)) for c in results.costs])
            axis.fill_between(
                costs, mean - BAND * found.doubt, mean + BAND * found.doubt, color=colour, alpha=0.12, lw=0
            )
    low = min(results.mean("total", (k, c, arm)) for arm in arms for c in results.costs)
    axis.set_ylim(low - 0.35 * (highest - low), highest + 0.45 * (highest - low))
    _axis(axis, "Regret + inspection cost", "reward per prompt")
    axis.legend(fontsize=7, loc="upper left")


def _queries(axis: Any, results: Results, k: int, arms: list[str]) -> None:
    for arm in arms:
        if arm.startswith("margin"):
            continue  # the router's own, by construction
        colour, line, marker = SHOWN[arm]
        mean = [results.mean("queries", (k, c, arm)) for c in results.costs]
        axis.plot(results.costs, mean, line, color=colour, marker=marker or None, ms=4, label=arm)
    _axis(axis, "Inspections", "per prompt")


def _axis(axis: Any, title: str, label: str) -> None:
    axis.set_xscale("log")
    axis.set_title(title, fontsize=9)
    axis.set_xlabel("inspection cost c")
    axis.set_ylabel(label)
    axis.grid(alpha=0.25)
    axis.tick_params(labelsize=8)


def _paper(path: Path | None, domain: str) -> dict[str, list[list[float]]]:
    if path is None or not domain:
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    domains = found["figures"]["routing_regret_plus_cost"]["domains"]
    return dict(domains.get(domain, {}))
