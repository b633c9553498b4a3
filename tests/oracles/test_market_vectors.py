"""The `bid` and `bidder_loo` reference values, by the vectorised table and by the driven mechanism."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pandora_router.boxes import Independent
from pandora_router.market import Bidder, LeaveOneOut, PostedPrice, Responding, Sealed, Unseen, trade
from pandora_router.search import OUTSIDE, State, drive, reveal

VECTORS = Path(__file__).parents[3] / "shared" / "vectors.json"
pytestmark = pytest.mark.skipif(not VECTORS.exists(), reason=f"the reference values are not at {VECTORS}")
CONDUCT = {"voi": "bidder", "f": "never inspect", "g": "always inspect"}  # "f" in the vectors decides on mu
TOLERANCE = 5.1e-13  # they are written with twelve decimals


def vectors(kind: str) -> list[dict]:
    if not VECTORS.exists():
        return []
    return [v for v in json.loads(VECTORS.read_text())["vectors"] if v["kind"] == kind]


@pytest.mark.parametrize("vector", vectors("bid"), ids=lambda v: str(v["id"]))
def test_bid(vector):
    given, expected = vector["input"], vector["output"]
    boxes = Independent([given["mu"]], [given["sigma"]], given["c"])
    trace = drive(Bidder(), State(boxes, outside=given["p"]), reveal([given["G"]]))
    assert bool(trace.inspected) == expected["inspect"]
    assert (trace.selected != OUTSIDE) == expected["accept"]
    assert trace.spent == (given["c"] if expected["inspect"] else 0.0)


@pytest.mark.parametrize("vector", vectors("bidder_loo"), ids=lambda v: str(v["id"]))
def test_leave_one_out_table(vector):
    given, expected = vector["input"], vector["output"]
    table = LeaveOneOut(
        given["F"],
        given["Mu"],
        given["sigma"],
        given["G"],
        given["R"],
        opponents="strong" if given["opponents"] == "g" else "weak",
    )
    played = table.play(CONDUCT[given["strategy"]], given["c"])
    found = {
        "surplus": played.surplus,
        "eff": played.efficiency,
        "o_surplus": played.best["value", "surplus"],
        "o_eff": played.best["value", "efficiency"],
        "h_surplus": played.best["hindsight", "surplus"],
        "h_eff": played.best["hindsight", "efficiency"],
        "queries": played.inspections,
        "accept": played.accepted,
        "surplus_regret": played.regret("surplus", against="value"),
        "eff_regret": played.regret("efficiency", against="value"),
        "surplus_regret_h": played.regret("surplus"),
        "eff_regret_h": played.regret("efficiency"),
    }
    assert found.keys() == expected.keys()
    for name, values in found.items():
        assert values.mean() == pytest.approx(expected[name], abs=TOLERANCE), name


@pytest.mark.parametrize(
    "vector",
    [v for v in vectors("bidder_loo") if v["input"]["strategy"] == "voi"],
    ids=lambda v: str(v["id"]),
)
def test_leave_one_out_by_the_driven_mechanism(vector):
    given, expected = vector["input"], vector["output"]
    values, rewards = np.array(given["G"]), np.array(given["R"], dtype=float)
    surplus, efficiency, looks = [], [], []
    for i, mean in enumerate(given["Mu"]):
        boxes = Independent(mean, given["sigma"], given["c"])
        for m in range(len(mean)):
            bidders = [
                Sealed(True) if given["opponents"] == "g" else Unseen(given["F"][i][j])
                for j in range(len(mean))
            ]
            bidders[m] = Responding(Bidder(m))
            record = trade(PostedPrice(m), bidders, boxes, reveal(values[i]))
            surplus.append(record.surplus(rewards[i])[m])
            # the paper leaves the others' inspections out
            efficiency.append(record.welfare(rewards[i]) + record.spent.sum() - record.spent[m])
            looks.append(record.inspected.count(m))
    assert np.mean(surplus) == pytest.approx(expected["surplus"], abs=TOLERANCE)
    assert np.mean(efficiency) == pytest.approx(expected["eff"], abs=TOLERANCE)
    assert np.mean(looks) == pytest.approx(expected["queries"], abs=TOLERANCE)
