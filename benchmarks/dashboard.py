"""How fast the pages of the dashboard are over many decisions: `python -m benchmarks.dashboard`.

    --decisions N   how many decisions, over thirty days [1,000,000]
    --store PATH    a SQLite file, made if it is not there, so that a second run need not write it again
    --page PATH     also write the table between the marks of this page, docs/dashboard.md

Every page is asked for over a real socket, `TIMES` times after a first request. A page passes if its slowest
answer is under `LIMIT`; exit code 1 if one does not. Run it on a quiet machine: the processor seconds of a
page, client included, are printed too.
"""

from __future__ import annotations

import argparse
import http.client
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.dashboard.conftest import Running
from tests.support.traffic import fill, hold_auctions, team
from tools.pages import put

from pandora_router.report.tables import grid
from pandora_router.store.database import Transaction, connect
from pandora_router.store.migrations import migrate

LIMIT = 0.2
TIMES = 7
COPIES = 10
SPAN = 3 * 86_400
MOVED: dict[
    str, dict[str, str]
] = {  # columns that differ in a copy: ids, and times with their unit in seconds
    "decisions": {"id": "", "at": "1", "closed_at": "1"},
    "bodies": {"decision": ""},
    "attempts": {"id": "", "decision": "", "at": "1", "settled_at": "1"},
    "feedback": {"id": "", "decision": "", "at": "1"},
    "minutes": {"minute": "60"},
    "hours": {"hour": "3600"},
    "calls": {"hour": "3600"},
    "looked": {"hour": "3600"},
    "judged": {"hour": "3600"},
    "spreads": {"start": "span"},
}
PAGES = {
    "today, 24 h": "",
    "today, 30 days": "?range=30d",
    "decisions": "/decisions",
    "decisions of one specialist, 30 days": "/decisions?range=30d&specialist=code",
    "decisions that nothing fits, 30 days": "/decisions?range=30d&least=1000&policy=none",
    "decisions declined and dear, 30 days": "/decisions?range=30d&declined=yes&least=0.00008",
    "decisions that looks changed": "/decisions?range=30d&changed=yes",
    "decisions by text, 30 days": "/decisions?range=30d&text=nothing+has+this",
    "one decision": "/decisions/{id}",
    "specialists, 30 days": "/specialists?range=30d",
    "looks, 30 days": "/looks?range=30d",
    "calibration": "/calibration",
    "keys, 30 days": "/keys?range=30d",
    "reconcile, 30 days": "/reconcile?range=30d",
    "market, 30 days": "/market?range=30d",
    "one auction": "/market/auction-3000-7",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--decisions", type=int, default=1_000_000)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = asked.store or Path(folder) / "store.sqlite"
        if not path.exists():
            write(path, asked.decisions)
        running = Running(path)
        try:
            slow = measure(running, asked.page)
        finally:
            running.close()
    sys.exit(f"over {LIMIT:g} s: {', '.join(slow)}" if slow else None)


def write(path: Path, decisions: int) -> None:
    """Fill a new store: the last three days through the functions that write real traffic, then copies.

    A copy lies a multiple of three days earlier, so that the sums of whole minutes, hours and days move with
    the rows they were made of.
    """
    database = connect(str(path))
    migrate(database)
    now, size = time.time(), decisions // COPIES
    since, begun = now - SPAN, time.perf_counter()
    with database.transaction() as open_:
        keys = team(open_, now - COPIES * SPAN)
        fill(open_, size, since, now, keys=keys, feedback=0.1)
        hold_auctions(open_, 3000, since, now)
    print(f"{size:,} decisions written at {size / (time.perf_counter() - begun):,.0f} a second")
    for table in MOVED:
        with database.transaction() as open_:
            open_.run(f"CREATE TEMP TABLE first_{table} AS SELECT * FROM {table}")
    for copy in range(1, COPIES):
        with database.transaction() as open_:
            for table in MOVED:
                open_.run(copied(open_, table, copy))
        print(f"\r{(copy + 1) * size:,} decisions", end="", flush=True)
    with database.transaction() as open_:
        open_.run("ANALYZE")
    database.close()
    print()


def copied(open_: Transaction, table: str, copy: int) -> str:
    """The statement that copies the first rows of a table to `copy` spans earlier, under other ids."""
    moved = MOVED[table]
    shown = []
    for _, name, kind, *_ in open_.rows(f"PRAGMA table_info({table})"):
        if name in moved and kind == "TEXT":
            shown.append(f"{name} || '-{copy}'")
        elif name in moved:
            shown.append(f"{name} - {copy * SPAN} / {moved[name]}")
        else:
            shown.append(name)
    return (
        f"INSERT INTO {table} SELECT {', '.join(shown)} FROM first_{table} WHERE true ON CONFLICT DO NOTHING"
    )


def measure(running: Running, page: Path | None) -> list[str]:
    """Print median, slowest and processor time of every page, also into the file `page` if it is given.

    Returns the pages that are too slow.
    """
    slow, rows = [], []
    id_, count = running.store.submit(
        lambda open_: open_.rows("SELECT max(id), count(*) FROM decisions")[0]
    ).result()
    told = f"{count:,} decisions; seconds of {TIMES} requests after the first"
    told += f"; {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start"
    print(f"{told}\n")
    for title, path in PAGES.items():
        ask(running, path.format(id=id_))
        times: list[float] = []
        used = time.process_time()
        for _ in range(TIMES):
            begun = time.perf_counter()
            size = ask(running, path.format(id=id_))
            times.append(time.perf_counter() - begun)
        used = (time.process_time() - used) / TIMES
        middle, worst = statistics.median(times), max(times)
        rows.append([title, f"{middle:.3f}", f"{worst:.3f}", f"{used:.3f}", f"{size / 1000:.0f}"])
        print("  ".join([f"{title:38}", *rows[-1][1:]]))
        if worst > LIMIT:
            slow.append(title)
    if page is not None:
        put(f"{told}:\n\n{grid(['page', 'median', 'slowest', 'processor', 'kB'], rows)}", page)
    return slow


def ask(running: Running, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
    try:
        connection.request("GET", f"/dashboard{path}")
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (path, answer.status, body[-300:])
        return len(body)
    finally:
        connection.close()


if __name__ == "__main__":
    main()
