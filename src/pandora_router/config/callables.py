"""Keys of every specialist; specialists that are no language models: a function, a tool of an MCP server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from pandora_router.config.price_parts import Priced, prices_of
from pandora_router.config.shared import Above, Closed, Count, FunctionName, Name, Text
from pandora_router.prices import USUAL_ANSWER, USUAL_SECONDS, Fare, Lengths
from pandora_router.specialists.function import Function
from pandora_router.specialists.mcp import Command, HttpServer, McpTool, Server
from pandora_router.specialists.specialist import Specialist

if TYPE_CHECKING:
    from pandora_router.config.file import Config
    from pandora_router.config.shared import Builder


_NOT_ANSWERS = {
    "prices",
    "price",
    "hidden",
    "stream",
    "deadline",
    "at_once",
    "wires",
    "supports",
    "cancel",
    "looks",
}
"""Keys that do not affect answers."""


class Answering(Closed):
    """Keys of every specialist. A `hidden` one is used by others and has no column in the table."""

    hidden: bool = False

    @property
    def refund(self) -> float:
        """Fraction of the price of a look that is refunded if this specialist is chosen.

        1 if the look begins the answer, 0 if the answer must be requested again (a capped look).
        """
        return 1.0

    def decisive(self, config: Config) -> dict[str, Any]:
        """The settings that affect answers."""
        return self.model_dump(mode="json", by_alias=True, exclude=_NOT_ANSWERS)


class FunctionSettings(Answering):
    """A Python function, as module:name. It is imported on first use, never by a dry run."""

    kind: Literal["function"]
    function: FunctionName
    prices: Priced
    version: Text = Function.version
    deadline: Above = Function.deadline
    at_once: Count = Function.at_once

    def build(self, name: str, builder: Builder) -> Specialist:
        """The specialist."""
        call, prices = builder.imported(self.function), prices_of(self.prices)
        return Function(name, call, prices, self.version, self.deadline, self.at_once)

    def look(self, lengths: Lengths, prompt: float, peek: int) -> Fare | None:
        """The price of a call, None if it is per second: a function shows nothing before its answer."""
        prices = prices_of(self.prices)
        return None if prices.per_second else Fare(prices.per_call, prices.per_call)

    def usual(self, prompt: float, config: Config, written: int = USUAL_ANSWER) -> float:
        """The fee of one call."""
        return prices_of(self.prices).price(0, 0, USUAL_SECONDS)


class McpSettings(Answering):
    """A tool of an MCP server: started by `command` for each call, or at `path` of an endpoint.

    The prompt is the argument `argument` of the tool, `arguments` are the others. A started server gets the
    environment variables named in `variables`, and few others.
    """

    kind: Literal["mcp"]
    tool: Text
    argument: Text
    arguments: dict[str, Any] = Field(default_factory=dict)
    command: list[Text] | None = Field(default=None, min_length=1)
    variables: list[Text] = Field(default_factory=list)
    endpoint: Name | None = None
    path: Text = "mcp"
    prices: Priced
    version: Text = "1"
    deadline: Above = 60.0
    at_once: Count = 4

    @model_validator(mode="after")
    def _somewhere(self) -> McpSettings:
        if (self.command is None) == (self.endpoint is None):
            raise ValueError("either command, the words that start the server, or endpoint")
        return self

    def build(self, name: str, builder: Builder) -> Specialist:
        """The specialist: an async function that calls the tool."""
        server: Server
        if self.command is not None:
            server = Command(tuple(self.command), tuple(self.variables))
        else:
            assert self.endpoint is not None
            endpoint, limit = builder.endpoint(self.endpoint)
            server = HttpServer(endpoint, self.path, limit)
        tool = McpTool(server, self.tool, self.argument, self.arguments)
        prices = prices_of(self.prices)
        return Function(name, tool.answer, prices, self.version, self.deadline, self.at_once)

    def look(self, lengths: Lengths, prompt: float, peek: int) -> Fare | None:
        """The price of a call, None if it is per second: a tool shows nothing before its answer."""
        prices = prices_of(self.prices)
        return None if prices.per_second else Fare(prices.per_call, prices.per_call)

    def usual(self, prompt: float, config: Config, written: int = USUAL_ANSWER) -> float:
        """The fee of one call."""
        return prices_of(self.prices).price(0, 0, USUAL_SECONDS)

    def decisive(self, config: Config) -> dict[str, Any]:
        """The settings that affect answers, with the address of the endpoint."""
        address = None if self.endpoint is None else config.endpoints[self.endpoint].base_url
        return super().decisive(config) | {"endpoint": address}
