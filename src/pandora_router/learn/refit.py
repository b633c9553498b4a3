r"""A router that also knows rated requests, of which each has the score of one specialist alone.

Such rows harm nearest neighbours as they are: a specialist is asked where it is good, so that the mean over
the neighbours that have its score is too high everywhere. Rows are therefore completed first. With f the
estimates of the router for the prompt, r the rewards that are known (usually one), O their specialists and S
the covariance of residuals reward - f between specialists, measured on the complete prompts that the router
knows, each estimated without itself,

    completed = f + S[:, O] (S[O, O])^-1 (r - f[O]),

the best linear estimate of the missing rewards given the known ones. The neighbours then remember completed
rows like any others; what was scored stays as it was scored.

**Looks.** The router may have bought estimates before it decided, also of specialists that did not answer.
The news x_j of such a look is the value that it showed minus the mean of before, so that nothing counts twice
that f knows already; it says that reward - f of specialist j is b x_j on average. With V_j the variance of
b x_j, that is a noisy observation of reward - f:

    b x_j = K_j (reward_j - f_j + noise_j),   K_j = V_j / S_jj,   var noise_j = S_jj (1 - K_j) / K_j,

and rows are completed given these observations too. The slope b comes from rated answers of specialists that
were looked at, none of which the fit has seen; one standard error is taken off, so that looks which tell
nothing are left out. Who was looked at and who answered followed from f and from looks, and both are given
here, so that no weights are needed. A request that was not rated teaches nothing, whatever its looks showed.

**What decides.** The refitted router decides on the mean of three estimates: the neighbours of the fit (to
which prompts that were scored completely are added), the neighbours over completed rows, and a linear model
with shared parts (`estimators.pooled`), which reads rows with missing rewards as they are. The first gives
way to the second in proportion to the share of rated requests among the neighbours. A newcomer that joined
without any score (`estimators.extended.Unscored`) is known to the linear model alone.

**Complaints.** People rate bad answers more often than good ones. `complaints` shifts the expected scores of
the rated answers by one offset o in log-odds, chosen so that their mean is the mean score of the log, and
learns only from what differs from the shifted scores. A real change of all specialists at once cannot be told
from such a bias by ratings alone. A fair sample can: prompts that were scored whoever would have rated them
(`pandora learn label`). Where there is one, its own offset is the change, and only the rest is bias.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit

from pandora_router.data import Table
from pandora_router.errors import UsageError
from pandora_router.estimators.extended import Unscored, neighbours_of, strange
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.pooled import FEWEST, Blended, Pooled, noise_parts, residual_covariance
from pandora_router.router import Router
from pandora_router.types import Mask, Matrix, Vector

EDGE = 0.01
"""Expected scores are kept this far from 0 and 1 before they are turned into log-odds."""
MOST_EXPLAINED = 0.95
"""Largest share K of the variance of a reward around f that a look is believed to explain."""
COMPARED = 500
"""Logged prompts, at most, for which the choices of the two routers are compared."""


@dataclass(frozen=True)
class Learnt:
    """A refitted router, the number of requests and ratings that it learnt from, and the complaint offset.

    disputed: share of the logged prompts for which it chooses another specialist than its parent, before
    estimates are bought; a trial compares the two on these alone. specialists: of each one with ratings, how
    many, their mean score, and the mean score that its parent expected there.
    """

    router: Router
    requests: int
    ratings: int
    offset: float
    disputed: float
    specialists: Mapping[str, tuple[int, float, float]]


def refit(
    router: Router,
    traffic: Table,
    *,
    complaints: bool = False,
    fair: Table | None = None,
    looks: Matrix | None = None,
) -> Learnt:
    """The router with the requests of `traffic` among its known prompts; nothing else of it changes.

    traffic: scores and fees of rated answers, NaN elsewhere; specialists that the router does not know are
    ignored. fair: prompts that were scored whoever would have rated them (`pandora learn label`), learnt from
    as well. looks (rows of `traffic`, specialists of the router): the value that an estimate bought before
    the decision showed minus the mean of before, NaN where nothing was bought. Its record names the parent.
    Raises `UsageError` if the cheap estimate of the router is not made of neighbours, if too few complete
    prompts are known, or if no rating is of a known specialist.
    """
    cheap = neighbours_of(router.cheap)
    if cheap is None:
        raise strange(router.cheap)
    prompts, score, fee, sampled, scored = _joined(router.specialists, traffic, fair)
    shown = np.full(scored.shape + score.shape[1:], np.nan)
    if looks is not None:
        shown[: len(looks)] = looks
    law = Pooled.of(cheap)
    expected = cheap.predict_unseen(prompts)
    units = cheap.units(cheap.embedder.embed(prompts))
    newcomers: tuple[str, ...] = ()
    if isinstance(router.cheap, Unscored):
        newcomers = router.cheap.newcomers
        for level in router.cheap.linear.level[-len(newcomers) :]:
            law = law.joined(float(level))
        expected = np.hstack([expected, law.predict(units)[:, -len(newcomers) :]])
    right = expected + router.deducted
    level, offset = 0.0, 0.0
    if complaints:
        fairly = sampled[:, None] & np.isfinite(score)
        level = complaint_offset(right[fairly], score[fairly]) if fairly.sum() >= FEWEST else 0.0
        rated = ~sampled[:, None] & np.isfinite(score)
        offset = complaint_offset(right[rated], score[rated]) - level if rated.any() else 0.0
    biased = np.where(sampled[:, None], 0.0, shifted(right, level + offset) - shifted(right, level))
    news = score - router.fee_weight * np.where(np.isnan(score), np.nan, fee) - expected - biased
    name = hashlib.sha256(router.id.encode() + news.tobytes()).hexdigest()[:16]
    ratings = int(np.isfinite(score[~sampled]).sum())
    note = {"parent": router.id, "requests": int((~sampled).sum()), "ratings": ratings, "offset": offset}
    note |= {"labels": int(np.isfinite(score[sampled]).sum()), "drift": level}
    old = len(cheap.specialists)
    told, slope = told_by_looks(shown[scored], news)
    counted = (np.isfinite(told) & np.isnan(news)).any(axis=1)
    note["looks"] = {"requests": int(counted.sum()), "slope": slope}
    blended = _blended(cheap, prompts, (expected + news)[:, :old], biased[:, :old] != 0.0, told[:, :old])
    learnt: Blended | Unscored = blended
    if newcomers:
        for at, column in np.argwhere(np.isfinite(news)):
            law = law.after(units[at], int(column), float((expected + news)[at, column]))
        learnt = Unscored(blended, newcomers, law)
    made = replace(router, cheap=learnt, id=name)
    some = np.unique(np.linspace(0, len(prompts) - 1, COMPARED).astype(np.intp))
    apart = _disputed(router, made, [prompts[i] for i in some.tolist()])
    means = _means(router.specialists, score, right)
    note |= {"disputed": apart, "specialists": {one: list(said) for one, said in means.items()}}
    made = replace(made, record=replace(router.record, learnt=note))
    return Learnt(made, int((~sampled).sum()), ratings, offset, apart, means)


def _disputed(parent: Router, made: Router, prompts: Sequence[str]) -> float:
    """The share of these prompts for which the two choose different specialists, before buying anything."""
    first, second = (
        one.signal.batch(one.cheap.predict(prompts), one.costs).mean.argmax(axis=1) for one in (parent, made)
    )
    return float((first != second).mean())


def _means(
    specialists: tuple[str, ...], score: Matrix, expected: Matrix
) -> dict[str, tuple[int, float, float]]:
    """For each specialist with a score: how many it has, their mean, and the mean expected there."""
    found = {}
    for column, name in enumerate(specialists):
        rated = np.isfinite(score[:, column])
        if rated.any():
            mean, before = score[rated, column].mean(), expected[rated, column].mean()
            found[name] = int(rated.sum()), float(mean), float(before)
    return found


def _blended(cheap: Neighbours, prompts: Sequence[str], reward: Matrix, moved: Mask, told: Matrix) -> Blended:
    """The average of three estimates after these rewards (N, M), NaN where missing.

    moved: cells whose reward is not as it was seen. told: what looks say of reward - f, NaN where nothing.
    Prompts of which all rewards were seen are known from then on like those of the fit. Prompts without a
    reward teach nothing.
    """
    seen = np.isfinite(reward)
    whole = np.flatnonzero(seen.all(axis=1) & ~moved.any(axis=1))
    rows = np.setdiff1d(np.flatnonzero(seen.any(axis=1)), whole)
    before = cheap.remember([prompts[i] for i in whole.tolist()], reward[whole])
    some = [prompts[i] for i in rows.tolist()]
    covariance, after, units = residual_covariance(before), before, before.units()
    if some:
        expected = before.predict_unseen(some)
        completed = expected + spread(reward[rows] - expected, covariance, told[rows])
        kept = seen[rows] & ~moved[rows]  # stays as it was seen
        after = before.remember(some, np.where(kept, reward[rows], completed))
        units = np.concatenate([units, before.units(before.embedder.embed(some))])
    linear = Pooled.fit(units, np.concatenate([before.reward, reward[rows]]), noise_parts(covariance))
    return Blended(before, after, linear, len(whole))


def _joined(
    specialists: tuple[str, ...], traffic: Table, fair: Table | None
) -> tuple[list[str], Matrix, Matrix, Mask, Mask]:
    """Prompts with a score of a known specialist, their scores and fees, and which are of the fair sample.

    The last is which prompts of both tables these are.
    """
    tables = [traffic] if fair is None else [traffic, fair]
    cells = [aligned(specialists, table) for table in tables]
    score, fee = (np.concatenate(parts) for parts in zip(*cells, strict=True))
    prompts = [prompt for table in tables for prompt in table.prompts]
    sampled = np.arange(len(score)) >= len(traffic)
    scored = np.isfinite(score).any(axis=1)
    if not scored.any():
        raise UsageError(
            "learning from a log",
            expected=f"a rating of one of {', '.join(specialists)}",
            came=f"{len(prompts):,} requests, none of which has one",
            do="Send feedback for answers (POST /v1/feedback), or use the log of this router.",
        )
    return [prompts[i] for i in np.flatnonzero(scored)], score[scored], fee[scored], sampled[scored], scored


def aligned(specialists: tuple[str, ...], traffic: Table) -> tuple[Matrix, Matrix]:
    """Scores and fees (N, M) of `traffic` in the order of `specialists`, NaN where there are none."""
    score = np.full((len(traffic), len(specialists)), np.nan)
    fee = np.full(score.shape, np.nan)
    for column, name in enumerate(specialists):
        if name in traffic.specialists:
            there = traffic.specialists.index(name)
            score[:, column], fee[:, column] = traffic.score[:, there], traffic.fee[:, there]
    return score, fee


def told_by_looks(shown: Matrix, news: Matrix) -> tuple[Matrix, float]:
    """What looks say of reward - f (N, M), NaN where nothing, and the slope b by which their news count.

    shown: news of looks. news: reward - f, both NaN where unknown. b is the regression of the second on the
    first, less one standard error; 0, and nothing is told, where that is negative or too few cells have both.
    """
    both = np.isfinite(shown) & np.isfinite(news)
    x, y = shown[both], news[both]
    square, slope = float(x @ x), 0.0
    if len(x) >= FEWEST and square > 0.0:
        best = float(x @ y) / square
        slope = max(best - float(np.sqrt(np.mean((y - best * x) ** 2) / square)), 0.0)
    return (slope * shown if slope else np.full(shown.shape, np.nan)), slope


def spread(news: Matrix, covariance: Matrix, told: Matrix | None = None) -> Matrix:
    """What the known cells of each row of `news` (N, M), NaN elsewhere, say about all cells of the row.

    told (N, M): what looks say of single cells, NaN where nothing; ignored where the cell itself is known.
    Its mean square in a column is the variance V of the equation above.

    >>> spread(np.array([[0.2, np.nan]]), np.array([[1.0, 0.5], [0.5, 1.0]])).round(6).tolist()
    [[0.2, 0.1]]
    >>> alone = spread(np.full((1, 2), np.nan), np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([[np.nan, 0.4]]))
    >>> alone.round(6).tolist()
    [[0.2, 0.4]]
    """
    known, own = np.isfinite(news), np.maximum(np.diag(covariance), 1e-9)
    looked = np.zeros_like(known) if told is None else np.isfinite(told) & ~known
    value, noise = np.where(known, news, 0.0), np.full(len(own), 1e-9)
    if told is not None and looked.any():
        squares, counts = np.nansum(told**2, axis=0), np.isfinite(told).sum(axis=0)
        share = np.clip(squares / np.maximum(counts, 1) / own, 1e-6, MOST_EXPLAINED)
        value[looked] = (told / share)[looked]
        noise = own * (1.0 - share) / share
    out, kind = np.zeros(news.shape), known + 2 * looked
    for pattern in np.unique(kind, axis=0):
        rows, seen = (kind == pattern).all(axis=1), np.flatnonzero(pattern)
        if len(seen):
            error = np.where(pattern[seen] == 2, noise[seen], 1e-9)
            among = covariance[np.ix_(seen, seen)] + np.diag(error)
            out[rows] = value[np.ix_(rows, seen)] @ np.linalg.solve(among, covariance[seen])
    return out


def complaint_offset(expected: Matrix | Vector, score: Matrix | Vector) -> float:
    """The offset in log-odds at which the expected scores of rated answers have the mean of their scores."""
    rated: Mask = np.isfinite(score)
    chance, mean = _odds(expected[rated]), float(score[rated].mean())
    if not 0.0 < mean < 1.0:
        return -5.0 if mean <= 0.0 else 5.0
    return float(brentq(lambda o: float(expit(chance + o).mean()) - mean, -20.0, 20.0))


def shifted(expected: Matrix, offset: float) -> Matrix:
    """Expected scores with `offset` added to their log-odds; unchanged at offset 0."""
    return expected if offset == 0.0 else np.asarray(expit(_odds(expected) + offset))


def _odds(chance: Matrix | Vector) -> Vector:
    return np.asarray(logit(np.clip(chance, EDGE, 1.0 - EDGE)))
