"""Whether a request itself limits what it can cost, so that a provider that claims more is not believed.

That holds if the input is in the request (no image, sound, file or earlier response, whose tokens are not
known), no tool runs at the provider, the tokens of the answer are limited, and no member is there that may
have a limit of its own, as `n_predict` has for llama.cpp. Otherwise a client could ask for much and be
charged for little.
"""

from __future__ import annotations

from collections.abc import Mapping

from pandora_router.gateway.members import Json, objects
from pandora_router.gateway.wires import Name, Turn

_SAMPLING = {"model", "stream", "temperature", "top_p", "metadata", "tools", "tool_choice"}
_OPENAI = {
    "user", "store", "parallel_tool_calls", "prompt_cache_key", "safety_identifier", "top_logprobs",
}  # fmt: skip
KNOWN: Mapping[Name, frozenset[str]] = {
    "chat": frozenset(
        _SAMPLING
        | _OPENAI
        | {
            "messages", "max_tokens", "max_completion_tokens", "n", "stream_options", "stop", "seed",
            "logprobs", "logit_bias", "presence_penalty", "frequency_penalty", "response_format",
            "reasoning_effort", "functions", "function_call", "verbosity",
        }
    ),
    "responses": frozenset(
        _SAMPLING
        | _OPENAI
        | {"input", "instructions", "max_output_tokens", "reasoning", "text", "truncation"}
    ),
    "messages": frozenset(
        _SAMPLING | {"messages", "system", "max_tokens", "stop_sequences", "top_k", "thinking"}
    ),
}  # fmt: skip
"""Members of a request that are known not to make it cost more."""
OWN_TOOLS = (None, "function", "custom")
"""Types of tools that the client runs."""


def bounded(wire: Name, body: Json, turn: Turn) -> bool:
    """Whether the tokens of the request `body` are limited by its length and by `turn.max_output`."""
    return (
        turn.max_output is not None
        and not turn.media
        and turn.previous is None
        and turn.parameters <= KNOWN[wire]
        and all(tool.get("type") in OWN_TOOLS for tool in objects(body.get("tools")))
    )
