r"""A router that also knows rated requests, of which each has the score of one specialist alone.

Such rows harm nearest neighbours as they are: a specialist is asked where it is good, so that the mean over
the neighbours that have its score is too high everywhere. Rows are therefore completed first. With f the
estimates of the router for the prompt, r the rewards that are known (usually one), O their specialists and S
the covariance of residuals reward - f between specialists, measured on the complete prompts that the router
knows, each estimated without itself,

    completed = f + S[:, O] (S[O, O])^-1 (r - f[O]),

the best linear estimate of the missing rewards given the known ones. The neighbours then remember completed
rows like any others; what was scored stays as it was scored. The refitted router decides on the mean of three
estimates: the neighbours of the fit, the neighbours over completed rows, and a linear model with shared parts
(`estimators.pooled`), which reads rows with missing rewards as they are.

**Complaints.** People rate bad answers more often than good ones. `complaints` shifts the expected scores of
the rated answers by one offset o in log-odds, chosen so that their mean is the mean score of the log, and
learns only from what differs from the shifted scores. A real change of all specialists at once cannot be told
from such a bias by ratings alone. A fair sample can: prompts that were scored whoever would have rated them
(`pandora learn label`). Where there is one, its own offset is the change, and only the rest is bias.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit

from pandora_router.data import Table
from pandora_router.errors import UsageError
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.pooled import Blended, Pooled
from pandora_router.router import Router
from pandora_router.types import Mask, Matrix, Vector

FEWEST = 30
"""Complete known prompts below which residuals say nothing about each other."""
MOST = 5000
"""Complete known prompts on which residuals are measured."""
EDGE = 0.01
"""Expected scores are kept this far from 0 and 1 before they are turned into log-odds."""


@dataclass(frozen=True)
class Learnt:
    """A refitted router, the number of requests and ratings that it learnt from, and the complaint offset."""

    router: Router
    requests: int
    ratings: int
    offset: float


def refit(router: Router, traffic: Table, *, complaints: bool = False, fair: Table | None = None) -> Learnt:
    """The router with the requests of `traffic` among its known prompts; nothing else of it changes.

    traffic: scores and fees of rated answers, NaN elsewhere; specialists that the router does not know are
    ignored. fair: prompts that were scored whoever would have rated them (`pandora learn label`), learnt from
    as well. Its record names the parent. Raises `UsageError` if the cheap estimate of the router is not made
    of neighbours, if too few complete prompts are known, or if no rating is of a known specialist.
    """
    cheap = router.cheap.before if isinstance(router.cheap, Blended) else router.cheap
    if not isinstance(cheap, Neighbours):
        raise strange(cheap)
    prompts, score, fee, sampled = _joined(router.specialists, traffic, fair)
    expected = cheap.predict_unseen(prompts)
    right = expected + router.deducted
    level, offset = 0.0, 0.0
    if complaints:
        fairly = sampled[:, None] & np.isfinite(score)
        level = complaint_offset(right[fairly], score[fairly]) if fairly.sum() >= FEWEST else 0.0
        rated = ~sampled[:, None] & np.isfinite(score)
        offset = complaint_offset(right[rated], score[rated]) - level if rated.any() else 0.0
    biased = np.where(sampled[:, None], 0.0, shifted(right, level + offset) - shifted(right, level))
    news = score - router.fee_weight * np.where(np.isnan(score), np.nan, fee) - expected - biased
    covariance = residual_covariance(cheap)
    completed = expected + spread(news, covariance)
    completed = np.where(np.isnan(news) | (biased != 0.0), completed, expected + news)  # kept as it was seen
    name = hashlib.sha256(router.id.encode() + completed.tobytes()).hexdigest()[:16]
    ratings = int(np.isfinite(score[~sampled]).sum())
    note = {"parent": router.id, "requests": int((~sampled).sum()), "ratings": ratings, "offset": offset}
    note |= {"labels": int(np.isfinite(score[sampled]).sum()), "drift": level}
    record = replace(router.record, learnt=note)
    units = np.concatenate([cheap.units(), cheap.units(cheap.embedder.embed(prompts))])
    linear = Pooled.fit(units, np.concatenate([cheap.reward, expected + news]), noise_parts(covariance))
    blended = Blended(cheap, cheap.remember(prompts, completed), linear)
    made = replace(router, cheap=blended, id=name, record=record)
    return Learnt(made, int((~sampled).sum()), ratings, offset)


def _joined(
    specialists: tuple[str, ...], traffic: Table, fair: Table | None
) -> tuple[list[str], Matrix, Matrix, Mask]:
    """Prompts with a score of a known specialist, their scores and fees, and which are of the fair sample."""
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
    return [prompts[i] for i in np.flatnonzero(scored)], score[scored], fee[scored], sampled[scored]


def strange(cheap: object) -> UsageError:
    """Why a router with this cheap estimate cannot learn from a log."""
    return UsageError(
        "learning from a log",
        expected="a router whose cheap estimate is made of neighbours",
        came=type(cheap).__name__,
        do="Leave fit.cheap out and fit again.",
    )


def primed(cheap: Blended | Neighbours) -> Blended:
    """The estimate with a linear model: a refitted one as it is, neighbours with one of what they know.

    `learn.exploration` needs the linear model before the first refit. Raises `UsageError` as `refit` does.
    """
    if isinstance(cheap, Blended):
        return cheap
    noise = noise_parts(residual_covariance(cheap))
    return Blended(cheap, cheap, Pooled.fit(cheap.units(), cheap.reward, noise))


def aligned(specialists: tuple[str, ...], traffic: Table) -> tuple[Matrix, Matrix]:
    """Scores and fees (N, M) of `traffic` in the order of `specialists`, NaN where there are none."""
    score = np.full((len(traffic), len(specialists)), np.nan)
    fee = np.full(score.shape, np.nan)
    for column, name in enumerate(specialists):
        if name in traffic.specialists:
            there = traffic.specialists.index(name)
            score[:, column], fee[:, column] = traffic.score[:, there], traffic.fee[:, there]
    return score, fee


def residual_covariance(cheap: Neighbours) -> Matrix:
    """The covariance (M, M) of rewards around left-out estimates, on known prompts with every reward.

    Of more than `MOST` such prompts a sample is taken.
    """
    whole = np.flatnonzero(np.isfinite(cheap.reward).all(axis=1))
    rows = np.sort(np.random.default_rng(0).permutation(whole)[:MOST])
    complete = cheap.reward[rows] - cheap.leave_one_out_each([cheap.k], rows)[0]
    if len(complete) < FEWEST:
        raise UsageError(
            "learning from a log",
            expected=f"{FEWEST} or more known prompts with a score of every specialist",
            came=f"{len(complete):,}",
            do="Collect answers of all specialists to some prompts, and fit on them first.",
        )
    return np.asarray(np.cov(complete.T).reshape(len(cheap.specialists), -1))


def noise_parts(covariance: Matrix) -> tuple[float, float]:
    """The shared and the own part (sc, ss) of the residuals of one prompt, from their covariance (M, M)."""
    count = len(covariance)
    own = float(np.trace(covariance)) / count
    if count == 1:
        return 0.0, max(own, 1e-6)
    shared = (float(covariance.sum()) - own * count) / (count * (count - 1))
    return max(shared, 0.0), max(own - max(shared, 0.0), 1e-6)


def spread(news: Matrix, covariance: Matrix) -> Matrix:
    """What the known cells of each row of `news` (N, M), NaN elsewhere, say about all cells of the row.

    >>> spread(np.array([[0.2, np.nan]]), np.array([[1.0, 0.5], [0.5, 1.0]])).round(6).tolist()
    [[0.2, 0.1]]
    """
    out, known = np.zeros(news.shape), np.isfinite(news)
    for pattern in np.unique(known, axis=0):
        rows, seen = (known == pattern).all(axis=1), np.flatnonzero(pattern)
        if len(seen):
            among = covariance[np.ix_(seen, seen)] + 1e-9 * np.eye(len(seen))
            out[rows] = news[np.ix_(rows, seen)] @ np.linalg.solve(among, covariance[seen])
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
