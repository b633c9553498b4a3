"""The routing table: prompts x specialists with score, fee, context, task and split.

It holds the data and checks it; `importers` read it from files, `storage` writes it, `splits` draws splits.

Shapes: N prompts, M specialists. A cell that was not measured is NaN in `score`; missing cells are kept,
counted and reported, never dropped and never filled.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pandora_router.errors import UsageError
from pandora_router.text import unfit_for_name
from pandora_router.types import Contexts, Mask, Matrix, Positions, Texts

SPLITS = ("train", "calibration", "test", "")
"""The possible splits; the empty name means "in no split"."""


@dataclass(frozen=True, eq=False)
class Table:
    """Prompts x specialists: the score and the fee of each answer.

    reward = score - fee_weight * fee, in units of the score. `fee` may be in any unit, and NaN only where
    `score` is. `contexts[i, j]` is the text that an estimator may read before it estimates specialist j on
    prompt i (first tokens of the answer, retrieved passages), or None. `lengths` are means over the answers
    of a specialist, by its name, such as tokens and seconds of an answer (`collect.assemble`); empty where
    nobody measured them. `seconds[i, j]` is how long that answer took, and `first_seconds[i, j]` how long
    until its first token, NaN where nobody measured it. Raises `UsageError` if shapes, names or numbers are
    invalid.
    """

    prompt_ids: tuple[str, ...]
    prompts: tuple[str, ...]
    tasks: tuple[str, ...]
    split: Texts
    specialists: tuple[str, ...]
    score: Matrix
    fee: Matrix
    contexts: Contexts | None = None
    fee_weight: float = 1.0
    lengths: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    seconds: Matrix | None = None
    first_seconds: Matrix | None = None

    def __post_init__(self) -> None:
        for name in ("prompt_ids", "prompts", "tasks", "specialists"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        _freeze(self, "split", np.asarray(self.split, dtype=np.str_))
        _freeze(self, "score", np.asarray(self.score, dtype=np.float64))
        _freeze(self, "fee", np.asarray(self.fee, dtype=np.float64))
        if self.contexts is not None:
            _freeze(self, "contexts", np.asarray(self.contexts, dtype=object))
        for name, values in self.times.items():
            _freeze(self, name, np.asarray(values, dtype=np.float64))
        _check_names(self)
        _check_shapes(self)
        _check_numbers(self)
        _check_contexts(self)

    @classmethod
    def from_frame(
        cls,
        frame: object,
        *,
        specialist: str = "model",
        score: str = "score",
        fee: str | Mapping[str, float] = "fee",
        prompt: str = "prompt",
        fee_weight: float = 1.0,
        **columns: str,
    ) -> Table:
        """Read a data frame (pandas, polars, Arrow) with one row per prompt and specialist.

        frame: anything that pyarrow reads without a copy of its own library: an Arrow table, a pandas frame,
            or an object with the Arrow stream protocol, as polars, DuckDB and others have.
        fee: the column with the fee of each answer, or the fee of each specialist by its name.
        columns: further columns by kind: prompt_id, task, split, context.

        Pairs that do not occur are missing cells. Raises `UsageError`, which names row and column.

        >>> import pyarrow as pa
        >>> rows = {"prompt": ["1+1?", "1+1?"], "model": ["small", "large"], "score": [0, 1]}
        >>> Table.from_frame(pa.table(rows), fee={"small": 0.001, "large": 0.02}).score
        array([[0., 1.]])
        """
        from pandora_router.data.importers.layouts import read_frame

        names = {"specialist": specialist, "score": score, "prompt": prompt, **columns}
        return read_frame(frame, names, fee=fee, fee_weight=fee_weight)

    @classmethod
    def load(cls, path: Path | str) -> Table:
        """Read the table in the folder `path`; `UsageError` if it is none, damaged or of another version."""
        from pandora_router.data.storage import load

        return load(path)

    def save(self, path: Path | str, *, replace: bool = False) -> None:
        """Write this table to the folder `path`, atomically.

        Raises `UsageError` if `path` exists, unless it is a routing table and `replace` is true.
        """
        from pandora_router.data.storage import save

        save(self, path, replace=replace)

    def __len__(self) -> int:
        return len(self.prompt_ids)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, M)."""
        return len(self.prompt_ids), len(self.specialists)

    @property
    def times(self) -> dict[str, Matrix]:
        """`seconds` and `first_seconds`, as far as they were recorded."""
        both = {"seconds": self.seconds, "first_seconds": self.first_seconds}
        return {name: values for name, values in both.items() if values is not None}

    @property
    def reward(self) -> Matrix:
        """score - fee_weight * fee, NaN where the score is missing; (N, M)."""
        return self.score - self.fee_weight * np.where(np.isnan(self.score), np.nan, self.fee)

    @property
    def missing(self) -> Mask:
        """Mask of the cells without a score; (N, M)."""
        return np.isnan(self.score)

    @property
    def answered(self) -> tuple[str, ...]:
        """The specialists with at least one score, in order."""
        return tuple(
            name for name, none in zip(self.specialists, self.missing.T, strict=True) if not none.all()
        )

    def rows(self, which: npt.ArrayLike | slice) -> Table:
        """The prompts selected by a boolean mask, an array of positions or a slice, in that order."""
        index = _positions(which, len(self))
        return replace(
            self,
            prompt_ids=_pick(self.prompt_ids, index),
            prompts=_pick(self.prompts, index),
            tasks=_pick(self.tasks, index),
            split=self.split[index],
            score=self.score[index],
            fee=self.fee[index],
            contexts=None if self.contexts is None else self.contexts[index],
            seconds=None if self.seconds is None else self.seconds[index],
            first_seconds=None if self.first_seconds is None else self.first_seconds[index],
        )

    def in_split(self, name: str) -> Table:
        """The prompts of one split."""
        if name not in SPLITS:
            raise UsageError(
                "the split",
                expected="train, calibration, test or ''",
                came=repr(name),
                do="Name one of them.",
            )
        return self.rows(self.split == name)

    def only(self, specialists: Sequence[str]) -> Table:
        """The named specialists, in the given order; `UsageError` if one is unknown."""
        where = {name: j for j, name in enumerate(self.specialists)}
        for name in specialists:
            if name not in where:
                raise UsageError(
                    "a specialist to keep",
                    expected=f"one of {_some(self.specialists)}",
                    came=repr(name),
                    do="Check the spelling: names are compared exactly.",
                )
        index = np.array([where[name] for name in specialists], dtype=np.intp)
        return replace(
            self,
            specialists=tuple(specialists),
            score=self.score[:, index],
            fee=self.fee[:, index],
            contexts=None if self.contexts is None else self.contexts[:, index],
            lengths={name: self.lengths[name] for name in specialists if name in self.lengths},
            seconds=None if self.seconds is None else self.seconds[:, index],
            first_seconds=None if self.first_seconds is None else self.first_seconds[:, index],
        )

    def with_fee_weight(self, weight: float) -> Table:
        """The same data with another fee weight."""
        return replace(self, fee_weight=weight)

    def with_split(self, split: npt.ArrayLike) -> Table:
        """The same data with another split (N names)."""
        return replace(self, split=np.asarray(split, dtype=np.str_))

    def fingerprint(self) -> str:
        """SHA-256 of all but `lengths` and `times`, 64 hex digits; the same on any machine."""
        digest = hashlib.sha256(b"pandora-router table 1")
        for texts in (self.prompt_ids, self.prompts, self.tasks, self.split.tolist(), self.specialists):
            _feed_texts(digest, texts)
        for numbers in (self.score, self.fee, np.array([self.fee_weight])):
            canonical = np.where(np.isnan(numbers), np.nan, numbers + 0.0)
            digest.update(np.ascontiguousarray(canonical, dtype="<f8").tobytes())
        if self.contexts is not None:
            _feed_texts(digest, self.contexts.ravel().tolist())
        return digest.hexdigest()


