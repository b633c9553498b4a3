"""An answer that was started and can be continued or cancelled.

A beginning is a look at an answer before it is bought. Its holder must end it exactly once: pass it to
`answer(request, begun)`, which continues it without paying twice, or `cancel` it. A `with` block cancels it
on every exit unless it was continued:

    with await specialist.begin(request) as begun:
        if worth_it(begun.context):
            answer = await specialist.answer(request, begun)
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from types import TracebackType

from pandora_router.errors import UsageError
from pandora_router.specialists.answer import Answer
from pandora_router.specialists.request import Request
from pandora_router.wires.look import LOG_PROBABILITIES, SCORES


def read_head(context: str) -> tuple[list[float], str]:
    r"""The numbers on the first line of a context, and the text without that line.

    Contexts come from outside. A first line that does not begin like one of `shown` or `scored`, or holds
    anything but finite numbers after that, is text: then there are no numbers.

    >>> read_head("scores: 7.5 2.0\n[1] Nile"), read_head("scores: seven")
    (([7.5, 2.0], '[1] Nile'), ([], 'scores: seven'))
    """
    first, _, rest = context.partition("\n")
    head = next((head for head in (LOG_PROBABILITIES, SCORES) if first.startswith(head)), None)
    if head is None:
        return [], context
    try:
        values = [float(value) for value in first.removeprefix(head).split()]
    except ValueError:
        return [], context
    return (values, rest) if all(map(math.isfinite, values)) else ([], context)


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
