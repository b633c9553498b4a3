"""Files of earlier versions: recognised by their keys, and shown in the present form."""

from __future__ import annotations

from typing import Any

import yaml

from pandora_router.config.document import Document
from pandora_router.errors import UsageError

_FIT = ("cheap", "costly", "signal", "policy", "default", "timeout")
_COLLECT = ("budget", "samples", "at_once", "give_up", "log_probabilities", "seed")
_OLD = {"data", "inspection_cost", "grader", *_FIT, *_COLLECT, "fee_weight"}


def refuse_older(document: Document) -> None:
    """Raise `UsageError` with the present form if a file has the keys of an earlier version."""
    content = document.content
    if not isinstance(content, dict) or not _OLD & set(content):
        return
    if not {"data", "inspection_cost", "grader", "budget"} & set(content):
        return  # the reader of the present form has a better message for a misspelt or misplaced key
    form = yaml.safe_dump(new_form(content), sort_keys=False, default_flow_style=None, width=100)
    raise UsageError(
        document.name,
        expected="a file with the sections specialists, prompts, grading, collect, fit and serve",
        came="one of an earlier version",
        do=f"Write instead:\n\n{form}",
    )


def new_form(old: dict[str, Any]) -> dict[str, Any]:
    """The content of a fit configuration or a collect plan of an earlier version, in the present form."""
    data = old.get("data") if isinstance(old.get("data"), dict) else {}
    assert isinstance(data, dict)
    weight = data.get("fee_weight", old.get("fee_weight"))
    new: dict[str, Any] = {}
    if "table" in data:
        new["table"] = data["table"]
    if isinstance(weight, int | float) and weight > 0:
        new["value"] = {"right_answer": 1 / weight}
    new |= {key: old[key] for key in ("endpoints", "specialists", "prompts") if key in old}
    if "grader" in old:
        new["grading"] = old["grader"]
    if collect := {key: old[key] for key in _COLLECT if key in old}:
        new["collect"] = collect
    fit = {key: data[key] for key in ("specialists", "split") if key in data}
    if "inspection_cost" in old:
        money = 1 / weight if isinstance(weight, int | float) and weight > 0 else 1
        fit["inspection"] = _in_money(old["inspection_cost"], money)
    fit |= {key: old[key] for key in _FIT if key in old}
    _move_judge(fit, new)
    return new | ({"fit": fit} if fit else {})


def _in_money(cost: Any, right_answer: float) -> Any:
    """An inspection cost in money instead of units of reward; `own` for all specialists is now `each`."""
    if isinstance(cost, int | float):
        return cost * right_answer
    if not isinstance(cost, dict):
        return cost
    parts = {
        ("each" if key == "own" and not isinstance(value, dict) else key): value
        for key, value in cost.items()
    }
    return {
        key: {name: share * right_answer for name, share in value.items()}
        if isinstance(value, dict)
        else value * right_answer
        for key, value in parts.items()
    }


def _move_judge(fit: dict[str, Any], new: dict[str, Any]) -> None:
    """Turn a judge with its own address into a hidden specialist behind one of the endpoints."""
    costly = fit.get("costly")
    if not isinstance(costly, dict) or costly.get("kind") != "judge":
        return
    where = {
        key: costly[key] for key in ("base_url", "key_from", "timeout", "retries", "at_once") if key in costly
    }
    new.setdefault("endpoints", {})["judging"] = where
    prices = {"call": costly.get("price", 0)}
    judge = {
        "kind": "chat",
        "endpoint": "judging",
        "model": costly.get("model"),
        "prices": prices,
        "hidden": True,
    }
    new.setdefault("specialists", {})["judge"] = judge
    fit["costly"] = {"kind": "judge", "judge": "judge"}
