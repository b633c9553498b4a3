"""An embedder of a user: any class with a name and `embed`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from numpy.typing import ArrayLike

from pandora_router.estimators.embedders.embedder import Vectors, normalised


@dataclass(frozen=True)
class CallableEmbedder:
    """The rows of `call`, scaled to length one."""

    name: str
    call: Callable[[list[str]], ArrayLike] = field(repr=False)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row per text."""
        return normalised(self.call(list(texts)))
