"""`pandora doctor` against the fake provider, over real HTTP: what it proposes is what the provider does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from pandora_router.cli import price_notes
from pandora_router.config import read_config
from pandora_router.config.specialists import ChatSettings
from tests.support.command import pandora
from tests.support.provider import Provider
from tests.support.provider_models import Asked, Fault, Model
from tests.support.provider_replies import Said

NUMBERS = tuple(f"number{i} " for i in range(500))


def able(asked: Asked) -> Said:
    """A model that calls tools, keeps to a schema and sees pictures, on all wires."""
    text = json.dumps(asked.body)
    if asked.body.get("tools"):
        return Said((), calls=(("look_up_temperature", '{"city": "Oslo"}'),))
    if "json_schema" in text:
        return Said(('{"capital":', ' "Oslo"}'))
    return Said(("It", " is", " red.")) if "image" in text else Said(NUMBERS)


def plain(asked: Asked) -> Said:
    """A model that counts, whatever it is asked."""
    return Said(NUMBERS)


def thinking(asked: Asked) -> Said:
    """A model that reasons for 20 tokens before it answers, and does not show it."""
    return Said(("four",), hidden=20)


def chat_only(asked: Asked) -> Fault:
    return Fault() if asked.wire == "chat/completions" else Fault(status=404)


SLOW = {"first": 0.02, "each": 0.005}
MODELS = {
    "able": Model(able, **SLOW),
    "plain": Model(plain, **SLOW, cancel="bills_full", fault=chat_only),
    "thinking": Model(thinking, fault=chat_only),
    "locked": Model(fault=lambda _: Fault(status=401)),
}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with closing(Provider(MODELS)) as running:
        running.states_bills = True
        yield running


def written(folder: Path, provider: Provider, **entries: dict[str, Any]) -> Path:
    """A pandora.yaml with these specialists; what an entry leaves out is usual."""
    usual = {"kind": "chat", "endpoint": "local"}
    content = {
        "endpoints": {"local": {"base_url": provider.url}},
        "specialists": {name: {**usual, **entry} for name, entry in entries.items()},
        "serve": {"keys": "none", "default": next(iter(entries))},
    }
    path = folder / "pandora.yaml"
    path.write_text(json.dumps(content, indent=1))
    return path


def examined(path: Path, code: int = 0) -> dict[str, Any]:
    result = pandora("doctor", path, "--yes", "--json")
    assert result.exit_code == code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


PRICES = {"in": 1.0, "out": 10.0}


def test_what_it_proposes_is_what_the_provider_does(provider: Provider, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        provider,
        able={"model": "able", "prices": PRICES},
        plain={"model": "plain", "prices": PRICES, "supports": ["tools", "logprobs"]},
        thinking={"model": "thinking", "prices": PRICES},
    )
    found = examined(path)["specialists"]
    settings = {name: one["settings"] for name, one in found.items()}
    assert settings["able"]["supports"] == ["tools", "images", "json_schema"]
    assert settings["able"]["wires"] == ["chat", "responses", "messages"]
    assert settings["plain"]["supports"] == ["logprobs"]
    assert "wires" not in settings["plain"]
    assert settings["thinking"]["looks"] is False
    assert "looks" not in settings["able"]


@pytest.mark.parametrize("home", ["responses", "messages"])
def test_abilities_are_tried_on_the_first_wire_of_the_entry(
    provider: Provider, tmp_path: Path, home: str
) -> None:
    path = written(tmp_path, provider, able={"model": "able", "prices": PRICES, "wires": [home]})
    settings = examined(path)["specialists"]["able"]["settings"]
    assert settings["supports"] == ["tools", "images", "json_schema"]
    assert sorted(settings["wires"]) == ["chat", "messages", "responses"]


@pytest.mark.parametrize(("model", "cancel"), [("able", "stops"), ("plain", "bills_full")])
def test_cancel_is_read_from_the_bill(provider: Provider, tmp_path: Path, model: str, cancel: str) -> None:
    found = examined(written(tmp_path, provider, it={"model": model, "prices": PRICES}))
    assert found["specialists"]["it"]["settings"]["cancel"] == cancel
    [bill] = [bill for bill in provider.log if bill.ended == "cancelled"]
    assert (bill.tokens.output < 128) == (cancel == "stops")


def test_without_a_stated_bill_it_says_where_to_look(provider: Provider, tmp_path: Path) -> None:
    provider.states_bills = False
    found = examined(written(tmp_path, provider, it={"model": "able", "prices": PRICES}))["specialists"]["it"]
    assert "cancel" not in found["settings"]
    assert any("`cancel: stops`" in note and "UTC" in note for note in found["notes"])


def test_the_lines_can_be_pasted(provider: Provider, tmp_path: Path) -> None:
    provider.listed["able"] = {
        "context_length": 8192,
        "top_provider": {"max_completion_tokens": 2048},
        "pricing": {"prompt": "0.0000005", "completion": "0.000002"},
    }
    path = written(tmp_path, provider, able={"model": "able"})  # without prices the file is invalid
    line = examined(path)["specialists"]["able"]["line"]
    content = yaml.safe_load(path.read_text())
    content["specialists"] = yaml.safe_load(line)
    path.write_text(json.dumps(content))
    stated = read_config(path).specialists["able"]
    assert (stated.prices.tokens_in, stated.prices.tokens_out) == (0.5, 2.0)  # type: ignore[union-attr]
    assert (stated.window, stated.max_output_tokens) == (8192, 2048)  # type: ignore[union-attr]
    assert examined(path)["specialists"]["able"]["line"] == ""  # nothing is left to propose


def test_it_says_the_bill_first_and_spends_nothing_unasked(provider: Provider, tmp_path: Path) -> None:
    path = written(tmp_path, provider, able={"model": "able", "prices": PRICES})
    result = pandora("doctor", path, stdin="n\n")
    assert result.exit_code == 1
    assert "at most" in result.stderr
    assert "$" in result.stderr
    assert not provider.calls
    examined(path)
    told = float(result.stderr.partition("together: $")[2].split()[0])
    assert 0 < sum(bill.nanodollars for bill in provider.log) / 1e9 <= told


def test_who_does_not_answer_is_named_with_what_to_do(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCTOR_TEST_KEY", raising=False)
    path = written(
        tmp_path,
        provider,
        locked={"model": "locked", "prices": PRICES},
        absent={"model": "abel", "prices": PRICES},
        keyless={"model": "able", "prices": PRICES, "endpoint": "keyed"},
    )
    content = yaml.safe_load(path.read_text())
    content["endpoints"]["keyed"] = {"base_url": provider.url, "key_from": "DOCTOR_TEST_KEY"}
    path.write_text(json.dumps(content, indent=1))
    found = examined(path, code=1)["specialists"]
    assert {one["spent"] for one in found.values()} == {0.0}
    assert "key_from" in found["locked"]["notes"][0]
    assert "Did you mean 'able'?" in found["absent"]["notes"][0]
    assert found["keyless"]["notes"] == ["Set the key: export DOCTOR_TEST_KEY=..."]
    assert provider.calls["able"] == 0
    assert provider.calls["locked"] == 1


def test_it_says_that_clients_need_a_key(provider: Provider, tmp_path: Path) -> None:
    path = written(tmp_path, provider, able={"model": "able", "prices": PRICES})
    path.write_text(path.read_text().replace('"keys": "none"', '"keys": "required"'))
    assert "pandora keys add" in examined(path)["notes"][0]
    assert not (tmp_path / "pandora.sqlite").exists()  # a look at the file does not make the store


def test_what_has_no_price_and_what_is_out_of_date_is_said(
    tmp_path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalogue knows the model by the name of its provider; the file pays less for it."""
    pytest.importorskip("genai_prices", reason="pip install 'pandora-router[prices]'")
    name, there = "claude-sonnet-4-5", {"from": "catalogue", "provider": "anthropic"}
    provider.models = {**MODELS, name: MODELS["able"]}
    usual = {"model": name, "wires": ["chat", "messages"], "supports": ["images"]}
    path = written(
        tmp_path,
        provider,
        listed={**usual, "prices": there},
        bare={**usual, "prices": {"in": 1, "out": 2}},
        low={**usual, "prices": {"in": 1, "out": 2}, "efforts": ["low"]},
    )
    path.write_text(path.read_text().replace('"default": "listed"', '"default": "bare"'))
    found = examined(path)["specialists"]
    assert set(found) == {"listed", "bare", "low-low"}
    efforts = [b'effort": "low"' in body for body in provider.bodies]
    assert 3 * sum(efforts) == len(efforts)  # the calls to one of three specialists
    assert any("genai-prices" in note and "prices of 20" in note for note in found["listed"]["notes"])
    lacks = "add image_in: ..., cached_in: ..., cached_write: ... to its prices"
    assert any(lacks in note for note in found["bare"]["notes"])
    assert not any("add image_in" in note for note in found["listed"]["notes"])
    monkeypatch.setattr(price_notes, "OLD", -1)
    found = examined(path)["specialists"]
    assert any("pip install --upgrade genai-prices" in note for note in found["listed"]["notes"])


def test_prices_that_differ_from_the_catalogue_are_named() -> None:
    pytest.importorskip("genai_prices", reason="pip install 'pandora-router[prices]'")
    entry = {"kind": "chat", "endpoint": "e", "model": "claude-sonnet-4-5", "prices": {"in": 2.5, "out": 15}}
    stated = ChatSettings.model_validate(entry)
    notes = " ".join(price_notes.price_notes(stated, entry["prices"], "https://api.anthropic.com/v1"))
    assert "in: 3 (here 2.5)" in notes
    assert "out:" not in notes
    assert "cached_write_hour" in notes


def test_tools_are_not_said_to_be_unserved(tmp_path: Path) -> None:
    path = tmp_path / "pandora.yaml"
    path.write_text(
        "specialists:\n"
        '  sums: {kind: function, function: "builtins:len", prices: {call: 0}}\n'
        "  search: {kind: mcp, command: [search], tool: search, argument: query, prices: {call: 0}}\n"
        "serve: {keys: none, default: sums}\n"
    )
    told = pandora("doctor", path, "--yes")
    assert told.exit_code == 0, told.output
    assert told.output.count("not tried") == 2
    assert "not served" not in told.output
