"""docs/public.md: tables that others published, with our rows beside theirs (`python -m paper public`).

Rows marked "published" are data of this page, with their source. Every other number is measured by the run:
the router is fitted by `Router.fit` on the source's training prompts, of which a part drawn by the seed is
kept for calibration, and judged on the source's test prompts. A number in brackets is a standard error over
prompts. Each prompt counts with its mean over seeds, so that more seeds do not shrink the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet

from pandora_router.calibrate import FittedSignal
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import search
from pandora_router.data import Free, FromColumn, Table, carve
from pandora_router.data.importers import read_folder
from pandora_router.estimators.estimator import unseen
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.report.tables import grid
from pandora_router.router import Router, SetRecipe
from pandora_router.router.revalue import weighed
from pandora_router.router.table_fit import parted
from pandora_router.search import KnowledgeGradient, Never, Policy
from pandora_router.types import Mask, Matrix, Positions, Progress, Vector

COST = 0.002  # of one purchase, in units of reward, as on docs/peers.md
TASKS = {"mmlu": "MMLU", "gsm8k": "GSM8K", "arc_challenge": "ARC-C", "humaneval": "HumanEval"}
CHOICES = ("mmlu", "arc_challenge")  # multiple choice: right if the score is above 0
ROUTERDC: Mapping[str, tuple[float, ...]] = {  # RouterDC (NeurIPS 2024), its table on its own test split
    "best single (dolphin-2.9), published": (59.46, 69.81, 49.43, 49.39),
    "RouterDC, published": (61.07, 70.32, 58.52, 51.02),
}
PARETOBANDIT: Mapping[float, float] = {  # ceiling in dollars a request -> mean reward, K = 3 (its repository)
    2.9e-5: 0.7932,
    8.3e-5: 0.8128,
    2.3e-4: 0.8588,
    6.6e-4: 0.8978,
    1.9e-3: 0.9172,
    5.3e-3: 0.9244,
    1.5e-2: 0.9290,
}
STREAM = ("llama-3.1-8b-instruct", "mistral-large-2512", "gemini-2.5-pro")  # its three models
ROBUSTNESS: Mapping[str, float] = {  # RouterArena, part of the paraphrases that go to the same model, in %
    "OrcaRouter": 22.6,
    "vLLM-SR": 67.6,
    "Azure": 71.4,
    "RouterBench kNN": 83.3,
    "CARROT": 89.1,
    "Weave": 100.0,
}
HALVINGS = 10  # of the interval of prices in which a ceiling is met
KNN = (40,)  # nearest prompts of RouterBench's rule
HELD = (0.02, 0.05)  # leads over the best single below which it stays
DRAWS = 200  # resamples of prompts behind the standard error of an area


@dataclass(frozen=True, eq=False)
class Fit:
    """A router fitted on the source's training prompts, its test prompts and their readings."""

    router: Router
    test: Table
    calibration: Readings
    readings: Readings

    @classmethod
    def of(cls, table: Table, seed: int, cost: float = COST) -> Fit:
        """Keep a quarter of the training prompts for calibration, and fit the default router."""
        held: dict[str, Readings] = {}
        split = carve(table, seed=seed)
        router = Router.fit(
            split,
            costly=SetRecipe(peek=0, seed=seed),
            inspection_cost=cost,
            remember_test=False,
            on_estimates=held.update,
        )
        return cls(router, parted(split)[2], held["calibration"], held["test"])

    def choice(self, policy: Policy) -> tuple[Positions, float]:
        """The specialist of each test prompt (N,), and the mean number of estimates bought."""
        routed = search(policy, self.router.signal, self.readings, self.router.costs)
        return routed.choice, float(routed.inspections.mean())


def markdown(root: Path, seeds: Sequence[int], say: Progress) -> str:
    """The whole page, from the data folders under `root`."""
    parts = [HEAD.format(seeds=", ".join(str(seed) for seed in seeds), cost=COST)]
    table = routerdc7(root / "routerdc7")
    fits = []
    for done, seed in enumerate(seeds):
        say(f"RouterDC: seed {seed}", done, len(seeds) + 2)
        fits.append(Fit.of(table, seed))
    parts += [_routerdc(fits), _robustness(fits, root / "routerarena_part")]
    say("ParetoBandit", len(seeds), len(seeds) + 2)
    parts += [_paretobandit(root / "paretobandit", seeds), _fourth(root / "paretobandit", seeds)]
    say("RouterBench", len(seeds) + 1, len(seeds) + 2)
    return "\n".join([*parts, _routerbench(root / "routerbench_part", seeds), MISSING])


