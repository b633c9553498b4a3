"""Estimators on disk: any fitted estimator with its embedder, and the finished stages of a long fit.

An estimator has `state`, which returns a `Saved`, and `from_state`, which restores it. `KINDS` says which
class reads which kind; its module is imported only when needed, since it may load a large library.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from pandora_router import folders
from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import DEFAULT_NAME, Embedder, default_embedder
from pandora_router.folders.saved import NEEDS, Saved, fill, saved_from

if TYPE_CHECKING:
    from pandora_router.estimators.estimator import Predictor

__all__ = [
    "KIND",
    "Saved",
    "Stages",
    "embedder_from",
    "embedder_state",
    "estimator_of",
    "is_saved",
    "load_estimator",
    "read",
    "restorable",
    "write",
]

KIND = folders.Kind(
    format="pandora-router estimator",
    version=4,
    noun="a saved estimator",
    make="Fit an estimator and save it.",
    mend="fit the estimator and save it again.",
)
KINDS = {
    "neighbours": ("neighbours", "Neighbours"),
    "linear": ("linear", "LinearHead"),
    "boosted": ("stack.boosted", "Boosted"),
    "transformer": ("transformer.served", "Served"),
    "extended": ("extended", "Extended"),
    "unscored": ("extended", "Unscored"),
    "sets": ("set_layer", "SetEstimate"),
    "blended": ("pooled", "Blended"),
}
"""For each kind of saved estimator: the module of this package and the class in it that reads it."""


def write(folder: Path | str, saved: Saved) -> Path:
    """Write `saved` to `folder`, atomically; an estimator already there is replaced."""
    path = Path(folder)

    def files(inside: Path) -> dict[str, Any]:
        fill(inside, saved)
        return {"kind": saved.kind}

    folders.write(path, KIND, files, replace=True)
    return path


def read(folder: Path | str) -> Saved:
    """Read a folder written by `write`. Raises `UsageError` if it is damaged or of another kind."""
    return saved_from(folders.read(Path(folder), KIND, NEEDS), KIND)


def is_saved(folder: Path) -> bool:
    """Whether `folder` claims to be a saved estimator."""
    return folders.is_stored(folder, KIND)


def load_estimator(folder: Path | str, *, embedder: Embedder | None = None) -> Predictor:
    """Read an estimator of any kind; pass `embedder` only if it was fitted with a callable or an endpoint."""
    return estimator_of(read(folder), embedder=embedder)


def estimator_of(saved: Saved, *, embedder: Embedder | None = None) -> Predictor:
    """Restore the estimator whose `state` is `saved`; `UsageError` for an unknown kind."""
    if saved.kind not in KINDS:
        raise UsageError(
            "saved estimator",
            expected=f"one of the kinds {', '.join(KINDS)}",
            came=repr(saved.kind),
            do="It may have been written by a newer version: upgrade, or fit and save it again.",
        )
    module, name = KINDS[saved.kind]
    kind = vars(import_module(f"pandora_router.estimators.{module}"))[name]
    estimator: Predictor = kind.from_state(saved, embedder=embedder)
    return estimator


def embedder_state(embedder: Embedder) -> Saved:
    """The embedder's state: TF-IDF, surface and joined embedders complete, any other by its name."""
    from pandora_router.estimators.embedders.embedder import Cached, Joined
    from pandora_router.estimators.embedders.tfidf import Surface, TfidfSvd

    inner = embedder.inner if isinstance(embedder, Cached) else embedder
    if isinstance(inner, TfidfSvd | Surface):
        return inner.state()
    if isinstance(inner, Joined):
        parts = {f"part{i}": embedder_state(part) for i, part in enumerate(inner.parts)}
        return Saved("joined", {"name": inner.name}, parts=parts)
    return Saved("embedder", {"name": inner.name})


def once(saved: Saved, kept: frozenset[str]) -> Saved:
    """`saved` with every embedder whose name is in `kept` reduced to that name.

    `embedder_from` then takes the embedder of that name that is in use.
    """
    if saved.kind in ("joined", "tfidf-svd", "surface") and saved.settings["name"] in kept:
        return Saved("embedder", {"name": saved.settings["name"]})
    return replace(saved, parts={name: once(part, kept) for name, part in saved.parts.items()})


_live: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""Fitted embedders in use that were read from disk, by name. A name contains a hash of the training texts, so
equal names mean equal embedders, and the estimators of a router share one."""


def embedder_from(saved: Saved, given: Embedder | None) -> Embedder:
    """The embedder of a saved estimator: `given`, if it has the saved name, else the saved one.

    Word vectors and MiniLM are found by name. Raises `UsageError` if `given` has another name, or if the
    embedder was a callable or an endpoint (which is not saved) and none is given.
    """
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
    if name in _live:
        return _live[name]
    if saved.kind in ("tfidf-svd", "surface"):
        from pandora_router.estimators.embedders.tfidf import Surface, TfidfSvd

        return (TfidfSvd if saved.kind == "tfidf-svd" else Surface).from_state(saved)
    if saved.kind == "joined":
        from pandora_router.estimators.embedders.embedder import Joined

        embedder = Joined(tuple(embedder_from(part, None) for part in saved.parts.values()))
        _live[embedder.name] = embedder
        return embedder
    if name == DEFAULT_NAME:
        return default_embedder()
    if name.startswith("all-MiniLM-L6-v2-"):
        from pandora_router.estimators.embedders.minilm import minilm

        return minilm(int(name.rsplit("-", 1)[1]))
    raise UsageError(
        "embedder of a saved estimator",
        expected=f"the embedder named {name!r} to be passed to load",
        came="none",
        do="It was a callable or an endpoint, which is not saved: pass embedder=... again.",
    )


def restorable(embedder: Embedder) -> bool:
    """Whether another process can make this embedder from its saved state; a callable it cannot."""
    try:
        return embedder_from(embedder_state(embedder), None).name == embedder.name
    except UsageError:
        return False


@dataclass(frozen=True)
class Stages:
    """Finished stages of a long fit, so that an interrupted fit can resume.

    Each stage is a `Saved` in its own folder below `folder`; if `folder` is None nothing is kept.
    """

    folder: Path | None = None

    @classmethod
    def of(cls, work: Path | str | None, *depends_on: Any) -> Stages:
        """The stages of a fit that depends on the given values (arrays, texts, anything with a plain repr).

        They are kept in a subfolder of `work` named by a hash of these values and of the package version, so
        a fit with other data, settings or versions never uses them.
        """
        if work is None:
            return cls()
        mark = hashlib.sha256(metadata.version("pandora-router").encode())
        for value in depends_on:
            numbers = isinstance(value, np.ndarray) and value.dtype != object
            plain = value.tolist() if isinstance(value, np.ndarray) and not numbers else value
            mark.update(value.tobytes() if numbers else repr(plain).encode())
        return cls(Path(work) / mark.hexdigest()[:16])

    def get(self, name: str) -> Saved | None:
        """The stage of this name, or None if it has not been finished."""
        if self.folder is None or not is_saved(self.folder / name):
            return None
        return read(self.folder / name)

    def put(self, name: str, saved: Saved) -> None:
        """Save a finished stage."""
        if self.folder is not None:
            write(self.folder / name, saved)
