"""Whether a goal in `pandora.yaml` is met: budgets over a month, kept quality, and the curve above the mix.

    OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 nice -n 10 python -m benchmarks.goals --page docs/goals.md

For each table and seed, `Router.fit` sees three fifths of a sample of the prompts, and its curve
(`router.curve`) comes from its own test split. All other prompts are fresh. They are routed by
`Router.route_batch` at every worth of the curve and at one worth between neighbours, as a gateway serves
them. The costly estimate reads the prompt alone. Everything below is computed from what these decisions
score and cost. Finished fits are kept in the cache (`--cache`), numbers alone and no text.

With --splits N the goal `keep` itself is measured: on N splits of each table `Config.fitted` fits as often as
it needs to find the worth, as `pandora fit` does, and its router routes prompts that no fit saw.

With --stream the requests are not drawn: they are the test prompts of ParetoBandit in their published order,
at constant traffic, with its ceilings of dollars a request.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
from numpy.typing import NDArray
from paper.public import PARETOBANDIT
from paper.public import STREAM as STREAMED
from scipy.stats import beta
from tools.pages import put

from benchmarks.budget_streams import (
    FIXED,
    HOURS,
    MIX,
    OURS,
    PACER,
    PARETO,
    SHAPES,
    WAYS,
    Spent,
    Stream,
    best_mix,
    month,
    rivals,
)
from benchmarks.folders import DATA
from benchmarks.peers.runs import EXPERIMENTS
from pandora_router.config import read_config
from pandora_router.config.experiments import read_experiment
from pandora_router.data import Fractions, FromColumn, PerParameter, Table, resplit
from pandora_router.data.fees import Fees
from pandora_router.data.importers import read_folder
from pandora_router.estimators.embedders.embedder import default_embedder
from pandora_router.estimators.embedders.tfidf import fitted_embedder
from pandora_router.evaluate.estimates import table_of
from pandora_router.folders import replace_text, replacing
from pandora_router.report.tables import grid
from pandora_router.router import Router, SetRecipe
from pandora_router.router.curve import Curve, covariance, measured, over_mix
from pandora_router.router.revalue import weighed

COST = 0.002
"""Price of one look, in units of reward at the worth of the fit, as in the other benchmarks."""
MOST = 1600
"""Prompts of a table that are used, drawn by the seed."""
SEEDS = (301, 302)
BETWEEN = 2
"""Steps from one worth of the curve to the next."""
KNOWN = Fractions(0.3, 0.15, 0.55)
SHARES = (0.8, 0.9, 0.95, 0.98)
PROMISES, HELD = 200, 400
"""Simulated fits, and the held-out prompts of each."""
KEEP = 0.95
"""The share that is kept in the splits of `--splits`."""
FEW, MANY = 800, 4000
"""Prompts of a fit in these splits, and at most so many in all; of a small table three fifths."""
STREAMS = 1
"""Simulated months per fit, shape and way."""
LEVELS = (0.25, 0.6)
"""Budgets: how far between the cheapest and the dearest end of the curve a request may cost."""
EXPERIMENTED = {
    "openllm_pool": "openllm",
    "mmlupro_cot": "mmlupro8",
    "zeroeval_math": "math_gpt",
    "rag_adarague": "adarague",
    "rag_mirage": "mirage",
    "routellm": "routellm",
    "routerbench_part": "routerbench",
    "routerdc7": "routerdc7",
}
"""Tables with their fees and specialists as on the other pages, by experiment of paper/experiments."""
PLAIN: Mapping[str, tuple[Fees, float]] = {
    "gsm8k_6b_175b": (PerParameter(0.3 / 17.5, samples="samples_per_question"), 1.0),
    "paretobandit": (FromColumn("cost_usd"), 20.0),
    "routerarena_part": (FromColumn("cost_usd"), 1000.0),
}
"""Other tables: the rule for fees, and the weight of a fee in the fit."""
STREAM, HINDSIGHT = "paretobandit_stream", "best fixed worth in hindsight"
"""The name under which fits for `--stream` are kept, and a row of its table."""
FINE = 8
"""Steps from one worth of the curve to the next for `--stream`."""
Numbers = NDArray[np.float64]


def table(name: str, seed: int, most: int = MOST) -> Table:
    """The sample of `most` prompts of a table, complete ones alone, without the texts of answers."""
    if name in EXPERIMENTED:
        experiment = read_experiment(EXPERIMENTS / f"{EXPERIMENTED[name]}.yaml")
        whole = table_of(experiment, DATA)
    else:
        fees, weight = PLAIN[name]
        whole = read_folder(DATA / name, fees=fees, fee_weight=weight)
    whole = whole.rows(np.isfinite(whole.reward).all(axis=1))
    some = np.sort(np.random.default_rng(seed).permutation(len(whole))[:most])
    whole = replace(whole.rows(some), contexts=None)
    return resplit(whole, seed=seed, fractions=Fractions(0.55, 0.05, 0.4))


def parts(name: str, seed: int) -> tuple[Table, Table]:
    """The prompts of the fit by a seed, with its splits, and the fresh ones."""
    if name != STREAM:
        whole = table(name, seed)
        known = resplit(whole.rows(whole.split != "test"), seed=seed, fractions=KNOWN)
        return known, whole.in_split("test")
    place = DATA / "paretobandit"
    whole = read_folder(place, fees=FromColumn("cost_usd"), fee_weight=1.0).only(STREAMED)
    whole = replace(whole.rows(~whole.missing.any(axis=1)), contexts=None)
    told = parquet.read_table(place / "prompts.parquet", columns=["prompt_id", "position"]).to_pydict()
    position = {str(name): at for name, at in zip(told["prompt_id"], told["position"], strict=True)}
    fresh = whole.in_split("test")
    order = np.argsort([position[name] for name in fresh.prompt_ids])
    return resplit(whole.in_split("train"), seed=seed, fractions=Fractions()), fresh.rows(order)


def steps(name: str) -> int:
    """Steps from one worth of the curve to the next."""
    return FINE if name == STREAM else BETWEEN


@dataclass(frozen=True, eq=False)
class Measured:
    """The curve of a fit by a seed, and what fresh prompts score and cost at each of `worths`, rising.

    score, money, bought: (N, K) of the router. singles, fees: (N, M) of the specialists. prompt: a number for
    each distinct prompt of the table, the same for all seeds.
    """

    seed: int
    curve: Curve
    worths: Numbers
    score: Numbers
    money: Numbers
    bought: Numbers
    singles: Numbers
    fees: Numbers
    prompt: NDArray[np.int64]

    @classmethod
    def of(cls, name: str, seed: int, cache: Path) -> Measured | None:
        """From the cache, or fitted and routed now; None if fees do not differ, so that there is no curve."""
        path = cache / f"{name}-{seed}-{MOST}-{steps(name)}.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            made = _measured(name, seed)
            with replacing(path) as draft, draft.open("wb") as sink:
                np.savez(sink, **made)
        with np.load(path, allow_pickle=False) as kept:
            told = json.loads(str(kept["curve"]))
            if told is None:
                return None
            arrays = {part: kept[part] for part in kept.files if part != "curve"}
            return cls(seed, Curve.from_dict(told), **arrays)


def _measured(name: str, seed: int) -> dict[str, Any]:
    known, fresh = parts(name, seed)
    router = Router.fit(known, costly=SetRecipe(0, seed=seed), inspection_cost=COST, remember_test=False)
    told = router.record.report["routing"]["curve"]
    if told is None:
        return {"curve": np.array("null")}
    stated = np.log([point["worth"] for point in told["points"]][::-1])
    stated = stated[np.concatenate([[True], np.diff(stated) > 1e-6])]
    between = np.arange(steps(name) * (len(stated) - 1) + 1) / steps(name)
    worths = np.exp(np.interp(between, np.arange(len(stated)), stated))
    score, money, bought = (np.empty((len(fresh), len(worths))) for _ in range(3))
    for at, worth in enumerate(worths):
        score[:, at], money[:, at], bought[:, at] = _served(weighed(router, 1.0 / worth), fresh)
    return {
        "curve": np.array(json.dumps(told)),
        "worths": worths,
        "score": score,
        "money": money,
        "bought": bought,
        "singles": fresh.score,
        "fees": fresh.fee,
        "prompt": np.array([zlib.crc32(word.encode()) for word in fresh.prompt_ids], dtype=np.int64),
    }


def _served(router: Router, fresh: Table) -> tuple[Numbers, Numbers, Numbers]:
    """Score, money and number of looks of each prompt, as the router decides."""
    decisions = router.route_batch(fresh.prompts)
    rows = np.arange(len(fresh))
    chosen = np.array([fresh.specialists.index(decision.specialist) for decision in decisions])
    spent = np.array([decision.trace.spent for decision in decisions]) / router.fee_weight
    looks = np.array([float(len(decision.trace.inspected)) for decision in decisions])
    return fresh.score[rows, chosen], fresh.fee[rows, chosen] + spent, looks


def promises(case: Measured, seed: int) -> dict[float, tuple[float, float]]:
    """By share: how often `keep` is promised, and how often it is promised and broken.

    Held-out prompts are drawn with replacement from the fresh ones, whose means are therefore the truth.
    """
    rng, names = np.random.default_rng(seed), list(case.curve.singles)
    strongest = int(case.singles.mean(axis=0).argmax())
    best = float(case.singles[:, strongest].mean())
    falling = np.arange(len(case.worths))[::-BETWEEN]
    truth = dict(zip(case.worths[falling].tolist(), case.score[:, falling].mean(axis=0), strict=True))
    sure, broken = dict.fromkeys(SHARES, 0), dict.fromkeys(SHARES, 0)
    for _ in range(PROMISES):
        rows = rng.integers(len(case.score), size=HELD)
        score, money, bought = (part[rows][:, falling] for part in (case.score, case.money, case.bought))
        at, alone = case.worths[falling].tolist(), (case.singles[rows], case.fees[rows])
        curve = measured(at, score, money, bought, *alone, names, np.arange(HELD))
        for share in SHARES:
            kept = curve.keep(share, names[strongest])
            sure[share] += kept.sure
            broken[share] += bool(kept.sure and truth[kept.point.worth or 0.0] < share * best - 1e-12)
    return {share: (sure[share] / PROMISES, broken[share] / PROMISES) for share in SHARES}


@dataclass(frozen=True)
class Split:
    """Whether `keep` was promised, and the score of fresh prompts minus the share of the strong model's."""

    sure: bool
    over: float
    error: float


