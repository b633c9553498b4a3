"""Answers of the demo's specialists in the shapes of the three wires, whole and as server-sent events.

A stream is `head`, any number of `delta`s, `tail`. The answer of one call is described by `Said`; the texts
of the deltas together are `Said.text`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from pandora_router.gateway.frames import framed
from pandora_router.gateway.wires import Name


@dataclass(frozen=True)
class Said:
    """One answer. `truncated` says that a limit of tokens cut it; `made` is a Unix time in seconds.

    `logprobs` are the log-probabilities of the first tokens, `first` is the text of all of them.
    """

    id: str
    model: str
    made: int
    text: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    truncated: bool = False
    logprobs: tuple[float, ...] = ()
    first: str = ""


class Speech(Protocol):
    """The format of answers on one wire."""

    def whole(self, said: Said) -> dict[str, Any]:
        """The answer to a request that does not stream."""
        ...

    def head(self, said: Said) -> bytes:
        """The events before the first text."""
        ...

    def delta(self, said: Said, text: str) -> bytes:
        """The event for one piece of text."""
        ...

    def tail(self, said: Said, *, usage: bool) -> bytes:
        """The events after the last text; `usage`: whether a chat client asked for token counts."""
        ...


class ChatSpeech:
    """Chat completions."""

    def whole(self, said: Said) -> dict[str, Any]:
        """One choice with its message."""
        message = {"role": "assistant", "content": said.text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": _finish(said), "logprobs": _chances(said)}
        return self._about(said, "chat.completion") | {"choices": [choice], "usage": _openai_usage(said)}

    def head(self, said: Said) -> bytes:
        """The chunk that names the role, with log-probabilities of the first tokens where there are any."""
        return self._chunk(said, {"role": "assistant", "content": ""}, None)

    def delta(self, said: Said, text: str) -> bytes:
        """One chunk."""
        return self._chunk(said, {"content": text}, None)

    def tail(self, said: Said, *, usage: bool) -> bytes:
        """The finish reason, the usage chunk if it was asked for, [DONE]."""
        counts = {**self._about(said, "chat.completion.chunk"), "choices": [], "usage": _openai_usage(said)}
        counted = framed(None, counts) if usage else b""
        return self._chunk(said, {}, _finish(said)) + counted + b"data: [DONE]\n\n"

    def _about(self, said: Said, kind: str) -> dict[str, Any]:
        return {"id": said.id, "object": kind, "created": said.made, "model": said.model}

    def _chunk(self, said: Said, delta: dict[str, Any], finish: str | None) -> bytes:
        chances = _chances(said) if "role" in delta else None
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": chances}
        return framed(None, {**self._about(said, "chat.completion.chunk"), "choices": [choice]})


class ResponsesSpeech:
    """Responses. Each event has a sequence number; deltas are numbered by `Said.id` and their position."""

    def __init__(self) -> None:
        self._number = 0

    def whole(self, said: Said) -> dict[str, Any]:
        """One output item with its text."""
        return self._response(said, "incomplete" if said.truncated else "completed", [self._item(said)])

    def head(self, said: Said) -> bytes:
        """created, in_progress, output_item.added, content_part.added."""
        bare = self._response(said, "in_progress", [])
        item = {**self._item(said), "status": "in_progress", "content": []}
        part = {"type": "output_text", "text": "", "annotations": []}
        place = {"item_id": item["id"], "output_index": 0}
        return b"".join(
            (
                self._event("response.created", response=bare),
                self._event("response.in_progress", response=bare),
                self._event("response.output_item.added", output_index=0, item=item),
                self._event("response.content_part.added", **place, content_index=0, part=part),
            )
        )

    def delta(self, said: Said, text: str) -> bytes:
        """One output_text.delta."""
        place = {"item_id": f"msg_{said.id}", "output_index": 0, "content_index": 0}
        return self._event("response.output_text.delta", **place, delta=text, logprobs=[])

    def tail(self, said: Said, *, usage: bool) -> bytes:
        """output_text.done, content_part.done, output_item.done, completed."""
        item = self._item(said)
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        done = self.whole(said)
        return b"".join(
            (
                self._event("response.output_text.done", **place, text=said.text, logprobs=[]),
                self._event("response.content_part.done", **place, part=item["content"][0]),
                self._event("response.output_item.done", output_index=0, item=item),
                self._event(f"response.{done['status']}", response=done),
            )
        )

    def _event(self, kind: str, **members: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return framed(kind, {"type": kind, "sequence_number": number, **members})

    def _item(self, said: Said) -> dict[str, Any]:
        part = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}
        item = {"id": f"msg_{said.id}", "type": "message", "role": "assistant", "status": "completed"}
        return {**item, "content": [part]}

    def _response(self, said: Said, status: str, output: list[Any]) -> dict[str, Any]:
        whole: dict[str, Any] = {
            "id": f"resp_{said.id}",
            "object": "response",
            "created_at": said.made,
            "status": status,
            "model": said.model,
            "output": output,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if said.truncated else None,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
        counts = {
            "input_tokens": said.tokens_in,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": said.tokens_out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": said.tokens_in + said.tokens_out,
        }
        return whole | {"usage": counts if output else None}


class MessagesSpeech:
    """Messages."""

    def whole(self, said: Said) -> dict[str, Any]:
        """One text block."""
        return self._message(said) | {
            "content": [{"type": "text", "text": said.text}],
            "stop_reason": "max_tokens" if said.truncated else "end_turn",
            "usage": {"input_tokens": said.tokens_in, "output_tokens": said.tokens_out},
        }

    def head(self, said: Said) -> bytes:
        """message_start and content_block_start."""
        usage = {"input_tokens": said.tokens_in, "output_tokens": 0}
        start = self._message(said) | {"content": [], "stop_reason": None, "usage": usage}
        block = {"type": "text", "text": ""}
        return self._event("message_start", message=start) + self._event(
            "content_block_start", index=0, content_block=block
        )

    def delta(self, said: Said, text: str) -> bytes:
        """One content_block_delta."""
        return self._event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})

    def tail(self, said: Said, *, usage: bool) -> bytes:
        """content_block_stop, message_delta with the final counts, message_stop."""
        whole = self.whole(said)
        why = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        return b"".join(
            (
                self._event("content_block_stop", index=0),
                self._event("message_delta", delta=why, usage=whole["usage"]),
                self._event("message_stop"),
            )
        )

    def _message(self, said: Said) -> dict[str, Any]:
        about = {"id": f"msg_{said.id}", "type": "message", "role": "assistant", "model": said.model}
        return {**about, "stop_sequence": None}

    def _event(self, kind: str, **members: Any) -> bytes:
        return framed(kind, {"type": kind, **members})


SPEECHES: dict[Name, type[Speech]] = {
    "chat": ChatSpeech,
    "responses": ResponsesSpeech,
    "messages": MessagesSpeech,
}
"""Make one for each answer: the numbering of Responses events is its own."""


def _finish(said: Said) -> str:
    return "length" if said.truncated else "stop"


def _chances(said: Said) -> dict[str, Any] | None:
    if not said.logprobs:
        return None
    texts = [said.first, *("" for _ in said.logprobs[1:])]  # where one token ends is not known here
    tokens = zip(texts, said.logprobs, strict=True)
    return {"content": [{"token": text, "logprob": chance, "top_logprobs": []} for text, chance in tokens]}


def _openai_usage(said: Said) -> dict[str, int]:
    whole = said.tokens_in + said.tokens_out
    return {"prompt_tokens": said.tokens_in, "completion_tokens": said.tokens_out, "total_tokens": whole}
