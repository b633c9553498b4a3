"""`pandora serve` as users run it: a real process, a real file, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.gateway.stub import Stub

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
    lines: list[str] = []
    found = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "Serving on" in line:
                found.set()
        found.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert found.wait(300), lines
        address = re.search(r"http://\S+", "".join(lines))
        assert address is not None, lines
        yield process, address.group(), lines
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)
        reader.join(10)
        assert process.stdout is not None
        process.stdout.close()


def ask(url: str, model: str = "auto", prompt: str = "hi") -> tuple[str, str]:
    """Who answered, and what."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": prompt}]}).encode()
    sent = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(sent, timeout=60) as answer:
        said = json.loads(answer.read())["choices"][0]["message"]["content"]
        return str(answer.headers["x-pandora-specialist"]), str(said)


def generation(url: str) -> int:
    with urllib.request.urlopen(f"{url}/readyz", timeout=60) as answer:
        return int(json.loads(answer.read())["generation"])


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_changed_file_is_served_and_a_broken_one_is_not(stub: Stub, tmp_path: Path, workers: str) -> None:
    config = tmp_path / "pandora.yaml"
    config.write_text(CONFIG.format(url=stub.url, default="small"))
    with served(tmp_path, "--workers", workers) as (process, url, lines):
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
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert (tmp_path / "pandora.sqlite").is_file()
    assert not any("Traceback" in line for line in lines), lines


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


def test_a_killed_worker_is_started_again(stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "pandora.yaml").write_text(CONFIG.format(url=stub.url, default="small"))
    with served(tmp_path, "--workers", "2") as (process, url, lines):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        workers = [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(workers) == 2
        os.kill(int(workers[0]), signal.SIGKILL)
        until = time.monotonic() + 60
        while not any("started again" in line for line in lines) and time.monotonic() < until:
            time.sleep(0.05)
        assert any("started again" in line for line in lines), lines
        assert {ask(url)[0] for _ in range(8)} == {"small"}
