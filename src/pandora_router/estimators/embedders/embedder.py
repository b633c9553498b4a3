"""The `Embedder` protocol, the offline default, several joined, and a wrapper for any callable.

An embedder turns texts into rows of unit length, so that an inner product is a cosine. It does not use
rewards, and no embedder but `remote.RemoteEmbedder` opens a socket. The default is static word vectors
(`WordVectors`), read from the files inside the PyPI package `wordllama` (MIT) without importing it;
docs/decisions/0010-default-embedder.md has the measurements behind that choice.

`Cached` keeps embeddings on disk, keyed by the SHA-256 of each text; the texts themselves are never written.
Every call with new texts adds one file with keys and vectors (`folders.saved`), written atomically, so that
several processes can share a folder and a killed one leaves no half-written file. A file that cannot be read
is skipped and its texts are embedded again. Meant for fitting and batches; a live router embeds its one
prompt directly.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pandora_router.errors import UsageError, install
from pandora_router.folders.saved import read_arrays, write_arrays
from pandora_router.search import kernels

Vectors = NDArray[np.float32]

DEFAULT_NAME = "wordllama-l2-supercat-256"
REMEMBERED = 4_096  # vectors kept in memory by one embedder
SPACE = "\u2581"
NUMBER = r"\d_\u00b2\u00b3\u00b9"  # digits, superscripts and the underscore, which \w matches beside letters
PIECE = re.compile(f"{SPACE}*(?:[^\\W{NUMBER}]+|(?:[{NUMBER}]|[^\\w{SPACE}])+)|{SPACE}+")
"""Spaces, then letters or other characters: where one piece ends and the next begins, a text may be cut."""
BYTE = re.compile("<0x[0-9A-F]{2}>")  # tokens of single bytes; these are never joined with others
PIECES = 65_536  # pieces kept in memory
LONGEST_PIECE = 32  # characters of a piece that is kept


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into unit rows; `name` identifies the vectors and is part of every cache key."""

    @property
    def name(self) -> str:
        """Identifies the vectors: two embedders of the same name must agree on every text."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Float32 matrix (len(texts), width), rows of length one (all zeros for a text without content)."""
        ...


def normalised(rows: ArrayLike) -> Vectors:
    """Rows scaled to length one, in float32; a row of zeros stays as it is."""
    matrix = np.asarray(rows, dtype=np.float32)
    if matrix.ndim != 2 or not np.isfinite(matrix).all():
        raise UsageError(
            "vectors of an embedder",
            expected="a matrix of finite numbers, one row per text",
            came=f"shape {matrix.shape}" if matrix.ndim != 2 else "values that are not finite",
            do="Check what the embedder returns for these texts.",
        )
    length = np.linalg.norm(matrix, axis=1, keepdims=True)
    scaled: Vectors = np.divide(matrix, length, out=np.zeros_like(matrix), where=length > 0)
    return scaled


def checked_texts(texts: Sequence[str]) -> list[str]:
    """The texts as a list. Raises `UsageError` for a single string and for elements that are not `str`."""
    if isinstance(texts, str) or any(not isinstance(text, str) for text in texts):
        raise UsageError(
            "texts to embed",
            expected="a sequence of str",
            came="one str" if isinstance(texts, str) else "something that is not str",
            do="Pass a list, also for a single text.",
        )
    return list(texts)


@dataclass
class Recent:
    """Vectors of the last `REMEMBERED` texts that were embedded, keyed by hash; no text is kept."""

    known: dict[bytes, Vectors] = field(default_factory=dict, repr=False)

    def rows(self, texts: list[str], embed: Callable[[list[str]], Vectors]) -> Vectors:
        """One row per text; texts that are not cached are passed to one call of `embed`, each once."""
        if len(texts) > REMEMBERED:
            return embed(texts)
        keys = [hashlib.blake2b(t.encode("utf-8", "surrogatepass"), digest_size=16).digest() for t in texts]
        vectors = {key: self.known.get(key) for key in keys}
        new = {key: text for key, text in zip(keys, texts, strict=True) if vectors[key] is None}
        if not texts or new:
            embedded = embed(list(new.values()))
            if not texts:
                return embedded
            vectors.update(zip(new, embedded, strict=True))
            if len(self.known) + len(embedded) > REMEMBERED:
                self.known.clear()
            self.known.update(zip(new, embedded, strict=True))
        return np.array([vectors[key] for key in keys], dtype=np.float32)

    def forget(self) -> None:
        """Clear the cache."""
        self.known.clear()