def routerdc7(place: Path) -> Table:
    """RouterDC's four tasks, with the source's split and its rule for multiple choice."""
    table = read_folder(place, fees=Free())
    keep = np.array([bool(s) and t in TASKS for s, t in zip(table.split.tolist(), table.tasks, strict=True)])
    table = table.rows(keep)
    right = np.array([task in CHOICES for task in table.tasks])[:, None]
    return replace(table, score=np.where(right, (table.score > 0.0) * 1.0, table.score))


def _routerdc(fits: Sequence[Fit]) -> str:
    test = fits[0].test
    tasks = np.array(test.tasks)
    where = {task: tasks == task for task in TASKS}
    ways = {
        "ours": [fit.choice(fit.router.policy) for fit in fits],
        "ours, search never switched off": [fit.choice(KnowledgeGradient()) for fit in fits],
        "ours, nothing bought": [fit.choice(Never()) for fit in fits],
    }
    right = {
        name: np.mean([_taken(test.score, choice) for choice, _ in runs], axis=0)
        for name, runs in ways.items()
    }
    rows = [[name, *(f"{x:.2f}" for x in row), f"{np.mean(row):.2f}", ""] for name, row in ROUTERDC.items()]
    for name, scores in right.items():
        cells = [_percent(scores[mask]) for mask in where.values()]
        mean, error = _over_tasks(scores, where)
        bought = f"{np.mean([opened for _, opened in ways[name]]):.2f}"
        rows.append([name, *cells, f"{mean:.2f} ({error:.2f})", bought])
    rows.append(["oracle", *(_percent(test.score.max(axis=1)[mask]) for mask in where.values()), "", ""])
    never = right["ours, nothing bought"]
    lines = []
    for name in list(ways)[:2]:
        gap = right[name] - never
        changes = [f"{TASKS[task]} {_percent(gap[mask], '+')}" for task, mask in where.items()]
        mean, error = _over_tasks(gap, where)
        lines.append(f"- {name}: {', '.join(changes)}; mean {mean:+.2f} ({error:.2f}).")
    ours = right["ours"]
    theirs = dict(zip(where, ROUTERDC["RouterDC, published"], strict=True))
    gaps = [
        (TASKS[task], 100 * float(ours[mask].mean()) - theirs[task], 100 * _error(ours[mask]))
        for task, mask in where.items()
    ]
    mean, error = _over_tasks(ours, where)
    verdict = standing([*gaps, ("the mean of four", mean - float(np.mean([*theirs.values()])), error)])
    head = ["router", *TASKS.values(), "mean of four", "estimates bought"]
    counts = ", ".join(f"{int(mask.sum())} of {TASKS[task]}" for task, mask in where.items())
    return DC.format(table=grid(head, rows), lines="\n".join(lines), counts=counts, verdict=verdict)


def standing(gaps: Sequence[tuple[str, float, float]]) -> str:
    """Where a gap is above its standard error, within it, and below it, in words.

    >>> standing([("A", 2.0, 1.0), ("B", 0.5, 1.0), ("C", 3.0, 1.0)])
    'ahead by more than one standard error at A, C; within one at B; behind by more than one nowhere'
    """
    ahead = [label for label, gap, error in gaps if gap > error]
    behind = [label for label, gap, error in gaps if gap < -error]
    level = [label for label, *_ in gaps if label not in (*ahead, *behind)]
    first, second, third = (f"at {', '.join(part)}" if part else "nowhere" for part in (ahead, level, behind))
    return (
        f"ahead by more than one standard error {first}; within one {second}; behind by more than one {third}"
    )


