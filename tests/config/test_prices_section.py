"""The keys `prices`, `with` and `efforts`, and the catalogue against the library that it is from."""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import Any

import pytest

from pandora_router.config import read_config
from pandora_router.config.gateway import backend
from pandora_router.config.price_parts import prices_of
from pandora_router.config.shared import Builder
from pandora_router.config.specialists import ChatSettings, identity
from pandora_router.errors import UsageError
from pandora_router.prices import Tariff, catalogue
from pandora_router.wires.demand import Demand
from pandora_router.wires.usage import Usage

HEAD = """
endpoints:
  here: {base_url: "http://127.0.0.1:9/v1"}
  openai: {base_url: "https://api.openai.com/v1"}
  anthropic: {base_url: "https://api.anthropic.com/v1"}
specialists:
"""


def read(folder: Path, entries: str) -> Any:
    path = folder / "pandora.yaml"
    path.write_text(HEAD + entries)
    return read_config(path)


def chat(config: Any, name: str) -> ChatSettings:
    settings = config.specialists[name]
    assert isinstance(settings, ChatSettings)
    return settings


def test_all_prices_are_read(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
  m:
    kind: chat
    endpoint: here
    model: m
    prices:
      in: 1
      out: 10
      cached_in: 0.1
      cached_write: 1.25
      cached_write_hour: 2
      audio_in: 32
      tools: {web_search: 0.01}
      above: {200000: {in: 2, out: 15}, 90000: {in: 1.5, out: 12}}
      service_tier: {priority: {in: 2, out: 20, above: {200000: {in: 4, out: 30}}}}
      speed: {fast: {in: 6, out: 60}}
""",
    )
    assert prices_of(chat(config, "m").prices) == Tariff(
        1.0,
        10.0,
        cached_in=0.1,
        cached_write=1.25,
        cached_write_hour=2.0,
        audio_in=32.0,
        tools=(("web_search", 0.01),),
        above=((90000, Tariff(1.5, 12.0)), (200000, Tariff(2.0, 15.0))),
        service_tier=(("priority", Tariff(2.0, 20.0, above=((200000, Tariff(4.0, 30.0)),))),),
        speed=(("fast", Tariff(6.0, 60.0)),),
    )


def test_one_line_makes_a_ladder_of_efforts(tmp_path: Path) -> None:
    entry = (
        "kind: chat, endpoint: here, model: m, wires: [chat, responses, messages], prices: {in: 1, out: 2}"
    )
    config = read(tmp_path, f"  m: {{{entry}, with: {{top_p: 0.9}}, efforts: [low, high]}}\n")
    assert config.answering == ("m-low", "m-high")
    built = backend("m-low", config, Builder(config, tmp_path))
    assert built.own == {
        "chat": {"top_p": 0.9, "reasoning_effort": "low"},
        "responses": {"top_p": 0.9, "reasoning": {"effort": "low"}},
        "messages": {"top_p": 0.9, "output_config": {"effort": "low"}},
    }
    assert identity("m-low", config) != identity("m-high", config)
    assert chat(config, "m-low").asking().options == {"top_p": 0.9, "reasoning_effort": "low"}
    plain = read(tmp_path, f"  m-low: {{{entry}}}\n")
    before = plain.specialists["m-low"].decisive(plain)
    assert "with" not in before  # an artifact of a specialist without `with` stays valid


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("efforts: [low, low]", "different words"),
        ("efforts: low", "list of different words"),
        ("efforts: [low], with: {reasoning_effort: high}", "efforts, or reasoning_effort"),
        ("with: {max_tokens: 9}", "not max_tokens"),
        ("with: {Max_Tokens: 9}", "not Max_Tokens"),
        ("with: {chat: {n: 9}}", "not n"),
        ("with: {model: x}", "not model"),
        ("with: {chat: 3}", "members and their values"),
        ("with: {service_tier: priority}", "service_tier: {priority: {in: ..., out: ...}}"),
        ("options: {speed: fast}", "speed: {fast: {in: ..., out: ...}}"),
    ],
)
def test_what_would_hide_its_price_is_refused(tmp_path: Path, more: str, expected: str) -> None:
    with pytest.raises(UsageError, match="line") as error:
        read(tmp_path, f"  m: {{kind: chat, endpoint: here, model: m, prices: {{in: 1, out: 2}}, {more}}}\n")
    assert expected in str(error.value)


def test_a_ladder_does_not_replace_another_specialist(tmp_path: Path) -> None:
    entry = "kind: chat, endpoint: here, model: m, prices: free"
    with pytest.raises(UsageError, match="m-low"):
        read(tmp_path, f"  m-low: {{{entry}}}\n  m: {{{entry}, efforts: [low]}}\n")


def test_a_tier_that_every_request_asks_for_prices_looks_and_answers(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
  m: {kind: chat, endpoint: here, model: m, with: {service_tier: priority},
      prices: {in: 1, out: 10, service_tier: {priority: {in: 2, out: 20}}}}
""",
    )
    assert config.specialists["m"].usual(1000, config, 100) == pytest.approx((2 * 1000 + 20 * 100) / 1e6)


