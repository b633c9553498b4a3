"""`model: "auto"` with a fitted router: the decision of the library, the runner-up, observing, exploring."""

from __future__ import annotations

import json
import random
from dataclasses import replace

from pandora_router.gateway.generation import Settings, Site
from pandora_router.gateway.providers.backend import Backend
from pandora_router.gateway.request.choice import Choice, _explored
from pandora_router.router import Decision, Router
from tests.gateway.conftest import Running, Serve, backend
from tests.gateway.stub import Stub
from tests.gateway.test_wires import post, request

PROMPTS = ("count the river king number 7", "name the long word", "what is it")


def stubbed(stub: Stub, router: Router, **broken: str) -> list[Backend]:
    """A backend per specialist of the router; `broken` maps a name to a faulty model of the stub."""
    made = []
    for name in router.specialists:
        one = backend(stub, name)
        made.append(replace(one, model=broken.get(name, "small")))
    return made


def asked(gateway: Running, prompt: str, **more: str) -> tuple[dict[str, str], dict[str, object]]:
    body = {"model": "auto", "messages": [{"role": "user", "content": prompt}]}
    status, headers, answer = post(gateway, "chat/completions", body, **more)
    assert status == 200, answer
    gateway.settled(headers["x-pandora-decision-id"])
    row = gateway.rows(
        "SELECT detail, proposed, propensity, mode FROM decisions WHERE id = ?",
        headers["x-pandora-decision-id"],
    )[0]
    return headers, {"detail": json.loads(row[0]), "proposed": row[1], "propensity": row[2], "mode": row[3]}


def test_the_gateway_decides_as_the_library(serve: Serve, stub: Stub, router: Router) -> None:
    gateway = serve(*stubbed(stub, router), router=router)
    for prompt in PROMPTS:
        headers, row = asked(gateway, prompt)
        decision = router.route(prompt)
        assert headers["x-pandora-specialist"] == decision.specialist
        assert headers["x-pandora-inspected"] == ",".join(decision.inspected)
        stored = Decision.from_dict(row["detail"]["decision"])  # type: ignore[index]
        assert stored.trace.actions == decision.trace.actions


def test_the_runner_up_takes_over(serve: Serve, stub: Stub, router: Router) -> None:
    decision = router.route(PROMPTS[0])
    first, second = sorted(decision.worth, key=lambda name: -decision.worth[name])[:2]
    gateway = serve(*stubbed(stub, router, **{first: "broken"}), router=router)
    assert asked(gateway, PROMPTS[0])[0]["x-pandora-specialist"] == second


def test_constraints_restrict_the_search(serve: Serve, stub: Stub, router: Router) -> None:
    gateway = serve(*stubbed(stub, router), router=router)
    for name in router.specialists:
        assert asked(gateway, PROMPTS[0], x_pandora_allow=name)[0]["x-pandora-specialist"] == name
        assert asked(gateway, PROMPTS[0], x_pandora_deny=name)[0]["x-pandora-specialist"] != name


def test_observing_asks_the_default_and_records_the_proposal(
    serve: Serve, stub: Stub, router: Router
) -> None:
    chosen = router.route(PROMPTS[0]).specialist
    default = next(name for name in router.specialists if name != chosen)
    gateway = serve(*stubbed(stub, router), router=router, default=default, mode="observe")
    headers, row = asked(gateway, PROMPTS[0])
    assert headers["x-pandora-specialist"] == default
    assert (row["proposed"], row["mode"]) == (chosen, "observe")


def test_a_text_that_cannot_be_judged_goes_to_the_default(serve: Serve, stub: Stub, router: Router) -> None:
    default = router.specialists[-1]
    gateway = serve(*stubbed(stub, router), router=router, default=default)
    _, headers, _ = post(gateway, "chat/completions", request("chat", "auto", messages=[{"role": "user"}]))
    assert (headers["x-pandora-specialist"], headers["x-pandora-policy"]) == (default, "default")


def test_propensities_are_the_shares_of_what_is_picked() -> None:
    names, rng = ["a", "b", "c"], random.Random(1)
    found = [_explored(Choice(("a", "b", "c"), "a", "p"), names, 0.3, rng) for _ in range(20_000)]
    for name in names:
        picked = [one for one in found if one.specialist == name]
        share = len(picked) / len(found)
        assert {one.propensity for one in picked} == {picked[0].propensity}
        assert abs(share - picked[0].propensity) < 4 * (share * (1 - share) / len(found)) ** 0.5
    assert abs(sum({one.specialist: one.propensity for one in found}.values()) - 1.0) < 1e-12


def test_a_reload_swaps_the_site_between_requests(serve: Serve, stub: Stub, router: Router) -> None:
    gateway = serve(backend(stub, "small"))
    assert gateway.gateway.site.generation == 1
    second = Site((backend(stub, "large"),), Settings("large"), hash="another")
    gateway.gateway.install(second)
    assert gateway.gateway.site.generation == 2
    status, headers, _ = post(gateway, "chat/completions", request("chat", "auto"))
    assert (status, headers["x-pandora-specialist"]) == (200, "large")
    gateway.gateway.install(second)  # the same content has the same number
    assert gateway.gateway.site.generation == 2
