"""A tool of an MCP server that misbehaves: the answer fails in time, and no process is left behind."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from pandora_router.prices import Tariff
from pandora_router.specialists.function import Function
from pandora_router.specialists.mcp import Command, McpTool
from pandora_router.specialists.specialist import Request, Unanswered

SERVER = """
import json, os, sys, time
how, mark = sys.argv[1:]
open(mark, "w").write(str(os.getpid()))

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        say(id=asked["id"], result={"protocolVersion": "2025-06-18", "capabilities": {}})
    elif asked.get("method") == "tools/call":
        if how == "asks":
            say(method="notifications/progress", params={})
            say(id="p", method="ping")
            assert json.loads(sys.stdin.readline()) == {"jsonrpc": "2.0", "id": "p", "result": {}}
            say(id="s", method="sampling/createMessage", params={})
            assert json.loads(sys.stdin.readline())["error"]["code"] == -32601
        elif how == "dies":
            sys.exit(3)
        elif how == "hangs":
            time.sleep(60)
        elif how == "babbles":
            print("no json", flush=True)
        elif how == "floods":
            print("x" * 2**21, flush=True)
        elif how == "refuses":
            say(id=asked["id"], error={"code": -32602, "message": "no"})
        content = [{"type": "image"}, {"type": "text", "text": asked["params"]["arguments"]["x"]}]
        say(id=asked["id"], result={"content": content, "isError": how == "errs"})
        if how == "stays":
            time.sleep(60)
"""


def tool(folder: Path, how: str, deadline: float = 30.0) -> Function:
    (folder / "server.py").write_text(SERVER)
    command = Command((sys.executable, str(folder / "server.py"), how, str(folder / "pid")))
    call = McpTool(command, "t", "x").answer
    return Function("t", call, Tariff(0.0, 0.0, per_call=2.0), deadline=deadline)


def ended(folder: Path) -> bool:
    try:
        os.kill(int((folder / "pid").read_text()), 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("how", ["asks", "stays", "answers"])
def test_a_tool_answers_and_its_server_ends(tmp_path: Path, how: str) -> None:
    answer = asyncio.run(tool(tmp_path, how).answer(Request.of("6 times 7")))
    assert (answer.text, answer.fee, answer.finish) == ("6 times 7", 2.0, "stop")
    assert ended(tmp_path)


@pytest.mark.parametrize("how", ["dies", "babbles", "floods", "refuses", "errs"])
def test_a_server_that_fails_leaves_a_failed_answer_that_is_charged(tmp_path: Path, how: str) -> None:
    with pytest.raises(Unanswered) as caught:
        asyncio.run(tool(tmp_path, how).answer(Request.of("x")))
    assert (caught.value.failure, caught.value.lost) == ("invalid reply", 2.0)
    assert ended(tmp_path)


def test_a_server_that_hangs_is_ended_at_the_deadline(tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(Unanswered) as caught:
        asyncio.run(tool(tmp_path, "hangs", deadline=3.0).answer(Request.of("x")))
    assert caught.value.failure == "timeout"
    assert time.monotonic() - begun < 20.0
    assert ended(tmp_path)


def test_a_program_that_does_not_exist_fails(tmp_path: Path) -> None:
    call = McpTool(Command((str(tmp_path / "nothing"),)), "t", "x").answer
    with pytest.raises(Unanswered):
        asyncio.run(Function("t", call, Tariff(0.0, 0.0)).answer(Request.of("x")))