def normalise(prompt: str) -> str:
    """A prompt with each run of white space replaced by one space and the ends trimmed."""
    return " ".join(prompt.split())


def _freeze(table: Table, name: str, array: npt.NDArray[np.generic]) -> None:
    frozen = array if not array.flags.writeable and array.flags.owndata else array.copy()
    frozen.setflags(write=False)
    object.__setattr__(table, name, frozen)


def _pick(texts: tuple[str, ...], index: Positions) -> tuple[str, ...]:
    return tuple(texts[i] for i in index.tolist())


def _positions(which: npt.ArrayLike | slice, n: int) -> Positions:
    if isinstance(which, slice):
        return np.arange(n)[which]
    array = np.asarray(which)
    if array.dtype == np.bool_:
        if array.shape != (n,):
            raise UsageError(
                "a row mask", expected=f"shape ({n},)", came=f"{array.shape}", do="Give one bool per prompt."
            )
        return np.flatnonzero(array)
    if array.size == 0:
        return np.zeros(0, dtype=np.intp)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise UsageError(
            "rows to pick",
            expected="a boolean mask, integer positions or a slice",
            came=f"{array.dtype} of shape {array.shape}",
            do="For one row give a list with one position.",
        )
    if array.min() < -n or array.max() >= n:
        raise UsageError(
            "rows to pick",
            expected=f"positions below {n}",
            came=f"{array.min()} to {array.max()}",
            do="Check the positions.",
        )
    return array.astype(np.intp) % n


