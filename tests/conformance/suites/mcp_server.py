"""A calculator on the official MCP SDK, on standard input and output or, with a port, over HTTP."""

from __future__ import annotations

import ast
import operator
import os
import sys

from mcp.server import MCPServer

SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
server = MCPServer("calculator")


def value(node: ast.AST) -> int:
    if isinstance(node, ast.BinOp):
        return SIGNS[type(node.op)](value(node.left), value(node.right))
    if isinstance(node, ast.Constant):
        return node.value
    raise ValueError("no sum")


@server.tool()
def calculate(expression: str, unit: str = "") -> str:
    """The value of sums and products, with a unit."""
    return f"{value(ast.parse(expression, mode='eval').body)} {unit}".strip()


@server.tool()
def secrets() -> str:
    """The variables of the environment whose names begin with MY_."""
    return ",".join(sorted(name for name in os.environ if name.startswith("MY_")))


if len(sys.argv) > 1:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run("stdio")
