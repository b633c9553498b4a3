"""A request to a specialist: the messages of a conversation; the last one by the user is the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pandora_router.errors import UsageError

ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True)
class Message:
    """One message: the role of its author (one of `ROLES`) and its text."""

    role: str
    content: str

    def __post_init__(self) -> None:
        if self.role not in ROLES or not isinstance(self.content, str):
            raise UsageError(
                "a message",
                expected=f"a role among {', '.join(ROLES)} and a text",
                came=f"role {self.role!r} and {type(self.content).__name__}",
                do="Check the messages of the request.",
            )


@dataclass(frozen=True)
class Request:
    """The messages of a conversation; at least one is by the user.

    >>> Request.of("What is 2 + 2?").prompt
    'What is 2 + 2?'
    """

    messages: tuple[Message, ...]

    def __post_init__(self) -> None:
        if not any(message.role == "user" for message in self.messages):
            raise UsageError(
                "a request",
                expected="at least one message by the user",
                came=f"{len(self.messages)} messages, none by the user",
                do="Add the prompt as a message with role user.",
            )

    @classmethod
    def of(cls, prompt: str) -> Request:
        """The request whose only message is `prompt`."""
        return cls((Message("user", prompt),))

    @classmethod
    def from_chat(cls, messages: Iterable[Mapping[str, Any]]) -> Request:
        """The request from the messages of a chat completion: dictionaries with `role` and `content`.

        Content is a text or a list of text parts, which are joined; null is an empty text. Raises
        `UsageError` for anything else, such as images.
        """
        return cls(
            tuple(Message(str(message.get("role")), _text(message.get("content"))) for message in messages)
        )

    @property
    def prompt(self) -> str:
        """The text of the last message by the user; estimates are made from it."""
        return self.messages[self._last].content

    def with_prompt(self, prompt: str) -> Request:
        """The same conversation with another text in the last message by the user."""
        at = self._last
        message = replace(self.messages[at], content=prompt)
        return Request((*self.messages[:at], message, *self.messages[at + 1 :]))

    @property
    def _last(self) -> int:
        return max(i for i, message in enumerate(self.messages) if message.role == "user")


def _text(content: object) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    parts = content if isinstance(content, list) else [content]
    texts = [
        part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)
    ]
    if len(texts) < len(parts):
        raise UsageError(
            "the content of a message",
            expected="a text, or a list of text parts",
            came="another kind of part",
            do="Send text only.",
        )
    return "".join(texts)
