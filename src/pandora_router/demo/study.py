"""The demo's experiment, and its result in sentences and one small table.

Fit on the recorded answers, and compare ways of routing on held-out questions.

    reward = right (1 or 0) - weight x processor seconds of the answer
    net    = reward - weight x processor seconds of the looks

A look costs the mean seconds of looks at this specialist in training; if that specialist answers, the look is
part of its answer and is not charged again. The router is what `pandora fit` makes of the same table: every
estimate, the signal model and the policy are the defaults of `Router.fit`.

What routing earns in the demo, in sentences and one small table: accuracy, seconds and money.

Terminal, page and README show the same text. Money is processor time at a price per hour; it is proportional
to seconds, so the price does not affect comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.calibrate import GaussianJoint
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import ALWAYS, NEVER, ORACLE, ROUTER, Routed, Standing, basic, search
from pandora_router.data.table import Table
from pandora_router.demo.records import Recorded
from pandora_router.demo.specialists import STRONG
from pandora_router.estimators.estimator import unseen
from pandora_router.estimators.set_layer import SetEstimate
from pandora_router.router import Decision, Router
from pandora_router.search import Always, Committing, Never
from pandora_router.types import Mask, Matrix, Positions, Vector

WEIGHT = 0.1
"""Reward per processor second: ten seconds of computing are worth one right answer."""
SMALL_WAY = "open book"
"""The best way of asking the small model, used for "always small"."""
ALWAYS_STRONG, ALWAYS_SMALL = "always strong", "always small"
PAPER = "the paper's router"


@dataclass(frozen=True)
class Way:
    """One way to route on the held-out questions: means per question, and how the router compares.

    `seconds` are processor seconds of answers, `look_seconds` those of looks. `more_right`, `more_seconds`
    and `behind` are how much more the router has of right answers, of all seconds and of net reward;
    `more_right_error`, `more_seconds_error` and `error` are the standard errors of these paired differences,
    `right_error` and `net_error` those of the means.
    """

    name: str
    right: float
    right_error: float
    seconds: float
    looks: float
    look_seconds: float
    net: float
    net_error: float
    behind: float
    error: float
    more_right: float
    more_right_error: float
    more_seconds: float
    more_seconds_error: float

    @property
    def all_seconds(self) -> float:
        """Processor seconds of answers and looks together."""
        return self.seconds + self.look_seconds


@dataclass(frozen=True, eq=False)
class Study:
    """A fitted router, the ways to route compared, and how well f and g predict (mean squared errors).

    `routed` is what the router did on every held-out question, `unlooked` whom it would have chosen without
    looks, `nets` what each way nets on every one of them, `answers` how many answers of each specialist are
    in the record.
    """

    router: Router
    ways: tuple[Way, ...]
    errors: dict[str, float]
    questions: dict[str, int]
    routed: Routed
    unlooked: Positions
    nets: dict[str, Vector]
    held_out: Table
    weight: float
    answers: dict[str, int]

    def way(self, name: str) -> Way:
        """The way to route with this name."""
        return next(way for way in self.ways if way.name == name)

    def beats(self) -> dict[str, bool]:
        """Whether the router earns more than each way, the oracle apart, by more than one standard error."""
        others = [way for way in self.ways if way.name not in (ROUTER, ORACLE)]
        return {way.name: way.behind > way.error for way in others}


def study(
    recorded: Recorded, weight: float = WEIGHT, progress: Callable[[str, float], None] | None = None
) -> Study:
    """Fit on train and calibration, compare on test; calibrated and compared where everybody answered."""
    usable = _usable(recorded.table)
    table = recorded.table.rows(usable).with_fee_weight(weight)
    learn = table.split == "train"
    train = table.rows(learn)
    looks = weight * np.nanmean(recorded.looks[usable][learn], axis=0)
    router = Router.fit(
        table,
        inspection_cost=Costs(looks, refund=looks),  # who was looked at goes on with what it began
        progress=progress,
        settings={"reward_per_processor_second": weight},
        remember_test=False,  # the study measures on those questions
    )
    held_out = table.in_split("test")
    calibration, test = _readings(router, table.in_split("calibration")), _readings(router, held_out)
    known = table.rows(table.split != "test")
    routed = _routed(router, held_out, calibration, test, Standing.of(known.reward, known.fee))
    nets = {name: np.asarray(decided.reward(test) - decided.spent) for name, decided in routed.items()}
    there = (~recorded.table.missing).sum(axis=0).tolist()
    return Study(
        router,
        tuple(_way(name, routed, nets, test, weight) for name in routed),
        _errors(test, train),
        {"train": len(train), "calibration": len(calibration), "test": len(test)},
        routed[ROUTER],
        routed[NEVER].choice,
        nets,
        held_out,
        weight,
        dict(zip(table.specialists, there, strict=True)),
    )


def _usable(table: Table) -> Mask:
    """All training questions, and of the others those that everybody answered."""
    return np.asarray((table.split == "train") | ~table.missing.any(axis=1))


def in_dollars(recorded: Recorded, weight: float, price: float) -> Table:
    """The recorded answers as a routing table whose fees are dollars, for `pandora fit --data`.

    `weight` is the reward that one processor second costs, `price` what a processor hour costs in dollars.
    Contexts are left out: who routes a new prompt from the command line has none.
    """
    table = recorded.table.rows(_usable(recorded.table))
    return replace(table, fee=table.fee * price / 3600.0, fee_weight=weight * 3600.0 / price, contexts=None)


def _routed(
    router: Router, held_out: Table, calibration: Readings, test: Readings, standing: Standing
) -> dict[str, Routed]:
    """What every way to route does on the held-out questions, the router first, the oracle last.

    The router, and the same router that never or always looks, decide as they do for a user
    (`Router.route_batch`).
    """
    usual = dict(basic(router.signal, Never(), test, router.costs, standing))
    oracle = usual.pop(ORACLE)
    for name, one in (
        (ROUTER, router),
        (NEVER, router.with_policy(Never())),
        (ALWAYS, router.with_policy(Always())),
    ):
        usual[name] = _done(one.route_batch(held_out.prompts, _offered(held_out)), router.specialists)
    gaussian = GaussianJoint().fit(calibration)
    always = {
        name: Routed.unseen(np.full(len(test), router.specialists.index(specialist)))
        for name, specialist in ((ALWAYS_STRONG, STRONG), (ALWAYS_SMALL, SMALL_WAY))
    }
    paper = {PAPER: search(Committing(), gaussian, test, router.costs)}
    return {ROUTER: usual.pop(ROUTER), **always, **usual, **paper, ORACLE: oracle}


def _offered(part: Table) -> list[dict[str, str]]:
    """What can be seen of each specialist, by name, question by question."""
    assert part.contexts is not None
    return [
        {name: str(text) for name, text in zip(part.specialists, row, strict=True) if text is not None}
        for row in part.contexts
    ]


def _done(decisions: Sequence[Decision], specialists: Sequence[str]) -> Routed:
    """What decisions chose, spent (net of refunds) and opened."""
    return Routed(
        np.array([specialists.index(one.specialist) for one in decisions], dtype=np.intp),
        np.array([one.trace.spent for one in decisions]),
        np.array([float(len(one.inspected)) for one in decisions]),
    )


def _readings(router: Router, part: Table) -> Readings:
    """f, g, reward and weighted fee of the questions of one split, all of which everybody answered."""
    f, g = unseen(router.cheap, part.prompts), _own(router, part)
    return Readings(f, g, part.reward, part.fee_weight * part.fee)


def _own(router: Router, part: Table) -> Matrix:
    """Costly estimates (N, M), each read off what its own specialist shows alone, as the paper has it."""
    costly = router.costly.first if isinstance(router.costly, SetEstimate) else router.predictor
    assert costly is not None
    return costly.predict(part.prompts, part.contexts)


def _way(
    name: str, routed: Mapping[str, Routed], nets: Mapping[str, Vector], test: Readings, weight: float
) -> Way:
    mine, router, rows = routed[name], routed[ROUTER], np.arange(len(test))

    def right(decided: Routed) -> Vector:
        return np.asarray(test.score[rows, decided.choice])

    def seconds(decided: Routed) -> Vector:
        return np.asarray((test.fee[rows, decided.choice] + decided.spent) / weight)

    net, net_error = _mean(nets[name])
    right_mean, right_error = _mean(right(mine))
    behind, error = _mean(nets[ROUTER] - nets[name])
    more_right, more_right_error = _mean(right(router) - right(mine))
    more_seconds, more_seconds_error = _mean(seconds(router) - seconds(mine))
    return Way(
        name,
        right=right_mean,
        right_error=right_error,
        seconds=float(test.fee[rows, mine.choice].mean() / weight),
        looks=float(mine.inspections.mean()),
        look_seconds=float(mine.spent.mean() / weight),
        net=net,
        net_error=net_error,
        behind=behind,
        error=error,
        more_right=more_right,
        more_right_error=more_right_error,
        more_seconds=more_seconds,
        more_seconds_error=more_seconds_error,
    )


def _mean(values: Vector) -> tuple[float, float]:
    """A mean and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def _errors(test: Readings, train: Table) -> dict[str, float]:
    usual = np.nanmean(train.reward, axis=0)
    guesses = {
        "each specialist's mean": np.broadcast_to(usual, test.cheap.shape),
        "f": test.cheap,
        "g": test.costly,
    }
    return {name: float(((guess - test.reward) ** 2).mean()) for name, guess in guesses.items()}


