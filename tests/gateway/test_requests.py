"""What one request may ask and what becomes of it, line by line, against a live gateway."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="pip install 'pandora-router[serve]'")

from pandora_router.estimators.judge import Judge
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.gateway.request.eligible import MEDIUM
from pandora_router.gateway.request.looks import fare
from pandora_router.prices import MARKERS, Lengths, RecentMean, Tariff, prefix_of
from pandora_router.router import Router
from pandora_router.search import Always
from pandora_router.specialists.chat import ChatEndpoint
from pandora_router.specialists.chat_settings import Asking
from pandora_router.store import accounts
from pandora_router.store.money import nanodollars
from pandora_router.transport.endpoint import Endpoint
from pandora_router.types import Contexts, Matrix
from pandora_router.wires.known import BY_NAME
from pandora_router.wires.look import LookLength
from pandora_router.wires.usage import Usage
from tests.gateway.conftest import Running, Serve, backend
from tests.gateway.stub import Stub
from tests.gateway.talking import Script, Talking
from tests.gateway.test_looks import Served, listening, script
from tests.gateway.test_routing import stubbed
from tests.gateway.test_wires import PATHS, post, request

PROMPT = "count the river king number 7"


@pytest.fixture
def talking() -> Iterator[Talking]:
    with closing(Talking()) as running:
        yield running


def ask(gateway: Running, **more: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """Ask `auto` over chat; the headers and the decision's row."""
    headers = more.pop("headers", {})
    body = {**request("chat", "auto"), "messages": [{"role": "user", "content": PROMPT}], **more}
    status, told, answer = post(gateway, "chat/completions", body, **headers)
    assert status == 200, answer
    id_ = told["x-pandora-decision-id"]
    gateway.settled(id_)
    columns = (
        "specialist, proposed, propensity, declined, inspected, inspection_cost, cost, baseline, detail, "
        "asked, randomised, worth"
    )
    row = dict(
        zip(
            columns.split(", "),
            gateway.rows(f"SELECT {columns} FROM decisions WHERE id = ?", id_)[0],
            strict=True,
        )
    )
    return told, {**row, "detail": json.loads(row["detail"])}


def judged_by(talking: Talking, router: Router, **options: Any) -> Router:
    """The router with a judge behind HTTP as its costly estimate; it asks about everybody."""
    endpoint = Endpoint(talking.url, timeout=30.0, retries=0)
    judge = Judge(ChatEndpoint("judge", endpoint, "judge", Tariff(1.0, 10.0), Asking(tokens=8)))
    return replace(router, costly=judge, **options).with_policy(Always())


def test_a_judge_decides_live_and_its_verdicts_are_charged(
    talking: Talking, tmp_path: Path, router: Router
) -> None:
    talking.says = {name: Script(["fine", "."]) for name in router.specialists}
    talking.says["judge"] = Script(["80%"])
    with closing(Served(talking, judged_by(talking, router), tmp_path)) as served:
        headers, row = ask(served.running)
        assert headers["x-pandora-inspected"].split(",") == list(router.specialists)
        assert talking.calls["judge"] == len(router.specialists)
        assert row["inspection_cost"] > 0
        assert float(headers["x-pandora-inspection-cost"]) == pytest.approx(row["inspection_cost"] / 1e9)
        attempts = served.rows(headers)
        assert attempts["judge"]["kind"] == "inspection"
        assert attempts["judge"]["cost"] == row["inspection_cost"]
        assert row["cost"] == sum(one["cost"] for one in attempts.values())


def test_a_decision_without_a_call_does_not_ask_the_judge(
    talking: Talking, router: Router, tmp_path: Path
) -> None:
    talking.says["judge"] = Script(["80%"])
    with closing(Served(talking, judged_by(talking, router), tmp_path)) as served:
        status, _, told = post(served.running, "routing/decision", request("chat", "auto"))
        assert (status, talking.calls["judge"]) == (200, 0)
        assert json.loads(told)["specialist"] in router.specialists


def test_a_judge_that_hangs_leaves_its_boxes_sealed_at_the_deadline(
    talking: Talking, tmp_path: Path, router: Router
) -> None:
    talking.says = {name: Script(["fine", "."]) for name in router.specialists}
    talking.says["judge"] = Script(["80%"], wait=3600.0)
    with closing(Served(talking, judged_by(talking, router), tmp_path, deadline=0.5)) as served:
        _, row = ask(served.running)
        bought = row["detail"]["decision"]["purchases"]
        assert [one["status"] for one in bought] == ["too late"]
        assert row["declined"] is None


