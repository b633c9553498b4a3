"""The journal of a collection: an append-only file of every call and every bought answer.

A line is the CRC-32 of a JSON object in hexadecimal, a space and the object. Kinds of records:

    begin     a call is about to be made; `most` is its worst case
    answer    a specialist's answer, with its fee
    grade     a judge's verdict, with its fee
    failure   why a call failed, and what it may have cost

A record is written and fsynced before the caller continues; records that arrive together share one fsync. On
opening, an incomplete last line (from a crash) is removed. Other unreadable lines are moved to the file
`<journal>.damaged`, and the journal is rewritten without them, atomically. A `begin` without a matching end
may have cost money: its worst case counts as lost. Only one process can open a journal.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import tempfile
import threading
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

from pandora_router.errors import UsageError
from pandora_router.folders import sync
from pandora_router.specialists.specialist import Answer
from pandora_router.specialists.threads import in_thread

HEADER = {"kind": "journal", "format": "pandora-router journal", "version": 1}
KINDS = frozenset({"begin", "answer", "grade", "failure"})
UNREADABLE = (ValueError, TypeError, KeyError, ArithmeticError, RecursionError)


class Journal:
    """The journal in the file `path`, which is created if it does not exist.

    `answers` and `grades` hold what was bought, by key; `spent` and `lost` are sums of money. `torn` is the
    number of bytes removed at the end on opening, `damaged` the number of lines moved to `damaged_path`.
    Raises `UsageError` if `path` is a file of another kind or is open in another process.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.answers: dict[str, Answer] = {}
        self.grades: dict[str, float] = {}
        self.spent = Fraction(0)
        self.lost = Fraction(0)
        self.torn = 0
        self.damaged = 0
        self._open: dict[str, Fraction] = {}
        self._pending: list[tuple[bytes, asyncio.Future[None]]] = []
        self._flusher: asyncio.Task[None] | None = None
        self._writing = threading.Lock()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._files: list[BinaryIO] = [self.path.open("a+b")]
        try:
            _lock(self._file, self.path)
            self._recover()
        except BaseException:
            self._close()
            raise

    @property
    def damaged_path(self) -> Path:
        """File for lines that could not be read."""
        return self.path.with_name(self.path.name + ".damaged")

    @property
    def _file(self) -> BinaryIO:
        return self._files[-1]

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        with self._writing:  # an fsync in a thread would keep the file, and the lock on it, open
            self._close()

    def _close(self) -> None:
        for file in self._files:
            with suppress(OSError):  # closing tries again to write what a full disk has just refused
                file.close()

    async def begin(self, key: str, most: float) -> None:
        """Record that a call of cost `most` or less is about to be made."""
        await self._append({"kind": "begin", "key": key, "most": most})

    async def answer(self, key: str, answer: Answer, **about: Any) -> None:
        """Record a bought answer; `about` has further fields for human readers."""
        await self._append({"kind": "answer", "key": key, **about, **asdict(answer)})
        self.answers[key] = answer

    async def grade(self, key: str, score: float, answer: Answer) -> None:
        """Record a judge's verdict `score`, the judge's answer and its fee."""
        bill = {"fee": answer.fee, "lost": answer.lost, "said": answer.text}
        await self._append({"kind": "grade", "key": key, "score": score, **bill})
        self.grades[key] = score

    async def failure(self, key: str, failure: str, lost: float, **about: Any) -> None:
        """Record why a call failed, and what it may have cost (`lost`)."""
        await self._append({"kind": "failure", "key": key, "failure": failure, "lost": lost, **about})

    async def _append(self, record: Mapping[str, Any]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((line(record), future))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())
        await future

    async def _flush(self) -> None:
        """Write all pending records with one fsync and wake their callers; a disk error is raised in all."""
        while self._pending:
            batch, self._pending = self._pending, []
            error: Exception | None = None
            try:
                data = b"".join(text for text, _ in batch)
                await in_thread(lambda data=data: self._write(data))  # type: ignore[misc]
            except (OSError, ValueError) as caught:
                error = caught
                self._close()
            for _, future in batch:
                if not future.done():
                    future.set_exception(error) if error else future.set_result(None)

    def _write(self, data: bytes) -> None:
        with self._writing:
            self._file.write(data)
            self._file.flush()
            os.fsync(self._file.fileno())

    def _recover(self) -> None:
        """Read all valid lines, remove a torn end, move other bad lines, count calls without an end."""
        self._file.seek(0)
        data = self._file.read()
        lines = data.split(b"\n")
        if not _is_journal(data, lines):
            raise UsageError(
                str(self.path),
                expected="a journal of answers",
                came="a file of another kind or version",
                do="Name another file with --journal.",
            )
        whole, self.torn = lines[:-1], len(lines[-1])
        good = [self._replay(text, number) for number, text in enumerate(whole)]
        if all(good):
            self._file.truncate(len(data) - self.torn)
            if not whole:
                self._file.write(line(HEADER))
            self._file.flush()
            os.fsync(self._file.fileno())
        else:
            self._set_aside(whole, good)
        sync(self.path.parent)
        self.lost += sum(self._open.values(), Fraction(0))
        self._open.clear()

    def _set_aside(self, lines: list[bytes], good: list[bool]) -> None:
        """Move bad lines to `damaged_path` and replace the journal by its valid lines, atomically.

        The old file stays open, and therefore locked, until the journal is closed: a process that opened it
        before the replacement is refused like one that opens the new file.
        """
        bad = [text for text, readable in zip(lines, good, strict=True) if not readable]
        whole = [text for text, readable in zip(lines, good, strict=True) if readable]
        self.damaged = len(bad)
        with self.damaged_path.open("ab") as aside:
            aside.write(b"".join(text + b"\n" for text in bad))
            aside.flush()
            os.fsync(aside.fileno())
        handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        os.close(handle)
        os.chmod(name, self.path.stat().st_mode & 0o777)
        file = Path(name).open("a+b")  # noqa: SIM115 - this file is the journal from here on
        self._files.append(file)
        _lock(file, self.path)
        header = line(HEADER)
        file.write(header + b"".join(text + b"\n" for text in whole if text + b"\n" != header))
        file.flush()
        os.fsync(file.fileno())
        os.replace(name, self.path)

    def _replay(self, text: bytes, number: int) -> bool:
        """Apply one line; false, without any effect, if it cannot be read."""
        try:
            record = unline(text)
            if record == HEADER and number == 0:
                return True
            if record is None or record["kind"] not in KINDS:
                return False
            key = str(record["key"])
            most, fee, lost = (_money(record.get(name, 0.0)) for name in ("most", "fee", "lost"))
            answer = _answer(record) if record["kind"] == "answer" else None
            score = float(record["score"]) if record["kind"] == "grade" else 0.0
            if not math.isfinite(score):
                return False
        except UNREADABLE:
            return False
        earlier = self._open.pop(key, Fraction(0))
        if record["kind"] == "begin":
            self.lost += earlier
            self._open[key] = most
            return True
        self.spent += fee
        self.lost += lost
        if answer is not None:
            self.answers.setdefault(key, answer)
        elif record["kind"] == "grade":
            self.grades.setdefault(key, score)
        return True


