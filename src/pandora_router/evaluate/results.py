"""Results on disk: two Parquet files per experiment and seed, written atomically.

`seed-N.parquet` has one row per neighbours x inspection cost x arm with every metric. `prompts-N.parquet` has
one row per test prompt (a number, no text) and a column per run with its regret + cost, so that any two runs
can be compared prompt by prompt. The first file has a key over all settings: a seed with the same key is
finished and is not run again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pandora_router.errors import UsageError
from pandora_router.evaluate.experiments import Experiment
from pandora_router.evaluate.outcomes import Run
from pandora_router.evaluate.statistics import Comparison, Split, compare
from pandora_router.evaluate.trials import Trial
from pandora_router.folders import replacing
from pandora_router.types import Vector

FORMAT = 1
Key = tuple[int, float, str]  # neighbours, inspection cost, arm


def asked_for(settings: str, data: str) -> str:
    """Key over everything that affects a seed's results: see `settings_of`, and the table's content."""
    return hashlib.sha256(f"{settings} {data}".encode()).hexdigest()[:20]


def settings_of(experiment: Experiment, arms: Sequence[str], estimators: int) -> str:
    """Key over an experiment, its arms and the version of the estimators, without splits and data.

    The list of seeds is not part of it, since it does not affect the result of a seed.
    """
    content = repr((FORMAT, replace(experiment, seeds=()), tuple(arms), estimators))
    return hashlib.sha256(content.encode()).hexdigest()[:20]


def is_finished(folder: Path, seed: int, key: str) -> bool:
    """Whether this seed is finished with this key."""
    path = folder / f"seed-{seed}.parquet"
    if not path.is_file() or not (folder / f"prompts-{seed}.parquet").is_file():
        return False
    return _facts(path).get("key") == key


@dataclass(frozen=True, eq=False)
class Flat:
    """One seed in stored form: a row of metrics per run, and a column of totals per run."""

    rows: Sequence[Mapping[str, Any]]
    columns: Mapping[str, NDArray[Any]]


def flat(experiment: Experiment, seed: int, runs: Mapping[int, tuple[Trial, Sequence[Run]]]) -> Flat:
    """The runs of every number of neighbours with the test prompts they decided, ready to be written."""
    rows: list[dict[str, Any]] = []
    columns: dict[str, NDArray[Any]] = {}
    for k, (trial, each) in runs.items():
        columns.setdefault("prompt", trial.prompt.astype(np.int32))
        columns[f"cluster|{k}"] = trial.test.cluster.astype(np.int32)
        for run in each:
            place = {"experiment": experiment.name, "seed": seed, "neighbours": k, "cost": run.cost}
            rows.append({**place, "arm": run.arm, "prompts": run.outcomes.prompts, **run.outcomes.means()})
            columns[_column((k, run.cost, run.arm))] = run.total.astype(np.float32)
    return Flat(rows, columns)


def write(folder: Path, experiment: Experiment, seed: int, key: str, flat: Flat, settings: str = "") -> None:
    """Write one seed; the file that marks it as finished is written last."""
    facts = {"key": key, "settings": settings, "title": experiment.title, "control": str(experiment.control)}
    write_parquet(folder / f"prompts-{seed}.parquet", pa.table(dict(flat.columns)))
    metrics = pa.Table.from_pylist([dict(row) for row in flat.rows])
    write_parquet(folder / f"seed-{seed}.parquet", metrics.replace_schema_metadata(facts))


def _column(key: Key) -> str:
    return "|".join(("total", *(str(part) for part in key)))


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a Parquet file atomically."""
    with replacing(path) as draft:
        pq.write_table(table, draft, compression="zstd")


@lru_cache(maxsize=128)
def _whole(path: Path, changed: int) -> pa.Table:
    """A file of totals, read at once: it has hundreds of columns, and opening takes longer than reading."""
    return pq.read_table(path)