def test_the_baseline_is_what_the_best_single_specialist_costs(
    serve: Serve, stub: Stub, router: Router
) -> None:
    single = router.record.report["standing"]["single"]
    made = [
        replace(one, prices=Tariff(2.0, 20.0) if one.name == single else Tariff(1.0, 10.0))
        for one in stubbed(stub, router)
    ]
    gateway = serve(*made, router=router)
    others = [name for name in router.specialists if name != single]
    _, row = ask(gateway, headers={"x_pandora_allow": single})
    estimates = row["inspection_cost"]  # processor time, priced as the router was fitted
    assert row["cost"] == row["baseline"] + estimates
    _, row = ask(gateway, headers={"x_pandora_allow": others[0]})
    fresh, cached, output = gateway.rows(
        "SELECT fresh, cached, output FROM attempts WHERE specialist = ?", others[0]
    )[0]
    assert row["baseline"] == nanodollars((2.0 * (fresh + cached) + 20.0 * output) / 1e6)
    gateway.gateway.measured[single].output = RecentMean(50.0, 100)  # the single one usually writes more
    for more, written in (({}, 50), ({"max_tokens": 30}, 30)):
        _, row = ask(gateway, headers={"x_pandora_allow": others[0]}, **more)
        assert row["baseline"] == nanodollars((2.0 * (fresh + cached) + 20.0 * written) / 1e6)
    assert gateway.rows("SELECT count(*) FROM minutes WHERE compared > 0 AND baseline > 0") == [(2,)]
    headers = post(gateway, "chat/completions", request("chat", single))[1]
    gateway.settled(headers["x-pandora-decision-id"])
    id_ = headers["x-pandora-decision-id"]
    assert gateway.rows("SELECT baseline FROM decisions WHERE id = ?", id_) == [(None,)]


@pytest.mark.parametrize("wire", PATHS)
def test_an_unknown_value_is_a_400_in_the_shape_of_the_wire(serve: Serve, stub: Stub, wire: str) -> None:
    gateway = serve(backend(stub, "small"))
    for name, value in (
        ("x_pandora_router", "perhaps"),
        ("x_pandora_allow", "nobody"),
        ("x_pandora_max_fee", "x"),
    ):
        status, _, body = post(gateway, PATHS[wire], request(wire, "auto"), **{name: value})
        told = json.loads(body)
        assert status == 400
        assert told["error"]["type"] == "invalid_request_error"
        assert ("type" in told) == (wire == "messages")


@pytest.mark.parametrize("wire", ["chat", "responses"])
def test_constraints_come_through_metadata_too(serve: Serve, stub: Stub, wire: str) -> None:
    gateway = serve(backend(stub, "small"), backend(stub, "large"))
    for metadata in ({"x-pandora-allow": "large"}, {"x-pandora-deny": "small"}):
        headers = post(gateway, PATHS[wire], request(wire, "auto", metadata=metadata))[1]
        assert headers["x-pandora-specialist"] == "large"
    status, _, body = post(gateway, PATHS[wire], request(wire, "auto", metadata={"x-pandora-allow": 5}))
    assert status == 400, body


def test_candidates_that_the_budget_cannot_pay_are_left_out(serve: Serve, stub: Stub) -> None:
    dear = backend(stub, "large", prices=Tariff(1000.0, 1000.0), max_output=1000)
    gateway = serve(dear, backend(stub, "small", max_output=10), keys=True)

    def make(open_: Any) -> str:
        return accounts.add_key(open_, "team", time.time(), budget=nanodollars(0.01))[1]

    secret = gateway.gateway.store.submit(make).result()
    headers, row = ask(gateway, headers={"Authorization": f"bearer {secret}"})  # in any case
    assert headers["x-pandora-specialist"] == "small"
    assert "left of the budget" in row["detail"]["excluded"]["large"]
    named = request("chat", "large")
    assert post(gateway, "chat/completions", named, Authorization=f"Bearer {secret}")[0] == 429


