"""A disk that is really full: the store says so, loses nothing that is kept, and works again by itself."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from pandora_router.errors import UpstreamError
from pandora_router.store import log
from pandora_router.store.worker import Store
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
