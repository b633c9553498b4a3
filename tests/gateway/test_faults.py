"""A worker or the database is killed in the middle of traffic: `benchmarks.faults`, in a small version."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from benchmarks import faults

from tests.gateway.stub import Stub
from tests.gateway.test_serve import CONFIG, ask, served
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


def test_a_change_while_the_database_is_gone_is_served_when_it_is_back(
    stub: Stub,
    tmp_path: Path,
    server: Server,  # noqa: F811
) -> None:
    config = tmp_path / "pandora.yaml"

    def write(default: str) -> None:
        stated = CONFIG.format(url=stub.url, default=default)
        config.write_text(stated.replace("serve: {", f'serve: {{store: "{server.url}", '))

    write("small")
    with served(tmp_path) as (_, url, lines):
        assert ask(url)[0] == "small"
        server.kill()
        try:
            write("large")
            until = time.monotonic() + 60
            while not any("not used" in line for line in lines):
                assert time.monotonic() < until
                time.sleep(0.1)
        finally:
            server.start()
        while not any("serving generation" in line for line in lines):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert ask(url)[0] == "large"