def test_several_answers_are_reserved_and_charged(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small", prices=Tariff(0.0, 1e6)), keys=True)  # a dollar a token
    secrets = gateway.gateway.store.submit(
        lambda open_: {
            dollars: accounts.add_key(open_, f"{dollars}", time.time(), budget=nanodollars(dollars))[1]
            for dollars in (20, 40)
        }
    ).result()
    body = {**request("chat", "small"), "max_tokens": 4}

    def asked(dollars: int, **members: Any) -> tuple[int, dict[str, str], bytes]:
        return post(
            gateway, "chat/completions", {**body, **members}, Authorization=f"Bearer {secrets[dollars]}"
        )

    assert asked(20, n=8)[0] == 429  # eight answers of four tokens may cost 32 dollars
    assert asked(20, best_of=8)[0] == 429
    assert asked(20, max_completion_tokens=32)[0] == 429  # the larger limit may be the one that is heeded
    assert asked(20, n_predict=32)[0] == 429
    for number in (0, 129, "8", 1.5, True):
        assert asked(20, n=number)[0] == 400, number
    status, headers, _ = asked(40, n=8)
    assert status == 200
    assert gateway.settled(headers["x-pandora-decision-id"])[1] == nanodollars(32)


@pytest.mark.parametrize(
    "members",
    [
        b'"max_tokens": 1000, "max_tokens": 4',
        b'"n": 100, "n": 1, "max_tokens": 4',
        b'"max_token\\u0073": 1000, "max_tokens": 4',
        b'"model": "large", "max_tokens": 4, "model": "small"',
        b'"mode\\u006c": "large", "max_tokens": 4, "model": "small"',
    ],
)
def test_what_is_sent_is_what_was_read(serve: Serve, stub: Stub, members: bytes) -> None:
    """Parsers differ in which of two members of one name they keep: the provider gets one of each."""
    gateway = serve(backend(stub, "small"))
    messages = b'"messages": [{"role": "user", "content": "caf\\u00e9 \\u0041: \\"n\\""}]'
    model = b"" if b'"model"' in members else b', "model": "small"'
    status, _, _ = post(gateway, "chat/completions", b"{" + members + b", " + messages + model + b"}")
    pairs: list[tuple[str, Any]] = json.loads(stub.bodies[-1], object_pairs_hook=lambda pairs: pairs)
    sent = dict(pairs)
    assert (status, len(pairs), sent["max_tokens"], sent["model"]) == (200, len(sent), 4, "small")
    assert sent.get("n", 1) == 1
    assert dict(sent["messages"][0])["content"] == 'caf\u00e9 A: "n"'


def test_calls_that_are_passed_on_count_against_the_rate_and_need_a_budget(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"), keys=True)

    def embed(**limits: int) -> list[int]:
        store = gateway.gateway.store
        secret = store.submit(
            lambda open_: accounts.add_key(open_, str(limits), time.time(), **limits)[1]
        ).result()
        body = {"model": "small", "input": "x"}
        return [post(gateway, "embeddings", body, Authorization=f"Bearer {secret}")[0] for _ in range(3)]

    assert embed(per_minute=2) == [200, 200, 429]
    assert embed(budget=1) == [429, 429, 429]  # the worst case does not fit
    assert embed(budget=0) == [429, 429, 429]


def test_embeddings_are_charged_for_the_tokens_that_the_reply_counts(serve: Serve, stub: Stub) -> None:
    away = replace(backend(stub, "away"), endpoint=Endpoint("http://127.0.0.1:1/v1"))
    gateway = serve(
        *(backend(stub, name) for name in ("small", "liar", "broken")),
        *(away, backend(stub, "hang", timeout=0.2)),
        keys=True,
    )
    store = gateway.gateway.store
    secret = store.submit(
        lambda open_: accounts.add_key(open_, "team", time.time(), budget=nanodollars(1))[1]
    ).result()

    def embed(model: str) -> tuple[int, dict[str, str], bytes]:
        return post(gateway, "embeddings", {"model": model, "input": "x"}, Authorization=f"Bearer {secret}")

    failing = [(model, "error") for model in ("broken", "away", "hang")]
    for model, expected in (*failing, ("small", "ok"), ("liar", "ok")):
        status, headers, _ = embed(model)
        assert (status == 200) == (expected == "ok"), model
        if expected == "ok":
            assert gateway.settled(headers["x-pandora-decision-id"])[0] == "ok"
    prices = gateway.gateway.site.backend("small").prices
    size = len(json.dumps({"model": "small", "input": "x"}))
    rows = dict(gateway.rows("SELECT specialist, cost FROM attempts WHERE settled_at IS NOT NULL"))
    assert rows["small"] == nanodollars(1 * prices.per_million_in / 1e6)  # as the stub counts "x"
    # no more tokens than bytes are believed
    assert 0 < rows["liar"] <= nanodollars((size + MARKERS) * prices.per_million_in / 1e6)
    assert rows["broken"] == rows["away"] == 0  # an error is not charged, nor a call that was not made
    assert rows["hang"] > 0  # it may have done the work
    assert gateway.rows("SELECT count(*) FROM decisions WHERE wire = 'embeddings'") == [(5,)]
    assert gateway.rows("SELECT sum(cost) FROM decisions") == gateway.rows("SELECT sum(spent) FROM budgets")
    assert gateway.rows("SELECT sum(reserved) FROM budgets") == [(0,)]


def test_images_do_not_count_as_text(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small", context=10_000))
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 20_000}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "what is it"}, image]}]
    assert post(gateway, "chat/completions", {"model": "auto", "messages": messages})[0] == 200
    assert gateway.rows("SELECT estimate FROM attempts")[0][0] < nanodollars((MEDIUM + 4096 * 10) / 1e6)
    long = [{"role": "user", "content": "word " * 20_000}]
    assert post(gateway, "chat/completions", {"model": "auto", "messages": long})[0] == 400


