"""Several embedders side by side: the cosine of the joined vectors is the mean of their cosines.

The default for fitting is word vectors joined with TF-IDF of the training prompts: the first knows what words
mean, the second how prompts of this collection are put. Neither alone is best on all collections; together
they are within noise of the best everywhere (docs/decisions/0010-default-embedder.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import Embedder, Vectors, default_embedder, normalised
from pandora_router.estimators.embedders.tfidf import TfidfSvd


@dataclass(frozen=True)
class Joined:
    """Unit vectors of each part, one after the other, scaled to length one again."""

    parts: tuple[Embedder, ...]

    @property
    def name(self) -> str:
        """The names of the parts, joined by a plus sign."""
        return "+".join(part.name for part in self.parts)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row per text, as wide as all parts together."""
        return normalised(np.hstack([part.embed(texts) for part in self.parts]))


def fitted_embedder(prompts: Sequence[str], *, width: int = 64) -> Embedder:
    """The default for fitting: word vectors joined with TF-IDF; word vectors alone if prompts are too few."""
    try:
        return Joined((default_embedder(), TfidfSvd.fit(prompts, width=width)))
    except UsageError:
        return default_embedder()
