"""A real Ray cluster of two nodes: workers and a whole node are killed in the middle of a sweep.

The nodes have loopback addresses of their own and a secret token of this test, and their processes are found
again by a mark in their environment, so that those of nobody else are touched.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from pandora_router import folders
from pandora_router.config.experiments import read_experiment
from pandora_router.evaluate import campaign, results, stream
from pandora_router.evaluate.results import Results
from pandora_router.folders.saved import NEEDS
from pandora_router.router import Router
from pandora_router.router.artifact import KIND
from tests.evaluate.test_evaluate import YAML, write_folder
from tests.evaluate.test_stream import generate, write
from tests.support.tables import generate as generate_table

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: `make extras` installs it"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and loopback addresses 127.0.0.2 and .3"),
]
MARK = "PANDORA_TEST_CLUSTER"
HEAD, SECOND = "127.0.0.2", "127.0.0.3"
PATIENCE = 240.0


class Nodes:
    """Two nodes of one core each, started by `ray start` as a user would on two machines."""

    def __init__(self) -> None:
        self.mark = secrets.token_hex(16)
        self.home = Path(tempfile.mkdtemp(prefix="pr-"))  # short: sockets lie below it
        with socket.create_server((HEAD, 0)) as free:
            self.address = f"{HEAD}:{free.getsockname()[1]}"
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            MARK: self.mark,
            "RAY_AUTH_MODE": "token",  # Ray listens on every address: without a token anybody could run code
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def start(self) -> None:
        port = self.address.rpartition(":")[2]
        own = [f"--temp-dir={self.home}", "--include-dashboard=false"]
        self._ray("--head", f"--node-ip-address={HEAD}", f"--port={port}", *own)
        self._ray(f"--address={self.address}", f"--node-ip-address={SECOND}")

    def _ray(self, *words: str) -> None:
        size = ["--num-cpus=1", "--object-store-memory=80000000"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *size, *words]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def processes(self, *words: str) -> list[int]:
        """Processes of this cluster whose command line holds all the words."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                ours = f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes().split(b"\0")
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if ours and all(word in command for word in words):
                found.append(int(folder.name))
        return found

    def stop(self) -> None:
        until = time.monotonic() + 20
        while (left := self.processes()) and time.monotonic() < until:
            for pid in left:
                kill(pid)
            time.sleep(0.1)
        shutil.rmtree(self.home, ignore_errors=True)
        assert not left, left


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """One cluster for all tests that follow; the last of them kills a node of it."""
    made = Nodes()
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_folder(tmp_path / "small", prompts=240)
    (tmp_path / "six.yaml").write_text(YAML.replace("seeds: 2", "seeds: 6"))
    return tmp_path


def same(a: Results, b: Results) -> bool:
    """Every metric and every single total, bit for bit."""
    assert (sorted(a.seeds), a.keys) == (sorted(b.seeds), b.keys)
    for n, seed in a.seeds.items():
        assert seed.rows == b.seeds[n].rows
        mine, theirs = seed.totals(a.keys), b.seeds[n].totals(b.keys)
        assert all(np.array_equal(mine[key], theirs[key]) for key in a.keys)
    return True


def pandora(nodes: Nodes, *words: str) -> subprocess.Popen[bytes]:
    """A command as a user starts it, with the cluster's token; its process is not the cluster's."""
    command = "from pandora_router.cli.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", command, *words, "--ray", nodes.address, "--json"],
        env={name: value for name, value in nodes.environment.items() if name != MARK},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("address", ["127.0.0.1:1", "somewhere", "auto"])