genai_prices = pytest.importorskip("genai_prices", reason="pip install 'pandora-router[prices]'")
MODELS = [
    ("claude-sonnet-4-5", "https://api.anthropic.com/v1"),
    ("claude-haiku-4-5", "https://api.anthropic.com/v1"),
    ("gpt-5.4", "https://api.openai.com/v1"),
    ("gpt-4o-audio-preview", "https://api.openai.com/v1"),
    ("gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta/openai"),
]


@pytest.mark.parametrize(("model", "address"), MODELS)
def test_the_catalogue_bills_as_the_library_does(model: str, address: str) -> None:
    """Our fare of the prices that we read against what genai-prices computes itself, in each tier."""
    from pandora_router.config.price_parts import PriceParts

    listed = catalogue.listed(model, address)
    tariff = PriceParts.model_validate(listed).build()
    snapshot = genai_prices.data_snapshot.get_snapshot()
    _, found = snapshot.find_provider_model(model, None, None, address)
    rng = random.Random(model)
    at = datetime.datetime.combine(catalogue.as_of(), datetime.time(12), datetime.UTC)
    tiers: list[tuple[str, dict[str, str] | None]] = [("", None)]
    tiers += [(name, {"service_tier": name}) for name in listed.get("service_tier", {}) if name != "batch"]
    tiers += [("batch", {"processing": "batch"})] if "batch" in listed.get("service_tier", {}) else []
    for tier, context in tiers:
        for size in (1_000, 150_000, 400_000):
            fresh, cached, output = (rng.randrange(size // 2, size) for _ in range(3))
            written = rng.randrange(size) if "cached_write" in listed else 0
            sound = rng.randrange(100) if "audio_in" in listed else 0
            usage = Usage(fresh, cached, written, output, audio_in=sound, service_tier=tier)
            theirs = genai_prices.Usage(
                input_tokens=fresh + cached + written,
                cache_read_tokens=cached,
                cache_write_tokens=written,
                input_audio_tokens=sound,
                output_tokens=output,
            )
            prices = found.get_prices(at, context).calc_price(theirs)
            assert tariff.of(usage) == pytest.approx(float(prices["total_price"]), rel=1e-12), (tier, size)


def test_prices_of_the_file_win_over_the_catalogue(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
  a: {kind: chat, endpoint: anthropic, model: claude-sonnet-4-5, prices: catalogue}
  b: {kind: chat, endpoint: anthropic, model: claude-sonnet-4-5, prices: {from: catalogue, in: 7}}
  c: {kind: chat, endpoint: here, model: mine,
      prices: {from: catalogue, provider: anthropic, model: claude-sonnet-4-5}}
""",
    )
    a, b, c = (prices_of(chat(config, name).prices) for name in "abc")
    assert (a.per_million_in, a.cached_write, a.cached_write_hour) == (3.0, 3.75, 6.0)
    assert (b.per_million_in, b.cached_write) == (7.0, 3.75)
    assert c == a
    assert a.missing(Demand(parts=frozenset({"cached_in", "cached_write", "image_in"}))) == []


def test_a_model_that_the_catalogue_does_not_know_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the model nobody-made-this"):
        read(tmp_path, "  a: {kind: chat, endpoint: openai, model: nobody-made-this, prices: catalogue}\n")
