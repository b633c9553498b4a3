"""`auto@profile`: the same artifact at other values, against routers that were fitted at those values."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pandora_router.boxes import Draws, Independent, Joint
from pandora_router.gateway.generation import Profile, Settings, Site
from pandora_router.prices import Lengths
from pandora_router.router import NeighbourRecipe, Router
from pandora_router.router.revalue import at_speed, weighed
from pandora_router.search import KnowledgeGradient, Never
from tests.gateway.conftest import Serve
from tests.gateway.stub import Stub
from tests.gateway.test_routing import stubbed
from tests.gateway.test_wires import post, request
from tests.support.tables import generate

KINDS = ("count", "tell about")
PROMPTS = [f"{kind} the river king gene poem number {i}" for i in range(20) for kind in KINDS]


def fitted(weight: float, policy: object) -> Router:
    """Neighbours as both estimates: every part of this fit moves with its target, and fees are constant."""
    table = generate().with_fee_weight(weight)
    return Router.fit(
        table,
        cheap=NeighbourRecipe(),
        costly=NeighbourRecipe(k=5),
        policy=policy,  # type: ignore[arg-type]
        inspection_cost=0.002 * weight,
    )


@pytest.mark.parametrize("weight", [0.5, 3.0, 8.0])
def test_another_weight_is_what_fitting_at_it_gives_where_fees_are_constant(weight: float) -> None:
    served, wanted = weighed(fitted(1.0, Never()), weight), fitted(weight, Never())
    assert served.fee_weight == wanted.fee_weight
    assert np.allclose(served.costs.marginal, wanted.costs.marginal)
    different = 0
    for prompt in PROMPTS:
        ours, theirs = served.route(prompt), wanted.route(prompt)
        assert np.allclose(ours.estimates.mean, theirs.estimates.mean, atol=1e-6)
        different += ours.specialist != theirs.specialist
    assert different == 0
    batch = served.route_batch(PROMPTS)
    assert [one.specialist for one in batch] == [served.route(prompt).specialist for prompt in PROMPTS]


def test_dear_specialists_are_left_as_a_dollar_gets_dearer() -> None:
    router = fitted(1.0, KnowledgeGradient())
    fees = dict(zip(router.specialists, router.fees, strict=True))
    mean_fee = [
        np.mean([fees[weighed(router, weight).route(prompt).specialist] for prompt in PROMPTS])
        for weight in (0.01, 1.0, 10.0, 1000.0)
    ]
    assert mean_fee == sorted(mean_fee, reverse=True)
    assert mean_fee[-1] == min(fees.values())


@pytest.mark.parametrize(
    "boxes",
    [
        Independent([0.2, 0.5], [0.1, 0.2], 0.01),
        Joint([0.2, 0.5], [[0.04, 0.02], [0.02, 0.05]], 0.01),
        Draws([[0.0, 1.0], [0.4, 0.6]], 0.05),
    ],
)
def test_moved_boxes_have_moved_prices_and_learn_alike(boxes: Independent | Joint | Draws) -> None:
    by = np.array([0.3, -0.1])
    moved = boxes.moved(by)
    assert np.allclose(moved.reservation_price(), boxes.reservation_price() + by)
    assert np.allclose(moved.backup_price(), boxes.backup_price() + by)
    assert np.allclose(moved.gain(0.4 + by), boxes.gain(0.4))
    assert np.allclose(moved.given(0, 0.6 + by[0]).mean, boxes.given(0, 0.6).mean + by)


def test_waiting_has_a_price_once_it_was_measured() -> None:
    router = fitted(1.0, Never())
    measured = {name: Lengths() for name in router.specialists}
    assert at_speed(router, 1.0, measured) is router
    chosen = router.route(PROMPTS[0]).specialist
    measured[chosen].seconds.add(1000.0)
    others = [name for name in router.specialists if name != chosen]
    for name in others[1:]:
        measured[name].seconds.add(1.0)
    slow = at_speed(router, 0.01, measured)
    assert slow.route(PROMPTS[0]).specialist == others[1]  # the other unmeasured one counts at the mean
    assert at_speed(router, 0.0, measured) is router


def test_profiles_are_listed_chosen_and_recorded(serve: Serve, stub: Stub) -> None:
    router = fitted(1.0, Never())
    cheapest = router.specialists[int(np.argmin(router.fees))]
    profiles = {
        "frugal": Profile(weighed(router, 1000.0, name="frugal")),
        "only": Profile(router, only=frozenset({"lawyer"})),
        "without": Profile(router, exclude=frozenset({router.route(PROMPTS[0]).specialist})),
        "bounded": Profile(router, max_fee=1e-9),
    }
    gateway = serve(*stubbed(stub, router), router=router)
    gateway.gateway.install(replace(gateway.gateway.site, profiles=profiles, hash="profiles"))
    assert gateway.gateway.site.models()[:3] == ["auto", "auto@frugal", "auto@only"]

    def asked(profile: str) -> tuple[str, dict[str, object]]:
        ask = request("chat", f"auto@{profile}", messages=[{"role": "user", "content": PROMPTS[0]}])
        status, headers, body = post(gateway, "chat/completions", ask)
        assert status == 200, body
        columns = "SELECT artifact, detail FROM decisions WHERE id = ?"
        artifact, detail = gateway.rows(columns, headers["x-pandora-decision-id"])[0]
        return headers["x-pandora-specialist"], {"artifact": artifact, **json.loads(detail)}

    name, row = asked("frugal")
    assert (name, row["model"], row["artifact"]) == (cheapest, "auto@frugal", f"{router.id}@frugal")
    name, row = asked("only")
    assert name == "lawyer"
    assert set(row["excluded"].values()) == {"not among those of the profile"}  # type: ignore[attr-defined]
    name, row = asked("without")
    assert name != router.route(PROMPTS[0]).specialist
    status, _, body = post(gateway, "chat/completions", request("chat", "auto@bounded"))
    assert (status, "the profile allows" in body.decode()) == (400, True)
    assert post(gateway, "chat/completions", request("chat", "auto@nobody"))[0] == 404


def test_seconds_to_the_first_token_decide_where_a_profile_waits_for_it(serve: Serve, stub: Stub) -> None:
    """The specialist that is chosen begins at once and writes long; the others do the opposite."""
    router = fitted(1.0, Never())
    chosen = router.route(PROMPTS[0]).specialist
    lengths = {name: {"first_token": 500.0, "seconds": 501.0} for name in router.specialists}
    lengths[chosen] = {"first_token": 0.1, "seconds": 2000.0}
    router = replace(router, record=replace(router.record, lengths=lengths))
    gateway = serve(*stubbed(stub, router), router=router)
    profiles = {
        "whole": Profile(router, second=0.01),
        "begun": Profile(router, second=0.01, until="first_token"),
    }
    gateway.gateway.install(replace(gateway.gateway.site, profiles=profiles, hash="profiles"))
    for profile, same in (("whole", False), ("begun", True)):
        ask = request("chat", f"auto@{profile}", messages=[{"role": "user", "content": PROMPTS[0]}])
        status, headers, body = post(gateway, "chat/completions", ask)
        assert status == 200, body
        assert (headers["x-pandora-specialist"] == chosen) is same


def test_a_file_with_profiles_makes_routers_of_one_artifact(saved_router: Path, tmp_path: Path) -> None:
    from pandora_router.config.gateway import ServePlan

    loaded = Router.load(saved_router)
    lines = [
        f"  {name}: {{kind: chat, endpoint: e, model: m, prices: {{in: 1, out: 2}}, looks: false}}"
        for name in loaded.specialists
    ]
    config = tmp_path / "pandora.yaml"
    config.write_text(
        "endpoints: {e: {base_url: 'http://127.0.0.1:1/v1'}}\nspecialists:\n"
        + "\n".join(lines)
        + f"""