def _robustness(fits: Sequence[Fit], place: Path) -> str:
    """The part of RouterArena's paraphrases that go to the specialist of the original prompt.

    Beside ours stand rules on the same pool, the same known prompts and the same vectors, with the part of
    RouterDC's test prompts that each has right: a rule that ignores the prompt has no changes.
    """
    columns = parquet.read_table(place / "prompts.parquet", columns=["prompt", "paraphrase"]).to_pydict()
    pairs = [pair for pair in zip(columns["prompt"], columns["paraphrase"], strict=True) if pair[1]]
    texts = [text for pair in pairs for text in pair]
    rows = [[name, f"{part:.1f}", "", "published; its own pool"] for name, part in ROBUSTNESS.items()]
    made: dict[str, list[tuple[Vector, Vector]]] = {}
    for fit in fits:
        ways: dict[str, Callable[[], tuple[Positions, Positions]]] = {
            "ours": partial(_ours, fit, texts, fit.router),
            "ours, nothing bought": partial(_ours, fit, texts, fit.router.with_policy(Never())),
            **{f"nearest {k} prompts, RouterBench's rule": partial(_nearest, fit, texts, k) for k in KNN},
            **{
                f"ours, nothing bought, held within {lead:g}": partial(_held, fit, texts, lead)
                for lead in HELD
            },
        }
        for name, way in ways.items():
            chosen, on_test = way()
            same = (chosen[::2] == chosen[1::2]) * 1.0
            made.setdefault(name, []).append((same, _taken(fit.test.score, on_test)))
    for name, runs in made.items():
        same, right = (_percent(np.mean(part, axis=0)) for part in zip(*runs, strict=True))
        rows.append([name, same, right, "the seven models of RouterDC"])
    head = ["router", "same specialist, %", "right on RouterDC's test prompts, %", "pool"]
    return ARENA.format(pairs=len(pairs), table=grid(head, rows), leads=" or ".join(f"{x:g}" for x in HELD))


def _ours(fit: Fit, texts: Sequence[str], router: Router) -> tuple[Positions, Positions]:
    """The specialist that a router chooses for each text, and for each test prompt."""
    number = {name: j for j, name in enumerate(router.specialists)}
    chosen = np.array([number[one.specialist] for one in router.route_batch(texts)])
    return chosen, fit.choice(router.policy)[0]


def _nearest(fit: Fit, texts: Sequence[str], k: int) -> tuple[Positions, Positions]:
    """The specialist of the highest mean score over the k nearest known prompts."""
    assert isinstance(fit.router.cheap, Neighbours)
    rule = replace(fit.router.cheap, k=k)
    return rule.predict(texts).argmax(axis=1), rule.predict(fit.test.prompts).argmax(axis=1)


def _held(fit: Fit, texts: Sequence[str], lead: float) -> tuple[Positions, Positions]:
    """The single best on calibration prompts, unless another one is believed to lead by more than `lead`."""
    best = int(fit.calibration.reward.mean(axis=0).argmax())
    signal = fit.router.signal
    assert isinstance(signal, FittedSignal)

    def chosen(cheap: Matrix) -> Positions:
        believed = signal.believed(cheap)
        other = believed.argmax(axis=1)
        ahead = believed[np.arange(len(other)), other] - believed[:, best]
        return np.where(ahead > lead, other, best)

    return chosen(unseen(fit.router.cheap, texts)), chosen(fit.readings.cheap)


@dataclass(frozen=True, eq=False)
class Priced:
    """A router fitted on scores alone, with the mean fees (M,) of its training prompts in dollars."""

    fit: Fit
    fees: Vector
    known_fee: Matrix  # dollars of each answer to a calibration prompt (n, M)

    @classmethod
    def of(cls, table: Table, seed: int) -> Priced:
        """Fit with fees of weight 0; the price of a dollar is set afterwards."""
        fit = Fit.of(table, seed)
        return cls(fit, fit.router.fees, parted(carve(table, seed=seed))[1].fee)

    def choose(self, readings: Readings, price: float) -> Positions:
        """The specialist of each prompt (N,) at `price` units of score a dollar; nothing is bought."""
        router = weighed(self.fit.router.with_policy(Never()), price)
        return search(router.policy, router.signal, readings, router.costs).choice

    def price_for(self, ceiling: float, readings: Readings | None = None, fee: Matrix | None = None) -> float:
        """The lowest price at which prompts cost at most `ceiling` dollars on average.

        `readings`, and `fee` (N, M) in dollars: of these prompts; by default calibration prompts.
        """
        prompts = self.fit.calibration if readings is None else readings
        paid = self.known_fee if fee is None else fee
        return lowest_price(
            lambda price: float(np.nanmean(_taken(paid, self.choose(prompts, price)))), ceiling
        )


