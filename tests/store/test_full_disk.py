"""A disk that is really full: the store says so, loses nothing that is kept, and works again by itself."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from pandora_router.errors import UpstreamError
from pandora_router.gateway.generation import Settings, Site
from pandora_router.gateway.http.app import Gateway
from pandora_router.store import accounts, log
from pandora_router.store.money import UNIT
from pandora_router.store.worker import Store
from tests.gateway.conftest import Running, backend
from tests.gateway.stub import Stub
from tests.store.test_laws import opened


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _fill(ballast: Path) -> None:
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass


@pytest.mark.parametrize("short", [False, True])
def test_a_full_disk_is_named_and_what_is_kept_is_written_when_there_is_room(
    disk: Path, short: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(store: Store) -> None:
        await store.run(lambda open_: log.begin(open_, opened("before")), short=short)
        ballast = disk / "ballast"
        _fill(ballast)
        results = [  # the first ones may fit into blocks that the store has already
            store.run(lambda open_, i=i: log.begin(open_, opened(f"d{i}"), prompt="x" * 20_000))
            for i in range(40)
        ]
        failures = [one for one in await asyncio.gather(*results, return_exceptions=True) if one is not None]
        assert failures
        assert all(isinstance(one, UpstreamError) and "the disk of the store" in str(one) for one in failures)
        store.keep(lambda open_: log.close(open_, "before", 1.0, status="ok"), short=short)
        await asyncio.sleep(0.5)
        ballast.unlink()
        for _ in range(200):
            rows = await store.run(
                lambda open_: open_.rows("SELECT status FROM decisions WHERE id = 'before'")
            )
            if rows == [("ok",)]:
                break
            await asyncio.sleep(0.05)
        assert rows == [("ok",)]
        await store.run(lambda open_: log.begin(open_, opened("after"), prompt="x" * 20_000), short=short)

    with (
        caplog.at_level(logging.WARNING, "pandora_router.store"),
        closing(Store(str(disk / "s.db"))) as store,
    ):
        asyncio.run(main(store))
    assert "the disk of the store" in caplog.text
    assert "works again" in caplog.text


def _asked(url: str, key: str, number: int) -> tuple[int, dict[str, Any]]:
    """Ask the specialist "a" by its name; status and reply."""
    body = {"model": "a", "messages": [{"role": "user", "content": f"{number} {'x' * 4_000}"}]}
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_requests_without_a_budget_are_served_and_charged_when_there_is_room(disk: Path) -> None:
    """What is charged in the end is what the replies say that it cost."""
    with closing(Stub()) as stub, closing(Store(str(disk / "s.db"))) as store:
        free, limited = (
            store.submit(
                lambda open_, name=name, budget=budget: accounts.add_key(
                    open_, name, time.time(), budget=budget
                )
            ).result()[1]
            for name, budget in (("free", None), ("limited", 100 * UNIT))
        )
        settings = Settings("a", keys=True, bodies=True, on_failure="serve")
        with closing(Running(Gateway(Site((backend(stub, "a"),), settings), store))) as running:
            assert _asked(running.url, limited, -1)[0] == 200
            ballast = disk / "ballast"
            _fill(ballast)
            answers = [_asked(running.url, free, number) for number in range(40)]
            refused = [_asked(running.url, limited, number) for number in range(40, 60)]
            assert {status for status, _ in answers} == {200}
            assert refused[-1][0] == 503
            assert "the disk of the store" in refused[-1][1]["error"]["message"]
            written = running.rows("SELECT COUNT(*) FROM decisions WHERE closed_at IS NOT NULL")[0][0]
            assert written < 40  # or nothing was tried
            ballast.unlink()
            usages = [reply["usage"] for _, reply in answers]
            owed = sum(1_000 * u["prompt_tokens"] + 10_000 * u["completion_tokens"] for u in usages)
            until = time.monotonic() + 30
            paid = 0
            while paid != owed and time.monotonic() < until:
                time.sleep(0.1)
                paid = running.rows(
                    "SELECT COALESCE(SUM(b.spent), 0) FROM budgets b JOIN keys k ON k.id = b.key "
                    "WHERE k.name = 'free'"
                )[0][0]
            assert paid == owed
            assert _asked(running.url, limited, 99)[0] == 200