def test_a_conversation_stays_with_who_took_over(serve: Serve, stub: Stub) -> None:
    first = backend(stub, "broken")
    gateway = serve(first, backend(stub, "small"), backend(stub, "large"))
    begun = [{"role": "user", "content": "begin"}]
    taken = post(gateway, "chat/completions", {"model": "auto", "messages": begun})[1]["x-pandora-specialist"]
    assert taken != "broken"
    calls = stub.calls["broken"]
    loop = [
        *begun,
        {"role": "assistant", "content": None, "tool_calls": [{"id": "t", "type": "function"}]},
        {"role": "tool", "tool_call_id": "t", "content": "42"},
    ]
    for _ in range(3):
        headers = post(gateway, "chat/completions", {"model": "auto", "messages": loop})[1]
        assert (headers["x-pandora-specialist"], headers["x-pandora-policy"]) == (taken, "session")
    assert stub.calls["broken"] == calls


def test_a_circuit_lets_one_probe_through_and_closes_when_it_succeeds(
    serve: Serve, stub: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = serve(backend(stub, "broken"), backend(stub, "small"))
    for _ in range(6):
        post(gateway, "chat/completions", request("chat", "auto"))
    circuit = gateway.gateway.circuits["broken"]
    opened = [line for line in caplog.messages if line.startswith("broken failed 5 times in a row")]
    assert len(opened) == 1
    assert circuit.state(time.monotonic()) == "open"
    calls = stub.calls["broken"]
    assert circuit.opened_at is not None
    circuit.opened_at -= circuit.pause  # as if the pause were over
    post(gateway, "chat/completions", request("chat", "auto"))
    assert stub.calls["broken"] == calls + 1  # the probe, which failed
    post(gateway, "chat/completions", request("chat", "auto"))
    assert stub.calls["broken"] == calls + 1
    site = gateway.gateway.site
    mended = tuple(replace(one, model="small") for one in site.backends)
    gateway.gateway.install(replace(site, backends=mended, hash="mended"))
    circuit.opened_at -= circuit.pause
    assert ask(gateway)[0]["x-pandora-specialist"] == "broken"
    assert circuit.state(time.monotonic()) == "closed"


@pytest.mark.parametrize(
    ("probe", "stream", "state"),
    [
        (Script(["fine"], status=400), False, "half-open"),  # the request was bad: that says nothing of it
        (Script(["one", "two"], cut=1), True, "open"),  # broke after its first word
    ],
)
def test_a_probe_that_ends_badly_is_not_the_last_one(
    talking: Talking, tmp_path: Path, probe: Script, stream: bool, state: str
) -> None:
    router = listening()
    script(talking, router, "large", large=Script(["fine"], status=500))
    with closing(Served(talking, router, tmp_path, pause=0.01)) as served:
        circuit = served.running.gateway.circuits["large"]
        while circuit.state(time.monotonic()) == "closed":
            served.ask("chat", model="large")
        assert circuit.opened_at is not None
        circuit.opened_at -= circuit.pause  # as if the pause were over
        talking.says["large"] = probe
        served.ask("chat", model="large", stream=stream)
        assert circuit.state(time.monotonic()) == state
        circuit.opened_at -= circuit.pause
        talking.says["large"] = Script(["fine"])
        assert served.ask("chat", model="large")[0] == 200
        assert circuit.state(time.monotonic()) == "closed"


@pytest.mark.parametrize("status", [429, 500, 520, 524, 599])
def test_every_failure_of_a_server_is_a_failure(serve: Serve, talking: Talking, status: int) -> None:
    talking.says = {"large": Script(["no"], status=status), "small": Script(["fine"])}
    gateway = serve(backend(talking, "large"), backend(talking, "small"), default="large")
    code, headers, _ = post(gateway, "chat/completions", request("chat", "auto"))
    assert (code, headers["x-pandora-specialist"]) == (200, "small")


@pytest.mark.parametrize("status", [401, 402])
def test_a_key_that_a_provider_refuses_is_not_that_of_the_client(
    serve: Serve, talking: Talking, status: int
) -> None:
    talking.says = {"large": Script(["no"], status=status), "small": Script(["fine"])}
    gateway = serve(backend(talking, "large"), backend(talking, "small"), default="large")
    code, headers, _ = post(gateway, "chat/completions", request("chat", "auto"))
    assert (code, headers["x-pandora-specialist"]) == (200, "small")
    for path in ("chat/completions", "embeddings"):
        code, _, body = post(gateway, path, {**request("chat", "large"), "input": "x"})
        assert (code, json.loads(body)["error"]["code"]) == (502, "upstream_failed")
        assert str(status) in json.loads(body)["error"]["message"]


def test_a_named_specialist_is_asked_again_after_a_pause(talking: Talking, tmp_path: Path) -> None:
    router = listening()
    script(talking, router, "large", large=Script(["fine"], status=500, mends=2))
    with closing(Served(talking, router, tmp_path, pause=0.01)) as served:
        status, headers, _ = served.ask("chat", model="large")
        assert (status, talking.calls["large"]) == (200, 3)
        id_ = headers["x-pandora-decision-id"]
        served.running.settled(id_)
        kinds = "SELECT kind, status FROM attempts WHERE decision = ? ORDER BY at"
        wanted = [("answer", "error"), ("retry", "error"), ("retry", "ok")]
        assert served.running.rows(kinds, id_) == wanted
        talking.says["small"] = Script(["fine"], status=429, retry_after="3600")
        status, _, _ = served.ask("chat", model="small")
        assert (status, talking.calls["small"]) == (502, 1)  # nobody waits for an hour


def test_what_a_look_costs_follows_the_request(talking: Talking, tmp_path: Path) -> None:
    """Short and cached prompts are cheaper to look at; what cancelling does decides the rest."""
    router = listening()
    with closing(Served(talking, router, tmp_path)) as served:
        gateway = served.gateway

        def price(prompt: str, name: str = "small", system: str = "", **more: Any) -> float:
            exchange = gateway.exchange(BY_NAME["chat"], {})
            told = [{"role": "system", "content": system}] if system else []
            body = {"model": "auto", "messages": [*told, {"role": "user", "content": prompt}], **more}
            exchange.body = json.dumps(body).encode()
            exchange.read()
            return fare(exchange.calls.quote(name), time.time()).money

        assert price("short") < price("long " * 500)
        gateway.measured["small"].answered(Usage(300), 1.0, size=3000)
        cheaper = price("long " * 500)
        gateway.measured["large"].answered(Usage(1500), 1.0, size=3000)
        assert cheaper < price("long " * 500, "large")
        system = "You are careful. " * 100
        before = price("short", system=system)
        small = gateway.site.backend("small")
        discount = replace(small, prices=replace(small.prices, cached_in=0.1))
        others = tuple(one for one in gateway.site.backends if one.name != "small")
        gateway.install(replace(gateway.site, backends=(discount, *others), hash="cached"))
        usage = Usage(fresh=10, cached=100, output=5)
        gateway.measured["small"].answered(usage, 0.2, size=1100, prefix=prefix_of(system), now=time.time())
        assert price("short", system=system) < before
        gateway.measured["small"] = Lengths.of({"output": 5.0})
        for cancel, written in (("unknown", 5), ("bills_full", 5), ("stops", 1)):
            changed = replace(discount, cancel=cancel, prices=Tariff(0.0, 10.0), peek=LookLength(4))
            gateway.install(replace(gateway.site, backends=(changed, *others), hash=cancel))
            assert price("short", max_tokens=500) == pytest.approx(written * 10.0 / 1e6)


class Broken(Neighbours):
    """A cheap estimate whose embedder cannot be reached."""

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        raise OSError("the embedder is away")


def test_a_router_that_cannot_judge_goes_to_the_default_not_to_the_cheapest(
    serve: Serve, stub: Stub, router: Router
) -> None:
    assert isinstance(router.cheap, Neighbours)
    cheap = Broken(**{name: getattr(router.cheap, name) for name in router.cheap.__dataclass_fields__})
    fees = dict(zip(router.specialists, router.fees, strict=True))
    default = max(fees, key=lambda name: fees[name])
    gateway = serve(*stubbed(stub, router), router=replace(router, cheap=cheap), default=default)
    headers, row = ask(gateway)
    assert headers["x-pandora-specialist"] == default
    assert "embedder is away" in row["declined"]


def test_exploring_records_the_probability_of_what_was_picked(
    serve: Serve, stub: Stub, router: Router
) -> None:
    gateway = serve(*stubbed(stub, router), router=router, explore=1.0)
    found = [ask(gateway)[1] for _ in range(25)]
    assert {one["specialist"] for one in found} == set(router.specialists)
    assert {round(one["propensity"], 9) for one in found} == {round(1 / len(router.specialists), 9)}
    assert len({one["proposed"] for one in found}) == 1
    assert all(one["randomised"] == 1 and one["asked"] == one["specialist"] for one in found)
    assert all(one["worth"] == one["detail"]["decision"]["worth"][one["asked"]] for one in found)


def test_after_fail_over_the_propensity_belongs_to_whom_was_asked(
    serve: Serve, stub: Stub, router: Router
) -> None:
    picked = router.specialists[0]
    models = [replace(one, model="broken") if one.name == picked else one for one in stubbed(stub, router)]
    gateway = serve(*models, router=router, explore=1.0)
    found = [ask(gateway)[1] for _ in range(12)]
    failed = [one for one in found if one["asked"] == picked]
    assert failed
    assert all(one["specialist"] != picked and one["randomised"] == 0 for one in failed)
    assert all(one["randomised"] == 1 for one in found if one["asked"] == one["specialist"])
    assert {round(one["propensity"], 9) for one in failed[:1]} == {round(1 / len(router.specialists), 9)}


def test_only_what_a_coin_picked_counts_as_randomised(serve: Serve, stub: Stub, router: Router) -> None:
    name = router.specialists[0]
    observing = serve(*stubbed(stub, router), router=router, explore=1.0, mode="observe", default=name)
    assert ask(observing)[1]["randomised"] == 0
    gateway = serve(*stubbed(stub, router), router=router, explore=1.0)
    assert ask(gateway, model=name)[1]["randomised"] == 0
    _, first = ask(gateway, headers={"X_Pandora_Session": "s"})
    assert first["randomised"] == 1
    talk = [{"role": role, "content": PROMPT} for role in ("user", "assistant", "user")]
    _, second = ask(gateway, messages=talk, headers={"X_Pandora_Session": "s"})
    assert (second["asked"], second["randomised"]) == (second["proposed"], 0)


def test_observing_looks_at_nobody_and_records_whom_it_would_have_looked_at(
    talking: Talking, tmp_path: Path
) -> None:
    router = listening().with_policy(Always())
    script(talking, router, "large")
    with closing(Served(talking, router, tmp_path, mode="observe")) as served:
        headers, row = ask(served.running)
        assert headers["x-pandora-specialist"] == router.default
        assert talking.calls == {router.default: 1}
        assert sorted(row["detail"]["would_look"]) == sorted(router.specialists)
        assert row["inspected"] == 0


def test_routing_switched_off_for_one_request(serve: Serve, stub: Stub, router: Router) -> None:
    gateway = serve(*stubbed(stub, router), router=router, default=router.specialists[0])
    headers, row = ask(gateway, headers={"x_pandora_router": "off"})
    assert headers["x-pandora-specialist"] == router.specialists[0]
    assert "switched off" in row["declined"]


def test_a_refusal_names_the_line_to_add_and_a_failure_no_address(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small", abilities=frozenset({"images"})), backend(stub, "broken"))
    asked = {**request("chat", "small"), "tools": [{"type": "function", "function": {"name": "f"}}]}
    status, _, body = post(gateway, "chat/completions", asked)
    assert (status, b"supports: [images, tools]" in body) == (400, True)
    status, _, body = post(gateway, "chat/completions", request("chat", "broken"))
    assert status == 502
    assert b"127.0.0.1" not in body
    assert b"http" not in body