value: {{right_answer: 1.0, second: 0.001}}
serve:
  keys: none
  router: {saved_router}
  profiles:
    fast: {{second: 0.5}}
    frugal: {{right_answer: 0.01, exclude: [{loaded.specialists[0]}], max_fee: 0.5}}
"""
    )
    site = ServePlan(config).site()
    assert site.second == 0.001
    assert site.router is not None
    assert site.router.fee_weight == pytest.approx(1.0)  # the worth of a right answer in the file
    config.write_text(config.read_text().replace("right_answer: 1.0", "right_answer: 0.25"))
    dearer = ServePlan(config).site().router
    assert dearer is not None
    assert dearer.fee_weight == pytest.approx(4.0)  # a change without a new fit takes effect
    assert site.settings.deadline == 0.2
    fast, frugal = site.profiles["fast"], site.profiles["frugal"]
    assert (fast.second, frugal.second) == (0.5, 0.001)
    assert frugal.router is not None
    assert frugal.router.fee_weight == pytest.approx(100.0)
    assert frugal.router.cheap is site.router.cheap  # type: ignore[union-attr]
    assert frugal.exclude == {loaded.specialists[0]}
    assert not site.backends[0].looks
    config.write_text(config.read_text().replace(f"[{loaded.specialists[0]}]", "[nobody]"))
    from pandora_router.errors import UsageError

    with pytest.raises(UsageError, match=r"serve\.profiles\.frugal\.exclude"):
        ServePlan(config).site()


def test_a_profile_cannot_take_the_name_of_a_specialist(stub: Stub) -> None:
    from pandora_router.errors import UsageError
    from tests.gateway.conftest import backend

    with pytest.raises(UsageError, match="different names"):
        Site((backend(stub, "auto@x"),), Settings("auto@x"))
