"""The `Specialist` protocol."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from pandora_router.specialists.answer import Answer
from pandora_router.specialists.beginning import Beginning
from pandora_router.specialists.request import Request


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
