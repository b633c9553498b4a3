"""Route a file of prompts in chunks, in several processes or on several machines.

The decisions of each finished chunk are a file in a hidden folder beside the output, named by a hash of
router, input and options. If the same command is started again, it reads these files and routes only the
missing chunks. At the end the output is assembled and the folder removed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pandora_router import folders
from pandora_router.cli.options import Wanted
from pandora_router.cli.row_files import (
    Columns,
    ParquetSource,
    Row,
    RowSource,
    chunked,
    kind_of,
    source_of,
    write_rows,
)
from pandora_router.config import served_router
from pandora_router.errors import UsageError
from pandora_router.estimators.estimator import fitted
from pandora_router.router import Decision, Router
from pandora_router.run import InPlace, Pool, Runner
from pandora_router.search import kernels
from pandora_router.specialists.specialist import Request
from pandora_router.types import Progress

CHUNK = 1024  # prompts that are routed again if the machine goes down
FEW = 4  # chunks that are routed faster in this process than by processes that have to start first
DECIDED: Columns = {
    "decision_id": "text",
    "specialist": "text",
    "declined_because": "text",
    "expected_reward": "number",
    "spent": "number",
    "refunded": "number",
    "inspected": "texts",
    "artifact": "text",
}
PROMPT, MESSAGES, CONTEXTS = "prompt", "messages", "contexts"


@dataclass(frozen=True)
class PromptCells:
    """Where a row has its prompt: a column of texts, or the usual columns if `column` is None."""

    column: str | None = None

    def text(self, row: Row) -> str:
        """The prompt of `row`; empty, and so declined by a router, if there is none.

        Without `column` it is the column `prompt`, else the last message by the user in `messages`. Raises
        `UsageError` if the row has neither, or if messages are malformed.
        """
        name = self.column or (PROMPT if PROMPT in row or MESSAGES not in row else MESSAGES)
        if name not in row:
            raise UsageError(
                "a row of prompts",
                expected=f"{name!r}" if self.column else f"{PROMPT!r} or {MESSAGES!r}",
                came=", ".join(map(repr, row)) or "an empty row",
                do="Name the column of prompts with --prompt-column.",
            )
        value = row[name]
        if name == MESSAGES and self.column is None:
            return last_by_user(value)
        return "" if value is None else str(value)


def last_by_user(messages: Any) -> str:
    """The last message by the user in chat messages, given as a list or as JSON text; empty without one.

    Raises `UsageError` if the messages are malformed.
    """
    if isinstance(messages, str):
        messages = json.loads(messages)
    if not any(message["role"] == "user" for message in messages or []):
        return ""
    return Request.from_chat(messages).prompt


@dataclass(frozen=True)
class PromptShard:
    """Prompts to route, with the folder of the router and its id, to notice if it is replaced."""

    artifact: str
    id: str
    prompts: tuple[str, ...]
    contexts: tuple[dict[str, str], ...]
    among: tuple[str, ...] | None


@cache
def opened(artifact: str) -> Router:
    """The router in the folder `artifact`, loaded once per process."""
    return served_router(Path(artifact))


def route_shard(shard: PromptShard) -> list[Row]:
    """One row of `DECIDED` per prompt; raises `UsageError` if the router was replaced in the meantime."""
    router = opened(shard.artifact)
    if router.id != shard.id:
        raise UsageError(
            shard.artifact,
            expected=f"router {shard.id}, with which this batch began",
            came=f"router {router.id}",
            do="Start the batch again.",
        )
    contexts = shard.contexts if any(shard.contexts) else None
    return [decided(decision) for decision in router.route_batch(shard.prompts, contexts, among=shard.among)]


def decided(decision: Decision) -> Row:
    """The row of `DECIDED` for one decision."""
    return {
        "decision_id": decision.id,
        "specialist": decision.specialist,
        "declined_because": decision.declined_because,
        "expected_reward": decision.expected_reward,
        "spent": decision.trace.spent,
        "refunded": decision.trace.refunded,
        "inspected": list(decision.inspected),
        "artifact": decision.artifact,
    }


@dataclass(frozen=True)
class BatchFile:
    """A router, how the rows of its input are read, and where it runs."""

    artifact: Path
    prompts: PromptCells
    wanted: Wanted
    runner: Runner

    @property
    def router(self) -> Router:
        """The router, loaded on first use."""
        return opened(str(self.artifact.resolve()))

    def shard(self, rows: Sequence[Row]) -> PromptShard:
        """The prompts and contexts of `rows` as one shard."""
        return PromptShard(
            str(self.artifact.resolve()),
            self.router.id,
            tuple(self.prompts.text(row) for row in rows),
            tuple(contexts_of(row) for row in rows),
            self.wanted.among(self.router),
        )

    def route_rows(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield `rows` with their decisions, in order, as they arrive (for pipes); nothing is stored."""
        for chunk in chunked(self._checked(rows), CHUNK // 4):
            for row, decision in zip(chunk, route_shard(self.shard(chunk)), strict=True):
                yield carried(row) | decision

    def route_file(self, source: Path, output: Path, *, replace: bool, progress: Progress) -> BatchSummary:
        """Route the prompts of the file `source` into the file `output`; returns a summary of the decisions.

        All options and rows are checked before the first prompt is routed. Raises `UsageError` if one is
        invalid, or if `output` exists and `replace` is false.
        """
        kind_of(output)
        folders.check_file(output, replace=replace, inputs=[source, self.artifact])
        rows = source_of(source)
        router = self.router
        among = self.wanted.among(router)
        progress("reading", 0, 1)
        count, names = self._survey(rows)
        columns: Columns = {**dict.fromkeys(names, "text"), **DECIDED}
        identity = "\n".join([router.id, folders.sha256(source), repr(self.prompts), repr(among), str(CHUNK)])
        work = output.with_name(f".{output.name}.work-{hashlib.sha256(identity.encode()).hexdigest()[:16]}")
        work.mkdir(parents=True, exist_ok=True)
        if count > CHUNK:
            kernels.warm(progress)
        self._route_missing(rows, work, count, progress)
        progress("writing", count, count)
        summary = BatchSummary()
        like = source if isinstance(rows, ParquetSource) else None
        write_rows(output, columns, summary.counting(_joined(rows, work)), like=like)
        shutil.rmtree(work, ignore_errors=True)
        return summary

    def _survey(self, source: RowSource) -> tuple[int, list[str]]:
        """Read and check all rows; returns their number and the columns that are copied to the output."""
        names: dict[str, None] = {}
        count = 0
        for row in self._checked(source.rows()):
            count += 1
            names.update(dict.fromkeys(carried(row)))
        return count, list(names)

    def _checked(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield `rows`; raises `UsageError` for the first one whose prompt or contexts cannot be read."""
        specialists = set(self.router.specialists)
        for count, row in enumerate(rows, start=1):
            try:
                self.prompts.text(row)
                strangers = contexts_of(row).keys() - specialists
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                if isinstance(error, UsageError):
                    raise
                raise UsageError(
                    f"row {count:,}",
                    expected=f"{MESSAGES!r}: a list of messages; {CONTEXTS!r}: a map from specialist to text",
                    came=f"{type(error).__name__}: {error}",
                    do="Correct that row.",
                ) from error
            if strangers:
                raise UsageError(
                    f"row {count:,}, {CONTEXTS!r}",
                    expected=f"specialists among {', '.join(sorted(specialists)[:8])}",
                    came=", ".join(sorted(map(repr, strangers))),
                    do="Check the spelling: names are compared exactly.",
                )
            yield row

    def _route_missing(self, source: RowSource, work: Path, count: int, progress: Progress) -> None:
        chunks = -(-count // CHUNK)
        missing = [number for number in range(chunks) if not _chunk_file(work, number).exists()]
        wanted = set(missing)
        runner = InPlace() if self._stays_here(len(missing)) else self.runner
        shards = (self.shard(rows) for number, rows in enumerate(source.chunks(CHUNK)) if number in wanted)
        done = (chunks - len(missing)) * CHUNK
        progress("routing", done, count)
        with closing(runner.finish(route_shard, shards)) as finished:
            for at, decisions in finished:
                folders.replace_text(_chunk_file(work, missing[at]), json.dumps(decisions))
                done += len(decisions)
                progress("routing", min(done, count), count)

    def _stays_here(self, chunks: int) -> bool:
        """Whether this process routes alone: for few chunks, or estimators with a rate limit."""
        return (self.runner == Pool() and chunks < FEW) or fitted(self.router.costly) is None


def contexts_of(row: Row) -> dict[str, str]:
    """The beginnings of answers by specialist: a map, or JSON text of one, in the column `contexts`."""
    value = row.get(CONTEXTS) or {}
    pairs = json.loads(value) if isinstance(value, str) else dict(value)
    return {str(name): str(text) for name, text in pairs.items() if text is not None}


def carried(row: Row) -> Row:
    """The columns of `row` that are copied to the output: all but contexts and earlier decisions."""
    return {name: value for name, value in row.items() if name not in DECIDED and name != CONTEXTS}


def _chunk_file(work: Path, number: int) -> Path:
    return work / f"{number:08d}.json"


def _joined(source: RowSource, work: Path) -> Iterator[Row]:
    for number, rows in enumerate(source.chunks(CHUNK)):
        decisions = json.loads(_chunk_file(work, number).read_text(encoding="utf-8"))
        for row, decision in zip(rows, decisions, strict=True):
            yield carried(row) | decision


@dataclass
class BatchSummary:
    """Counts decisions as they pass: prompts by specialist, declined prompts, total inspection cost."""

    chosen: Counter[str] = field(default_factory=Counter)
    declined: int = 0
    spent: float = 0.0

    def counting(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield `rows` and count each."""
        for row in rows:
            self.chosen[row["specialist"]] += 1
            self.declined += row["declined_because"] is not None
            self.spent += row["spent"]
            yield row

    @property
    def prompts(self) -> int:
        """The number of prompts."""
        return self.chosen.total()

    @property
    def mean_spent(self) -> float:
        """Inspection cost per prompt."""
        return self.spent / max(self.prompts, 1)
