"""The official MCP client against /mcp of the gateway. Run with `.venv-clients`."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request

from mcp import Client

URL = os.environ["GATEWAY"]


async def main() -> None:
    body = {"model": "small", "messages": [{"role": "user", "content": "Hello."}]}
    sent = urllib.request.Request(
        f"{URL}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(sent) as reply:
        decision = reply.headers["x-pandora-decision-id"]
    async with Client(f"{URL}/mcp") as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["route", "explain"], tools
        routed = await client.call_tool("route", {"prompt": "What is 2 + 2?"})
        assert routed.structured_content["specialist"] in ("small", "large"), routed
        named = await client.call_tool("route", {"prompt": "What is 2 + 2?", "model": "large"})
        assert named.structured_content["specialist"] == "large", named
        told = await client.call_tool("explain", {"decision_id": decision})
        assert told.structured_content["id"] == decision, told
        unknown = await client.call_tool("explain", {"decision_id": "nobody"})
        assert unknown.is_error, unknown
    print("mcp: ok")


asyncio.run(main())
