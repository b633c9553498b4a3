"""Short operations on PostgreSQL: few round trips, in order, exact budgets, no deadlock, nothing lost."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress

import pytest
import uvloop
from benchmarks.served import Delay

from pandora_router.store import accounts, budgets, log, pipeline_writer, worker
from pandora_router.store.database import Transaction, connect
from pandora_router.store.rows import Attempt, Key, Outcome, Refusal, Session, Settlement
from pandora_router.store.worker import Store
from tests.store.databases import Server
from tests.store.test_laws import NOW, opened


@pytest.fixture
def far(server: Server) -> str:
    """An empty PostgreSQL database."""
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return server.url


def added(store: Store, name: str, budget: int | None, per_minute: int | None = None) -> Key:
    def add(open_: Transaction) -> Key:
        return accounts.add_key(open_, name, NOW, budget=budget, per_minute=per_minute)[0]

    return store.submit(add).result()


async def begin(store: Store, key: Key, id_: str, worst: int) -> Refusal | None:
    def write(open_: Transaction) -> Refusal | None:
        refused = accounts.admit(open_, key, NOW) or budgets.reserve(open_, key, id_, worst, NOW, 60.0)
        if refused is None:
            log.begin(open_, opened(id_, key.id), [Attempt(f"a {id_}", id_, "answer", "small", NOW, worst)])
            log.pin(open_, f"session {hash(id_) % 5}", Session("small"), NOW, 60.0)
        return refused

    return await store.run(write, short=True, of=id_, budgets=budgets.taking(key, NOW))


async def end(store: Store, id_: str, cost: int) -> None:
    last = Settlement(f"a {id_}", Outcome("ok", cost), NOW)

    def write(open_: Transaction) -> None:
        log.close(open_, id_, NOW, status="ok", seconds=1.0, last=last)
        log.pin(open_, f"session {hash(id_) % 5}", Session("large"), NOW, 60.0)

    await store.run(write, kept=True, short=True, of=id_)


def test_a_commit_takes_as_many_round_trips_as_its_longest_operation(server: Server, far: str) -> None:
    with Delay(server.port) as proxy:
        url = far.replace(str(server.port), str(proxy.port))
        with closing(Store(url)) as store:
            keys = [added(store, f"team {i}", 10**6 if i % 2 else None) for i in range(4)]

            async def main(first: int) -> int:
                before = proxy.messages
                ids = [f"{first} {i}" for i in range(60)]
                await asyncio.gather(*(begin(store, keys[i % 4], id_, 10) for i, id_ in enumerate(ids)))
                await asyncio.gather(*(end(store, id_, 7) for id_ in ids))
                return proxy.messages - before

            async def twice() -> int:
                await main(0)  # opens connections
                return await main(1)

            # two kinds of beginnings and one of endings; two round trips each, and a few connections
            assert asyncio.run(twice()) <= 3 * 2 * pipeline_writer.LINES


@pytest.mark.parametrize(("budget", "most"), [(None, [1, 1, 2]), (10**6, [1, 2, 2])])
def test_the_round_trips_of_a_request(server: Server, far: str, budget: int | None, most: list[int]) -> None:
    """Of one request alone, which makes them one after another: its key, its beginning and its end."""
    with Delay(server.port) as proxy, closing(Store(far.replace(str(server.port), str(proxy.port)))) as store:
        key, secret = store.submit(lambda open_: accounts.add_key(open_, "team", NOW, budget=budget)).result()

        async def trips(operation: Awaitable[object]) -> int:
            before = proxy.messages
            await operation
            return proxy.messages - before

        async def main() -> list[int]:
            for id_ in ("first", "second"):  # the first opens the connection and prepares the statements
                find = store.run(lambda open_: accounts.identify(open_, secret), short=True)
                made = [
                    await trips(find),
                    await trips(begin(store, key, id_, 10)),
                    await trips(end(store, id_, 7)),
                ]
            return made

        assert asyncio.run(main()) == most


def test_a_beginning_that_is_made_again_changes_nothing(server: Server, far: str) -> None:
    """As after a commit of which no answer came: the row that was to be new is there."""
    with closing(Store(far)) as store:
        key = added(store, "team", None)

        async def main() -> None:
            await asyncio.gather(begin(store, key, "a", 10), begin(store, key, "b", 10))
            refused = await asyncio.gather(begin(store, key, "a", 10), begin(store, key, "c", 10))
            assert refused == [None, None]
            assert await store.run(lambda open_: budgets.account(open_, key, NOW)) == (0, 30)
            await asyncio.gather(*(end(store, id_, 7) for id_ in "abc"))
            assert await store.run(lambda open_: budgets.account(open_, key, NOW)) == (21, 0)

        asyncio.run(main())


def test_two_stores_never_exceed_a_budget_nor_wait_in_a_circle(far: str) -> None:
    """Random keys, limits, orders and failures; then books are compared with what was done."""
    stores = [Store(far) for _ in range(2)]
    most = [1_500, 1_000, None, None]
    keys = [added(stores[0], f"team {i}", budget, 10**6 if i % 2 else None) for i, budget in enumerate(most)]
    spent = dict.fromkeys((key.id for key in keys), 0)
    refused: list[str] = []

    async def request(store: Store, rng: random.Random, id_: str) -> None:
        key, worst = rng.choice(keys), rng.randrange(1, 60)
        no = await begin(store, key, id_, worst)
        if no is not None:
            assert no.reason == "budget"
            refused.append(key.id)
            return
        cost = rng.randrange(worst + 1)
        if rng.random() < 0.2:  # an earlier attempt failed and cost something: more is reserved
            first = Settlement(f"a {id_}", Outcome("error", cost), NOW)
            store.keep(lambda open_: log.settle(open_, first), short=True, of=id_)
            spent[key.id] += cost
            more = await store.run(
                lambda open_: budgets.extend(open_, key, id_, worst),
                short=True,
                of=id_,
                budgets=budgets.taking(key, NOW),
            )
            cost = 0 if more is not None else cost
            store.keep(
                lambda open_: log.attempt(open_, Attempt(f"b {id_}", id_, "retry", "large", NOW, worst)),
                short=True,
                of=id_,
            )
            last = Settlement(f"b {id_}", Outcome("ok", cost), NOW)
            await store.run(
                lambda open_: log.close(open_, id_, NOW, status="ok", last=last), short=True, of=id_
            )
        else:
            await asyncio.gather(end(store, id_, cost), end(store, id_, cost))
        spent[key.id] += cost

    async def main(number: int) -> None:
        rng, store = random.Random(number), stores[number]
        names = iter(range(300))

        async def client() -> None:
            for i in names:
                await request(store, rng, f"{number} {i}")

        await asyncio.gather(*(client() for _ in range(32)))

    threads = [threading.Thread(target=lambda n=n: asyncio.run(main(n))) for n in range(2)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert time.monotonic() - begun < 100
    for store in stores:
        store.close()
    database = connect(far)
    with database.transaction() as open_:
        for key in keys:
            assert budgets.account(open_, key, NOW) == (spent[key.id], 0)
            assert key.budget is None or spent[key.id] <= key.budget
        assert set(refused) <= {key.id for key in keys if key.budget is not None}
        assert refused
        assert open_.rows("SELECT count(*) FROM decisions WHERE closed_at IS NULL") == [(0,)]
        costs = open_.rows("SELECT sum(cost) FROM decisions UNION ALL SELECT sum(cost) FROM attempts")
        sums = open_.rows("SELECT sum(cost) FROM minutes UNION ALL SELECT sum(cost) FROM calls")
        assert {int(row[0]) for row in (*costs, *sums)} == {sum(spent.values())}
        deadlocks = open_.rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    database.close()
    assert deadlocks == [(0,)]


def test_operations_of_a_decision_are_committed_in_the_order_of_their_calls(far: str) -> None:
    with closing(Store(far)) as store:

        async def main() -> None:
            for i in range(50):
                beginning = asyncio.ensure_future(
                    store.run(lambda open_, i=i: log.begin(open_, opened(f"d{i}")), short=True, of=f"d{i}")
                )
                await asyncio.sleep(0)
                beginning.cancel()
                store.keep(
                    lambda open_, i=i: log.close(open_, f"d{i}", NOW, status="gone"), short=True, of=f"d{i}"
                )

        asyncio.run(main())  # the loop ends while commits are under way
    with closing(connect(far)) as database, database.transaction() as open_:
        assert open_.rows("SELECT status, count(*) FROM decisions GROUP BY 1") == [("gone", 50)]


@pytest.mark.parametrize("unfit", ["fails", "asks otherwise", "reads its sums", "cannot be sent"])
def test_an_operation_that_the_pipeline_cannot_run_harms_no_other(far: str, unfit: str) -> None:
    def odd(open_: Transaction) -> object:
        log.begin(open_, opened("odd"))
        found = open_.rows(
            "SELECT ?::double precision", time.perf_counter() if unfit == "asks otherwise" else 1.0
        )
        if unfit == "fails":
            raise ValueError("no")
        log.begin(open_, opened("\ud800" if unfit == "cannot be sent" else "more"))
        log.close(open_, "odd", NOW, status="ok")
        return open_.rows("SELECT sum(requests) FROM minutes") if unfit == "reads its sums" else found

    with closing(Store(far)) as store:

        async def main() -> list[object]:
            def good(i: int) -> Callable[[Transaction], object]:
                return lambda open_: log.begin(open_, opened(f"d{i}"))

            work = [store.run(good(i), short=True, of=f"d{i}") for i in range(20)]
            return await asyncio.gather(store.run(odd, short=True, of="odd"), *work, return_exceptions=True)

        first, *others = asyncio.run(main())
        assert others == [None] * 20
        rows = store.submit(lambda open_: open_.rows("SELECT id FROM decisions")).result()
    failed = {"fails": ValueError, "cannot be sent": UnicodeEncodeError}.get(unfit)
    assert (type(first) is failed) if failed else isinstance(first, list)
    odds = set() if failed else {"odd", "more"}
    assert {row[0] for row in rows} == {f"d{i}" for i in range(20)} | odds


class Breaking:
    """Passes bytes on to a server. `reset` says what a server says that goes away, and resets connections."""

    FATAL = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0"

    def __init__(self, port: int) -> None:
        self._server = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._near: list[socket.socket] = []
        self.deaf = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._server))
                self._near.append(near)
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                if not self.deaf:
                    other.sendall(data)
            other.close()

    def reset(self) -> None:
        near, self._near = self._near, []
        for one in near:
            one.sendall(b"E" + struct.pack("!i", 4 + len(self.FATAL)) + self.FATAL)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.shutdown(socket.SHUT_RD)  # wakes the thread that waits for it: only then is it really closed
            one.close()

    def close(self) -> None:
        self._listening.close()


def test_a_connection_that_is_reset_behind_a_last_word_is_lost(server: Server, far: str) -> None:
    """uvloop announces a socket with an error once, although only the last word was read by then."""
    with (
        closing(Breaking(server.port)) as proxy,
        closing(Store(far.replace(str(server.port), str(proxy.port)))) as store,
    ):
        key = added(store, "team", 10**6)

        async def main() -> Refusal | None:
            assert await begin(store, key, "first", 10) is None  # opens a connection
            proxy.deaf = True
            waiting = asyncio.ensure_future(begin(store, key, "second", 10))
            await asyncio.sleep(0.2)
            proxy.reset()
            proxy.deaf = False
            time.sleep(0.5)  # last word and error are there when the loop looks
            return await asyncio.wait_for(waiting, 30.0)

        assert uvloop.run(main()) is None


def test_operations_wait_for_a_server_that_restarts(
    server: Server, far: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of a commit whose answer was lost: they are idempotent."""
    monkeypatch.setattr(worker, "PATIENCE", 100.0)
    with closing(Store(far)) as store:
        key = added(store, "team", 10**9)

        async def main() -> list[object]:
            stop = asyncio.Event()

            async def client(number: int) -> list[object]:
                done: list[object] = []
                while not stop.is_set():
                    id_ = f"{number} {len(done)}"
                    try:
                        assert await begin(store, key, id_, 10) is None
                        await end(store, id_, 3)
                        done.append(id_)
                    except Exception as error:
                        done.append(error)
                return done

            clients = [asyncio.ensure_future(client(i)) for i in range(16)]
            await asyncio.sleep(0.3)
            for _ in range(3):
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                await asyncio.sleep(0.3)
            stop.set()
            return [one for each in await asyncio.gather(*clients) for one in each]

        done = asyncio.run(main())
        assert [one for one in done if not isinstance(one, str)] == []
        rows = store.submit(lambda open_: open_.rows("SELECT id, cost, status FROM decisions")).result()
        assert sorted(rows) == sorted((str(id_), 3, "ok") for id_ in done)
        books = store.submit(lambda open_: budgets.account(open_, key, NOW)).result()
        assert books == (3 * len(done), 0)
        served = store.submit(lambda open_: open_.rows("SELECT sum(requests) FROM minutes")).result()
        assert int(served[0][0]) == len(done)
