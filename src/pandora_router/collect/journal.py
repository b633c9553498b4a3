"""Every call and every bought answer, on disk before it counts: an append-only file of checked lines.

A line is the CRC-32 of a JSON object, a space and the object. Kinds: `begin` (a call, with its worst case),
`answer`, `grade` (a judge's verdict), `failure`. A line is written and fsynced before anybody is told that it
is there; lines that arrive together share one fsync. After a kill a torn tail is cut off; a `begin` that
nothing followed is money that may be gone, and is counted as lost. A bad line before good ones is damage, and
refused. Two processes cannot hold one journal.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import UsageError
from ..specialists.answer import Answer
from ..specialists.gate import in_thread

HEADER = {"kind": "journal", "format": "pandora-router journal", "version": 1}


class Journal:
    """Open one with a path; it reads what is there and takes more."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.answers: dict[str, Answer] = {}
        self.grades: dict[str, float] = {}
        self.spent = Fraction(0)
        self.lost = Fraction(0)
        self.torn = 0
        self._open: dict[str, Fraction] = {}
        self._pending: list[tuple[bytes, asyncio.Future[None]]] = []
        self._flusher: asyncio.Task[None] | None = None
        self._writing = threading.Lock()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = self.path.open("a+b")
        try:
            _lock(self._file, self.path)
            self._recover()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        with self._writing:  # an fsync under way would keep the file, and our lock on it, open
            self._file.close()

    async def begin(self, key: str, most: float) -> None:
        """Say that a call is about to be made that may cost so much."""
        await self._append({"kind": "begin", "key": key, "most": most})

    async def answer(self, key: str, answer: Answer, **about: Any) -> None:
        """Keep a bought answer; `about` is for readers of the file."""
        await self._append({"kind": "answer", "key": key, **about, **asdict(answer)})
        self.answers[key] = answer

    async def grade(self, key: str, score: float, answer: Answer) -> None:
        """Keep a judge's verdict and what it cost."""
        bill = {"fee": answer.fee, "lost": answer.lost, "said": answer.text}
        await self._append({"kind": "grade", "key": key, "score": score, **bill})
        self.grades[key] = score

    async def failure(self, key: str, failure: str, lost: float, **about: Any) -> None:
        """Keep why a call brought nothing, and what it may have cost."""
        await self._append({"kind": "failure", "key": key, "failure": failure, "lost": lost, **about})

    async def _append(self, record: Mapping[str, Any]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((line(record), future))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())
        await future

    async def _flush(self) -> None:
        """Write whatever waits, fsync once, tell all who waited; so with an error of the disk."""
        while self._pending:
            batch, self._pending = self._pending, []
            error: Exception | None = None
            try:
                data = b"".join(text for text, _ in batch)
                await in_thread(lambda data=data: self._write(data))  # type: ignore[misc]
            except (OSError, ValueError) as caught:
                error = caught
                self._file.close()
            for _, future in batch:
                if not future.done():
                    future.set_exception(error) if error else future.set_result(None)

    def _write(self, data: bytes) -> None:
        with self._writing:
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())

    def _recover(self) -> None:
        """Read all good lines, cut off a torn tail, count what was begun and never ended as lost."""
        self._file.seek(0)
        data = self._file.read()
        at, number = 0, 0
        while at < len(data):
            end = data.find(b"\n", at)
            record = unline(data[at:end]) if end >= 0 else None
            if record is None or (number == 0 and record != HEADER):
                self._refuse_damage(data, at, number)
                self.torn = len(data) - at
                self._file.truncate(at)
                break
            self._replay(record)
            at, number = end + 1, number + 1
        if at == 0:
            self._file.write(line(HEADER))
        self._file.flush()
        os.fsync(self._file.fileno())
        _sync_folder(self.path.parent)
        self.lost += sum(self._open.values(), Fraction(0))
        self._open.clear()

    def _refuse_damage(self, data: bytes, at: int, number: int) -> None:
        rest = data[at:].split(b"\n")[1:]
        if number == 0 and not line(HEADER).startswith(data):
            came = "a file of another kind or version"
        elif any(unline(text) is not None for text in rest):
            came = f"line {number + 1} damaged, with good lines after it"
        else:
            return
        raise UsageError(
            str(self.path), expected="a journal of answers", came=came, do="Restore it from a copy."
        )

    def _replay(self, record: Mapping[str, Any]) -> None:
        kind, key = record["kind"], record.get("key", "")
        if kind == "begin":
            self.lost += self._open.pop(key, Fraction(0))
            self._open[key] = Fraction(record["most"])
            return
        self._open.pop(key, None)
        self.spent += Fraction(record.get("fee", 0.0))
        self.lost += Fraction(record.get("lost", 0.0))
        if kind == "answer":
            fields = {name: record[name] for name in Answer.__dataclass_fields__ if name in record}
            chances = fields["logprobs"]
            answer = Answer(**{**fields, "logprobs": None if chances is None else tuple(chances)})
            self.answers.setdefault(key, answer)
        elif kind == "grade":
            self.grades.setdefault(key, float(record["score"]))


def line(record: Mapping[str, Any]) -> bytes:
    """A record as a checked line."""
    body = json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def unline(text: bytes) -> dict[str, Any] | None:
    """The record of a line without its end, None if the line is not whole."""
    check, _, body = text.partition(b" ")
    if len(check) != 8 or check != b"%08x" % zlib.crc32(body):
        return None
    record = json.loads(body)
    return record if isinstance(record, dict) else None


def _lock(file: BinaryIO, path: Path) -> None:
    """One process at a time, where the system can say so."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UsageError(
            str(path),
            expected="a journal that nobody else is writing",
            came="one in use",
            do="Wait for the other collect to end, or choose another output.",
        ) from error


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
