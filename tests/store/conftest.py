"""Both databases behind one fixture: every law of the store holds for each of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pandora_router.store.database import Database, connect
from pandora_router.store.migrations import migrate
from tests.store.databases import Server, postgresql, programs


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One PostgreSQL server for all tests; outside CI they are skipped where it is not installed."""
    if programs() is None:
        if os.environ.get("CI"):
            raise RuntimeError("CI must install PostgreSQL: apt-get install postgresql")
        pytest.skip("PostgreSQL is not installed here: apt-get install postgresql")
    pytest.importorskip("psycopg", reason="pip install 'pandora-router[postgres]'")
    with postgresql() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "store.sqlite")
    import psycopg

    running: Server = request.getfixturevalue("server")
    with psycopg.connect(running.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return running.url


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    """An open connection to an empty database with all tables."""
    opened = connect(url)
    migrate(opened)
    yield opened
    opened.close()
