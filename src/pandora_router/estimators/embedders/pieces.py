"""Token ids of a text, put together from the ids of its words, which are remembered.

Byte-pair encoding joins neighbouring tokens until the vocabulary has no longer one, so it never joins
across a place that no token of the vocabulary crosses. A vocabulary in the style of SentencePiece has many
such places: no token continues after a word into punctuation or into the next space (written as U+2581).
A text may then be cut there, and each piece be encoded alone; since prompts share most of their words, most
pieces have been encoded before. `Pieces.of` checks the whole vocabulary and refuses any other tokenizer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

SPACE = "\u2581"
NUMBER = r"\d_\u00b2\u00b3\u00b9"  # digits, superscripts and the underscore, which \w matches beside letters
PIECE = re.compile(f"{SPACE}*(?:[^\\W{NUMBER}]+|(?:[{NUMBER}]|[^\\w{SPACE}])+)|{SPACE}+")
"""Spaces, then letters or other characters: where one piece ends and the next begins, a text may be cut."""
BYTE = re.compile("<0x[0-9A-F]{2}>")  # tokens of single bytes; these are never joined with others
REMEMBERED = 65_536  # pieces kept in memory
LONGEST = 32  # characters of a piece that is kept


@dataclass(frozen=True)
class Pieces:
    """Encodes texts piece by piece; `special` are the texts that `tokenizer` takes for control tokens."""

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
        ids: list[int] = []
        for piece in PIECE.findall(SPACE + text.replace(" ", SPACE)):
            ids += self.known.get(piece) or self._encoded(piece)
        return ids

    def _encoded(self, piece: str) -> list[int]:
        ids = [token.id for token in self.tokenizer.model.tokenize(piece)]
        if len(piece) <= LONGEST:
            if len(self.known) >= REMEMBERED:
                self.known.clear()
            self.known[piece] = ids
        return ids