def lowest_price(cost: Callable[[float], float], ceiling: float) -> float:
    """The lowest price of a dollar at which `cost(price)` is at most `ceiling`; the highest if none is.

    `cost` falls with the price. The first price of a grid that is high enough is refined by halving.

    >>> round(lowest_price(lambda price: 1.0 / (1.0 + price), 0.25), 2)
    3.0
    """
    prices = [0.0, *np.geomspace(0.1, 1e6, 141).tolist()]
    at = next((i for i, price in enumerate(prices) if cost(price) <= ceiling), len(prices) - 1)
    low, high = prices[max(at - 1, 0)], prices[at]
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if cost(middle) <= ceiling else (middle, high)
    return high


def _stream(place: Path, which: Sequence[str] | None = None) -> Table:
    """A folder with dollars per call, as a table in which dollars have no weight, complete prompts alone."""
    table = read_folder(place, fees=FromColumn("cost_usd"), fee_weight=0.0)
    table = table if which is None else table.only(tuple(which))
    table = replace(table, contexts=None)
    return table.rows(~table.missing.any(axis=1))


def _paretobandit(place: Path, seeds: Sequence[int]) -> str:
    table = _stream(place, STREAM)
    known, runs = table.in_split("train"), [Priced.of(table, seed) for seed in seeds]
    test = runs[0].fit.test
    rows: list[list[str]] = []
    beside: dict[str, list[tuple[str, float, float]]] = {"published": [], "mix": []}
    for ceiling, published in PARETOBANDIT.items():
        ahead = [run.choose(run.fit.readings, run.price_for(ceiling)) for run in runs]
        exact = [
            run.choose(run.fit.readings, run.price_for(ceiling, run.fit.readings, test.fee)) for run in runs
        ]
        score, level = (np.mean([_taken(test.score, one) for one in made], axis=0) for made in (ahead, exact))
        spent = float(np.mean([_taken(test.fee, one).mean() for one in ahead]))
        mix = test.score @ _mix(known.score.mean(axis=0), test.fee.mean(axis=0), ceiling)
        label, gap = f"{ceiling:.1e}", float(level.mean()) - published
        ours = [f"{one.mean():.4f} ({_error(one):.4f})" for one in (score, level)]
        rows.append([label, f"{published:.4f}", f"{mix.mean():.4f}", ours[0], f"{spent / ceiling:.2f}"])
        rows[-1] += [ours[1], f"{1e3 * gap:+.1f}", _thousandths(level - mix)]
        beside["published"].append((label, gap, _error(level)))
        beside["mix"].append((label, float((level - mix).mean()), _error(level - mix)))
    head = ["ceiling, $ a request", "ParetoBandit, published", "mix of two", "ours, nothing bought"]
    head += ["spent / ceiling", "ours at the ceiling", "over published, 1e-3", "over the mix, 1e-3"]
    singles = ", ".join(
        f"{n} {x:.3f}" for n, x in zip(test.specialists, test.score.mean(axis=0), strict=True)
    )
    oracle = f"{test.score.max(axis=1).mean():.3f}"
    said = {name: standing(gaps) for name, gaps in beside.items()}
    return PARETO.format(prompts=len(test), table=grid(head, rows), singles=singles, oracle=oracle, **said)


