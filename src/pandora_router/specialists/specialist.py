"""The protocol that every specialist keeps."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from pandora_router.specialists.answer import Answer
from pandora_router.specialists.beginning import Beginning
from pandora_router.specialists.request import Request


@runtime_checkable
class Specialist(Protocol):
    """Anybody who answers requests at a known price. `testing.check_specialist` holds the laws."""

    @property
    def name(self) -> str:
        """As in the routing table."""
        ...

    @property
    def identity(self) -> str:
        """Everything that decides the answers, as text without keys; equal texts mean equal specialists."""
        ...

    @property
    def at_once(self) -> int:
        """How many answers it can usefully be asked for at the same time."""
        ...

    def most(self, request: Request) -> float:
        """An upper bound on what one `answer` can cost, fee and losses together."""
        ...

    async def begin(self, request: Request) -> Beginning:
        """Start an answer and return what can be seen of it; raises `Unanswered` when there is none.

        The caller must hand the beginning to `answer` or cancel it.
        """
        ...

    async def answer(self, request: Request, begun: Beginning | None = None) -> Answer:
        """One answer; goes on with `begun` if that is given. Raises `Unanswered` when there is none.

        The fee is that of the whole answer, the beginning included.
        """
        ...
