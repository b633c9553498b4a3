"""`pandora serve` as users run it: a real process, a real file, real signals."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.gateway.stub import Stub
from tests.store.databases import free_port
from tests.support.command import listening

CONFIG = """
endpoints: {{local: {{base_url: "{url}"}}}}
specialists:
  small: {{kind: chat, endpoint: local, model: small, prices: {{in: 1, out: 10}}}}
  large: {{kind: chat, endpoint: local, model: large, prices: {{in: 2, out: 20}}}}
serve: {{keys: none, default: {default}}}
"""


@contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """A server on a free port; its process, its address, and the lines it prints."""
    command = [sys.executable, "-m", "pandora_router", "serve", str(folder / "pandora.yaml"), "--port", "0"]
    with launched([*command, *options]) as running:
        yield running


@contextmanager
def launched(command: list[str], **more: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """The server that `command` starts, once it listens; `more` are environment variables for it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **more}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with listening(process) as (url, lines):
        yield process, url, lines


def ask(url: str, model: str = "auto", prompt: str = "hi") -> tuple[str, str]:
    """Who answered, and what."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": prompt}]}).encode()
    sent = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(sent, timeout=60) as answer:
        said = json.loads(answer.read())["choices"][0]["message"]["content"]
        return str(answer.headers["x-pandora-specialist"]), str(said)


def generation(url: str) -> int:
    return int(ready(url)["generation"])


def ready(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/readyz", timeout=60) as answer:
        return dict(json.loads(answer.read()))


def everyone(url: str, workers: int) -> list[dict[str, Any]]:
    """What each worker says of itself; which of them answers a connection is up to the kernel."""
    found: dict[int, dict[str, Any]] = {}
    until = time.monotonic() + 60
    while len(found) < workers and time.monotonic() < until:
        with ThreadPoolExecutor(8) as pool:  # several connections at once, so that no worker takes all
            for one in pool.map(lambda _: ready(url), range(16)):
                found[one["worker"]] = one
    return list(found.values())


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_changed_file_is_served_and_a_broken_one_is_not(stub: Stub, tmp_path: Path, workers: str) -> None:
    config = tmp_path / "pandora.yaml"
    config.write_text(CONFIG.format(url=stub.url, default="small"))
    with served(tmp_path, "--workers", workers) as (process, url, lines):
        assert any("No looks: no router is fitted." in line for line in lines), lines
        assert ask(url)[0] == "small"
        assert ask(url, "large")[0] == "large"
        assert generation(url) == 1
        config.write_text("serve: {nonsense: 1}\n")
        process.send_signal(signal.SIGHUP)
        until = time.monotonic() + 30
        while not any("goes on" in line for line in lines) and time.monotonic() < until:
            time.sleep(0.05)
        assert any("nonsense" in line for line in lines), lines
        assert ask(url)[0] == "small"
        config.write_text(CONFIG.format(url=stub.url, default="large"))
        until = time.monotonic() + 30
        while {generation(url) for _ in range(10)} != {2} and time.monotonic() < until:
            time.sleep(0.2)
        assert {ask(url)[0] for _ in range(10)} == {"large"}
        reports = {one["worker"]: (one["generation"], one["hash"]) for one in everyone(url, int(workers))}
        assert (len(reports), len(set(reports.values()))) == (int(workers), 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert (tmp_path / "pandora.sqlite").is_file()
    assert not any("Traceback" in line for line in lines), lines


@pytest.mark.slow
def test_a_worker_that_dies_while_the_file_is_invalid_serves_the_last_valid_one(
    stub: Stub, tmp_path: Path
) -> None:
    config = tmp_path / "pandora.yaml"
    config.write_text(CONFIG.format(url=stub.url, default="small"))
    with served(tmp_path, "--workers", "2") as (process, url, lines):
        config.write_text(CONFIG.format(url=stub.url, default="large"))
        until = time.monotonic() + 30
        while {ask(url)[0] for _ in range(10)} != {"large"} and time.monotonic() < until:
            time.sleep(0.2)
        config.write_text("serve: [\n")
        killed = everyone(url, 2)[0]["worker"]
        os.kill(killed, signal.SIGKILL)
        until = time.monotonic() + 60
        workers: set[int] = set()
        while (len(workers) < 2 or killed in workers) and time.monotonic() < until:
            time.sleep(0.5)
            workers = {one["worker"] for one in everyone(url, 1)}
        assert len(workers) == 2, lines
        assert {ask(url)[0] for _ in range(20)} == {"large"}
        assert sum("is started again" in line for line in lines) == 1, lines
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_file_that_changes_while_a_worker_starts_is_served(stub: Stub, tmp_path: Path) -> None:
    for default in ("small", "large"):
        (tmp_path / f"{default}.yaml").write_text(CONFIG.format(url=stub.url, default=default))
    (tmp_path / "small.yaml").replace(tmp_path / "pandora.yaml")
    script = tmp_path / "changing.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\n"
        "from pandora_router.config.gateway import ServePlan\n"
        "from pandora_router.gateway.http.server import serve\n"
        "class Changing(ServePlan):\n"
        "    def mount(self, gateway, closing):\n"  # after the site was built, before requests are answered
        "        self.path.with_name('large.yaml').replace(self.path)\n"
        "plan = Changing(Path(sys.argv[1]))\n"
        "serve(plan, plan.address(None, 0), 1, lambda url, site: print(f'Serving on {url}', flush=True))\n"
    )
    with launched([sys.executable, str(script), str(tmp_path / "pandora.yaml")]) as (process, url, _):
        until = time.monotonic() + 30
        while ask(url)[0] != "large":
            assert time.monotonic() < until
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def test_without_keys_only_loopback_is_served(stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "pandora.yaml").write_text(CONFIG.format(url=stub.url, default="small"))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pandora_router",
            "serve",
            str(tmp_path / "pandora.yaml"),
            "--host",
            "0.0.0.0",
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "keys" in done.stderr


def test_killed_workers_are_started_again_and_what_they_left_open_is_settled(
    stub: Stub, tmp_path: Path
) -> None:
    config = CONFIG.format(url=stub.url, default="large").replace("model: small", "model: pausing")
    (tmp_path / "pandora.yaml").write_text(config)
    with served(tmp_path, "--workers", "2") as (process, url, lines):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        workers = [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(workers) == 2
        where = urlsplit(url)
        assert where.hostname is not None
        client = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
        said = {"model": "small", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        client.request("POST", "/v1/chat/completions", json.dumps(said))
        id_ = client.getresponse().headers["x-pandora-decision-id"]
        for pid in workers:
            os.kill(int(pid), signal.SIGKILL)
        client.close()
        until = time.monotonic() + 120
        while (row := decision(url, id_))["closed_at"] is None and time.monotonic() < until:
            time.sleep(0.1)
        assert row["status"] == "lost"
        assert [attempt["status"] for attempt in row["attempts"]] == ["lost"]
        assert sum("started again" in line for line in lines) == 2, lines
        assert {ask(url, "large")[0] for _ in range(8)} == {"large"}


@pytest.mark.slow
def test_a_worker_that_dies_while_others_start_is_started_again(stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "pandora.yaml").write_text(CONFIG.format(url=stub.url, default="small"))
    port = free_port()
    command = [sys.executable, "-m", "pandora_router", "serve", str(tmp_path / "pandora.yaml")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen([*command, "--port", str(port), "--workers", "4"], env=environment)
    try:
        first, seen, until = 0, set[int](), time.monotonic() + 120
        while len(seen) < 4 and time.monotonic() < until and process.poll() is None:
            try:
                worker = ready(f"http://127.0.0.1:{port}")["worker"]
            except OSError:
                continue  # nobody listens yet, or the killed worker had the connection
            if not first:
                first = worker
                os.kill(first, signal.SIGKILL)
            elif worker != first:
                seen.add(worker)
        assert process.poll() is None
        assert len(seen) == 4
    finally:
        process.terminate()
        process.wait(60)


def decision(url: str, id_: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/v1/routing/decisions/{id_}", timeout=120) as answer:
        row: dict[str, Any] = json.load(answer)
    return row


def test_workers_that_die_before_they_are_ready_end_the_server(tmp_path: Path) -> None:
    script = tmp_path / "dying.py"
    script.write_text(
        "import os, socket\n"
        "from pandora_router.gateway.http import server\n"
        "class Dying:\n    store = 'none'\n    def fingerprint(self):\n        return ''\n"
        "    def site(self):\n        os._exit(3)\n"
        "if __name__ == '__main__':\n"
        "    print(server._parent(Dying(), socket.socket(), 2, lambda: print('ready')))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    run = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.stdout == "1\n", run.stderr


def test_a_stop_lets_streams_end(stub: Stub, tmp_path: Path) -> None:
    config = CONFIG.format(url=stub.url, default="small").replace("model: small", "model: pausing")
    (tmp_path / "pandora.yaml").write_text(config)
    with served(tmp_path) as (process, url, lines):
        where = urlsplit(url)
        assert where.hostname is not None
        client = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
        said = {"model": "small", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        client.request("POST", "/v1/chat/completions", json.dumps(said))
        answer = client.getresponse()
        came = answer.read1()
        assert b"Hello" in came
        process.send_signal(signal.SIGTERM)
        until = time.monotonic() + 60
        while _accepts(where.hostname, where.port) and time.monotonic() < until:
            time.sleep(0.05)
        stub.go.set()
        try:
            assert (came + answer.read()).endswith(b"data: [DONE]\n\n")
            assert process.wait(60) == 0
        finally:
            stub.go.clear()
            client.close()
    assert not any("Traceback" in line for line in lines), lines


def _accepts(host: str, port: int | None) -> bool:
    try:
        with socket.create_connection((host, port or 80), timeout=5):
            return True
    except OSError:
        return False


def test_the_log_has_a_line_of_json_for_each_request(stub: Stub, tmp_path: Path) -> None:
    config = CONFIG.format(url=stub.url, default="small").replace("serve: {", "serve: {log: json, ")
    for bodies in ("false", "true"):
        (tmp_path / "pandora.yaml").write_text(config.replace("json, ", f"json, log_bodies: {bodies}, "))
        with served(tmp_path) as (process, url, lines):
            ask(url, "auto", "My key is sk-abcdefghijklmnopqrst and my mail bob@example.org")
            process.terminate()
            assert process.wait(60) == 0
        (line,) = [json.loads(line) for line in lines if '"event":"request"' in line]
        told = [line[name] for name in ("status", "code", "specialist", "attempts", "wire")]
        assert told == ["ok", 200, "small", 1, "chat"]
        assert line["cost"] > 0
        assert ("request" in line) == (bodies == "true")
        assert "bob@" not in json.dumps(line)
        assert "sk-abc" not in json.dumps(line)


def test_a_newcomer_serves_before_there_is_a_router_and_the_printed_request_works(tmp_path: Path) -> None:
    def pandora(*words: str) -> str:
        command = [sys.executable, "-m", "pandora_router", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        return done.stdout + done.stderr

    pandora("init")
    file = tmp_path / "pandora.yaml"
    with closing(Stub()) as stub:
        file.write_text(file.read_text().replace("http://127.0.0.1:8000/v1", stub.url))
        started = file.read_text()
        file.write_text(
            started.replace("  # router: router ", "  router: router ").replace("  default:", "  #")
        )
        told = pandora("serve", "--port", "0")
        assert "write `default: small` in place of `router: router`" in told, told
        file.write_text(started)
        with served(tmp_path) as (_, _, lines):
            until = time.monotonic() + 30.0
            while not any("curl" in line for line in lines) and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(0.2)
            at = next(i for i, line in enumerate(lines) if "curl" in line)
            made = next(line for line in lines if "export PANDORA_API_KEY" in line)
            command = "\n".join(line.rstrip("\n") for line in (made, *lines[at : at + 2]))
            assert any("`auto` means the default: small" in line for line in lines), lines
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=tmp_path,
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
    assert json.loads(done.stdout)["choices"][0]["message"]["content"], done.stdout + done.stderr