@dataclass(frozen=True, eq=False)
class Seed:
    """Results of one split; totals of single runs are read on demand."""

    rows: Mapping[Key, Mapping[str, Any]]
    path: Path

    def clusters(self, k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The prompt behind each row of totals, and the number of its f vector."""
        table = _whole(self.path, self.path.stat().st_mtime_ns)
        prompt, cluster = (table[name].to_numpy().astype(np.int64) for name in ("prompt", f"cluster|{k}"))
        return prompt, cluster

    def totals(self, keys: Sequence[Key]) -> Mapping[Key, Vector]:
        """Regret + cost of each prompt for these runs."""
        wanted = list(dict.fromkeys(keys))
        table = _whole(self.path, self.path.stat().st_mtime_ns)
        return {key: table[_column(key)].to_numpy().astype(np.float64) for key in wanted}


@dataclass(frozen=True, eq=False)
class Results:
    """All finished seeds of one experiment."""

    name: str
    title: str
    control: bool
    seeds: Mapping[int, Seed]

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The runs that every seed has, in the order of the first."""
        first, *others = self.seeds.values()
        return tuple(key for key in first.rows if all(key in other.rows for other in others))

    @property
    def neighbours(self) -> tuple[int, ...]:
        """The numbers of neighbours behind f, the default first."""
        return tuple(dict.fromkeys(k for k, _, _ in self.keys))

    @property
    def costs(self) -> tuple[float, ...]:
        """The inspection costs, in order."""
        return tuple(sorted({cost for _, cost, _ in self.keys}))

    @property
    def arms(self) -> tuple[str, ...]:
        """The names of the arms."""
        return tuple(dict.fromkeys(arm for _, _, arm in self.keys))

    def mean(self, metric: str, key: Key) -> float:
        """A metric averaged over splits."""
        return float(np.mean([seed.rows[key][metric] for seed in self.seeds.values()]))

    def compare(self, pairs: Sequence[tuple[Key, Key]], other: Results | None = None) -> Comparison:
        """Total of the first run of each pair minus that of the second, prompt by prompt, over splits.

        The second runs are taken from `other` if given, on the common seeds.
        """
        beside = other or self
        shared = [n for n in self.seeds if n in beside.seeds]
        splits = []
        for n in shared:
            mine, theirs = self.seeds[n], beside.seeds[n]
            k = pairs[0][0][0]
            prompt, cluster = mine.clusters(k)
            if not np.array_equal(prompt, theirs.clusters(pairs[0][1][0])[0]):
                raise UsageError(
                    f"seed {n} of {self.name} and {beside.name}",
                    expected="the same test prompts",
                    came="others",
                    do="Compare runs of the same data, split and seeds.",
                )
            a, b = mine.totals([x for x, _ in pairs]), theirs.totals([y for _, y in pairs])
            splits.append(Split(np.stack([a[x] - b[y] for x, y in pairs], axis=1), prompt, cluster))
        return compare(splits)


def _facts(path: Path) -> dict[str, str]:
    """The metadata of one seed's file."""
    metadata = pq.read_schema(path).metadata or {}
    return {name.decode(): value.decode() for name, value in metadata.items()}


def read(folder: Path | str, settings: str | None = None, seeds: Sequence[int] | None = None) -> Results:
    """Read the finished seeds in the folder of one experiment, all with the same settings and data.

    With `settings` (see `settings_of`) only seeds with these settings are used, with `seeds` only those.
    Raises `UsageError` if none is left, or if there are seeds of different settings or data, which must not
    be averaged.
    """
    folder = Path(folder)
    files = sorted(folder.glob("seed-*.parquet"), key=lambda path: int(path.stem.split("-")[1]))
    files = [path for path in files if (folder / path.name.replace("seed-", "prompts-")).is_file()]
    if not files:
        raise UsageError(
            str(folder),
            expected="results of an experiment (seed-*.parquet)",
            came="none" if folder.is_dir() else "no such folder",
            do="Run `pandora evaluate EXPERIMENT.yaml -o RESULTS` first; name RESULTS/EXPERIMENT here.",
        )
    if seeds is not None:
        files = [path for path in files if int(path.stem.split("-")[1]) in seeds]
    facts = {path: _facts(path) for path in files}
    if settings is not None:
        files = [path for path in files if facts[path].get("settings") == settings]
        if not files:
            raise UsageError(
                str(folder),
                expected="splits that were run with the settings of this experiment",
                came="only splits of other settings",
                do="Run it again without --finished.",
            )
    if len({facts[path].get("key") for path in files}) > 1:
        raise UsageError(
            str(folder),
            expected="splits of the same settings and data",
            came="splits of several settings: " + ", ".join(path.stem for path in files),
            do="Run the experiment again: splits that are out of date are made anew.",
        )
    by_seed = {}
    for path in files:
        table = pq.read_table(path)
        names = ["inspections" if name == "queries" else name for name in table.column_names]  # its old name
        rows = table.rename_columns(names).to_pylist()
        by_key = {(row["neighbours"], row["cost"], row["arm"]): row for row in rows}
        by_seed[int(path.stem.split("-")[1])] = Seed(by_key, folder / path.name.replace("seed-", "prompts-"))
    common = facts[files[0]]
    return Results(folder.name, common.get("title") or folder.name, common.get("control") == "True", by_seed)
