"""The paper's own tables, from `figures.json`, to stand beside ours: other data, so shapes, not levels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pandora_router.report.tables import grid

DOMAINS = ("MATH", "RAG", "EmbedLLM")


def markdown(path: Path) -> str:
    """A section with the paper's five tables, folded; its Cost column is mean(queries) x mean(c)."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["tables"]
    parts = [
        "## The paper's own tables",
        "",
        "Other data and estimators: shapes can be compared, not levels.",
        "",
    ]
    for title, table in (
        (
            "Overall (regret, cost and total, averaged over costs; in its accounting)",
            _overall(found["overall"]),
        ),
        ("Value estimators", _estimators(found["value_estimators"])),
        ("Signal models", _signals(found["signal_model_knn_vs_gaussian"])),
        ("Coverage", _coverage(found["coverage"])),
        *(
            (f"Regret + cost at every cost, {d}", _costs(found["regret_plus_cost_per_c_g"][d]))
            for d in DOMAINS
        ),
    ):
        parts += [f"<details><summary>{title}</summary>", "", table, "", "</details>", ""]
    return "\n".join(parts)


def _overall(table: dict[str, Any]) -> str:
    head = ["arm", *(f"{d} {column.replace('_', ' ')}" for d in DOMAINS for column in table["columns"])]
    return grid(head, [[arm, *(f"{x:.3f}" for d in DOMAINS for x in table[d][arm])] for arm in table["MATH"]])


def _estimators(table: dict[str, Any]) -> str:
    rows = [[d, *(str(table[d][key]) for key in ("f_mse", "g_mse", "cost_ratio_g_over_f"))] for d in DOMAINS]
    return grid(["domain", "MSE of f (k=3)", "MSE of g", "price of g over f"], rows)


def _signals(table: dict[str, Any]) -> str:
    rows = [[d, *(str(x) for kind in ("gaussian", "knn") for x in table[d][kind])] for d in DOMAINS]
    return grid(["domain", "Gaussian: regret + cost", "queries", "kNN: regret + cost", "queries"], rows)


def _coverage(table: dict[str, Any]) -> str:
    rows = []
    for level, words in (("one_sigma", "within 1 s.d."), ("two_sigma", "within 2 s.d.")):
        for kind in ("gaussian", "knn"):
            known = table[level][kind]
            rows.append(
                [f"{kind}, {words}", *(str(known.get(d, "")) for d in DOMAINS), str(table[level]["target"])]
            )
    return grid(["signal model", *DOMAINS, "target"], rows)


def _costs(rows: list[dict[str, float]]) -> str:
    arms = [name for name in rows[0] if name != "c_g"]
    made = [[arm, *(f"{row[arm]:.3f}" if arm in row else "" for row in rows)] for arm in arms]
    return grid(["arm", *(f"{row['c_g']:g}" for row in rows)], made)
