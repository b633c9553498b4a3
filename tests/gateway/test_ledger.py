"""The rows of one request, without a server: what is reserved, and what counts against the rate limit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pandora_router.gateway.generation import Settings
from pandora_router.gateway.request.ledger import Ledger
from pandora_router.store import accounts, budgets
from pandora_router.store.rows import DecisionRow, Key
from pandora_router.store.worker import Store

NOW = 1_800_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(f"sqlite:///{tmp_path / 'gateway.db'}")
    yield made
    made.close()


def row(key: Key) -> DecisionRow:
    return DecisionRow("d1", NOW, key.id, "chat", "route", "Never()", "abc", 1, "small", "small")


def test_what_a_judge_costs_is_reserved_with_the_worst_case(store: Store) -> None:
    async def run() -> None:
        key, _ = await store.run(lambda open_: accounts.add_key(open_, "team", NOW, budget=100))
        ledger = Ledger("d1", store, Settings("small"), NOW, key=key)
        refused = await ledger.begin(row(key), (), 90, judged=11)
        assert refused is not None
        assert refused.reason == "budget"
        assert await ledger.begin(row(key), (), 90, judged=10) is None
        assert await store.run(lambda open_: budgets.account(open_, key, NOW)) == (10, 90)

    asyncio.run(run())


def test_a_request_tried_again_within_a_smaller_budget_counts_once_for_the_rate(store: Store) -> None:
    async def run() -> None:
        key, _ = await store.run(lambda open_: accounts.add_key(open_, "team", NOW, budget=100, per_minute=1))
        ledger = Ledger("d1", store, Settings("small"), NOW, key=key)
        refused = await ledger.begin(row(key), (), 101)
        assert refused is not None
        assert refused.reason == "budget"
        assert await ledger.begin(row(key), (), 50) is None
        another = await Ledger("d2", store, Settings("small"), NOW, key=key).begin(row(key), (), 1)
        assert another is not None
        assert another.reason == "rate"

    asyncio.run(run())
