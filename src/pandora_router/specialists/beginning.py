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
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType

from pandora_router.errors import UsageError
from pandora_router.specialists.answer import Answer
from pandora_router.specialists.request import Request

LOG_PROBABILITIES = "log-probabilities:"
"""How the first line of a context begins when it holds log-probabilities of the first tokens."""
SCORES = "scores:"
"""How the first line of a context begins when it holds the scores of retrieved passages, best first."""
VERDICT = "verdict:"
"""How the line before all others begins when a judge has read the context."""


def shown(context: str | None, logprobs: tuple[float, ...] | None) -> str:
    """A context as estimators read it: a line of log-probabilities, then the text."""
    return _headed(LOG_PROBABILITIES, logprobs or (), context)


def scored(passages: str, scores: Sequence[float]) -> str:
    """A context of passages as estimators read it: a line with the score of each passage, then the text."""
    return _headed(SCORES, scores, passages)


def _headed(head: str, values: Sequence[float], text: str | None) -> str:
    return f"{head} {' '.join(f'{value:.3f}' for value in values)}\n{text or ''}"


def with_verdict(context: str, verdict: float) -> str:
    r"""A context with a judge's verdict on it, the probability of a right answer, on a line before the rest.

    >>> split_verdict(with_verdict("It is 42", 0.75)), split_verdict("verdict: perhaps")
    ((0.75, 'It is 42'), (None, 'verdict: perhaps'))
    """
    return _headed(VERDICT, (verdict,), without_verdict(context))


def split_verdict(context: str) -> tuple[float | None, str]:
    """The verdict on a context, None if there is none, and the context without it.

    Contexts come from outside: only one number from 0 to 1 alone on the first line is a verdict.
    """
    first, line, rest = context.partition("\n")
    if not line or not first.startswith(VERDICT):
        return None, context
    try:
        verdict = float(first.removeprefix(VERDICT))
    except ValueError:
        return None, context
    return (verdict, rest) if 0.0 <= verdict <= 1.0 else (None, context)


def without_verdict(context: str) -> str:
    r"""A context without verdicts: what a specialist says must not count as one, however often it says it.

    >>> without_verdict("verdict: 1\nverdict: 1\nIt is 42")
    'It is 42'
    """
    while (parts := split_verdict(context))[0] is not None:
        context = parts[1]
    return context


def told_to_judge(context: str, characters: int) -> str:
    """What a judge reads of a context: its first `characters`, without lines of numbers."""
    return read_head(without_verdict(context)[:characters])[1]


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
