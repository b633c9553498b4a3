"""Bad input gets a `UsageError` that says what was expected, what came and what to do; nothing is clipped."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pandora_router.boxes import Costs, Draws, Independent, Joint, Ladder, LowRank
from pandora_router.errors import PandoraError, UpstreamError, UsageError
from pandora_router.index import ladder_offsets, unit_loss_inverse
from pandora_router.search import (
    Batch,
    Committing,
    Held,
    Inspect,
    KnowledgeGradient,
    Obligatory,
    Optimal,
    Rollout,
    State,
    baselines,
    committing_payoffs,
    drive,
    reveal,
    run,
)

NAN, INF = float("nan"), float("inf")
M2, S2, P2 = [0.5, 0.4], [0.2, 0.3], [[0.04, 0.0], [0.0, 0.09]]
TWO = Independent(M2, S2, 0.01)
LADDER = Ladder(M2, [[0.1, 0.2]] * 2, [[0.01, 0.03]] * 2)
BATCH = Batch([M2, M2], [S2, S2], 0.01)
RNG = np.random.default_rng(0)
LAWS = {"quantiles": [[-1.0, 1.0]], "rank": [[0, 0], [0, 0]]}

Case = tuple[str, Callable[[], object], tuple[str, ...]]
CASES: list[Case] = [
    # numbers that are none
    ("mean is NaN", lambda: Independent([0.5, NAN], S2, 0.01), ("mean", "finite", "nan at position 1")),
    ("mean is infinite", lambda: Independent([INF, 0.5], S2, 0.01), ("mean", "finite", "inf at position 0")),
    ("std is NaN", lambda: Independent(M2, [0.1, NAN], 0.01), ("std", "finite", "position 1")),
    ("cost is NaN", lambda: Independent(M2, S2, NAN), ("inspection_cost", "finite", "nan")),
    ("cost is infinite", lambda: Independent(M2, S2, [0.1, INF]), ("inspection_cost", "finite", "inf")),
    ("covariance holds NaN", lambda: Joint(M2, [[1.0, NAN], [NAN, 1.0]], 0.1), ("covariance", "(0, 1)")),
    ("draws hold NaN", lambda: Draws([[0.1, NAN]], 0.1), ("samples", "finite", "(0, 1)")),
    ("factor holds NaN", lambda: LowRank(M2, [[NAN], [1.0]], S2, 0.1), ("factor", "finite")),
    ("words for numbers", lambda: Independent(["good", "bad"], S2, 0.1), ("mean", "numbers", "good")),
    ("rows of two lengths", lambda: Draws([[0.1], [0.1, 0.2]], 0.1), ("samples", "numbers", "one length")),
    ("words for costs", lambda: Independent(M2, S2, "cheap"), ("inspection_cost", "numbers", "cheap")),
    ("a ladder step is NaN", lambda: Ladder([0.5], [[NAN, 0.1]], [[0.1, 0.1]]), ("stds", "finite")),
    # numbers below zero
    ("negative std", lambda: Independent(M2, [0.1, -0.2], 0.01), ("std", "from 0 upward", "-0.2 for box 1")),
    ("negative cost", lambda: Independent(M2, S2, -0.01), ("inspection_cost", "from 0 upward", "-0.01")),
    ("negative cost of a box", lambda: Independent(M2, S2, [0.1, -1e-9]), ("-1e-09 for box 1", "sign")),
    ("negative noise", lambda: LowRank(M2, [[0.1], [0.1]], [0.1, -0.1], 0.1), ("diagonal", "-0.1")),
    ("negative shared cost", lambda: Costs([0.1], [-0.1], [0]), ("shared inspection cost", "-0.1")),
    ("negative ladder cost", lambda: Ladder([0.5], [[0.1]], [[-0.1]]), ("cost from 0 upward", "-0.1")),
    ("a ladder step of zero", lambda: Ladder([0.5], [[0.0]], [[0.1]]), ("positive", "0.0")),
    ("negative ladder step", lambda: ladder_offsets([0.1, -0.1], [0.1, 0.1]), ("positive", "-0.1")),
    ("negative ratio", lambda: unit_loss_inverse([0.1, -0.5]), ("from 0 upward", "-0.5")),
    ("ratio is NaN", lambda: unit_loss_inverse(NAN), ("from 0 upward", "NaN")),
    ("negative std in a batch", lambda: Batch([M2], [[0.1, -0.3]], 0.1), ("below 0", "-0.3")),
    # shapes
    ("mean is a number", lambda: Independent(0.5, [0.1], 0.01), ("mean", "1 dimension", "shape ()")),
    ("mean is a table", lambda: Independent([[0.5]], [0.1], 0.01), ("mean", "1 dimension", "(1, 1)")),
    ("std too short", lambda: Independent(M2, [0.1], 0.01), ("std", "2 entries", "1")),
    ("costs too many", lambda: Independent(M2, S2, [0.1] * 3), ("inspection_cost", "2 entries", "3")),
    ("Costs too many", lambda: Independent(M2, S2, Costs([0.1] * 3)), ("inspection_cost", "2", "3")),
    ("covariance too small", lambda: Joint(M2, [[1.0]], 0.1), ("covariance", "(2, 2)", "(1, 1)")),
    ("covariance is a vector", lambda: Joint(M2, [1.0, 1.0], 0.1), ("covariance", "2 dimensions")),
    ("factor too short", lambda: LowRank(M2, [[0.1]], S2, 0.1), ("factor", "2 rows", "(1, 1)")),
    ("noise too short", lambda: LowRank(M2, [[0.1], [0.1]], [0.1], 0.1), ("diagonal", "2 entries")),
    ("draws are a vector", lambda: Draws([0.1, 0.2], 0.1), ("samples", "2 dimensions", "(2,)")),
    ("ladder tables differ", lambda: Ladder(M2, [[0.1, 0.2]] * 2, [[0.1]] * 2), ("(2, tiers)", "(2, 1)")),
    ("ladder too short", lambda: Ladder(M2, [[0.1]], [[0.1]]), ("(2, tiers)", "(1, 1)")),
    ("batch std differs", lambda: Batch([M2], [[0.1]], 0.1), ("std", "(1, 2)", "(1, 1)")),
    ("batch is one query", lambda: Batch(M2, S2, 0.1), ("mean", "2 dimensions")),
    ("batch values differ", lambda: run(Obligatory(), BATCH, [[0.1, 0.2]]), ("values", "(2, 2)", "(1, 2)")),
    ("batch values are NaN", lambda: run(Obligatory(), BATCH, [M2, [0.1, NAN]]), ("values", "finite")),
    # emptiness
    ("no boxes", lambda: Independent([], [], 0.01), ("mean", "at least one box", "empty")),
    ("no draws", lambda: Draws([[]], 0.01), ("samples", "at least one", "empty")),
    ("no boxes, jointly", lambda: Joint([], [], 0.01), ("at least one box", "empty")),
    ("no queries", lambda: Batch(np.empty((0, 2)), np.empty((0, 2)), 0.1), ("mean", "empty")),
    # covariances
    (
        "not positive semi-definite, by how much",
        lambda: Joint(M2, [[1.0, 2.0], [2.0, 1.0]], 0.1),
        ("covariance", "positive semi-definite", "smallest eigenvalue of -1 ", "adding 1 to the diagonal"),
    ),
    ("negative variance", lambda: Joint(M2, [[1.0, 0.0], [0.0, -0.5]], 0.1), ("semi-definite", "-0.5")),
    (
        "negative variance beside a large one",
        lambda: Joint(M2, [[1e4, 0.0], [0.0, -1e-6]], 0.1),
        ("semi-definite", "-1e-06", "1e+04"),
    ),
    (
        "impossible correlation beside a large box",
        lambda: Joint([0.0] * 3, [[1e4, 0.0, 0.0], [0.0, 1e-6, 2e-6], [0.0, 2e-6, 1e-6]], 0.1),
        ("semi-definite", "-1e-06"),
    ),
    (
        "asymmetric beside a large box",
        lambda: Joint([0.0] * 3, [[1e4, 0.0, 0.0], [0.0, 1e-6, 5e-7], [0.0, 2e-7, 1e-6]], 0.1),
        ("symmetric", "3e-07"),
    ),
    ("asymmetric", lambda: Joint(M2, [[1.0, 0.5], [0.2, 1.0]], 0.1), ("symmetric", "0.3", "(C + C.T) / 2")),
    (
        "correlation beyond one",
        lambda: Batch([M2], [S2], 0.1, correlation=[[1.0, 1.5], [1.5, 1.0]]),
        ("correlation", "positive semi-definite", "-0.5"),
    ),
    (
        "a covariance for a correlation",
        lambda: Batch([M2], [S2], 0.1, correlation=[[2.0, 0.0], [0.0, 2.0]]),
        ("correlation", "ones on the diagonal", "2.0", "std"),
    ),
    # residual laws
    ("quantiles unsorted", lambda: Joint(M2, P2, 0.1, [[-1.0, 1.0], [1.0, -1.0]]), ("ascending", "order")),
    ("quantiles too few", lambda: Joint(M2, P2, 0.1, [[-1.0, 1.0]]), ("2 rows", "(1, 2)")),
    ("quantiles are NaN", lambda: Joint(M2, P2, 0.1, [[-1.0, NAN]] * 2), ("quantiles", "finite")),
    (
        "batch quantiles unsorted",
        lambda: Batch([M2], [S2], 0.1, correlation=np.eye(2), quantiles=[[1.0, -1.0]], rank=[[0, 0]]),
        ("quantiles", "ascending"),
    ),
    (
        "batch quantiles a number",
        lambda: Batch([M2], [S2], 0.1, correlation=np.eye(2), quantiles=1.0, rank=[[0, 0]]),
        ("quantiles", "2 dimensions"),
    ),
    ("quantiles without rank", lambda: Batch([M2], [S2], 0.1, quantiles=[[0.0]]), ("together", "only one")),
    (
        "quantiles without correlation",
        lambda: Batch([M2, M2], [S2, S2], 0.1, **LAWS),  # type: ignore[arg-type]
        ("correlation", "missing", "Draws"),
    ),
    (
        "rank beyond the laws",
        lambda: Batch([M2], [S2], 0.1, correlation=np.eye(2), quantiles=[[0.0]], rank=[[0, 1]]),
        ("rank", "row numbers"),
    ),
    (
        "rank not whole",
        lambda: Batch([M2], [S2], 0.1, correlation=np.eye(2), quantiles=[[0.0]], rank=[[0, 0.5]]),
        ("rank", "whole", "0.5"),
    ),
    # groups
    ("group beyond the fees", lambda: Costs([0.1, 0.1], [0.2], [0, 1]), ("group", "0 to 0", "to 1")),
    ("group below -1", lambda: Costs([0.1, 0.1], [0.2], [0, -2]), ("group", "-1", "-2")),
    ("group too short", lambda: Costs([0.1, 0.1], [0.2], [0]), ("group", "2 entries", "1")),
    ("group not whole", lambda: Costs([0.1, 0.1], [0.2], [0, 0.7]), ("group", "whole", "0.7")),  # type: ignore[list-item]
    ("group is a table", lambda: Costs([0.1, 0.1], [0.2], [[0], [0]]), ("group", "1 dimension")),  # type: ignore[list-item]
    ("fees without groups", lambda: Costs([0.1], [0.2]), ("group", "1 entries", "0")),
    ("groups without fees", lambda: Costs([0.1], [], [0]), ("shared inspection cost", "empty")),
    # opening
    ("value for an open box", lambda: TWO.given(0, 0.1).given(0, 0.2), ("box 0", "already open", "sealed")),
    ("value for a lost box", lambda: TWO.without(0).given(0, 0.2), ("box 0", "inspection failed")),
    ("losing an open box", lambda: TWO.given(0, 0.1).without(0), ("box 0", "already open")),
    ("losing a ladder twice", lambda: LADDER.without(0).without(0), ("box 0", "already open")),
    ("index too high", lambda: TWO.given(2, 0.1), ("index from 0 to 1", "2", "Count boxes from 0")),
    ("index below zero", lambda: TWO.given(-1, 0.1), ("index from 0 to 1", "-1")),
    ("index not whole", lambda: TWO.given(1.0, 0.1), ("index from 0 to 1", "1.0")),  # type: ignore[arg-type]
    ("losing beyond", lambda: TWO.without(7), ("index from 0 to 1", "7")),
    ("joint index too high", lambda: Joint(M2, P2, 0.1).given(9, 0.1), ("index from 0 to 1", "9")),
    ("ladder index too high", lambda: LADDER.given(9, 0.1), ("index from 0 to 1", "9")),
    ("value is NaN", lambda: TWO.given(0, NAN), ("value of box 0", "finite", "State.lose")),
    ("value is infinite", lambda: State(TWO).observe(1, INF), ("value of box 1", "finite", "inf")),
    # searching
    ("outside is NaN", lambda: State(TWO, NAN), ("outside", "nan")),
    ("outside is +inf", lambda: State(TWO, INF), ("outside", "inf")),
    ("outside is a word", lambda: State(TWO, "none"), ("outside", "a number", "none")),  # type: ignore[arg-type]
    ("batch outside is NaN", lambda: Batch([M2], [S2], 0.1, outside=NAN), ("outside", "nan")),
    ("opener shows too few", lambda: drive(Obligatory(), State(TWO), lambda s, i: []), ("1 values", "0")),
    (
        "opener shows too many",
        lambda: drive(Obligatory(), State(TWO), lambda s, i: [0.1, 0.2]),
        ("1 values", "got 2", "None where the inspection failed"),
    ),
    (
        "opener shows another box",
        lambda: drive(Obligatory(), State(TWO), lambda s, i: {7: 0.1}),
        ("1 values", "boxes (7,)"),
    ),
    ("opener shows a number", lambda: drive(Obligatory(), State(TWO), lambda s, i: 0.1), ("1 values", "0.1")),  # type: ignore[arg-type,return-value]
    ("values of no box", lambda: drive(Obligatory(), State(TWO), {}), ("1 values", "boxes ()")),
    ("opener shows NaN", lambda: drive(Obligatory(), State(TWO), lambda s, i: [NAN]), ("finite", "lose")),
    ("reveal too few", lambda: drive(Obligatory(), State(TWO), reveal([0.1])), ("2 values", "(1,)")),
    ("reveal a table", lambda: drive(Obligatory(), State(TWO), reveal([[0.1]] * 2)), ("2 values", "(2, 1)")),
    # policies
    ("unknown option", lambda: Committing("price"), ("'backup' or 'mean'", "'price'")),  # type: ignore[arg-type]
    ("unknown option of Rollout", lambda: Rollout("median"), ("'backup' or 'mean'", "'median'")),  # type: ignore[arg-type]
    ("unknown payoffs", lambda: Committing(payoff="guess"), ("'exact' or 'monte_carlo'", "'guess'")),  # type: ignore[arg-type]
    ("no samples", lambda: Committing(samples=0), ("samples", "1 or more", "0", "100")),
    ("half a sample", lambda: Committing(samples=1.5), ("samples", "1 or more", "1.5")),  # type: ignore[arg-type]
    ("one sample of a group", lambda: KnowledgeGradient(samples=1), ("samples", "2 or more", "1")),
    ("one point", lambda: Optimal(points=1), ("points", "2 or more", "1")),
    ("unknown option of payoffs", lambda: committing_payoffs(TWO, "x"), ("'backup' or 'mean'", "'x'")),  # type: ignore[arg-type]
    ("payoffs of ladders", lambda: committing_payoffs(LADDER), ("one inspection", "Ladder", "Obligatory")),
    ("rollout of ladders", lambda: Rollout().next(State(LADDER)), ("one inspection each", "Ladder")),
    ("holding beyond", lambda: Held(2, 0.1).next(State(TWO)), ("Held", "0 to 1", "2")),
    ("holding beyond, in a batch", lambda: run(Held(-1, 0.1), BATCH, [M2, M2]), ("Held", "0 to 1", "-1")),
    ("optimum of joint boxes", lambda: Optimal().next(State(Joint(M2, P2, 0.1))), ("Independent", "2 Joint")),
    (
        "optimum of nine boxes",
        lambda: Optimal().next(State(Independent([0.5] * 9, [0.1] * 9, 0.1))),
        ("up to 8", "9 Independent", "Rollout"),
    ),
    (
        "optimum with shared costs",
        lambda: Optimal().next(State(Independent(M2, S2, Costs([0.1] * 2, [0.1], [0, 0])))),
        ("without shared costs", "2 Independent"),
    ),
    ("no budget", lambda: baselines.margin_budget(np.array([M2]), -1), ("budget", "0 or more", "-1")),
    ("no budget at random", lambda: baselines.random_budget(np.array([M2]), -1, RNG), ("budget", "-1")),
    ("top none", lambda: baselines.top(np.array([M2]), 0), ("k", "1 or more", "0")),
    ("scores are NaN", lambda: baselines.never(np.array([[NAN]])), ("scores", "finite")),
    ("scores are a vector", lambda: baselines.always(np.array(M2)), ("scores", "2 dimensions")),
]  # fmt: skip


@pytest.mark.parametrize(("act", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_bad_input_is_refused_with_advice(act: Callable[[], object], words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        act()
    error = caught.value
    text = str(error)
    for word in words:
        assert word in text, text
    assert error.expected in text
    assert error.came in text
    assert error.do
    assert text.rstrip()[-1] in ".!)?"


def test_errors_have_two_leaves() -> None:
    assert issubclass(UsageError, PandoraError)
    assert issubclass(UsageError, ValueError)
    assert issubclass(UpstreamError, PandoraError)
    assert not issubclass(UpstreamError, UsageError)


def test_nothing_is_charged_when_a_value_is_refused() -> None:
    state = State(TWO)
    with pytest.raises(UsageError):
        state.observe(0, NAN)
    assert (state.spent, state.opened) == (0.0, ())


def test_nothing_is_clipped() -> None:
    """Means, values and options far outside [0, 1] pass through to the last bit."""
    boxes = Independent([1e9, -1e9], [0.0, 1e6], [1e7, 0.0])
    assert boxes.mean.tolist() == [1e9, -1e9]
    assert boxes.given(0, -7e11).mean.tolist() == [-7e11, -1e9]
    assert State(boxes, -3.5e12).best.value == -3.5e12
    assert drive(Obligatory(), State(boxes), reveal([1e9, 5e9])).values[0] == (5e9,)
    joint = Joint([5.0, -5.0], [[1e-20, 0.0], [0.0, 1e20]], 0.0)
    assert joint.std.tolist() == [1e-10, 1e10]


def test_the_callers_arrays_are_copied_and_ours_are_locked() -> None:
    mean, p = np.array(M2), np.array(P2)
    boxes = Joint(mean, p, 0.01)
    mean[0], p[0, 0] = 9.0, 9.0
    assert boxes.mean[0] == 0.5
    assert boxes.covariance[0, 0] == 0.04
    for law in (boxes, boxes.given(0, 0.3), boxes.without(0), TWO.given(0, 0.1), LADDER.given(0, 0.1)):
        for part in (law.mean, law.sealed, law.inspection_cost):
            with pytest.raises(ValueError, match="read-only"):
                part[0] = 1.0


def test_rounding_is_not_an_error() -> None:
    """A covariance off by rounding is as good as one that is not."""
    factor = np.random.default_rng(0).normal(size=(6, 2))
    p = factor @ factor.T
    p[0, 1] *= 1.0 + 1e-13
    assert Joint(np.zeros(6), p, 0.1).sample(3, np.random.default_rng(0)).shape == (3, 6)
    near = np.array([[1.0, 0.5], [0.5, 1.0 - 1e-15]])
    assert Batch([M2], [S2], 0.1, correlation=near).state(0).boxes.std.tolist() == S2  # type: ignore[attr-defined]
    assert Joint([0.0], [[0.0]], 0.1).std.tolist() == [0.0]


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_how_far_a_covariance_may_be_off(scale: float) -> None:
    """1e-9 of each box's own scale, in symmetry and in the smallest eigenvalue; not a tenth less or more."""
    for off, fine in ((5e-10, True), (2e-9, False)):
        skew = np.array([[1.0, 0.5 + off], [0.5, 1.0]])
        below = np.array([[1.0, 1.0 + off], [1.0 + off, 1.0]])  # eigenvalues 2 + off and -off
        for matrix in (skew, below):
            wide = matrix * np.array([[1.0, scale], [scale, scale**2]])  # one box much smaller
            if fine:
                Joint([0.0, 0.0], wide, 0.1)
            else:
                with pytest.raises(UsageError, match="covariance"):
                    Joint([0.0, 0.0], wide, 0.1)


def test_numpy_integers_are_integers() -> None:
    assert TWO.given(np.int64(1), 0.3).mean[1] == 0.3
    assert drive(Held(np.int32(0), 0.0), State(TWO), reveal([0.1, 0.2])).actions[0] == Inspect((1,))  # type: ignore[arg-type]