@dataclass(frozen=True)
class Pieces:
    """Token ids of a text, put together from the ids of its words, which are remembered.

    Byte-pair encoding joins neighbouring tokens if the vocabulary has the result, so it never joins across a
    place that no token of the vocabulary crosses. A vocabulary in the style of SentencePiece has many such
    places: no token goes from a word on into punctuation or into the next space (written as U+2581). Texts
    are cut there and each piece is encoded alone, most often from memory, since prompts share most words.
    `special` are the texts that `tokenizer` takes for control tokens.
    """

    tokenizer: Any = field(repr=False)
    special: tuple[str, ...]
    known: dict[str, list[int]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, tokenizer: Any) -> Pieces | None:
        """The encoder for this `tokenizers.Tokenizer`; None if its texts cannot be cut at the ends of words.

        They can be if it is a byte-pair encoding without randomness, of texts in which only spaces are
        replaced, and every token of the vocabulary is one piece.
        """
        from tokenizers.models import BPE

        model, normalizer = tokenizer.model, tokenizer.normalizer
        if not isinstance(model, BPE) or model.dropout or tokenizer.pre_tokenizer or normalizer is None:
            return None
        if normalizer.normalize_str("A  b\n") != f"{SPACE}A{SPACE}{SPACE}b\n":
            return None
        special = tuple(token.content for token in tokenizer.get_added_tokens_decoder().values())
        joined = (token for token in tokenizer.get_vocab() if token not in special)
        if not all(PIECE.fullmatch(token) or BYTE.fullmatch(token) for token in joined):
            return None
        return cls(tokenizer, special)

    def ids(self, text: str) -> list[int]:
        """The ids of `tokenizer.encode(text, add_special_tokens=False)`."""
        if not text or any(mark in text for mark in self.special):
            encoded: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
            return encoded
        pieces = PIECE.findall(SPACE + text.replace(" ", SPACE))
        try:
            return list(itertools.chain.from_iterable(map(self.known.__getitem__, pieces)))
        except KeyError:  # a piece that is not in memory
            each = (self.known.get(piece) or self._encoded(piece) for piece in pieces)
            return list(itertools.chain.from_iterable(each))

    def _encoded(self, piece: str) -> list[int]:
        ids = [token.id for token in self.tokenizer.model.tokenize(piece)]
        if len(piece) <= LONGEST_PIECE:
            if len(self.known) >= PIECES:
                self.known.clear()
            self.known[piece] = ids
        return ids


@dataclass(frozen=True)
class WordVectors:
    """The mean of one fixed vector per token, scaled to length one.

    `table` (vocabulary, width) has half or single precision. `tokenizer` is applied without special tokens.
    Only the first `longest` characters of a text are read, which bounds the time per text.
    """

    table: NDArray[np.float16] | Vectors = field(repr=False)
    tokenizer: Any = field(repr=False)
    name: str = DEFAULT_NAME
    longest: int = 20_000

    recent: Recent = field(default_factory=Recent, repr=False, compare=False)

    @functools.cached_property
    def _pieces(self) -> Pieces | None:
        """Encodes texts word by word, if the tokenizer allows it."""
        return Pieces.of(self.tokenizer)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Mean token vector of each text, unit length; zeros for a text without tokens."""
        return self.recent.rows([text[: self.longest] for text in checked_texts(texts)], self._pooled)

    def forget(self) -> None:
        """Clear the cache of vectors."""
        self.recent.forget()

    def _pooled(self, texts: list[str]) -> Vectors:
        return normalised(self._mean_rows(self._ids(texts)))

    def _mean_rows(self, encoded: list[list[int]]) -> Vectors:
        """The mean of the table's rows with these ids, for each list; zeros for an empty one."""
        means = np.zeros((len(encoded), self.table.shape[1]), dtype=np.float32)
        compiled = kernels.ready() if len(encoded) > 1 else None
        if compiled is not None and self.table.dtype == np.float16:
            ends = np.cumsum([len(ids) for ids in encoded], dtype=np.intp)
            every = np.fromiter(itertools.chain.from_iterable(encoded), dtype=np.intp)
            compiled.half_means(self._bits, every, ends, means)
            return means
        for row, ids in enumerate(encoded):
            if ids:
                means[row] = self.table[ids].mean(axis=0, dtype=np.float32)
        return means

    @functools.cached_property
    def _bits(self) -> NDArray[np.uint16]:
        """The table as compiled code expects it: writable and C-contiguous."""
        bits: NDArray[np.uint16] = np.require(self.table, requirements=("C", "W")).view(np.uint16)
        return bits

    def _ids(self, texts: list[str]) -> list[list[int]]:
        """The token ids of each text."""
        if self._pieces is not None:
            return [self._pieces.ids(text) for text in texts]
        return [encoding.ids for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=False)]


