"""What each part of the signal model contributes: the same search with one part switched off at a time.

Cross-validated on calibration prompts at the configured inspection cost. For the model as configured and for
each part off: regret + cost per prompt,

    max_m R_m - R_chosen + what was spent,

its paired difference to the model as configured (positive: the part earns that much), the negative log
likelihood of costly estimates under N(mu, D C D) per specialist, coverage within one and two standard
deviations, and within the model's own central 90 % (from the residual law where there is one).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np

from pandora_router.boxes import Costs
from pandora_router.calibrate.choose import FEWEST
from pandora_router.calibrate.diagnostics import folds_of
from pandora_router.calibrate.means import CheapMean
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.signals import Calibrated, FittedSignal
from pandora_router.calibrate.ways import search
from pandora_router.errors import UsageError
from pandora_router.search import Policy
from pandora_router.types import Matrix, Vector

MOST = 1500  # prompts searched: each part takes as long as evaluating one more policy
SINGULAR = 1e-12
CENTRAL = 0.9
FOLDS = 5


@dataclass(frozen=True)
class Ablation:
    """One part switched off; `worth` is what it gains per prompt, None for the model as configured."""

    off: str | None
    loss: float
    worth: float | None
    standard_error: float | None
    nll: float
    coverage_1: float
    coverage_2: float
    central_90: float

    def to_dict(self) -> dict[str, str | float | None]:
        """The same as plain values."""
        return asdict(self)


def without(signal: Calibrated) -> dict[str, Calibrated]:
    """The model with each of its parts switched off in turn, by the name of the part in a config."""
    off = {
        "mean": replace(signal, mean=CheapMean()),
        "scale": replace(signal, scale="constant"),
        "correlation": replace(signal, correlation="none"),
        "slope": replace(signal, slope=False),
        "law": replace(signal, law="normal"),
        "pooled": replace(signal, pooled=False),
    }
    return {part: model for part, model in off.items() if model != signal}


def ablate(
    signal: Calibrated,
    policy: Policy,
    readings: Readings,
    costs: Costs,
    train: Readings | None = None,
) -> tuple[Ablation, ...]:
    """The model as configured, then each part off. Incomplete prompts are used for fitting only.

    `train` has left-out f and out-of-fold g of training prompts, which are used for fitting only. Raises
    `UsageError` with too few complete prompts.
    """
    whole = np.flatnonzero(readings.complete)
    if len(whole) < FEWEST:
        raise UsageError(
            "measuring the parts of a signal model",
            expected=f"{FEWEST} or more prompts with every costly estimate and every reward",
            came=f"{len(whole)} of {len(readings)}",
            do="Fill in missing cells.",
        )
    judged = np.zeros(len(readings), dtype=np.bool_)
    judged[np.random.default_rng(0).permutation(whole)[:MOST]] = True
    models: dict[str | None, Calibrated] = {None: signal}
    off = without(signal)
    if train is None:
        off.pop("pooled", None)  # there is nothing to pool
    models.update(off.items())
    measured: dict[str | None, list[Matrix]] = {part: [] for part in models}
    for held in folds_of(len(readings), FOLDS, seed=0):
        rest, test = readings.rows(~held), readings.rows(held & judged)
        if len(test):
            for part, model in models.items():
                fitted = model.fit(rest, train)
                measured[part].append(_measured(fitted, policy, test, costs))
    rows = {part: np.hstack(parts) for part, parts in measured.items()}
    return tuple(_ablation(part, rows[part], rows[None]) for part in models)


def _ablation(part: str | None, row: Matrix, base: Matrix) -> Ablation:
    gap = row[0] - base[0]
    loss, nll, inside_one, inside_two, central = (float(values.mean()) for values in row)
    if part is None:
        return Ablation(None, loss, None, None, nll, inside_one, inside_two, central)
    error = float(gap.std(ddof=1) / np.sqrt(len(gap)))
    return Ablation(part, loss, float(gap.mean()), error, nll, inside_one, inside_two, central)


def _measured(fitted: FittedSignal, policy: Policy, test: Readings, costs: Costs) -> Matrix:
    """Loss, NLL and the three coverages of each prompt (5, prompts)."""
    loss = search(policy, fitted, test, costs).total(test)
    mean, std = fitted.expected(test.cheap), fitted.spread(test.cheap)
    away = (test.costly - mean) / std
    low, high = _interval(fitted, mean)
    within = [(np.abs(away) <= k).mean(axis=1) for k in (1.0, 2.0)]
    return np.stack([loss, _nll(fitted, away, std), *within, ((away >= low) & (away <= high)).mean(axis=1)])


def _nll(fitted: FittedSignal, away: Matrix, std: Matrix) -> Vector:
    """-log N(g; mu, D C D) / M = (|L^-1 away|^2 + log det C) / 2M + mean log std + log(2 pi) / 2.

    `SINGULAR` is added to the diagonal of C, which is singular if two specialists are always wrong alike.
    """
    boxes = away.shape[1]
    matrix = np.eye(boxes) if fitted.correlation is None else fitted.correlation.matrix
    root = np.linalg.cholesky(matrix + SINGULAR * np.eye(boxes))
    from scipy.linalg import solve_triangular

    squares = (solve_triangular(root, away.T, lower=True) ** 2).sum(axis=0)
    shared = 2.0 * np.log(np.diag(root)).sum()
    nll: Vector = (squares + shared) / (2 * boxes) + np.log(std).mean(axis=1) + 0.5 * np.log(2 * np.pi)
    return nll


def _interval(fitted: FittedSignal, mean: Matrix) -> tuple[Matrix | float, Matrix | float]:
    """The central interval in standard deviations, from the law of each box or the normal one."""
    tail = (1.0 - CENTRAL) / 2.0
    if fitted.laws is None:
        from scipy.special import ndtri

        return float(ndtri(tail)), float(ndtri(1.0 - tail))
    low, high = np.quantile(fitted.laws.quantiles, [tail, 1.0 - tail], axis=1)
    rank = fitted.laws.rank(mean)
    return low[rank], high[rank]