def _fourth(place: Path, seeds: Sequence[int]) -> str:
    """What a fourth model adds under each ceiling: routers fitted with and without it on the same prompts."""
    whole = _stream(place)
    new = next(name for name in whole.specialists if name not in STREAM)
    fitted = {
        width: [Priced.of(table, seed) for seed in seeds]
        for width, table in ((4, whole), (3, whole.only(STREAM)))
    }
    known, rows = whole.in_split("train"), []
    gaps: dict[str, list[tuple[str, float, float]]] = {"three": [], "mix": []}
    for ceiling in PARETOBANDIT:
        score, asked = {}, 0.0
        for width, runs in fitted.items():
            tests = [run.fit.test for run in runs]
            chosen = [
                run.choose(run.fit.readings, run.price_for(ceiling, run.fit.readings, test.fee))
                for run, test in zip(runs, tests, strict=True)
            ]
            right = [_taken(test.score, one) for test, one in zip(tests, chosen, strict=True)]
            score[width] = np.mean(right, axis=0)
            if width == 4:
                asked = float(np.mean([one == whole.specialists.index(new) for one in chosen]))
        test = fitted[4][0].fit.test
        mix = test.score @ _mix(known.score.mean(axis=0), test.fee.mean(axis=0), ceiling)
        label, more, over = f"{ceiling:.1e}", score[4] - score[3], score[4] - mix
        levels = f"{score[3].mean():.4f}", f"{score[4].mean():.4f}"
        rows.append([label, *levels, f"{asked:.0%}", _thousandths(more), _thousandths(over)])
        gaps["three"].append((label, float(more.mean()), _error(more)))
        gaps["mix"].append((label, float(over.mean()), _error(over)))
    head = ["ceiling, $ a request", "three models", "four models", f"{new} answers"]
    head += ["four over three, 1e-3", "over the mix of two of four, 1e-3"]
    said = {name: standing(each) for name, each in gaps.items()}
    return FOURTH.format(prompts=len(fitted[4][0].fit.test), new=new, table=grid(head, rows), **said)


def _mix(score: Vector, fee: Vector, ceiling: float) -> Vector:
    """The mixture (M,) of at most two specialists of the highest mean score with a mean fee up to a ceiling.

    That of the cheapest specialist alone where even it costs more.
    """
    one = np.eye(len(fee))
    mixtures = [one[fee.argmin()], *one[fee <= ceiling]]
    for i, j in np.argwhere((fee[:, None] > ceiling) & (fee <= ceiling)).tolist():
        share = (ceiling - fee[j]) / (fee[i] - fee[j])
        mixtures.append(share * one[i] + (1.0 - share) * one[j])
    return max(mixtures, key=lambda mixture: float(mixture @ score))


def _routerbench(place: Path, seeds: Sequence[int]) -> str:
    table = _stream(place)
    runs = [Priced.of(table, seed) for seed in seeds]
    test = runs[0].fit.test
    prices = [0.0, *np.geomspace(0.1, 1e5, 41).tolist()]
    points = [[run.choose(run.fit.readings, price) for price in prices] for run in runs]
    tasks, rng = np.array(test.tasks), np.random.default_rng(0)
    rows = []
    for name in ("all", *sorted(set(test.tasks))):
        where = np.flatnonzero((tasks == name) | (name == "all"))
        ours, zero = _areas(test, points, where)
        draws = [_areas(test, points, rng.choice(where, len(where))) for _ in range(DRAWS)]
        error = float(np.std([a - b for a, b in draws], ddof=1))
        rows.append(
            [name, str(len(where)), f"{zero:.4f}", f"{ours:.4f}", f"{ours - zero:+.4f} ({error:.4f})"]
        )
    head = ["part", "prompts", "zero router", "ours, nothing bought", "difference"]
    return BENCH.format(table=grid(head, rows))


def _areas(test: Table, points: Sequence[Sequence[Positions]], rows: Positions) -> tuple[float, float]:
    """AIQ of our router (mean over seeds) and of the zero router (the hull of the single models)."""
    score, fee = test.score[rows], test.fee[rows]
    single = fee.mean(axis=0), score.mean(axis=0)
    ends = float(single[0].min()), float(single[0].max())
    ours = []
    for chosen in points:
        spent = np.array([_taken(fee, choice[rows]).mean() for choice in chosen])
        right = np.array([_taken(score, choice[rows]).mean() for choice in chosen])
        ours.append(area(spent, right, *ends))
    return float(np.mean(ours)), area(*single, *ends)


