"""Retrieval: BM25 search over passages, which are shown to another specialist and are the context.

    score(q, d) = sum over terms t of q: idf(t) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * |d| / mean |d|))
    idf(t) = ln(1 + (N - df + 1/2) / (df + 1/2))      (Robertson and Zaragoza 2009, never negative)

Terms are lower-case runs of letters and digits. The index holds its postings as a pair of arrays per term.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from pandora_router.errors import UsageError
from pandora_router.specialists.specialist import Answer, Beginning, Request, Specialist, Unanswered
from pandora_router.specialists.templates import OPEN_BOOK, Template
from pandora_router.specialists.threads import in_thread
from pandora_router.types import Positions, Vector
from pandora_router.wires.look import scored

_TERM = re.compile(r"[^\W_]+")
TEXTS = (".txt", ".md")
LONGEST = 4 * 2**20


def terms(text: str) -> list[str]:
    """Lower-case runs of letters and digits, in order."""
    return _TERM.findall(text.casefold())


@dataclass(frozen=True)
class Passage:
    """A text to search, with its title (may be empty)."""

    title: str
    text: str


@dataclass(frozen=True, eq=False)
class Passages:
    """A BM25 index over passages, with the parameters `k1` and `b` of the formula above."""

    passages: tuple[Passage, ...] = field(repr=False)
    k1: float = 1.2
    b: float = 0.75

    def __post_init__(self) -> None:
        if not self.passages:
            raise UsageError("passages", expected="at least one", came="none", do="Check folder or column.")
        counts: dict[str, list[tuple[int, int]]] = defaultdict(list)
        lengths = np.zeros(len(self.passages))
        digest = hashlib.sha256()
        for i, passage in enumerate(self.passages):
            digest.update(f"{len(passage.title)} {passage.title}{len(passage.text)} {passage.text}".encode())
            words = terms(f"{passage.title} {passage.text}")
            lengths[i] = len(words)
            for term, count in Counter(words).items():
                counts[term].append((i, count))
        size = self.k1 * (1.0 - self.b + self.b * lengths / max(float(lengths.mean()), 1e-12))
        postings = {term: self._weigh(pairs, size) for term, pairs in counts.items()}
        object.__setattr__(self, "_postings", postings)
        object.__setattr__(self, "fingerprint", digest.hexdigest()[:16])

    def _weigh(self, pairs: Sequence[tuple[int, int]], size: Vector) -> tuple[Positions, Vector]:
        where = np.array([i for i, _ in pairs], dtype=np.intp)
        tf = np.array([count for _, count in pairs], dtype=np.float64)
        idf = np.log1p((len(size) - len(pairs) + 0.5) / (len(pairs) + 0.5))
        return where, idf * tf * (self.k1 + 1.0) / (tf + size[where])

    def scores(self, query: str) -> Vector:
        """The BM25 score of every passage; (N,). A term that occurs twice in the query counts twice."""
        score = np.zeros(len(self.passages))
        postings: dict[str, tuple[Positions, Vector]] = vars(self)["_postings"]
        for term in terms(query):
            if term in postings:
                where, weight = postings[term]
                score[where] += weight
        return score

    def find(self, query: str, k: int) -> list[tuple[Passage, float]]:
        """The k best passages with a common term, and their scores, best first; ties in order of passages."""
        score = self.scores(query)
        best = np.argsort(-score, kind="stable")[:k]
        return [(self.passages[i], float(score[i])) for i in best.tolist() if score[i] > 0]

    @classmethod
    def read(cls, path: Path | str, *, text: str = "text", title: str = "title") -> Passages:
        """Read a folder of .txt and .md files (one passage per paragraph) or a Parquet file with columns."""
        path = Path(path)
        if path.is_dir():
            return cls(tuple(_paragraphs(path)))
        if path.suffix != ".parquet" or not path.is_file():
            came = "another file" if path.exists() else "no such path"
            do = "Pass a folder of text files, or a Parquet file."
            raise UsageError(str(path), expected="a folder or a .parquet file", came=came, do=do)
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(path)
        if text not in table.column_names:
            came = f"columns {', '.join(table.column_names)}"
            raise UsageError(
                str(path), expected=f"a column {text!r}", came=came, do="Name the column of texts."
            )
        bodies = table[text].to_pylist()
        heads = table[title].to_pylist() if title in table.column_names else [""] * len(bodies)
        pairs = zip(heads, bodies, strict=True)
        return cls(tuple(Passage(str(head or ""), str(body)) for head, body in pairs if body))


def _paragraphs(folder: Path) -> Iterable[Passage]:
    for file in sorted(folder.rglob("*")):
        if file.suffix.lower() in TEXTS and file.is_file() and file.stat().st_size <= LONGEST:
            body = file.read_text(encoding="utf-8", errors="replace")
            for paragraph in re.split(r"\n\s*\n", body):
                if paragraph.strip():
                    yield Passage(file.stem, " ".join(paragraph.split()))


@dataclass(frozen=True)
class LookUp:
    """Passages that were found, as text (title and body, numbered, best first), with scores if wanted."""

    text: str
    scores: tuple[float, ...] = ()

    @property
    def context(self) -> str | None:
        """What an estimator may look at; None if nothing was found."""
        return scored(self.text, self.scores) if self.scores else self.text or None


@dataclass(frozen=True)
class Retrieval:
    """Finds passages for the prompt, puts them into the template and asks another specialist.

    name: as in the routing table. inner: who is asked. passages: the index to search. k: how many passages
    are shown. template: has {question} and {passages}. price: the fee of one look-up. scores: whether the
    first line of the context has the BM25 scores of the passages, for estimators; `inner` does not see them.
    """

    name: str
    inner: Specialist
    passages: Passages = field(repr=False)
    k: int = 4
    template: Template = OPEN_BOOK
    price: float = 0.0
    scores: bool = False

    @property
    def identity(self) -> str:
        """Fingerprint of the passages, how they are shown, and the identity of `inner`."""
        shown = f"{vars(self.passages)['fingerprint']}, k1 {self.passages.k1}, b {self.passages.b}"
        scores = ", with scores" if self.scores else ""
        return f"{self.k} of {shown}{scores}, {self.template.text!r}, {self.inner.identity}"

    @property
    def at_once(self) -> int:
        """As for `inner`."""
        return self.inner.at_once

    def look_up(self, prompt: str) -> LookUp:
        """The k best passages; nothing if none shares a term with the prompt."""
        nearest = self.passages.find(prompt, self.k)
        text = "\n".join(
            f"[{i}] {passage.title + ': ' if passage.title else ''}{passage.text}"
            for i, (passage, _) in enumerate(nearest, start=1)
        )
        return LookUp(text, tuple(score for _, score in nearest) if self.scores else ())

    def most(self, request: Request) -> float:
        """The look-up and the worst case of the longer prompt."""
        return self.price + self.inner.most(self._asked(request, self.look_up(request.prompt).text))

    async def begin(self, request: Request) -> Beginning:
        """Look the passages up: they are the context, and nobody is asked before the answer is wanted."""
        looked, seconds = await in_thread(lambda: self.timed(request.prompt))

        async def go_on() -> Answer:
            return await self._answer(request, looked, seconds)

        return Beginning(
            self.name, request, context=looked.context, seconds=seconds, cost=self.price, go_on=go_on
        )

    async def answer(self, request: Request, begun: Beginning | None = None) -> Answer:
        """The answer of `inner` to prompt and passages; the passages are its context."""
        if begun is None:
            begun = await self.begin(request)
        return await begun.finish(self.name, request)

    async def _answer(self, request: Request, looked: LookUp, seconds: float) -> Answer:
        try:
            answer = await self.inner.answer(self._asked(request, looked.text))
        except Unanswered as error:
            lost = error.lost + self.price
            raise Unanswered(
                f"{self.name}: {error}", failure=error.failure, dead=error.dead, lost=lost
            ) from None
        return replace(
            answer,
            fee=answer.fee + self.price,
            seconds=answer.seconds + seconds,
            context=looked.context,
            logprobs=None,
            context_seconds=seconds,
        )

    def timed(self, prompt: str) -> tuple[LookUp, float]:
        """The passages and the processor seconds of looking them up."""
        begun = time.thread_time()
        return self.look_up(prompt), time.thread_time() - begun

    def _asked(self, request: Request, passages: str) -> Request:
        shown = passages or "(nothing was found)"
        return request.with_prompt(self.template.fill(question=request.prompt, passages=shown))
