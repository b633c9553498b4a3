"""A sweep over Parquet files of estimates that need not fit in memory: chunk -> decisions -> exact sums.

The signal models are fitted once, on a calibration file. Shards are row groups, computed by the runner and
read in chunks (`chunks`), so memory does not grow with the files. Sums are exact (`exact_sums`), so totals do
not depend on shards or their order. Arms that share a budget of inspections among all prompts (margin-N,
random-N) or choose by cross-validation (auto) need all prompts at once and are not possible here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pandora_router.boxes import Costs
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import Routed, Standing
from pandora_router.errors import UsageError
from pandora_router.evaluate.arms import ARMS, DEFAULT, SEARCHES, Arm, named
from pandora_router.evaluate.outcomes import Outcomes, exact_sums, rng_for, rounded, summands
from pandora_router.evaluate.results import write_parquet
from pandora_router.evaluate.trials import Trial
from pandora_router.run import InPlace, Runner, on_one_core
from pandora_router.types import Matrix, Progress, silent

CHUNK = 1 << 14
NAMES = ("cheap", "costly", "reward", "fee")
MOST = 1_000_000  # rows that are read at once


def chunks(path: Path, group: int | None = None, boxes: int | None = None) -> Iterator[Readings]:
    """The rows of a row group (None: of the file) in chunks; `boxes`: number of specialists."""
    with _opened(path) as file:
        names = _columns(path, file.schema_arrow.names)
        groups = None if group is None else [group]
        for part in file.iter_batches(CHUNK, row_groups=groups, columns=list(names), use_threads=False):
            columns = {}
            for name in names:
                columns[name] = _matrix(path, name, part.column(name), boxes)
                boxes = columns[name].shape[1]
            fee = columns.get("fee", np.zeros_like(columns["f"]))
            reward = columns["reward"] if "reward" in columns else columns["score"] - fee
            readings = Readings(columns["f"], columns["g"], reward, fee)
            if readings.complete.any():
                yield readings.rows(readings.complete)


def write(path: Path, readings: Readings) -> None:
    """Write estimates, rewards and weighted fees to a Parquet file for `chunks`, atomically.

    An existing file is replaced; callers check beforehand whether that is allowed.
    """
    columns = dict(zip(("f", "g", "reward", "fee"), readings.parts, strict=True))
    table = pa.table({name: pa.array(list(values)) for name, values in columns.items()})
    write_parquet(path, table)


def whole(path: Path) -> Readings:
    """All rows of a file; `UsageError` if it has more than `MOST`."""
    with _opened(path) as file:
        rows = file.metadata.num_rows
    if not 0 < rows <= MOST:
        raise UsageError(
            str(path),
            expected=f"1 to {MOST:,} rows of calibration",
            came=f"{rows:,}",
            do="Take a sample of prompts that are not among those to be judged.",
        )
    parts = list(chunks(path))
    if not parts:
        raise UsageError(str(path), expected="rows with every reward", came="none", do="Measure some.")
    f, g, reward, fee = (np.concatenate([getattr(part, name) for part in parts]) for name in NAMES)
    return Readings(f, g, reward, fee)


def groups(path: Path) -> list[int]:
    """The number of rows of each row group."""
    with _opened(path) as file:
        _columns(path, file.schema_arrow.names)
        return [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, pre_buffer=False)
    except pa.ArrowInvalid as error:
        raise UsageError(str(path), expected="Parquet", came=str(error), do="Name a Parquet file.") from error


def _columns(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    fees = ("fee",) if "fee" in names else ()
    wanted = ("f", "g", "reward" if "reward" in names else "score", *fees)
    if missing := [name for name in wanted if name not in names]:
        raise UsageError(
            f"{path}: columns",
            expected="f, g, reward (or score), and fee where there are fees, lists of numbers",
            came=f"no {', '.join(missing)}",
            do="Write one row per prompt and in each list one number per specialist.",
        )
    return wanted


def _matrix(path: Path, name: str, column: Any, boxes: int | None) -> Matrix:
    """A list column as (N, M) doubles; every list has the same length."""
    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    if is_list or pa.types.is_fixed_size_list(column.type):
        lengths = pc.unique(pc.list_value_length(column)).to_pylist()
        wide = lengths[0] if boxes is None else boxes
        if lengths == [wide] and wide:
            values = column.flatten()
            if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
                numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
                return np.asarray(numbers, dtype=np.float64).reshape(-1, wide)
    raise UsageError(
        f"{path}: column {name!r}",
        expected=f"lists of {boxes or 'equally many'} numbers",
        came=f"{column.type}" if not is_list else "lists of other lengths, or of no numbers",
        do="Give every specialist one number in every row.",
    )


Place = tuple[float, str]  # inspection cost, arm


@dataclass(frozen=True)
class Tally:
    """`Outcomes` before rounding: the same sums as integers, so that adding is associative."""

    prompts: int
    sums: Mapping[str, int]

    @classmethod
    def of(cls, routed: Routed, readings: Readings, single: int) -> Tally:
        """The exact outcomes of decisions on these prompts."""
        terms = summands(routed, readings, single)
        return cls(len(readings), dict(zip(terms, exact_sums(np.stack(list(terms.values()))), strict=True)))

    def __add__(self, other: Tally) -> Tally:
        names = self.sums or other.sums
        sums = {name: self.sums.get(name, 0) + other.sums.get(name, 0) for name in names}
        return Tally(self.prompts + other.prompts, sums)

    def outcomes(self) -> Outcomes:
        """Each sum rounded once."""
        names = [field.name for field in fields(Outcomes) if field.name not in ("prompts", "inspected")]
        inspected = int(rounded(self.sums.get("inspected", 0)))
        return Outcomes(
            prompts=self.prompts,
            inspected=inspected,
            **{name: rounded(self.sums.get(name, 0)) for name in names},
        )


NOTHING = Tally(0, {})


@dataclass(frozen=True)
class RowGroup:
    """One row group of one file, and the number of the file for its random streams."""

    path: Path
    group: int
    file: int


@dataclass(frozen=True, eq=False)
class Streamed:
    """Everything a worker needs but the rows: fitted signal models, arms, costs, seed."""

    trial: Trial
    arms: tuple[Arm, ...]
    costs: tuple[float, ...]
    seed: int

    def __call__(self, shard: RowGroup) -> dict[Place, Tally]:
        """The exact outcomes of every arm at every cost on the rows of a shard."""
        boxes = self.trial.calibration.cheap.shape[1]
        tallies = {(cost, arm.name): NOTHING for cost in self.costs for arm in self.arms}
        for number, readings in enumerate(chunks(shard.path, shard.group, boxes)):
            here = replace(self.trial, test=readings, prompt=np.arange(len(readings)))
            for arm in self.arms:
                for cost in self.costs:
                    rng = rng_for(self.seed, arm.name, cost, shard.file, shard.group, number)
                    routed = arm.route(here, Costs(np.full(boxes, cost)), 0, rng)
                    tallies[cost, arm.name] += Tally.of(routed, readings, here.standing.single)
        return tallies


def sweep(
    files: Sequence[Path],
    calibration: Path,
    costs: Sequence[float],
    *,
    arms: Sequence[str] = (),
    seed: int = 0,
    runner: Runner | None = None,
    progress: Progress | None = None,
) -> dict[Place, Outcomes]:
    """The outcomes of arms at inspection costs over all rows of all files."""
    say = progress or silent
    function = prepare(calibration, costs, arms, seed)
    sizes = {
        RowGroup(path, group, number): rows
        for number, path in enumerate(files)
        for group, rows in enumerate(groups(path))
    }
    shards, total, done = list(sizes), sum(sizes.values()), 0
    tallies = {(cost, arm.name): NOTHING for cost in function.costs for arm in function.arms}
    say("rows", 0, max(1, total))
    with closing((runner or InPlace()).finish(function, shards)) as coming:
        for number, part in coming:
            for place, tally in part.items():
                tallies[place] += tally
            done += sizes[shards[number]]
            say("rows", done, total)
    return {place: tally.outcomes() for place, tally in tallies.items()}


def prepare(calibration: Path, costs: Sequence[float], arms: Sequence[str], seed: int) -> Streamed:
    """Fit every signal model that the arms need, once, on the calibration rows."""
    chosen = streamable(arms)
    readings = whole(calibration)
    trial = Trial(readings, readings, Standing.of(readings.reward, readings.fee))
    few = readings.rows(slice(2))
    small = replace(trial, test=few, prompt=np.arange(2))
    boxes = readings.cheap.shape[1]

    def fit(levels: tuple[float, ...]) -> Streamed:
        for arm in chosen:  # routing two prompts makes an arm fit the signal model it needs
            for level in levels if arm.name == DEFAULT else levels[:1]:  # the router depends on the cost
                arm.route(small, Costs(np.full(boxes, level)), 0, np.random.default_rng(0))
        return Streamed(replace(small, calibration=few), chosen, levels, seed)

    return on_one_core(fit, tuple(dict.fromkeys(float(cost) for cost in costs)))


def streamable(names: Sequence[str] = ()) -> tuple[Arm, ...]:
    """The arms of these names; by default the router and all arms without search.

    Other searches draw samples for every prompt and take a thousand times as long, so they must be named.
    """
    able = [arm.name for arm in ARMS if arm.alone]
    wanted = names or [
        DEFAULT,
        *(arm.name for arm in ARMS if arm.name in able and arm.name not in SEARCHES),
    ]
    arms = tuple(arm for arm in named(wanted) if arm.name in wanted)
    for arm in arms:
        if arm.name not in able:
            raise UsageError(
                f"arm {arm.name!r}",
                expected=f"one that decides prompt by prompt: {', '.join(able)}",
                came="one that needs all prompts at once",
                do="Compare it on a sample with `pandora evaluate`.",
            )
    return arms
