"""docs/estimators.md, put together from what the cache of the estimator benchmarks holds; nothing is fitted.

Every number on the page comes from CACHE/FOLDER/estimators.json and transformer.json; what has not been run
is said to be missing.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from benchmarks.folders import SCORED
from pandora_router.report.tables import grid

Found = dict[str, Any]
COMPARED = ("mean", "kNN-3", "kNN-50", "h(f)")
CLEARLY = 2.0  # standard errors

HEAD = """
Written by `OMP_NUM_THREADS=1 python -m benchmarks.estimators --page docs/estimators.md` from the shared
routing data (rewards are scores; fees are left out). Everything is fitted on the train split of each folder
and measured on its test split: mean squared error, all cells weighted within a prompt and prompts equally.
Behind a difference stands one standard error, paired over test prompts. One thread; CPU-seconds are of a
machine shared with other work, and a busy machine makes them larger. A run that is broken off goes on where
it stopped, and the page is made from what is there.
"""
COVERAGE = """
Share of costly estimates on test within one and two standard deviations of the default signal model, fitted
on calibration (normal law: 68.3 %, 95.4 %), and the mean correlation of residuals between two specialists.
"""
CONTEXTS = """
`StackRecipe(peek=400)`: the specialist's own first 400 characters, or its passages (rag_adarague).
**agreement** is a separate variant (`StackRecipe(peek=400, agreement=True)`): it reads the first characters
of *all* specialists and so costs all of them at once, and part of what it knows are final answers already
visible in the prefixes; do not read it as foresight. A cell without a context is judged by the prompt.
"""
TRANSFORMER = """
`python -m benchmarks.transformer`: MiniLM fine-tuned with a squared loss, its last layers only, on a part of
each folder; the boosted g beside it is fitted on the same prompts and specialists. Forms: "all" (prompt, all
specialists at once), "named" (prompt, specialist in the text), "context" (named, with what the specialist has
begun to say or its passages).
"""
NOTES = (
    """
The form of the stack (features, number of leaves, blend) and the embedder were chosen while looking at these
test splits, out of a handful of variants; differences of .001 may be that choice.
""",
    """
kNN-3 is the paper's f; its error is mostly its own variance. f is the router's default, the average over 25,
50 and 200 neighbours, here among the training prompts alone; a router's f remembers calibration prompts too,
and all prompts once it ships. h(f) is a ridge of the reward on left-out f. `python -m benchmarks.cheap`
compares cheap estimates in reward and processor time.
""",
    """
Errors of the prompts of one test split are taken as independent; train splits are not redrawn.
""",
    """
