"""Figures against the inspection cost, with bands, as PNG and SVG.

The only module that imports matplotlib (extra `plots`). If the paper's numbers are given (`figures.json`),
its curves are drawn in separate panels beside ours: data and estimators differ, so shapes can be compared,
not levels. Bands are 1.96 times the larger of the standard errors over prompts and over splits; inspections
and reliability have bands over splits only.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from pandora_router.errors import missing_package
from pandora_router.evaluate import reliability
from pandora_router.evaluate.arms import DEFAULT, PAPER
from pandora_router.evaluate.experiments import cheap_name
from pandora_router.evaluate.results import Results
from pandora_router.report import paired
from pandora_router.report.paired import gaps

BAND = 1.96
MANY = 8  # inspections per prompt above which the scale is logarithmic, so that small numbers are visible
TICKS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
SHOWN = {  # arm: colour, line, marker
    DEFAULT: ("#0072b2", "-", "o"),
    PAPER: ("#d55e00", "-", "s"),
    "auto": ("#009e73", "-", "^"),
    "margin": ("#cc79a7", "--", "v"),
    "never inspect": ("#555555", "--", ""),
    "always inspect, raw g": ("#999999", ":", ""),
    "f-only": ("#c9a400", "-.", ""),
    "obligatory": ("#8c6bb1", "-", "D"),
    "committing, mean outside": ("#56b4e9", "-", "P"),
}
MAIN = (DEFAULT, PAPER, "auto", "margin", "never inspect", "always inspect, raw g", "f-only")
BANDED = (DEFAULT, PAPER, "committing, mean outside")
THEIRS = {  # the paper's names: what they are called here, drawn like
    "pandora-router": ("the paper's router", PAPER),
    "pandora-ni": ("the paper's router", PAPER),
    "pandora-ni-bk": ("mean as outside option (BK)", "committing, mean outside"),
    "pandora-oi": ("obligatory", "obligatory"),
    "margin-npr": ("margin on f", "margin"),
    "f-only": ("f-only", "f-only"),
    "g-always": ("always inspect, raw g", "always inspect, raw g"),
}
Points = dict[str, list[list[float]]]


def figure(results: Results, k: int, *, paper: Path | None = None, domain: str = "") -> Any:
    """Regret + cost, distance to the envelope, inspections, reliability of g; the paper's curves below."""
    checked = reliability.of(results)
    theirs = [theirs_of(paper, name, domain) for name in ("routing_regret_plus_cost", "queries_per_prompt")]
    below = bool(theirs[0]) or checked is not None
    page = sheet((12.5, 7.6 if below else 4.2))
    axes = page.subplots(2 if below else 1, 3, squeeze=False)
    arms = [arm for arm in MAIN if paired.has(results, k, arm)]
    _totals(axes[0, 0], results, k, arms)
    _above(axes[0, 1], results, k, [arm for arm in BANDED if arm in arms])
    inspections(axes[0, 2], results, k, [*arms, "obligatory"])
    if below:
        draw_theirs(
            axes[1, 0], theirs[0], f"The paper's {domain}: regret + cost (other data)", "reward per prompt"
        )
        draw_theirs(
            axes[1, 2], theirs[1], f"The paper's {domain}: inspections (other data)", "per prompt", clip=False
        )
        _reliability(axes[1, 1], checked, k)
    lines, labels = axes[0, 0].get_legend_handles_labels()
    page.legend(lines, labels, loc="outside lower center", ncols=7, fontsize=8, frameon=False)
    titled(page, f"{results.title}\n{cheap_name(k)}, {len(results.seeds)} splits", 11)
    return page


