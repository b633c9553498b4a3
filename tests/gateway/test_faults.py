"""A worker or the database is killed in the middle of traffic: `benchmarks.faults`, in a small version."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from benchmarks import faults

from tests.store.conftest import server  # noqa: F401 (a fixture)
from tests.store.databases import Server

pytestmark = pytest.mark.slow


def test_no_row_and_no_money_is_lost_with_a_worker(tmp_path: Path) -> None:
    store = str(tmp_path / "store.sqlite")
    found = faults.run(tmp_path, store, random.Random(1), workers=2, requests=80)
    assert found.broken == ()
    assert found.answered > 0


def test_no_row_and_no_money_is_lost_with_the_database(tmp_path: Path, server: Server) -> None:  # noqa: F811
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    rng = random.Random(2)
    found = faults.run(tmp_path, server.url, rng, workers=2, requests=80, database=server)
    assert found.broken == ()
    assert found.answered > 0