@dataclass(frozen=True)
class Joined:
    """The vectors of all parts, concatenated and scaled to length one.

    The cosine of two such vectors is the mean of the cosines of the parts where these have unit rows. A part
    with longer or shorter rows (`tfidf.Surface`) counts as much as these are long.

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


@functools.cache
def default_embedder() -> WordVectors:
    """The offline default: the vectors (width 256) and the tokenizer inside the wheel of `wordllama`."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    package = package_folder("wordllama", extra="")
    table = load_file(package / "weights" / "l2_supercat_256.safetensors")["embedding.weight"]
    tokenizer = Tokenizer.from_file(str(package / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return WordVectors(table, tokenizer)


def package_folder(package: str, *, extra: str) -> Path:
    """Folder of an installed package, found without importing it; `UsageError` if it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(
            f"embedding weights from package {package!r}",
            expected="the package to be installed",
            came="no such package",
            do=install(extra) if extra else "In a clone of pandora-router, run: pip install .",
        )
    return Path(spec.submodule_search_locations[0])


KEY_BYTES = 32
SEGMENTS = 64
ENDING = ".safetensors"


@dataclass(frozen=True)
class Cached:
    """The embedder `inner` with a cache in `folder`: same name, same vectors."""

    inner: Embedder
    folder: Path
    _known: dict[bytes, Vectors] = field(default_factory=dict, repr=False, compare=False)
    _read: set[str] = field(default_factory=set, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The name of `inner`."""
        return self.inner.name

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of the texts; those not on disk are computed, each distinct text once, and written."""
        given = checked_texts(texts)
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in given]
        if any(key not in self._known for key in keys):
            self._read_segments()
        new = {key: text for key, text in zip(keys, given, strict=True) if key not in self._known}
        if new:
            vectors = self.inner.embed(list(new.values()))
            self._known.update(zip(new, vectors, strict=True))
            self._write_segment(list(new), vectors)
        if not keys:
            return self.inner.embed([])
        return np.stack([self._known[key] for key in keys])

    @property
    def shelf(self) -> Path:
        """The subfolder for embeddings of this name."""
        return Path(self.folder) / hashlib.sha256(self.name.encode()).hexdigest()[:16]

    def _read_segments(self) -> None:
        for path in sorted(self.shelf.glob(f"*{ENDING}")):
            if path.name in self._read:
                continue
            try:
                arrays = read_arrays(path)
                keys, vectors = arrays["keys"], arrays["vectors"]
            except (OSError, ValueError, KeyError, MemoryError):
                continue
            if _fit_together(keys, vectors):
                self._read.add(path.name)
                self._known.update(zip((key.tobytes() for key in keys), vectors, strict=True))

    def _write_segment(self, keys: list[bytes], vectors: Vectors) -> None:
        old = sorted(self.shelf.glob(f"*{ENDING}"))
        if len(old) >= SEGMENTS:
            keys, vectors = list(self._known), np.stack(list(self._known.values()))
        rows = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY_BYTES)
        name = hashlib.sha256(rows.tobytes()).hexdigest()[:32] + ENDING
        write_arrays(self.shelf / name, {"keys": rows, "vectors": vectors})
        self._read.add(name)
        if len(old) >= SEGMENTS:
            for path in old:
                if path.name in self._read and path.name != name:
                    with contextlib.suppress(OSError):
                        path.unlink()


def _fit_together(keys: NDArray[Any], vectors: NDArray[Any]) -> bool:
    """Whether these are keys and as many finite vectors."""
    typed = keys.dtype == np.uint8 and vectors.dtype == np.float32 and vectors.ndim == 2
    return typed and keys.shape == (len(vectors), KEY_BYTES) and bool(np.isfinite(vectors).all())
