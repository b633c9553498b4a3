"""A fine-tuned transformer for prediction: an ONNX graph run by ONNX Runtime, without torch.

Both forms of the paper are supported. "all": the input is the prompt, the output one number per specialist.
"named": the input is the specialist's name, the prompt and the context of that specialist; the output is one
number. `transformer.training` fits them; needs onnxruntime and tokenizers (extra `[transformer]`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pandora_router.errors import missing_package
from pandora_router.estimators.embedders.embedder import Embedder, checked_texts
from pandora_router.estimators.rewards import checked_contexts
from pandora_router.estimators.states import Saved, read, write
from pandora_router.types import Contexts, Matrix

Form = Literal["all", "named"]
Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class Text:
    """How prompts become tokens: at most `tokens`; a context gets those that the prompt leaves.

    A prompt that is followed by a context is truncated to half of the room; `characters` of a context are
    read.
    """

    form: Form = "all"
    tokens: int = 192
    characters: int = 400

    def encode(self, tokenizer: Any, prompt: str, name: str = "", context: str | None = None) -> list[int]:
        """Token numbers of one text, with BERT's opening and closing tokens."""
        opening, closing = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")

        def numbers(text: str) -> list[int]:
            return list(tokenizer.encode(text, add_special_tokens=False).ids)

        room = self.tokens - 2
        named = [] if self.form == "all" else [*numbers(name)[: room // 4], closing]
        shown = [] if context is None else [closing, *numbers(context[: self.characters])]
        share = (
            room - len(named) if not shown else max((room - len(named)) // 2, room - len(named) - len(shown))
        )
        body = numbers(prompt[: 8 * self.tokens])[:share]
        return [opening, *[*named, *body, *shown][:room], closing]


def padded(rows: Sequence[list[int]]) -> tuple[Tokens, Tokens]:
    """Token numbers and mask of the same shape; short rows are padded with zeros."""
    longest = max(len(row) for row in rows)
    tokens, mask = (np.zeros((len(rows), longest), dtype=np.int64) for _ in range(2))
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = row
        mask[i, : len(row)] = 1
    return tokens, mask


@dataclass(frozen=True)
class Served:
    """A fitted transformer: its graph (tokens, mask -> rewards), its tokenizer as JSON, and its form.

    `needs` has the specialists with contexts in training.
    """

    specialists: tuple[str, ...]
    text: Text
    graph: bytes = field(repr=False)
    tokenizer_json: str = field(repr=False)
    mean: Matrix
    needs: frozenset[str] = frozenset()
    batch: int = 32

    @property
    def together(self) -> bool:
        """True if one purchase shows all specialists; in the form "named" each needs its own run."""
        return self.text.form == "all"

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        """Estimated rewards (prompts, specialists); contexts are read only in the form "named"."""
        given = checked_texts(prompts)
        shape = (len(given), len(self.specialists))
        seen = checked_contexts(contexts, shape)
        if self.text.form == "all":
            rows = [self.text.encode(self._tokenizer, prompt) for prompt in given]
            return self.mean + self._run(rows, shape[1])
        rows = [
            self.text.encode(self._tokenizer, prompt, name, None if seen is None else seen[i, j])
            for i, prompt in enumerate(given)
            for j, name in enumerate(self.specialists)
        ]
        return self.mean + self._run(rows, 1).reshape(shape)

    def _run(self, rows: list[list[int]], width: int) -> Matrix:
        outputs = np.zeros((len(rows), width))
        order = np.argsort([len(row) for row in rows], kind="stable")
        for start in range(0, len(rows), self.batch):
            chosen = order[start : start + self.batch]
            tokens, mask = padded([rows[i] for i in chosen])
            outputs[chosen] = self._session.run(None, {"tokens": tokens, "mask": mask})[0]
        return outputs

    @functools.cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_str(self.tokenizer_json)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    @functools.cached_property
    def _session(self) -> Any:
        try:
            import onnxruntime
        except ImportError as error:
            raise missing_package("a fine-tuned transformer", "onnxruntime", "transformer") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(self.graph, options, providers=["CPUExecutionProvider"])

    def state(self) -> Saved:
        """The state to save; `from_state` restores it."""
        settings = {
            "specialists": list(self.specialists),
            "form": self.text.form,
            "tokens": self.text.tokens,
            "characters": self.text.characters,
            "needs": sorted(self.needs),
        }
        texts, blobs = {"tokenizer": self.tokenizer_json}, {"model": self.graph}
        return Saved("transformer", settings, {"mean": self.mean}, texts, blobs=blobs)

    @classmethod
    def from_state(cls, saved: Saved, *, embedder: Embedder | None = None) -> Served:
        """Restore the estimator from its `state`; there is no embedder, and the argument is ignored."""
        settings = saved.of_kind("transformer").settings
        text = Text(settings["form"], settings["tokens"], settings["characters"])
        graph, tokenizer = saved.blobs["model"], saved.texts["tokenizer"]
        return cls(
            tuple(settings["specialists"]),
            text,
            graph,
            tokenizer,
            saved.arrays["mean"],
            frozenset(settings["needs"]),
        )

    def save(self, folder: Path | str) -> Path:
        """Write the estimator to `folder`, atomically; an estimator already there is replaced."""
        return write(folder, self.state())

    @classmethod
    def load(cls, folder: Path | str) -> Served:
        """Read an estimator written by `save`; `UsageError` if the folder is damaged or of another kind."""
        return cls.from_state(read(folder))
