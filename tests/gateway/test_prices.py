"""What looks cost: by hand for each kind of cancellation, from measurements that nobody can poison."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pandora_router.boxes import Costs
from pandora_router.collect.assemble import measured
from pandora_router.config import read_config
from pandora_router.config.gateway import prices
from pandora_router.config.inspection import looking
from pandora_router.config.specialists import ChatSettings
from pandora_router.data import load, save
from pandora_router.gateway.providers.backend import Backend
from pandora_router.gateway.request.looks import LookOutlook
from pandora_router.prices import (
    FASTEST,
    PREFIXES,
    Cancelling,
    Fare,
    Lengths,
    RecentMean,
    Tariff,
    look_fare,
)
from pandora_router.specialists.specialist import Answer
from pandora_router.store.money import nanodollars
from pandora_router.transport.endpoint import Endpoint
from pandora_router.wires.usage import Usage
from tests.gateway.conftest import Serve, backend
from tests.gateway.stub import Stub
from tests.gateway.test_routing import stubbed
from tests.gateway.test_wires import post, request
from tests.support.routers import fitted
from tests.support.tables import generate

FILE = """
endpoints: {here: {base_url: "http://127.0.0.1:9/v1"}}
specialists:
  small: {kind: chat, endpoint: here, model: s, cancel: CANCEL, prices: {in: 1, out: 2}}
  large: {kind: chat, endpoint: here, model: l, cancel: CANCEL, prices: {in: 10, out: 20, call: 0.001}}