A newcomer (`router.add_specialist`) is estimated from the estimates for its colleagues, never from its own
context; `python -m benchmarks.newcomer zeroeval_math` measures how well.
""",
)


def prose(text: str, mark: str = "") -> str:
    """A paragraph in lines of one length, after a mark if it stands in a list."""
    return (
        textwrap.fill(" ".join(text.split()), 112, initial_indent=mark, subsequent_indent=" " * len(mark))
        + "\n"
    )


def page(cache: Path) -> str:
    """The whole page."""
    found = {name: _read(cache / name / "estimators.json") for name in SCORED}
    there = {name: one for name, one in found.items() if one is not None and "g" in one["rows"]}
    parts = [
        "# Estimators: how well rewards are predicted\n",
        prose(HEAD),
        _prompt_only(there),
        _coverage(there),
        _contexts(there),
        _lengths(there),
    ]
    tuned = [_read(cache / name / "transformer.json") for name in SCORED]
    parts.append(_transformer([one for one in tuned if one is not None]))
    parts.append("## What to keep in mind\n")
    return "\n".join(part for part in parts if part) + "\n" + "".join(prose(note, "- ") for note in NOTES)


def _read(path: Path) -> Found | None:
    if not path.exists():
        return None
    value: Found = json.loads(path.read_text(encoding="utf-8"))
    return value


def _number(value: float) -> str:
    return f"{value:.4f}".replace("0.", ".", 1) if 0 <= value < 1 else f"{value:.4f}"


def _gap(gap: dict[str, float]) -> str:
    sign = "-" if gap["gap"] < 0 else "+"
    return f"{sign}{_number(abs(gap['gap']))} ({_number(gap['error'])})"


def _below(found: Found) -> float:
    """g against kNN-3, as a share."""
    return float(found["rows"]["g"]["mse"] / found["rows"]["kNN-3"]["mse"] - 1.0)


def _clearly_best(found: Found) -> bool:
    gaps = [found["rows"][label]["minus_g"] for label in COMPARED]
    return all(gap["gap"] > CLEARLY * gap["error"] for gap in gaps)


def _prompt_only(there: dict[str, Found]) -> str:
    if not there:
        return ""
    labels = ("mean", "kNN-3", "kNN-50", "f", "h(f)", "g")
    head = ["folder, train x specialists", *labels]
    head += ["g against kNN-3", "mean - g (se)", "kNN-50 - g (se)", "h(f) - g (se)", "whole fit, CPU-s"]
    rows = []
    for name, one in there.items():
        row = [f"{name}, {one['train']:,} x {one['specialists']}"]
        row += [_number(one["rows"][label]["mse"]) for label in labels]
        row += [f"{100 * _below(one):+.1f} %"]
        row += [_gap(one["rows"][label]["minus_g"]) for label in ("mean", "kNN-50", "h(f)")]
        rows.append([*row, f"{one['rows']['g']['seconds']:.0f}"])
    low = [name for name, one in there.items() if _below(one) > -0.2]
    unclear = [name for name, one in there.items() if not _clearly_best(one)]
    peak = max(one["rows"]["g"]["told"].get("peak_gib", 0.0) for one in there.values())
    low_told = f" (not: {', '.join(low)})" if low else ""
    unclear_told = f" (not: {', '.join(unclear)})" if unclear else ""
    said = f"""
    "g" is the default, which sees the prompt only (`StackRecipe(peek=0)`). It is at least 20 % below kNN-3 on
    {len(there) - len(low)} of {len(there)} folders{low_told}, and below the mean, kNN-3, kNN-50 and h(f) by
    more than two paired standard errors on {len(there) - len(unclear)} of {len(there)}{unclear_told}. The
    last column is a whole `Router.fit`: f, g, signal model, policies and parts weighed, report (the first one
    in a process may also compile kernels); most memory of one process: {peak:.1f} GiB.
    """
    return "## The prompt alone\n\n" + prose(said) + "\n" + grid(head, rows) + "\n"


def _coverage(there: dict[str, Found]) -> str:
    rows = []
    for name, one in there.items():
        for label, named in (("g", "prompt only"), ("own 400", "own first 400 characters")):
            told = one["rows"].get(label, {}).get("told", {})
            if "coverage_1" in told:
                shares = [f"{100 * told[key]:.1f} %" for key in ("coverage_1", "coverage_2")]
                rows.append([name, named, *shares, f"{told['residual_correlation'] or 0.0:.2f}"])
    if not rows:
        return ""
    head = ["folder", "g", "within 1 sd", "within 2 sd", "residual correlation"]
    return "## Coverage of the default signal model\n\n" + prose(COVERAGE) + "\n" + grid(head, rows) + "\n"


def _contexts(there: dict[str, Found]) -> str:
    rows = []
    for name, one in there.items():
        if "own 400" not in one["rows"]:
            continue
        row = [f"{name}, {one['specialists']} specialists", f"{100 * one['share_seen']:.0f} %"]
        for label in ("g", "own 400", "agreement 400"):
            there_is = one["rows"].get(label)
            row.append("-" if there_is is None else _number(there_is["mse"]))
            if label != "g":
                row.append("-" if there_is is None else _gap(there_is["minus_g"]))
        rows.append([*row, f"{one['rows']['own 400']['seconds']:.0f}"])
    if not rows:
        return ""
    head = ["folder", "cells with a context", "g", "own 400", "own - g (se)", "agreement 400"]
    head += ["agreement - g (se)", "fit with own 400, CPU-s"]
    return (
        "## Looking at what a specialist has begun to say\n\n"
        + prose(CONTEXTS)
        + "\n"
        + grid(head, rows)
        + "\n"
    )


def _lengths(there: dict[str, Found]) -> str:
    lengths = (100, 200, 400)
    rows = []
    for name, one in there.items():
        got = [one["rows"].get(f"own {far}") for far in lengths]
        if sum(row is not None for row in got) > 1:
            cells = ["-" if row is None else f"{_number(row['mse'])} {_gap(row['minus_g'])}" for row in got]
            rows.append([name, _number(one["rows"]["g"]["mse"]), *cells])
    if not rows:
        return ""
    head = ["folder", "g", *(f"own {far}: MSE, minus g (se)" for far in lengths)]
    return "### By length of the peek, in characters\n\n" + grid(head, rows) + "\n"


def _transformer(found: list[Found]) -> str:
    if not found:
        return ""
    blocks = ["## The transformer\n\n" + prose(TRANSFORMER)]
    for one in found:
        plan = one["plan"]
        about = f"""
        **{one["folder"]}**: {one["train_prompts"]:,} train and {one["test_prompts"]:,} test prompts,
        {len(one["specialists"])} specialists, {plan["layers"]} of 6 layers, {plan["epochs"]} epochs, at most
        {plan["tokens"]} tokens, {plan["characters"]} characters of context; {100 * one["share_seen"]:.0f} %
        of test cells have one. Training mean {_number(one["constant_mse"])}.
        """
        blocks.append(prose(about))
        head = ["estimator", "MSE", "minus g (se)", "minus transformer all (se)", "MSE, cells with a context"]
        head += ["minus transformer all there (se)", "fit, CPU-s"]
        rows = [
            [
                label,
                _number(row["mse"]),
                _gap(row["minus_g"]),
                _gap(row["minus_prompt_only"]),
                _number(row["seen_mse"]),
                _gap(row["seen_minus_prompt_only"]),
                f"{row['fit_seconds']:.0f}",
            ]
            for label, row in one["rows"].items()
        ]
        blocks.append(grid(head, rows) + "\n")
    return "\n".join(blocks)
