"""MCP both ways, with the official SDK and suite: tools as specialists, and the gateway as a server."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pandora_router.config import read_config
from pandora_router.config.shared import Builder
from pandora_router.specialists.specialist import Request, Specialist, Unanswered
from tests.conformance.conftest import SUITES, Environment, environment
from tests.conformance.test_agents import program

pytestmark = pytest.mark.slow
SERVER = str(SUITES / "mcp_server.py")


@contextmanager
def over_http(python: Path) -> Iterator[int]:
    """The calculator over HTTP; its port."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([python, SERVER, str(port)], stdout=quiet, stderr=quiet)
    try:
        until = time.monotonic() + 60.0
        while time.monotonic() < until:
            with closing(socket.socket()) as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def built(folder: Path, where: str, tool: str = "calculate", url: str = "") -> Specialist:
    """The specialist of a file whose endpoint `tools` is `url`; `where` says where the tool runs."""
    argument = "expression" if tool == "calculate" else "ignored"
    lines = [f'endpoints: {{tools: {{base_url: "{url}"}}}}'] if url else []
    told = f"kind: mcp, {where}, tool: {tool}, argument: {argument}, prices: {{call: 1}}"
    file = folder / "pandora.yaml"
    file.write_text("\n".join([*lines, f"specialists: {{sums: {{{told}}}}}"]))
    return Builder(read_config(file), folder).specialist("sums")


def test_a_tool_of_the_official_sdk_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = environment(".venv-clients", "make clients", "").folder / "bin" / "python"
    command = f"command: {json.dumps([str(python), SERVER])}"
    monkeypatch.setenv("MY_KEY", "secret")
    monkeypatch.setenv("MY_OTHER", "secret")

    async def answers() -> None:
        started = built(tmp_path, f"{command}, arguments: {{unit: m}}")
        two = await asyncio.gather(*(started.answer(Request.of(f"{n} * 3 + 1")) for n in (2, 5)))
        assert [(answer.text, answer.fee) for answer in two] == [("7 m", 1.0), ("16 m", 1.0)]
        with pytest.raises(Unanswered):
            await started.answer(Request.of("no sum"))
        variables = built(tmp_path, f"{command}, variables: [MY_KEY]", "secrets")
        assert (await variables.answer(Request.of("x"))).text == "MY_KEY"
        with over_http(python) as port:
            posted = built(tmp_path, "endpoint: tools", url=f"http://127.0.0.1:{port}")
            assert (await posted.answer(Request.of("6 * 7"))).text == "42"

    asyncio.run(answers())


CLIENT = """
import asyncio, sys
from pandora_router.specialists.mcp import HttpServer, McpTool
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.failures import RateLimit

base, _, path = sys.argv[-1].rpartition("/") if sys.argv[-1].endswith("/mcp") else (sys.argv[-1], "", "")
server = HttpServer(Endpoint(base), path, RateLimit(1))
print(asyncio.run(McpTool(server, "add_numbers", "note", {"a": 2, "b": 3}).answer("x")))
"""


def test_the_suite_of_the_protocol_accepts_our_client(tmp_path: Path) -> None:
    suite = program("conformance")
    (tmp_path / "client.py").write_text(CLIENT)
    command = f"{sys.executable} {tmp_path / 'client.py'}"
    asked = [suite, "client", "--command", command, "--scenario", "tools_call"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=200, cwd=tmp_path, check=False)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert "0 failed" in told, told


@pytest.mark.parametrize("scenario", ["server-initialize", "ping", "tools-list", "dns-rebinding-protection"])
def test_the_suite_of_the_protocol_accepts_the_gateway(gateway: str, tmp_path: Path, scenario: str) -> None:
    asked = [program("conformance"), "server", "--url", f"{gateway}/mcp", "--scenario", scenario]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=200, cwd=tmp_path, check=False)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert "0 failed" in told, told


def test_the_official_client_reads_decisions(clients: Environment) -> None:
    assert "mcp: ok" in clients.run("python", "mcp_client.py")
