"""What a specialist is asked, begins and answers: `Request`, `Beginning`, `Answer`; and the `Specialist`.

The last message of a request by the user is the prompt. A beginning is a look at an answer before it is
bought. Its holder must end it exactly once: pass it to `answer(request, begun)`, which continues it without
paying twice, or `cancel` it. A `with` block cancels it on every exit unless it was continued:

    with await specialist.begin(request) as begun:
        if worth_it(begun.context):
            answer = await specialist.answer(request, begun)

Token counts of an answer are those of the provider, or None; they are never estimated. `fee` is the price of
the answer; `lost` is an upper bound of what failed calls on the way to it may have cost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Protocol, runtime_checkable

from pandora_router.errors import UpstreamError, UsageError
from pandora_router.transport.failures import Failure

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


Finish = Literal["stop", "truncated", "empty", "refusal"]
"""How an answer ended. All four count as answers: they cost money and are graded as they are."""


@dataclass(frozen=True)
class Answer:
    """One answer.

    text: the answer.
    tokens_in, tokens_out: the provider's counts, None if it sent none.
    seconds: time until it was complete, measured here.
    fee: its price.
    context: what an estimator may read before the answer is bought: its first tokens, or passages.
    finish: how it ended.
    lost: upper bound of what failed calls before it may have cost.
    logprobs: log-probabilities of the first tokens, if requested and sent.
    context_seconds: seconds until the context was complete, None if not measured.
    bytes_in: length of the request, None if there was none.
    """

    text: str
    tokens_in: int | None
    tokens_out: int | None
    seconds: float
    fee: float
    context: str | None = None
    finish: Finish = "stop"
    lost: float = 0.0
    logprobs: tuple[float, ...] | None = None
    context_seconds: float | None = None
    bytes_in: int | None = None

    def __post_init__(self) -> None:
        """Replace unpaired surrogates, which cannot be written to files, by question marks."""
        object.__setattr__(self, "text", _whole(self.text))
        if self.context is not None:
            object.__setattr__(self, "context", _whole(self.context))


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


class Unanswered(UpstreamError):
    """No answer after all retries.

    failure: the reason. dead: every other request to this specialist will fail too. lost: upper bound of
    what the calls may have cost.
    """

    def __init__(self, what: str, *, failure: Failure, dead: bool = False, lost: float = 0.0) -> None:
        self.failure: Failure = failure
        self.dead = dead
        self.lost = lost
        super().__init__(what)


class Beginning:
    """The first part of an answer.

    specialist: the name of the specialist that began it.
    request: the request it answers.
    context: what an estimator may read: the first tokens, or passages; None if there is nothing to see.
    logprobs: log-probabilities of the first tokens, if requested and sent.
    seconds: time that it took so far.
    cost: upper bound of what is owed if it is cancelled now.
    """

    def __init__(
        self,
        specialist: str,
        request: Request,
        *,
        context: str | None,
        logprobs: tuple[float, ...] | None = None,
        seconds: float,
        cost: float,
        go_on: Callable[[], Awaitable[Answer]],
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.specialist, self.request = specialist, request
        self.context, self.logprobs, self.seconds, self.cost = context, logprobs, seconds, cost
        self._go_on, self._stop = go_on, stop
        self._state = "held"

    @classmethod
    def whole(cls, specialist: str, request: Request, answer: Answer) -> Beginning:
        """The beginning of an answer that is already complete."""

        async def go_on() -> Answer:
            return answer

        seconds = answer.seconds if answer.context_seconds is None else answer.context_seconds
        return cls(
            specialist,
            request,
            context=answer.context,
            logprobs=answer.logprobs,
            seconds=seconds,
            cost=answer.fee + answer.lost,
            go_on=go_on,
        )

    def __repr__(self) -> str:
        return f"Beginning({self.specialist!r}, {self._state}, cost={self.cost:.6g})"

    def __enter__(self) -> Beginning:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    @property
    def held(self) -> bool:
        """Whether it can still be continued."""
        return self._state == "held"

    @property
    def lost(self) -> float:
        """What is owed for it without an answer: `cost` if it was cancelled, else 0."""
        return self.cost if self._state == "cancelled" else 0.0

    async def finish(self, specialist: str, request: Request) -> Answer:
        """The whole answer; its fee and seconds include those of the beginning. Called by specialists.

        Raises `UsageError` if it belongs to another specialist or request, or has already ended.
        """
        if (self.specialist, self.request) != (specialist, request) or not self.held:
            raise UsageError(
                "a beginning",
                expected=f"one that {specialist} began for this request and that has not ended",
                came=f"one of {self.specialist}, {self._state}"
                + ("" if self.request == request else ", for another request"),
                do="Hand over the beginning that this specialist returned, once.",
            )
        self._state = "used"
        return await self._go_on()

    def cancel(self) -> None:
        """End it without an answer and close its connection at once; no effect if it has already ended."""
        if self.held:
            self._state = "cancelled"
            self._stop()


@runtime_checkable
class Specialist(Protocol):
    """Answers requests at a known price. `testing.check_specialist` checks an implementation."""

    @property
    def name(self) -> str:
        """Its name in the routing table."""
        ...

    @property
    def identity(self) -> str:
        """Everything that affects its answers, as text without keys; equal texts mean equal specialists."""
        ...

    @property
    def at_once(self) -> int:
        """Number of answers that can usefully be requested at the same time."""
        ...

    def most(self, request: Request) -> float:
        """Upper bound of what one `answer` can cost: fee and losses together."""
        ...

    async def begin(self, request: Request) -> Beginning:
        """Start an answer and return what can be seen of it; raises `Unanswered` on failure.

        The caller must pass the beginning to `answer` or cancel it.
        """
        ...

    async def answer(self, request: Request, begun: Beginning | None = None) -> Answer:
        """One answer; continues `begun` if that is given. Raises `Unanswered` on failure.

        The fee is that of the whole answer, including the beginning.
        """
        ...