def test_no_cluster_is_told_plainly(home: Path, address: str) -> None:
    """Before a cluster runs here: `auto` would find it."""
    command = "from pandora_router.cli.main import main; main()"
    words = ["evaluate", str(home / "six.yaml"), "-o", str(home / "there"), "--ray", address]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    environment["RAY_TMPDIR"] = str(home)  # where "auto" looks
    done = subprocess.run(
        [sys.executable, "-c", command, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    assert "a Ray cluster that runs" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_streamed_sweep_over_the_cluster(nodes: Nodes, tmp_path: Path) -> None:
    known = write(tmp_path / "known.parquet", generate(500, 1), 500)
    rows = write(tmp_path / "rows.parquet", generate(3_000, 2), 250)
    here = stream.sweep([rows], known, [0.01])
    run = pandora(nodes, "sweep", str(rows), "--calibration", str(known), "--cost", "0.01")
    told, why = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, why.decode()
    there = {(row["cost"], row["arm"]): row for row in json.loads(told)}
    assert set(there) == set(here)
    for place, outcomes in here.items():
        assert {name: there[place][name] for name in outcomes.means()} == outcomes.means()


FIT = """
import sys
from pandora_router.router import Router
from pandora_router.run.ray import Cluster
from tests.support.tables import generate
Router.fit(generate(35_000), sample=400, runner=Cluster(sys.argv[1])).save(sys.argv[2])
"""


def test_a_fit_over_the_cluster_gives_the_router_of_one_process(nodes: Nodes, tmp_path: Path) -> None:
    """Three shards of known prompts are embedded by the workers; the artifacts are equal to the byte."""
    environment = {name: value for name, value in nodes.environment.items() if name != MARK}
    command = [sys.executable, "-c", FIT, nodes.address, str(tmp_path / "there")]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr.decode()
    Router.fit(generate_table(35_000), sample=400).save(tmp_path / "here")
    here, there = (folders.read(tmp_path / name, KIND, NEEDS) for name in ("here", "there"))
    assert here.manifest["id"] == there.manifest["id"]
    assert here.manifest["files"] == there.manifest["files"]  # names, sizes and hashes


def evaluate(nodes: Nodes, home: Path) -> subprocess.Popen[bytes]:
    return pandora(nodes, "evaluate", str(home / "six.yaml"), "-o", str(home / "there"))


def test_losing_workers_and_a_node_changes_no_result(nodes: Nodes, home: Path) -> None:
    """First Ctrl-C, then again from there: every busy worker is killed, and then the second node.

    This is the last test, since its cluster has one node afterwards.
    """
    (here,) = campaign.run([campaign.Campaign(read_experiment(home / "six.yaml"), home)], home / "here")
    run = evaluate(nodes, home)
    victims(nodes, run, home / "there" / "six")
    run.send_signal(signal.SIGINT)
    _, told = run.communicate(timeout=120)
    assert run.returncode == 130, told.decode()
    assert "Interrupted. Finished work is kept" in told.decode()
    assert "Traceback" not in told.decode()
    kept = len(list((home / "there" / "six").glob("seed-*.parquet")))
    run = evaluate(nodes, home)
    try:
        workers, finished = victims(nodes, run, home / "there" / "six", kept)
        for pid in workers:
            kill(pid)
        assert kept < finished < 6
        raylets = nodes.processes("raylet/raylet", f"--node_ip_address={SECOND}")
        assert len(raylets) == 1
        assert len(nodes.processes("raylet/raylet")) == 2
        kill(raylets[0])
        _, told = run.communicate(timeout=PATIENCE)
    finally:
        run.kill()
    assert run.returncode == 0, told.decode()
    assert same(results.read(home / "there" / "six"), here)


def victims(
    nodes: Nodes, run: subprocess.Popen[bytes], folder: Path, before: int = 0
) -> tuple[list[int], int]:
    """Workers in the middle of a shard once another one than `before` has come back, and how many have."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        finished = len(list(folder.glob("seed-*.parquet")))
        if finished > before and (busy := nodes.processes("ray::attempted")):
            return busy, finished
        assert run.poll() is None, run.communicate()[1].decode()
        time.sleep(0.01)
    raise AssertionError("no worker took a shard in time")
