"""Several embedders side by side: the cosine of the joined vectors is the mean of their cosines.

The default for fitting is word vectors joined with TF-IDF of the training prompts: the first knows what words
mean, the second how prompts of this collection are put. Neither alone is best on all collections; together
they are within noise of the best everywhere (docs/decisions/0010-default-embedder.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import numpy as np

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import (
    Embedder,
    Recent,
    Vectors,
    checked_texts,
    default_embedder,
    normalised,
)
from pandora_router.estimators.embedders.tfidf import TfidfSvd

WIDTH = 128  # directions of TF-IDF beside the word vectors
_fitted: WeakValueDictionary[str, Joined] = WeakValueDictionary()  # by what each was fitted on


@dataclass(frozen=True)
class Joined:
    """Unit vectors of each part, one after the other, scaled to length one again.

    Vectors of texts seen lately are remembered by a hash, never by the text: the cheap and the costly
    estimate ask for the same ones.
    """

    parts: tuple[Embedder, ...]
    recent: Recent = field(default_factory=Recent, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The names of the parts, joined by a plus sign."""
        return "+".join(part.name for part in self.parts)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row per text, as wide as all parts together."""
        return self.recent.rows(checked_texts(texts), self._joined)

    def _joined(self, texts: list[str]) -> Vectors:
        return normalised(np.hstack([part.embed(texts) for part in self.parts]))

    def forget(self) -> None:
        """Drop the vectors that are remembered."""
        self.recent.forget()


def fitted_embedder(prompts: Sequence[str], *, width: int = WIDTH) -> Embedder:
    """The default for fitting: word vectors joined with TF-IDF; word vectors alone if prompts are too few.

    Fitted again on the same prompts it is the same object, as long as that is in use.
    """
    mark = hashlib.sha256(repr(width).encode())
    for prompt in prompts:
        mark.update(hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).digest())
    kept_ = _fitted.get(mark.hexdigest())
    if kept_ is not None:
        return kept_
    try:
        made = Joined((default_embedder(), TfidfSvd.fit(prompts, width=width)))
    except UsageError:
        return default_embedder()
    _fitted[mark.hexdigest()] = made
    return made
