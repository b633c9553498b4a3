"""Several embedders side by side: the cosine of the joined vectors is the mean of their cosines.

The default for fitting joins word vectors, which know the meaning of words, with TF-IDF of the training
prompts, which knows their wording. Neither alone is best on all data sets; together they are within noise
of the best on each (docs/decisions/0010-default-embedder.md).
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
    """The unit vectors of all parts, concatenated and scaled to length one.

    Recent vectors are cached by a hash of the text, since the cheap and the costly estimate embed the same
    prompts.
    """

    parts: tuple[Embedder, ...]
    recent: Recent = field(default_factory=Recent, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The names of the parts, joined by a plus sign."""
        return "+".join(part.name for part in self.parts)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row per text; the width is the sum of the widths of the parts."""
        return self.recent.rows(checked_texts(texts), self._joined)

    def _joined(self, texts: list[str]) -> Vectors:
        return normalised(np.hstack([part.embed(texts) for part in self.parts]))

    def forget(self) -> None:
        """Clear the cache of vectors."""
        self.recent.forget()


def fitted_embedder(prompts: Sequence[str], *, width: int = WIDTH) -> Embedder:
    """The default for fitting: word vectors joined with TF-IDF; word vectors alone if prompts are too few.

    Returns the same object for the same prompts while an earlier one is still in use.
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
