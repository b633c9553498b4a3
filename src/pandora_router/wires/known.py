"""The three wires by name and by path."""

from __future__ import annotations

from collections.abc import Mapping

from pandora_router.wires.chat import Chat
from pandora_router.wires.messages import Messages
from pandora_router.wires.responses import Responses
from pandora_router.wires.wire import Wire

WIRES: tuple[Wire, ...] = (Chat(), Responses(), Messages())
BY_PATH: Mapping[str, Wire] = {wire.path: wire for wire in WIRES}
BY_NAME: Mapping[str, Wire] = {wire.name: wire for wire in WIRES}