def sheet(size: tuple[float, float]) -> Any:
    """An empty figure."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_package("plots", "matplotlib", "plots") from error
    return Figure(figsize=size, layout="constrained")


def save(page: Any, path: Path) -> tuple[Path, Path]:
    """Write a figure as PNG and SVG; returns both paths."""
    path.parent.mkdir(parents=True, exist_ok=True)
    paths = path.with_suffix(".png"), path.with_suffix(".svg")
    page.savefig(paths[0], dpi=110)
    paths[1].write_text(svg(page), encoding="utf-8")
    return paths


def titled(page: Any, text: str, size: int = 10) -> None:
    """A title over the whole figure, wrapped at its width."""
    width = round(page.get_figwidth() * 130 / size)
    page.suptitle("\n".join(line for part in text.split("\n") for line in wrap(part, width)), fontsize=size)


def svg(page: Any) -> str:
    """A figure as an SVG element for a page, without declaration and date."""
    sink = io.StringIO()
    page.savefig(sink, format="svg", metadata={"Date": None})
    text = sink.getvalue()
    return text[text.index("<svg") :]


def line(axis: Any, arm: str, x: Any, y: Any, half: Any = None, label: str | None = None) -> None:
    """One curve in the style of an arm, with a band of this half width."""
    colour, style, marker = SHOWN[arm]
    y = np.asarray(y, dtype=float)
    axis.plot(x, y, style, color=colour, marker=marker or None, ms=4, label=label or arm)
    if half is not None:
        axis.fill_between(x, y - half, y + half, color=colour, alpha=0.14, lw=0)


def totals(axis: Any, results: Results, k: int, arms: Sequence[str], title: str) -> None:
    """Regret + cost with bands; the scale ignores costs at which inspecting everything is expensive."""
    curves = {}
    for arm in arms:
        level = paired.levels(results, tuple((k, c, arm) for c in results.costs))
        curves[arm] = level.mean
        line(axis, arm, results.costs, level.mean, BAND * level.doubt if arm in BANDED else None)
    within = [curve for arm, curve in curves.items() if arm != "always inspect, raw g"]
    low, high = min(c.min() for c in curves.values()), max(c.max() for c in within)
    axis.set_ylim(low - 0.25 * (high - low), high + 0.25 * (high - low))
    label_costs(axis, results.costs, title, "reward per prompt")


def _totals(axis: Any, results: Results, k: int, arms: Sequence[str]) -> None:
    totals(axis, results, k, arms, "Regret + inspection cost (95 % bands of levels)")


def _above(axis: Any, results: Results, k: int, arms: Sequence[str]) -> None:
    axis.axhline(0.0, color="#555555", lw=1)
    for arm in arms:
        gaps_ = gaps(results, k, arm)
        mean = 1e3 * np.array([gap.mean for gap in gaps_])
        line(axis, arm, results.costs, mean, 1e3 * BAND * np.array([gap.doubt for gap in gaps_]))
        stars = [i for i, gap in enumerate(gaps_) if gap.star]
        axis.plot(
            [results.costs[i] for i in stars], mean[stars], "*", ms=13, color=SHOWN[arm][0], mec="white"
        )
    title = "Above the best static arm (95 % bands, stars)"
    label_costs(axis, results.costs, title, "1e-3 of reward; below 0 is better")


def inspections(axis: Any, results: Results, k: int, arms: Sequence[str]) -> None:
    """Inspections per prompt; margin-N has the router's own number by construction."""
    most = 0.0
    for arm in arms:
        if paired.has(results, k, arm) and not arm.startswith("margin"):
            each = np.array(
                [
                    [seed.rows[k, c, arm]["inspections"] for c in results.costs]
                    for seed in results.seeds.values()
                ]
            )
            half = BAND * each.std(axis=0, ddof=1) / np.sqrt(len(each)) if len(each) > 1 else None
            line(axis, arm, results.costs, each.mean(axis=0), half)
            most = max(most, float(each.mean(axis=0).max()))
    counted(axis, most)
    label_costs(axis, results.costs, "Inspections (bands over splits; purple: obligatory)", "per prompt")


def counted(axis: Any, most: float) -> None:
    """The scale of inspections per prompt: logarithmic above one if there are many."""
    # with two splits a band can be wider than the axis
    axis.set_ylim(-0.05 * min(most, 4.0), 1.1 * most or 1.0)
    if most > MANY:
        axis.set_yscale("symlog", linthresh=1.0)
        ticks = [n for n in (0, 1, 2, 5, 10, 20, 50, 100) if n <= most]
        axis.set_yticks(ticks, [str(n) for n in ticks])


def _reliability(axis: Any, checked: reliability.Checks | None, k: int) -> None:
    if checked is None:
        axis.axis("off")
        return
    points = checked.reliability(k)
    mean, spread = points.mean(axis=0), points[:, :, 1].std(axis=0, ddof=1) if len(points) > 1 else None
    line(
        axis,
        DEFAULT,
        mean[:, 0],
        mean[:, 1],
        None if spread is None else BAND * spread / np.sqrt(len(points)),
    )
    ends = [float(mean.min()), float(mean.max())]
    axis.plot(ends, ends, "--", color="#555555", lw=1)
    axis.set_title("Reliability of g: tenths of g (bands over splits)", fontsize=9)
    axis.set_xlabel("mean g", fontsize=9)
    axis.set_ylabel("mean reward", fontsize=9)
    axis.grid(alpha=0.25)
    axis.tick_params(labelsize=8)


def draw_theirs(axis: Any, curves: Points, title: str, label: str, *, clip: bool = True) -> None:
    """A panel with the paper's curves; empty without them."""
    shown = {name: np.array(curves[name], dtype=float) for name in THEIRS if name in curves}
    if not shown:
        axis.axis("off")
        return
    for name, points in shown.items():
        called, arm = THEIRS[name]
        line(axis, arm, points[:, 0], points[:, 1], label=called)
    if clip:
        low = min(points[:, 1].min() for points in shown.values())
        high = max(points[:, 1].max() for name, points in shown.items() if name != "g-always")
        axis.set_ylim(low - 0.08 * (high - low), high + 0.15 * (high - low))
    else:
        counted(axis, max(float(points[:, 1].max()) for points in shown.values()))
    label_costs(axis, tuple(next(iter(shown.values()))[:, 0].tolist()), title, label)
    axis.legend(fontsize=7)


def label_costs(axis: Any, costs: Sequence[float], title: str, label: str) -> None:
    """A logarithmic axis of inspection costs."""
    axis.set_xscale("log")
    ticks = [c for c in TICKS if min(costs) * 0.99 <= c <= max(costs) * 1.01]
    if max(costs) > 300.0 * min(costs):  # powers of ten alone
        ticks = [10.0**n for n in range(-8, 3) if min(costs) * 0.99 <= 10.0**n <= max(costs) * 1.01]
    axis.set_xticks(ticks, [f"{c:g}" for c in ticks])
    axis.set_xticks([], minor=True)
    axis.set_title(title, fontsize=9)
    axis.set_xlabel("inspection cost c", fontsize=9)
    axis.set_ylabel(label, fontsize=9)
    axis.grid(alpha=0.25)
    axis.tick_params(labelsize=8)


def theirs_of(path: Path | None, name: str, domain: str) -> Points:
    """One of the paper's figures for a domain; empty if unknown."""
    if path is None or not domain or not path.is_file():
        return {}
    published = json.loads(path.read_text(encoding="utf-8"))
    return dict(published["figures"][name]["domains"].get(domain, {}))