PRICE = 0.05
"""Dollars per processor hour: about what one core of a rented machine costs."""
SHOWN = (ROUTER, ALWAYS_STRONG, ALWAYS_SMALL, NEVER, ALWAYS, ORACLE)
COLUMNS = ("way to route", "right (s.e.)", "seconds", "$ / 1,000", "looks", "net (s.e.)")
LEGEND = (
    (ROUTER, "decides question by question which looks to buy and who answers"),
    (ALWAYS_STRONG, "every question to the large model"),
    (ALWAYS_SMALL, f"every question to the small model, asked in its best way ({SMALL_WAY})"),
    (NEVER, "the router without looks: cheap estimates alone"),
    (ALWAYS, "a look at everybody before every answer"),
    (ORACLE, "knows every answer beforehand: the limit"),
    ("look", "the passage found or the first tokens, seen before an answer is bought"),
    ("net", "part of right answers minus the weighted seconds of answers and looks"),
)


def dollars(seconds: float, price: float = PRICE) -> float:
    """Dollars per 1,000 questions of so many processor seconds each, at `price` dollars per hour."""
    return 1000.0 * seconds * price / 3600.0


def sentences(result: Study, price: float = PRICE) -> tuple[str, ...]:
    """The result in two or three sentences, the saving first."""
    mine, strong, small = (result.way(name) for name in (ROUTER, ALWAYS_STRONG, ALWAYS_SMALL))
    part = mine.all_seconds / strong.all_seconds
    points, error = 100.0 * strong.more_right, 100.0 * strong.more_right_error
    return (
        f"The router is right on {mine.right:.1%} of {result.questions['test']:,} held-out questions for "
        f"{_bill(mine, price)}; always the strong model: {strong.right:.1%} for {_bill(strong, price)}.",
        f"That is {points:+.1f} points (s.e. {error:.1f}) at {part:.0%} of the cost. "
        f"Always the small model: {small.right:.1%} for {_bill(small, price)}.",
    )


def _bill(way: Way, price: float) -> str:
    return f"{way.all_seconds:.2f} s each (${dollars(way.all_seconds, price):.3f} per 1,000)"


def rows(result: Study, names: Sequence[str] = SHOWN, price: float = PRICE) -> list[list[str]]:
    """The table of `COLUMNS`, a row per way to route."""
    return [_row(result.way(name), price) for name in names]


def _row(way: Way, price: float) -> list[str]:
    money = dollars(way.all_seconds, price)
    right, net = f"{way.right:.3f} ({way.right_error:.3f})", f"{way.net:.3f} ({way.net_error:.3f})"
    return [way.name, right, f"{way.all_seconds:.2f}", f"{money:.3f}", f"{way.looks:.2f}", net]


def recorded(result: Study) -> str:
    """What was recorded and how it was used, with counts."""
    return (
        f"Measured on recorded answers ({result.answers[STRONG]:,} of them by the strong model): learnt from "
        f"{result.questions['train']:,} questions, calibrated on {result.questions['calibration']:,}, "
        f"held out {result.questions['test']:,}. One second costs {result.weight:g} of a right answer."
    )