def kept(name: str, seed: int, cache: Path) -> Split:
    """One split of `--splits`: fitted for the goal, up to three times, and measured on all other prompts."""
    path = cache / f"{name}-{seed}-keep-{KEEP}-{FEW}.json"
    if path.exists():
        return Split(**json.loads(path.read_text()))
    whole = table(name, seed, MANY)
    order = np.random.default_rng(seed).permutation(len(whole))
    known, fresh = np.split(order, [min(FEW, 3 * len(whole) // 5)])
    part = resplit(whole.rows(np.sort(known)), seed=seed, fractions=Fractions(0.4, 0.2, 0.4))
    rest = whole.rows(np.sort(fresh))
    strongest = int(part.score.mean(axis=0).argmax())
    goal = f"goal: {{keep: {KEEP}, of: {json.dumps(part.specialists[strongest])}}}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pandora.yaml"
        file.write_text(f"table: unused\n{goal}\nfit: {{costly: {{rounds: 20, folds: 2}}}}\n")
        router = read_config(file).fitted(part)
    score, _, _ = _served(router, rest)
    over = score - KEEP * rest.score[:, strongest]
    error = float(over.std(ddof=1) / np.sqrt(len(over)))
    split = Split(bool(router.record.goal["sure"]), float(over.mean()), error)
    replace_text(path, json.dumps(asdict(split)) + "\n")
    return split


def splits(names: Sequence[str], seeds: Sequence[int], cache: Path) -> str:
    """The table of `--splits`."""
    rows, every = [], []
    for name in names:
        found = [kept(name, seed, cache) for seed in seeds]
        every += found
        rows.append(_splits_row(name, found))
        print(" | ".join(rows[-1]), flush=True)
    rows.append(_splits_row("all", every))
    head = [
        "table",
        "splits",
        "promised",
        "of these below on fresh prompts",
        "by more than 2 se",
        "worst, 1e-3 (se)",
    ]
    made = [split for split in every if split.sure]
    below = sum(split.over < 0.0 for split in made)
    low = beta.ppf(0.025, below, len(made) - below + 1) if below else 0.0
    high = beta.ppf(0.975, below + 1, len(made) - below) if below < len(made) else 1.0
    return (
        f"{below} of {len(made)} promises fell short on fresh prompts; with 95 % confidence it is between "
        f"{low:.1%} and {high:.1%} of such promises.\n\n{grid(head, rows)}"
    )


def _splits_row(name: str, found: Sequence[Split]) -> list[str]:
    made = [split for split in found if split.sure]
    below = sum(split.over < 0.0 for split in made)
    surely = sum(split.over < -2.0 * split.error for split in made)
    worst = min(made, key=lambda split: split.over, default=None)
    short = "-" if worst is None else f"{1e3 * worst.over:+.1f} ({1e3 * worst.error:.1f})"
    share = f" ({below / len(made):.0%})" if made else ""
    return [name, str(len(found)), str(len(made)), f"{below}{share}", str(surely), short]


def against_mix(cases: Sequence[Measured]) -> list[tuple[float, float]]:
    """Score above the mix of two at equal cost and its error, by falling worth, over all seeds.

    The mix is that of the fresh prompts themselves. A prompt that several seeds drew counts as one cluster.
    """
    rows = []
    cluster = np.unique(np.concatenate([case.prompt for case in cases]), return_inverse=True)[1]
    shortest = min(len(case.worths) for case in cases)
    for back in range(1, shortest + 1, BETWEEN):
        over = [over_mix(c.score[:, -back], c.money[:, -back], c.singles, c.fees) for c in cases]
        values = np.concatenate(over)
        error = float(np.sqrt(covariance(values[:, None], cluster)[0, 0]))
        rows.append((float(values.mean()), error))
    return rows


Months = dict[str, dict[str, list[tuple[float, float, float]]]]
"""(regret, spent share, refused share) of every simulated month, by shape and way."""


def months(name: str, cases: Sequence[Measured], python: Path, cache: Path) -> Months:
    """Every simulated month of a table; with ParetoBandit if `python` is there to run it."""
    found: Months = {shape: {} for shape in SHAPES}
    for place, case in enumerate(cases):
        low, high = case.curve.points[-1].money, case.curve.points[0].money
        streams, shapes = [], []
        for shape, level, draw in itertools.product(SHAPES, LEVELS, range(STREAMS)):
            rng = np.random.default_rng([place, draw, int(100 * level)])
            rows = rng.integers(len(case.score), size=int(month(shape).sum()))
            streams.append((Stream.of(case, month(shape), rows, low + level * (high - low)), rows))
            shapes.append(shape)
        others: list[dict[str, Spent]] = [{} for _ in streams]
        if python.exists():
            kept = cache / f"{name}-{case.seed}-{MOST}-{BETWEEN}-{STREAMS}-peer.npz"
            given = functools.partial(vectors, name, case.seed)
            others = rivals(given, case, streams, python, kept)
        for shape, (stream, rows), other in zip(shapes, streams, others, strict=True):
            best = stream.best()
            for way, done in {**{way: run(stream) for way, run in WAYS.items()}, **other}.items():
                regret = (best.scored - done.scored) / len(rows)
                figures = regret, done.spent / stream.budget, done.refused / len(rows)
                found[shape].setdefault(way, []).append(figures)
    return found


def ordered(case: Measured, ceiling: float) -> Stream:
    """All fresh prompts of a case in their own order at constant traffic, with `ceiling` dollars for each."""
    size = len(case.score)
    counts = np.diff(np.arange(HOURS + 1) * size // HOURS)
    return replace(Stream.of(case, counts, np.arange(size), ceiling), day=24 * size / HOURS)


def expected_mix(stream: Stream) -> Spent:
    """What the best mix scores and costs on average over its draws, without a stop.

    A single draw has luck: on so few requests it is stopped early if the dear specialist is drawn too often.
    """
    share, low, high = best_mix(stream)
    score, money = (
        (1.0 - share) * part[:, low] + share * part[:, high] for part in (stream.singles, stream.fees)
    )
    return Spent(score, float(money.sum()), 0)


def in_order(seeds: Sequence[int], python: Path, cache: Path) -> str:
    """The table of `--stream`; with ParetoBandit if `python` is there to run it."""
    found: dict[tuple[float, str], list[Spent]] = {}
    for seed in seeds:
        case = Measured.of(STREAM, seed, cache)
        assert case is not None  # fees differ
        streams = [ordered(case, ceiling) for ceiling in PARETOBANDIT]
        others: list[dict[str, Spent]] = [{} for _ in streams]
        if python.exists():
            kept = cache / f"{STREAM}-{seed}-{FINE}-peer.npz"
            rows = np.arange(len(case.score))
            given = functools.partial(vectors, STREAM, seed)
            others = rivals(given, case, [(stream, rows) for stream in streams], python, kept)
        for ceiling, stream, other in zip(PARETOBANDIT, streams, others, strict=True):
            ways = {HINDSIGHT: stream.best(), **{way: run(stream) for way, run in WAYS.items()}, **other}
            ways[MIX] = expected_mix(stream)
            for way, done in ways.items():
                found.setdefault((ceiling, way), []).append(done)
        print(f"{STREAM} {seed}: {len(case.score)}, {time.process_time():.0f} s", flush=True)
    lines = []
    for (ceiling, way), runs in found.items():
        score = np.array([run.score for run in runs])
        regret = np.array([run.score for run in found[ceiling, HINDSIGHT]]) - score
        fits = 1e3 * regret.mean(axis=1)
        share = [run.spent / (ceiling * score.shape[1]) for run in runs]
        lines.append(
            [
                f"{ceiling:.1e}",
                way,
                f"{np.mean(share):.1%}",
                f"{max(share):.2%}",
                f"{np.mean([run.refused for run in runs]) / score.shape[1]:.2%}",
                _with_error(score, 1.0, 4),
                "" if way == HINDSIGHT else _with_error(regret, 1e3, 1),
                "" if way == HINDSIGHT or len(fits) < 2 else f"{fits.std(ddof=1):.1f}",
            ]
        )
        if way == MIX:
            published = f"{PARETOBANDIT[ceiling]:.4f}"
            lines.append([f"{ceiling:.1e}", "ParetoBandit, published", "", "", "", published, "", ""])
    head = ["ceiling, $ a request", "way", "spent / budget", "most spent", "refused", "reward (se)"]
    return grid([*head, "regret, 1e-3 (se)", "sd over fits"], lines)


def _with_error(values: Numbers, unit: float, digits: int) -> str:
    """The mean of values (S, T) and its standard error over prompts, each with its mean over fits."""
    each = unit * values.mean(axis=0)
    return f"{each.mean():.{digits}f} ({each.std(ddof=1) / np.sqrt(len(each)):.{digits}f})"


def vectors(name: str, seed: int) -> tuple[tuple[Numbers, Numbers, Numbers], Numbers]:
    """Vectors, scores and fees of the prompts of a fit, and the vectors of the fresh ones."""
    known, fresh = parts(name, seed)
    embedder = fitted_embedder(known.prompts)
    made = [np.asarray(embedder.embed(part.prompts), dtype=np.float64) for part in (known, fresh)]
    default_embedder().forget()
    return (made[0], known.score, known.fee), made[1]


def sections(
    found: Mapping[str, Sequence[Measured]], without: Sequence[str], python: Path, cache: Path
) -> dict[str, str]:
    """The three written parts of the page."""
    runs = {name: months(name, cases, python, cache) for name, cases in found.items()}
    return {"mix": _mixes(found, without), "promises": _promises(found), "budgets": _budgets(runs)}


def _budgets(runs: Mapping[str, Months]) -> str:
    rows = []
    for shape in SHAPES:
        for way in [way for way in (*WAYS, PACER, PARETO) if way in next(iter(runs.values()))[shape]]:
            each = np.array([np.mean(run[shape][way], axis=0) for run in runs.values()])
            whole = np.concatenate([np.array(run[shape][way]) for run in runs.values()])
            error = 1e3 * float(each[:, 0].std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else 0.0
            rows.append(
                [
                    shape,
                    way,
                    f"{1e3 * each[:, 0].mean():.1f} ({error:.1f})",
                    f"{each[:, 1].mean():.1%}",
                    f"{whole[:, 1].max():.2%}",
                    f"{each[:, 2].mean():.2%}",
                ]
            )
    by_table = []
    for name, run in runs.items():
        cells = [_level(run[shape][OURS]) for shape in SHAPES] + [_level(run["constant"][FIXED])]
        by_table.append([name, *cells])
    head = ["traffic", "way", "regret, 1e-3 (se over tables)", "spent", "most spent", "refused"]
    return (
        grid(head, rows)
        + "\n\nRegret of the budget goal by table, 1e-3 (standard error over months):\n\n"
        + grid(["table", *SHAPES, "fixed at the start, constant"], by_table)
    )


def _level(rows: Sequence[tuple[float, float, float]]) -> str:
    regrets = 1e3 * np.array([row[0] for row in rows])
    return f"{regrets.mean():.1f} ({regrets.std(ddof=1) / np.sqrt(len(regrets)):.1f})"


def _promises(found: Mapping[str, Sequence[Measured]]) -> str:
    rows = []
    for name, cases in found.items():
        each = [promises(case, seed) for seed, case in enumerate(cases)]
        cells = []
        for share in SHARES:
            sure, broken = np.mean([pairs[share] for pairs in each], axis=0)
            cells.append(f"{broken:.1%} of {sure:.0%}")
        rows.append([name, *cells])
    return grid(["table", *(f"keep {share:.0%}" for share in SHARES)], rows)


def _mixes(found: Mapping[str, Sequence[Measured]], without: Sequence[str]) -> str:
    rows, below = [], []
    for name, cases in found.items():
        points = against_mix(cases)
        best = max(points)
        worst = min(points, key=lambda point: point[0] / point[1] if point[1] > 0.0 else point[0] * 1e9)
        z = worst[0] / worst[1] if worst[1] > 0.0 else 0.0
        if z < -2.0:
            below.append(name)
        rows.append(
            [
                name,
                str(sum(len(case.score) for case in cases)),
                f"{1e3 * best[0]:+.1f} ({1e3 * best[1]:.1f})",
                f"{1e3 * worst[0]:+.1f} ({1e3 * worst[1]:.1f})",
                f"{z:+.1f}",
                f"{sum(x < -2.0 * e and e > 0.0 for x, e in points)} of {len(points)}",
            ]
        )
    verdict = (
        f"Below the mix by more than two standard errors: {', '.join(below)}."
        if below
        else "Nowhere is the curve below the mix by more than two standard errors."
    )
    missing = (
        f"No curve, since the fees of all specialists are equal: {', '.join(without)}." if without else ""
    )
    head = ["table", "fresh prompts", "highest, 1e-3", "lowest by se, 1e-3", "in se", "points below 2 se"]
    return f"{verdict} {missing}\n\n{grid(head, rows)}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("tables", nargs="*", default=[*EXPERIMENTED, *PLAIN])
    options.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    options.add_argument("--cache", type=Path, default=Path("build/goals"))
    options.add_argument("--environments", type=Path, default=Path(), help="folder of .venv-peers [.]")
    options.add_argument("--page", type=Path, help="also write the measured parts of this page")
    options.add_argument("--splits", type=int, default=0, help="instead: measure `keep` on so many splits")
    options.add_argument("--stream", action="store_true", help="instead: ParetoBandit's stream in its order")
    told = options.parse_args()
    python = told.environments / ".venv-peers" / "bin" / "python"
    if not python.exists():
        print("ParetoBandit is not installed: `make peers`")
    if told.stream:
        text = in_order(told.seeds, python, told.cache)
        print(text)
        if told.page is not None:
            put(text, told.page, "stream")
        return
    if told.splits:
        told.cache.mkdir(parents=True, exist_ok=True)
        names = [name for name in told.tables if name != "routerdc7"]  # its fees are equal: no curve
        text = splits(names, range(501, 501 + told.splits), told.cache)
        print(text)
        if told.page is not None:
            put(text, told.page, "splits")
        return
    found: dict[str, list[Measured]] = {}
    begun = time.process_time()
    for seed in told.seeds:
        for name in told.tables:
            case = Measured.of(name, seed, told.cache)
            if case is not None:
                found.setdefault(name, []).append(case)
            print(
                f"{name} {seed}: {'no curve' if case is None else len(case.score)}, "
                f"{time.process_time() - begun:.0f} s",
                flush=True,
            )
    without = [name for name in told.tables if name not in found]
    for part, text in sections(found, without, python, told.cache).items():
        print(f"\n{part}\n\n{text}")
        if told.page is not None:
            put(text, told.page, part)


if __name__ == "__main__":
    main()