def _some(names: Iterable[str], most: int = 5) -> str:
    listed = [repr(name) for name in names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def _check_names(table: Table) -> None:
    for what, names in (("prompt ids", table.prompt_ids), ("specialists", table.specialists)):
        bad = [name for name in names if not isinstance(name, str) or not name]
        if bad:
            raise UsageError(
                what, expected="texts that are not empty", came=repr(bad[0]), do="Name every one."
            )
        if len(set(names)) != len(names):
            twice = [name for name, count in Counter(names).items() if count > 1]
            raise UsageError(
                what, expected="each once", came=f"more than once: {_some(twice)}", do="Rename or merge."
            )
    for name in table.specialists:
        fault = unfit_for_name(name)
        if fault is not None:
            raise UsageError(
                f"the specialist {name!r}",
                expected="a name of visible characters, without white space at its ends",
                came=fault,
                do="Rename it: nobody could see or type the difference.",
            )
    for what, texts in (("prompts", table.prompts), ("tasks", table.tasks)):
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise UsageError(
                    f"{what}[{i}]", expected="a text", came=repr(text), do="Give a str for every prompt."
                )
    unknown = sorted(set(table.split.ravel().tolist()) - set(SPLITS))
    if unknown:
        raise UsageError(
            "split",
            expected="'train', 'calibration', 'test' or '' (none)",
            came=_some(unknown),
            do="Translate the names first; `splits.keep` knows the usual ones.",
        )


def _check_shapes(table: Table) -> None:
    n, m = table.shape
    shapes = {
        "prompts": ((len(table.prompts),), (n,)),
        "tasks": ((len(table.tasks),), (n,)),
        "split": (table.split.shape, (n,)),
        "score": (table.score.shape, (n, m)),
        "fee": (table.fee.shape, (n, m)),
    }
    if table.contexts is not None:
        shapes["contexts"] = (table.contexts.shape, (n, m))
    shapes |= {name: (values.shape, (n, m)) for name, values in table.times.items()}
    for what, (came, expected) in shapes.items():
        if came != expected:
            raise UsageError(
                what,
                expected=f"shape {expected}",
                came=f"{came}",
                do="Give one entry per prompt (and specialist).",
            )


def _check_numbers(table: Table) -> None:
    def refuse(bad: Mask, what: str, expected: str, values: Matrix, do: str) -> None:
        if bad.any():
            i, j = (int(k[0]) for k in np.nonzero(bad))
            cell = f"{what} of {table.specialists[j]!r} on prompt {table.prompt_ids[i]!r}"
            raise UsageError(
                cell, expected=expected, came=f"{values[i, j]} ({int(bad.sum())} such cells)", do=do
            )

    refuse(
        np.isinf(table.score), "the score", "a finite number or NaN", table.score, "Grade the answer anew."
    )
    unpriced = ~table.missing & ~np.isfinite(table.fee)
    refuse(
        unpriced,
        "the fee",
        "a finite number, since there is a score",
        table.fee,
        "Give it a fee; if the answer really costs nothing, say so with 0 or `fees.Free()`.",
    )
    refuse(
        np.isinf(table.fee) | (table.fee < 0),
        "the fee",
        "zero or more",
        table.fee,
        "A fee is what the answer costs.",
    )
    for name, values in table.times.items():
        wrong, what = np.isinf(values) | (values < 0), f"the {name.replace('_', ' ')}"
        refuse(wrong, what, "zero or more, or NaN", values, "Leave out what was not measured.")
    if not np.isfinite(table.fee_weight) or table.fee_weight < 0:
        raise UsageError(
            "fee_weight",
            expected="a finite number, zero or more",
            came=repr(table.fee_weight),
            do="Use 0 to ignore fees.",
        )


def _check_contexts(table: Table) -> None:
    if table.contexts is None:
        return
    for at, text in enumerate(table.contexts.ravel().tolist()):
        if text is not None and not isinstance(text, str):
            i, j = divmod(at, len(table.specialists))
            raise UsageError(
                f"the context of {table.specialists[j]!r} on prompt {table.prompt_ids[i]!r}",
                expected="a text or None",
                came=type(text).__name__,
                do="Use None where there is no context.",
            )


def _feed_texts(digest: hashlib._Hash, texts: Sequence[str | None]) -> None:
    digest.update(len(texts).to_bytes(8, "little"))
    for text in texts:
        raw = b"" if text is None else text.encode("utf-8", "surrogatepass")
        length = -1 if text is None else len(raw)
        digest.update(length.to_bytes(8, "little", signed=True) + raw)