value: {right_answer: 0.5, second: 0.01}
fit: {costly: {peek: 40}}
"""
LENGTHS = {
    "input": 30.0,
    "output": 50.0,
    "tokens_per_character": 0.25,
    "tokens_per_byte": 0.2,
    "seconds": 0.5,
}


@pytest.mark.parametrize(
    ("cancel", "written"),
    [("stops", 12.0 + 100.0 * 0.02), ("bills_full", 50.0), ("unknown", 50.0)],
)
def test_a_look_by_hand(cancel: Cancelling, written: float) -> None:
    """12 tokens are read; 2 more are written in the 20 ms for which the look is held, at 100 a second."""
    lengths = Lengths.of({"output": 50.0, "rate": 100.0, "first_token": 0.5})
    lengths.waited.add(0.02)
    tariff = Tariff(1.0, 10.0, per_call=0.001)
    fare = look_fare(tariff, cancel, lengths, tariff.price(300, 0), 12.0, 4096)
    assert fare.money == pytest.approx((300 + written * 10) / 1e6 + 0.001)
    assert fare.whole == pytest.approx((300 + 50 * 10) / 1e6 + 0.001)
    assert fare.seconds == pytest.approx(0.5 + 12 / 100)
    short = look_fare(tariff, cancel, lengths, 0.0, 400.0, 30)
    assert short.money == short.whole == pytest.approx(30 * 10 / 1e6)  # never more than the whole answer


@pytest.mark.parametrize("cancel", ["stops", "bills_full", "unknown"])
def test_a_fit_prices_a_look_as_the_gateway_does(tmp_path: Path, cancel: Cancelling) -> None:
    """The lengths of a collected table survive its folder, and give the same price on both sides."""
    names = ["small", "large"]
    table = generate(contexts=True).only(names).with_fee_weight(2.0)
    save(type(table)(**{**vars(table), "lengths": dict.fromkeys(names, LENGTHS)}), tmp_path / "table")
    (tmp_path / "pandora.yaml").write_text(FILE.replace("CANCEL", cancel))
    config, table = read_config(tmp_path / "pandora.yaml"), load(tmp_path / "table")
    looks = looking(config, table).looks
    costs = looking(config, table).cost
    assert isinstance(costs, Costs)
    assert not len(costs.shared)  # estimates from everything opened need looks that are paid for one by one
    assert costs.own.tolist() == costs.refund.tolist()
    assert costs.own == pytest.approx([2.0 * (fare.money + 0.01 * fare.seconds) for fare in looks.values()])
    for name in names:
        # a look reads 10 tokens in 0.1 s, and loses to one that takes as long
        settings, lengths = config.specialists[name], Lengths.of({**LENGTHS, "waited": 0.1})
        assert isinstance(settings, ChatSettings)
        tariff = prices(name, settings.prices)
        prompt = tariff.of(lengths.expected(150, "chat", "", 0, 0.0))  # 150 bytes at 0.2 are 30 tokens
        served = look_fare(tariff, settings.cancel, lengths, prompt, lengths.seen(40), 4096)
        assert looks[name].money == pytest.approx(served.money)
    assert looks["small"].seconds == pytest.approx(0.1)
    by_hand = (30 + 2 * (10 + 10 if cancel == "stops" else 50)) / 1e6
    assert looks["small"].money == pytest.approx(by_hand)


def test_only_streams_measure_speed() -> None:
    """A reply that is not streamed, and a stream that came in one piece, gave 470,000 tokens a second."""
    lengths = Lengths()
    lengths.answered(Usage(20, output=47), 1.0001, size=100)
    assert lengths.rate.value is None
    lengths.answered(Usage(20, output=47), 1.0001, size=100, first_token=1.0)
    assert lengths.rate.value is None
    lengths.answered(Usage(20, output=41), 3.0, size=100, first_token=1.0)
    assert lengths.rate.value == pytest.approx(20.0)


def test_a_reply_that_is_not_streamed_says_nothing_about_speed(serve: Serve, stub: Stub) -> None:
    gateway = serve(backend(stub, "small"))
    headers = post(gateway, "chat/completions", request("chat", "small"))[1]
    gateway.settled(headers["x-pandora-decision-id"])
    lengths = gateway.gateway.measured["small"]
    assert lengths.output.count == 1
    assert lengths.rate.value is None
    assert lengths.first_token.value is None


def test_nobody_poisons_the_bills_of_others() -> None:
    """Claims of millions of tokens, and turns whose input lies at the provider, do not move estimates."""
    lengths, honest = Lengths(), Usage(25, output=10)
    for _ in range(3):
        lengths.answered(honest, 1.0, size=100)
        lengths.answered(Usage(250, output=10), 1.0, size=1000)
    lengths.answered(Usage(5_000_000, output=5), 1.0, size=100)
    for _ in range(10):
        lengths.answered(Usage(90_000, output=10), 1.0, size=200, stated=False)
        lengths.answered(Usage(90, output=10), 1.0, size=100, wire="responses")
    assert lengths.expected(1000, "chat", "", 0, 0.0).fresh == 250
    for _ in range(100):
        lengths.answered(Usage(163, output=10**8), 1.0, size=100, most=64)
    assert lengths.expected(1000, "chat", "", 0, 0.0).fresh <= 1000  # never more tokens than bytes
    assert lengths.answer(4096) <= 64


@given(
    st.lists(st.tuples(*[st.integers(0, 10**6)] * 4, st.integers(0, 5000)), max_size=5),
    st.integers(0, 5000),
    st.integers(1, 4096),
)
def test_no_call_is_expected_to_cost_more_than_was_reserved(
    calls: list[tuple[int, int, int, int, int]], size: int, most: int
) -> None:
    """Whatever a provider claimed before: the estimate is charged if a worker dies during the call."""
    prices = Tariff(1.0, 10.0, cached_in=0.1, cached_write=1.25)
    specialist = Backend("small", Endpoint("http://127.0.0.1:9/v1"), "small", prices)
    lengths = Lengths()
    for fresh, cached, written, output, bytes_ in calls:
        lengths.answered(Usage(fresh, cached, written, output), 1.0, size=bytes_, prefix="p")
    usage = lengths.expected(size, "chat", "p", lengths.answer(most), 0.0)
    assert specialist.cost(usage) <= specialist.bound(size, most)
    assert usage.output <= most


def test_writing_to_a_cache_has_a_price_of_its_own(tmp_path: Path) -> None:
    text = FILE.replace("CANCEL", "stops").replace("in: 1,", "in: 1, cached_in: 0.1, cached_write: 1.25,")
    (tmp_path / "pandora.yaml").write_text(text)
    settings = read_config(tmp_path / "pandora.yaml").specialists["small"]
    assert isinstance(settings, ChatSettings)
    tariff = prices("small", settings.prices)
    assert tariff.of(Usage(100, 1000, 10_000, 10)) == pytest.approx((100 + 100 + 12_500 + 20) / 1e6)
    assert tariff.most(1000, 10) == pytest.approx((1064 * 1.25 + 20) / 1e6)
    plain = Tariff(1.0, 2.0)
    assert plain.of(Usage(100, 1000, 10_000, 10)) == pytest.approx((11_100 + 20) / 1e6)


def test_collected_answers_give_lengths_and_speeds() -> None:
    def answer(out: int, *, streamed: bool) -> Answer:
        waited = 1.0 if streamed else None
        return Answer("x" * (4 * out), 30, out, 2.0, 0.0, "x" * 40, context_seconds=waited, bytes_in=150)

    means = measured([answer(20, streamed=False), answer(40, streamed=True)])
    assert means == pytest.approx(
        {
            "input": 30.0,
            "output": 30.0,
            "tokens_per_byte": 0.2,
            "tokens_per_character": 0.25,
            "seconds": 2.0,
            "rate": 30.0,  # 40 - 10 tokens after the context, in a second
            "first_token": 1.0 - 10 / 30,
        }
    )
    assert measured([]) == {}
    assert measured([Answer("x", None, None, 1.5, 0.0)]) == {"seconds": 1.5}


def test_a_gateway_starts_from_the_lengths_of_its_fit(serve: Serve, stub: Stub) -> None:
    router = fitted()
    router = replace(router, record=replace(router.record, lengths={"small": LENGTHS}))
    gateway = serve(*stubbed(stub, router), router=router)
    assert gateway.gateway.measured["small"].answer(4096) == 50.0
    ask = request("chat", "small", max_tokens=40)
    post(gateway, "chat/completions", ask)
    [(estimate,)] = gateway.rows("SELECT estimate FROM attempts")
    tokens = round(0.2 * len(json.dumps(ask).encode()))
    assert np.isclose(estimate, nanodollars((tokens + 40 * 10.0) / 1e6))


def test_amounts_in_sentences_are_written_out() -> None:
    outlook = LookOutlook("small", Fare(0.0000123, 0.000456), "stops")
    assert outlook.sentence == "looks at small cost about $0.0000123; a whole answer $0.000456"


def test_means_are_plain_at_first_and_what_is_kept_is_bounded() -> None:
    mean = RecentMean()
    for value in (1.0, 3.0, 8.0):
        mean.add(value)
    assert mean.value == pytest.approx(4.0)
    for _ in range(1000):
        mean.add(2.0)
    mean.add(12.0)  # a new price list is believed soon, whatever was measured before
    assert mean.value == pytest.approx(2.0 + 0.05 * 10.0, rel=1e-6)
    buffered = Lengths.of({"output": 1e9, "seconds": 1.0, "waited": 2.0})
    assert buffered.held == 2.0 * FASTEST
    lengths = Lengths()
    for i in range(PREFIXES + 1):
        lengths.answered(Usage(10, 15, output=1), 1.0, size=100, prefix=f"p{i}")
    assert [lengths.expected(100, "chat", f"p{i}", 0, 0.0).cached for i in (0, 1)] == [0, 15]
