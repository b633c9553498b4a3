"""The report as one HTML file that works offline: what routing earned, interactive curves, then the tables.

Everything is inside the file: numbers as JSON, and the files `page.js` and `page.css` of this package. A
content security policy forbids loading anything. Titles and names are text, never markup: Python escapes what
it writes, and the script only sets text.

Bands are 1.96 standard errors. For differences to the router it is the larger of those over prompts (paired,
clustered) and over splits; for regret + cost the larger of those over the prompts of one split and over
splits; for other metrics that over splits, so there is none with one split.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from pandora_router.evaluate.arms import DEFAULT
from pandora_router.evaluate.experiments import cheap_name
from pandora_router.evaluate.results import Key, Results
from pandora_router.report.paired import has

BAND = 1.96
METRICS = (  # name in results, label, unit
    ("total", "regret + cost", "reward per prompt"),
    ("above", "regret + cost above the router", "1e-3 of reward, paired"),
    ("inspections", "inspections", "inspections per prompt"),
    ("regret", "regret", "reward per prompt"),
    ("accuracy", "accuracy", "mean score of the answers"),
)
FIRST = (DEFAULT, "committing (paper)", "auto", "margin", "never inspect", "always inspect, raw g", "f-only")
STEEP = ("always inspect, raw g", "always inspect", "top-2", "coin flip", "random")  # do not set the scale
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'"


def page(measured: Sequence[Results], words: str) -> str:
    """The whole page: the opening of a report, the curves of `measured` in this order, the rest of it.

    `words` is the report in Markdown; its rest begins with the first heading of the second level. There are
    no curves if each experiment has a single inspection cost.

    Images in it are left out: the curves show the same, and image files may not be beside the page.
    """
    blocks = [block.strip() for block in re.split(r"\n\n+", words)]
    shown = [block for block in blocks if not block.startswith("![")]
    details = next((i for i, block in enumerate(shown) if block.startswith("## ")), len(shown))
    opening, rest = ("\n".join(map(_element, part)) for part in (shown[:details], shown[details:]))
    explorer, script = ("", "") if all(len(each.costs) == 1 for each in measured) else _explorer(measured)
    style = _packaged("css")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>pandora-router results</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<meta name="viewport" content="width=device-width"><style>\n{style}</style></head><body>\n'
        f"<main>{opening}\n{explorer}{rest}</main>\n{script}</body></html>\n"
    )


def _explorer(measured: Sequence[Results]) -> tuple[str, str]:
    """The element that the script fills with curves, and the data and the script."""
    data = json.dumps(curves(measured), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        '<section id="explorer" aria-label="Curves"><noscript>Curves need JavaScript; every number is in the '
        "tables below.</noscript></section>\n",
        f'<script type="application/json" id="data">{data}</script>\n<script>\n{_packaged("js")}</script>',
    )


def _packaged(kind: str) -> str:
    return files(__package__).joinpath(f"page.{kind}").read_text("utf-8")


def curves(measured: Sequence[Results]) -> dict[str, Any]:
    """The data for the script: a curve per metric and arm, for each experiment and number of neighbours."""
    return {
        "metrics": [dict(zip(("id", "label", "unit"), metric, strict=True)) for metric in METRICS],
        "first": FIRST,
        "steep": STEEP,
        "experiments": [
            {
                "name": results.name,
                "title": results.title,
                "control": results.control,
                "splits": len(results.seeds),
                "prompts": round(results.mean("prompts", results.keys[0])),
                "costs": results.costs,
                "arms": results.arms,
                "frames": [
                    {"k": k, "name": cheap_name(k), "curves": _frame(results, k)} for k in results.neighbours
                ],
            }
            for results in measured
        ],
    }


def _frame(results: Results, k: int) -> dict[str, Any]:
    """metric -> arm -> {mean, band, star}, each a list over costs; null where unknown."""
    frame: dict[str, Any] = {"above": _above(results, k)}
    for metric in ("total", "inspections", "regret", "accuracy"):
        frame[metric] = {}
        for arm in _arms(results, k):
            keys = [(k, cost, arm) for cost in results.costs]
            bands = [BAND * _error(results, metric, key) for key in keys]
            frame[metric][arm] = {
                "mean": _plain([results.mean(metric, key) for key in keys]),
                "band": _plain(bands),
            }
    return frame


def _arms(results: Results, k: int) -> list[str]:
    """The arms that were run on k neighbours."""
    return [arm for arm in results.arms if has(results, k, arm)]


def _above(results: Results, k: int) -> dict[str, Any]:
    others = [arm for arm in _arms(results, k) if arm != DEFAULT]
    pairs: list[tuple[Key, Key]] = [((k, c, a), (k, c, DEFAULT)) for a in others for c in results.costs]
    nothing = [0.0] * len(results.costs)
    curves: dict[str, Any] = {
        DEFAULT: {"mean": nothing, "band": nothing, "star": [False] * len(results.costs)}
    }
    if pairs:
        compared = results.compare(pairs)
        for i, arm in enumerate(others):
            own = slice(i * len(results.costs), (i + 1) * len(results.costs))
            curves[arm] = {
                "mean": _plain((1e3 * compared.mean[own]).tolist()),
                "band": _plain((1e3 * BAND * compared.doubt[own]).tolist()),
                "star": [bool(star) for star in compared.star[own]],
            }
    return curves


def _error(results: Results, metric: str, key: Key) -> float:
    values = [seed.rows[key][metric] for seed in results.seeds.values()]
    over_splits = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
    return float(np.fmax(over_splits, results.mean("total_error", key))) if metric == "total" else over_splits


def _plain(numbers: Sequence[float]) -> list[float | None]:
    """Numbers with six digits; null for values that are not finite, which JSON does not have."""
    return [float(f"{x:.6g}") if math.isfinite(x) else None for x in numbers]


def _element(block: str) -> str:
    """A block of our own Markdown as HTML: heading, table, list, collapsible block or paragraph."""
    heading = re.match(r"(#+) (.*)", block)
    if heading:
        level = len(heading[1])
        return f"<h{level}>{_inline(heading[2])}</h{level}>"
    if folded := re.fullmatch(r"<details><summary>([^<>]*)</summary>", block):
        return f"<details><summary>{_inline(folded[1])}</summary>"
    if block == "</details>":
        return block
    if block.startswith("|"):
        head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.split("\n")]
        top = "".join(f'<th scope="col">{_inline(cell)}</th>' for cell in head)
        rest = "".join(
            "<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        return f"<table><thead><tr>{top}</tr></thead><tbody>{rest}</tbody></table>"
    if block.startswith("- "):
        items = re.split(r"\n- ", block[2:])
        return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>"
    return f"<p>{_inline(block)}</p>" if block else ""


def _inline(text: str) -> str:
    """Bold, italics and code; of a link only its text, because the file it names may not be there."""
    safe = html.escape(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
    safe = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", safe)
    safe = re.sub(r"(?<!\S)\*(\S[^*]*)\*(?!\w)", r"<i>\1</i>", safe)  # not the star behind a number
    return re.sub(r"`(.+?)`", r"<code>\1</code>", safe)
