"""Every runner on one machine: the answers of a plain loop, in order, errors and killed workers included.

The Ray cluster, which has to be started first, is in tests/run/test_ray.py.
"""

from __future__ import annotations

import copy
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from pandora_router.errors import UpstreamError, UsageError
from pandora_router.run import InPlace, Pool, Runner, ShardError
from pandora_router.run.runner import ONE_THREAD
from pandora_router.search import batch

RUNNERS = [InPlace(), Pool(1), Pool(3)]
runners = pytest.mark.parametrize("runner", RUNNERS, ids=repr)


def product(seed: int) -> float:
    """Linear algebra large enough for a threaded BLAS to split."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((300, 300))
    return float((a @ a.T @ a).sum())


def late_first(number: int) -> int:
    time.sleep(0.3 if number == 0 else 0.0)
    return number


def refuse(number: int) -> int:
    if number == 3:
        raise UsageError("shard 3", expected="another", came="3", do="Leave it out.")
    return number


def threads(_: int) -> tuple[int, int]:
    calls: list[int] = []
    batch.spread(lambda lo, hi: calls.append(hi - lo), 200, None)
    return max(one["num_threads"] for one in threadpool_info()), calls[0]


def die_once(place: str) -> int:
    """Kill the own process the first time this shard is tried."""
    path = Path(place)
    if path.name != "never" and not path.exists():
        path.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return len(path.name)


def die(_: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def unsendable(_: int) -> object:
    return lambda: None


@runners
def test_results_are_those_of_a_loop_bit_for_bit_and_in_order(runner: Runner) -> None:
    with threadpool_limits(1):
        expected = [product(seed) for seed in range(6)]
    assert list(runner.map(product, range(6))) == expected
    assert list(runner.map(late_first, range(4))) == [0, 1, 2, 3]
    assert sorted(runner.finish(late_first, range(4))) == [(i, i) for i in range(4)]
    assert list(runner.map(product, [])) == []


@runners
def test_an_error_of_the_function_keeps_its_parts(runner: Runner) -> None:
    with pytest.raises(UsageError) as caught:
        list(runner.map(refuse, range(6)))
    assert (caught.value.what, caught.value.do) == ("shard 3", "Leave it out.")


@runners
def test_a_shard_has_one_core(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread for BLAS, and batches of searches in slices as one thread takes them: all 200 rows."""
    for variable in ONE_THREAD:
        monkeypatch.delenv(variable, raising=False)  # the tests have one thread anyway
    with threadpool_limits(2):
        assert threads(0)[0] == 2
        assert list(runner.map(threads, [0, 1])) == [(1, 200), (1, 200)]


@runners
def test_shards_may_go_on_for_ever(runner: Runner) -> None:
    with closing(runner.finish(late_first, count())) as coming:
        assert len(list(islice(coming, 8))) == 8


def test_a_killed_worker_costs_another_try(tmp_path: Path) -> None:
    shards = [str(tmp_path / name) for name in ("a", "bb", "never", "cccc", "ddddd")]
    assert list(Pool(2).map(die_once, shards)) == [1, 2, 5, 4, 5]
    assert len(list(tmp_path.iterdir())) == 4


def test_a_shard_that_kills_every_worker_is_given_up() -> None:
    with pytest.raises(UpstreamError, match="died 2 times"):
        list(Pool(2, tries=2).map(die, range(3)))


class Odd(Exception):
    """An exception whose constructor wants more than its args: pickling works, unpickling does not."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(f"code {code}: {why}")


class Holding(Exception):
    """An exception that holds something that cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("holding a lock")
        self.lock = threading.Lock()


class Hostile:
    """A result that pickles and whose unpickling fails."""

    def __reduce__(self) -> tuple[object, ...]:
        return int, ("no number",)


def raise_odd(_: int) -> int:
    raise Odd(7, "the model is gone")


def raise_holding(_: int) -> int:
    raise Holding


def hostile(_: int) -> object:
    return Hostile()


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        (raise_odd, "Odd", "code 7: the model is gone"),
        (raise_holding, "Holding", "holding a lock"),
        (unsendable, "AttributeError|PicklingError", "unsendable"),
        (hostile, "ValueError", "no number"),
    ],
)
def test_what_cannot_travel_is_told_in_words(
    function: Callable[[int], object], kind: str, message: str
) -> None:
    with pytest.raises(ShardError) as caught:
        list(Pool(1).map(function, [0]))
    assert re.fullmatch(kind, caught.value.kind)
    assert message in caught.value.message
    assert "Traceback" in caught.value.trace
    assert message in str(caught.value)
    assert str(copy.copy(caught.value)) == str(caught.value)  # by way of __reduce__, as pickle does


def test_the_traceback_of_a_shard_is_told() -> None:
    with pytest.raises(UsageError) as caught:
        list(Pool(1).map(refuse, range(4)))
    assert isinstance(caught.value.__cause__, ShardError)
    assert "in refuse" in caught.value.__cause__.trace


def children(pid: int) -> list[int]:
    """The living processes whose parent this is."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def alive(pid: int) -> bool:
    try:
        state = (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_workers_never_hear_an_interrupt(tmp_path: Path) -> None:
    """Not the first worker either, before which `multiprocessing` starts a process of its own."""
    script = tmp_path / "deaf.py"
    script.write_text(
        "import signal\nfrom pandora_router.run import Pool\n"
        "def blocked(_):\n    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
        "if __name__ == '__main__':\n    print(list(Pool(1).map(blocked, [0])))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout == "[True]\n"


NAPS = {
    "sleeping": "time.sleep, [0.0] * 4 + [3600.0] * 2",
    "holding the interpreter": "sum, [range(3)] * 4 + [range(10**12)] * 2",
}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("nap", NAPS)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_an_interrupted_run(how: signal.Signals, nap: str, tmp_path: Path) -> None:
    """Ctrl-C, which reaches the whole process group, and kill -9 of the parent alone; shards of an hour."""
    script = tmp_path / "nap.py"
    script.write_text(
        "import time\nfrom pandora_router.run import Pool\n"
        "if __name__ == '__main__':\n"
        f"    for _ in Pool(2).map({NAPS[nap]}):\n        print('one', flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    run = subprocess.Popen(
        [sys.executable, str(script)],
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert run.stdout is not None
    for _ in range(4):
        assert run.stdout.readline() == b"one\n"
    mine = children(run.pid)  # two workers and their tracker
    assert len(mine) >= 3
    if how is signal.SIGINT:
        os.killpg(run.pid, how)
    else:
        run.send_signal(how)
    _, told = run.communicate(timeout=120)
    assert run.returncode == -how
    assert told.count(b"Traceback") == (how is signal.SIGINT)  # of the parent alone
    until = time.monotonic() + 60
    while any(alive(pid) for pid in mine) and time.monotonic() < until:
        time.sleep(0.05)
    left = [pid for pid in mine if alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