def _is_journal(data: bytes, lines: list[bytes]) -> bool:
    """Whether this is a journal of this version, possibly damaged; other files are never changed."""
    header = line(HEADER)
    if header.startswith(data) or data.startswith(header):
        return True
    records = [record for text in lines[:-1] if (record := _readable(text)) is not None]
    other = any(record.get("kind") == "journal" and record != HEADER for record in records)
    return not other and any(record.get("kind") in KINDS for record in records)


def _readable(text: bytes) -> dict[str, Any] | None:
    try:
        return unline(text)
    except UNREADABLE:
        return None


def _money(value: Any) -> Fraction:
    """An amount of money in a record; raises `ValueError` if it is negative or not finite."""
    if not math.isfinite(value) or value < 0:
        raise ValueError
    return Fraction(value)


def _answer(record: Mapping[str, Any]) -> Answer:
    fields = {name: record[name] for name in Answer.__dataclass_fields__ if name in record}
    logprobs = fields["logprobs"]
    return Answer(**{**fields, "logprobs": None if logprobs is None else tuple(logprobs)})


def line(record: Mapping[str, Any]) -> bytes:
    """A record as one line with its checksum; raises `ValueError` for numbers that JSON cannot hold."""
    body = json.dumps(record, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def unline(text: bytes) -> dict[str, Any] | None:
    """The record of a line (without its line end); None if the checksum does not fit.

    Raises `ValueError` or `RecursionError` if the checksum fits but the JSON cannot be read.
    """
    check, _, body = text.partition(b" ")
    if len(check) != 8 or check != b"%08x" % zlib.crc32(body):
        return None
    record = json.loads(body)
    return record if isinstance(record, dict) else None


def _lock(file: BinaryIO, path: Path) -> None:
    """Lock the journal for this process, if the operating system has file locks.

    `UsageError` if it is taken.
    """
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UsageError(
            str(path),
            expected="a journal that no other process is writing",
            came="one in use",
            do="Wait for the other collect to end, or choose another output.",
        ) from error


class Budget:
    """A budget of `limit` in money, of which earlier runs used `spent` and `lost`.

    A call reserves its worst case before it starts, so at all times spent + lost + reserved <= limit. Sums
    are exact, so rounding never exceeds the limit. The limit is as reliable as the worst cases: a provider
    that charges more than its own limit allows can exceed it by the calls in flight.
    """

    def __init__(self, limit: float, spent: Fraction = Fraction(0), lost: Fraction = Fraction(0)) -> None:
        if not math.isfinite(limit) or limit < 0:
            raise UsageError(
                "the budget",
                expected="a finite amount of money, zero or more",
                came=str(limit),
                do="State the most that may be spent.",
            )
        self.limit = Fraction(limit)
        self.spent = spent
        self.lost = lost
        self.reserved = Fraction(0)
        self._changed = asyncio.Event()

    def fits(self, most: Fraction) -> bool:
        """Whether `most` could be reserved now."""
        return self.spent + self.lost + self.reserved + most <= self.limit

    def try_reserve(self, most: Fraction) -> bool:
        """Reserve `most` if it fits now; return whether it did."""
        if not self.fits(most):
            return False
        self.reserved += most
        return True

    async def reserve(self, most: Fraction) -> bool:
        """Reserve `most`, waiting for calls in flight to settle; false if it can never fit."""
        while not self.try_reserve(most):
            if not self.reserved:
                return False
            await self._changed.wait()
        return True

    def settle(self, most: Fraction, fee: float = 0.0, lost: float = 0.0) -> None:
        """Replace the reservation `most` by the actual `fee` of the call and the money `lost` on it."""
        self.reserved -= most
        self.spent += Fraction(fee)
        self.lost += Fraction(lost)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