def area(cost: Vector, quality: Vector, low: float, high: float) -> float:
    """RouterBench's AIQ: mean height of the non-decreasing concave hull of the points over [low, high].

    Left of the cheapest point the hull has the height of that point.

    >>> area(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 0.5]), 0.0, 2.0)
    0.75
    """
    order = np.lexsort((-quality, cost))
    hull: list[tuple[float, float]] = []
    for x, y in zip(cost[order].tolist(), np.maximum.accumulate(quality[order]).tolist(), strict=True):
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) <= (y - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        if not hull or x > hull[-1][0]:
            hull.append((x, y))
    at = np.linspace(low, high, 2001)
    height = np.interp(at, [x for x, _ in hull], [y for _, y in hull])
    return float(np.trapezoid(height, at) / (high - low))


def _taken(cells: Matrix, choice: Positions) -> Vector:
    return np.asarray(cells[np.arange(len(choice)), choice])


def _error(values: Vector) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _percent(values: Vector, sign: str = "") -> str:
    return f"{100 * values.mean():{sign}.2f} ({100 * _error(values):.2f})"


def _thousandths(values: Vector) -> str:
    return f"{1e3 * values.mean():+.1f} ({1e3 * _error(values):.1f})"


def _over_tasks(values: Vector, where: Mapping[str, Mask]) -> tuple[float, float]:
    """The mean over tasks in percent, every task with the same weight, and its standard error."""
    parts = [values[mask] for mask in where.values()]
    error = np.sqrt(sum(_error(part) ** 2 for part in parts)) / len(parts)
    return 100 * float(np.mean([part.mean() for part in parts])), 100 * float(error)


HEAD = """# Published tables

Written by `python -m paper public --page docs/public.md`; do not edit by hand. Seeds {seeds}; a seed draws
which quarter of the source's training prompts is kept for calibration, and the folds of the costly estimate.
Rows marked "published" are other people's numbers; all others were measured by this run. In brackets one
standard error over prompts. A purchase costs {cost} of reward. A costly estimate reads the prompt alone: no
data set here has the text of every answer.
"""
DC = """## RouterDC: its own training and test split

Four of its five tasks (CMMLU is not in the data, for its licence). A multiple-choice answer counts as right
if its score is above 0, as in the source. Test prompts: {counts}. The mean is over the four tasks shown, for
the published rows too.

{table}

Ours against RouterDC: {verdict}.

What buying changes against buying nothing, in points:

{lines}
"""
ARENA = """## RouterArena: the same question in other words

{pairs} prompts of RouterArena with a paraphrase. Every published row has a pool of its own, and a router that
always takes the same model has 100, so the column orders nothing by itself. The rows below the published ones
share a pool, the known prompts and the vectors. "Held within" takes the single best model unless another one
is believed to be better by more than {leads}. It shows what fewer changes cost, and is not in the product.

{table}
"""
PARETO = """## ParetoBandit: the best mean reward under a ceiling of dollars

{prompts} test prompts, three models. Ours is fitted on the source's validation part (its training part could
not be had) and does not learn on the stream. The price of a dollar is the lowest at which calibration prompts
stay under the ceiling, so test prompts may cost a little more or less. "Ours at the ceiling" has the price at
which the test prompts themselves stay under it, as a price that follows a stream would find it; the last two
columns compare that one. The mix of two draws one of two models at random: that of the highest score on known
prompts, in the proportion that meets the ceiling on test prompts.

{table}

Against the published row: {published}.

Against the mix of two: {mix}.

Single models on the test prompts: {singles}; oracle {oracle}.
"""
FOURTH = """### A fourth model

{new} joins the three. Routers are fitted with and without its scores, on the same prompts: those
that all four answered, of which {prompts} are test prompts. Both have the price at which test prompts stay
under the ceiling. No published number is for these prompts. What a router learns of a model without scores is
in [add-a-specialist.md](add-a-specialist.md).

{table}

Four against three: {three}.

Four against the mix of two of them: {mix}.
"""
BENCH = """## RouterBench: AIQ on the parts at hand

AIQ is the mean height of the hull of (cost, quality) between the cheapest and the dearest model. The zero
router mixes single models along that hull as it is on the test prompts: it knows what no router knows.

{table}
"""
MISSING = """## What could not be compared

- RouterDC's CMMLU column and its out-of-distribution tasks. Of its other baselines only means over five tasks
  are at hand.
- ParetoBandit's drift experiments: they measure learning on the stream. What ours learns
  from traffic is measured in [learn.md](learn.md), and budgets on streams of these prompts, beside the
  published package itself, in [goals.md](goals.md).
- RouterArena's accuracy and cost columns: 809 of its 8,400 prompts and two of its models could be had, and
  one of the two is better and cheaper than the other.
- RouterBench's published AIQ is over all of its parts; three could be had.
"""
