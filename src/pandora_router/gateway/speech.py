"""An answer that is a plain text in the formats of the three wires: whole, and as server-sent events.

Bidders of a market and the specialists of the demo answer with texts. A stream is `head`, any number of
`delta`s, `tail`; the texts of the deltas together are `WireAnswer.text`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from pandora_router.gateway.frames import framed
from pandora_router.gateway.wires import Name


@dataclass(frozen=True)
class WireAnswer:
    """One answer. `truncated`: a limit of tokens cut it off; `created`: Unix time in seconds.

    `logprobs` are the log-probabilities of the first tokens, `first` is the text of all of them.
    """

    id: str
    model: str
    created: int
    text: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    truncated: bool = False
    logprobs: tuple[float, ...] = ()
    first: str = ""


class Speech(Protocol):
    """The format of answers on one wire."""

    def whole(self, answer: WireAnswer) -> dict[str, Any]:
        """The answer to a request that does not stream."""
        ...

    def head(self, answer: WireAnswer) -> bytes:
        """The events before the first text."""
        ...

    def delta(self, answer: WireAnswer, text: str) -> bytes:
        """The event for one piece of text."""
        ...

    def tail(self, answer: WireAnswer, *, usage: bool) -> bytes:
        """The events after the last text; `usage`: whether a chat client asked for token counts."""
        ...


class ChatSpeech:
    """Chat completions."""

    def whole(self, answer: WireAnswer) -> dict[str, Any]:
        """One choice with its message."""
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": _finish(answer),
            "logprobs": _chances(answer),
        }
        return self._about(answer, "chat.completion") | {"choices": [choice], "usage": _openai_usage(answer)}

    def head(self, answer: WireAnswer) -> bytes:
        """The chunk that names the role, with log-probabilities of the first tokens where there are any."""
        return self._chunk(answer, {"role": "assistant", "content": ""}, None)

    def delta(self, answer: WireAnswer, text: str) -> bytes:
        """One chunk."""
        return self._chunk(answer, {"content": text}, None)

    def tail(self, answer: WireAnswer, *, usage: bool) -> bytes:
        """The finish reason, the usage chunk if it was asked for, [DONE]."""
        counts = {
            **self._about(answer, "chat.completion.chunk"),
            "choices": [],
            "usage": _openai_usage(answer),
        }
        counted = framed(None, counts) if usage else b""
        return self._chunk(answer, {}, _finish(answer)) + counted + b"data: [DONE]\n\n"

    def _about(self, answer: WireAnswer, kind: str) -> dict[str, Any]:
        return {"id": answer.id, "object": kind, "created": answer.created, "model": answer.model}

    def _chunk(self, answer: WireAnswer, delta: dict[str, Any], finish: str | None) -> bytes:
        chances = _chances(answer) if "role" in delta else None
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": chances}
        return framed(None, {**self._about(answer, "chat.completion.chunk"), "choices": [choice]})


class ResponsesSpeech:
    """Responses. Each event of a stream has a number: make a new object for each answer."""

    def __init__(self) -> None:
        self._number = 0

    def whole(self, answer: WireAnswer) -> dict[str, Any]:
        """One output item with its text."""
        return self._response(answer, "incomplete" if answer.truncated else "completed", [self._item(answer)])

    def head(self, answer: WireAnswer) -> bytes:
        """created, in_progress, output_item.added, content_part.added."""
        bare = self._response(answer, "in_progress", [])
        item = {**self._item(answer), "status": "in_progress", "content": []}
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

    def delta(self, answer: WireAnswer, text: str) -> bytes:
        """One output_text.delta."""
        place = {"item_id": f"msg_{answer.id}", "output_index": 0, "content_index": 0}
        return self._event("response.output_text.delta", **place, delta=text, logprobs=[])

    def tail(self, answer: WireAnswer, *, usage: bool) -> bytes:
        """output_text.done, content_part.done, output_item.done, completed."""
        item = self._item(answer)
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        done = self.whole(answer)
        return b"".join(
            (
                self._event("response.output_text.done", **place, text=answer.text, logprobs=[]),
                self._event("response.content_part.done", **place, part=item["content"][0]),
                self._event("response.output_item.done", output_index=0, item=item),
                self._event(f"response.{done['status']}", response=done),
            )
        )

    def _event(self, kind: str, **members: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return framed(kind, {"type": kind, "sequence_number": number, **members})

    def _item(self, answer: WireAnswer) -> dict[str, Any]:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        item = {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "status": "completed"}
        return {**item, "content": [part]}

    def _response(self, answer: WireAnswer, status: str, output: list[Any]) -> dict[str, Any]:
        whole: dict[str, Any] = {
            "id": f"resp_{answer.id}",
            "object": "response",
            "created_at": answer.created,
            "status": status,
            "model": answer.model,
            "output": output,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if answer.truncated else None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
        }
        counts = {
            "input_tokens": answer.tokens_in,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": answer.tokens_out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.tokens_in + answer.tokens_out,
        }
        return whole | {"usage": counts if output else None}


class MessagesSpeech:
    """Messages."""

    def whole(self, answer: WireAnswer) -> dict[str, Any]:
        """One text block."""
        return self._message(answer) | {
            "content": [{"type": "text", "text": answer.text}],
            "stop_reason": "max_tokens" if answer.truncated else "end_turn",
            "usage": {"input_tokens": answer.tokens_in, "output_tokens": answer.tokens_out},
        }

    def head(self, answer: WireAnswer) -> bytes:
        """message_start and content_block_start."""
        usage = {"input_tokens": answer.tokens_in, "output_tokens": 0}
        start = self._message(answer) | {"content": [], "stop_reason": None, "usage": usage}
        block = {"type": "text", "text": ""}
        return self._event("message_start", message=start) + self._event(
            "content_block_start", index=0, content_block=block
        )

    def delta(self, answer: WireAnswer, text: str) -> bytes:
        """One content_block_delta."""
        return self._event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})

    def tail(self, answer: WireAnswer, *, usage: bool) -> bytes:
        """content_block_stop, message_delta with the final counts, message_stop."""
        whole = self.whole(answer)
        why = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        return b"".join(
            (
                self._event("content_block_stop", index=0),
                self._event("message_delta", delta=why, usage=whole["usage"]),
                self._event("message_stop"),
            )
        )

    def _message(self, answer: WireAnswer) -> dict[str, Any]:
        about = {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "model": answer.model}
        return {**about, "stop_sequence": None}

    def _event(self, kind: str, **members: Any) -> bytes:
        return framed(kind, {"type": kind, **members})


SPEECHES: dict[Name, type[Speech]] = {
    "chat": ChatSpeech,
    "responses": ResponsesSpeech,
    "messages": MessagesSpeech,
}
"""Make one for each answer: the numbering of Responses events is its own."""


def _finish(answer: WireAnswer) -> str:
    return "length" if answer.truncated else "stop"


def _chances(answer: WireAnswer) -> dict[str, Any] | None:
    if not answer.logprobs:
        return None
    texts = [answer.first, *("" for _ in answer.logprobs[1:])]  # where one token ends is not known here
    tokens = zip(texts, answer.logprobs, strict=True)
    return {"content": [{"token": text, "logprob": chance, "top_logprobs": []} for text, chance in tokens]}


def _openai_usage(answer: WireAnswer) -> dict[str, int]:
    whole = answer.tokens_in + answer.tokens_out
    return {"prompt_tokens": answer.tokens_in, "completion_tokens": answer.tokens_out, "total_tokens": whole}
