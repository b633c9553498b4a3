"""How an estimator on disk finds its embedder again.

Word vectors and MiniLM are found by name, TF-IDF is saved whole, anything else (a callable, an endpoint) must
be handed over again and must bear the name it had when the estimator was fitted.
"""

from __future__ import annotations

from pandora_router.errors import UsageError
from pandora_router.estimators.cache import Cached
from pandora_router.estimators.embedders import DEFAULT_NAME, Embedder, default_embedder
from pandora_router.estimators.joined import Joined
from pandora_router.estimators.minilm import minilm
from pandora_router.estimators.persistence import Saved
from pandora_router.estimators.tfidf import TfidfSvd


def embedder_state(embedder: Embedder) -> Saved:
    """The embedder as saved: whole when it was fitted here, otherwise its name."""
    inner = embedder.inner if isinstance(embedder, Cached) else embedder
    if isinstance(inner, TfidfSvd):
        return inner.state()
    if isinstance(inner, Joined):
        parts = {f"part{i}": embedder_state(part) for i, part in enumerate(inner.parts)}
        return Saved("joined", {"name": inner.name}, parts=parts)
    return Saved("embedder", {"name": inner.name})


def reopened_embedder(saved: Saved, given: Embedder | None) -> Embedder:
    """`given`, if it bears the saved name; without one, the saved, default or packaged embedder."""
    name = str(saved.settings["name"])
    if given is not None:
        if given.name != name:
            raise UsageError(
                "embedder of a saved estimator",
                expected=f"{name!r}, which it was fitted with",
                came=f"{given.name!r}",
                do="Vectors of different embedders cannot be compared: pass the same one, or fit again.",
            )
        return given
    if saved.kind == "tfidf-svd":
        return TfidfSvd.from_state(saved)
    if saved.kind == "joined":
        return Joined(tuple(reopened_embedder(part, None) for part in saved.parts.values()))
    if name == DEFAULT_NAME:
        return default_embedder()
    if name.startswith("all-MiniLM-L6-v2-"):
        return minilm(int(name.rsplit("-", 1)[1]))
    raise UsageError(
        "embedder of a saved estimator",
        expected=f"the embedder named {name!r} to be passed to load",
        came="none",
        do="It was a callable or an endpoint, which is not saved: pass embedder=... again.",
    )
