"""Add a specialist from a few dozen scored prompts to a fitted signal model, without refitting the others.

A few prompts say little, so every parameter of the newcomer is shrunk towards the average of the other
specialists ("colleagues"). Their parameters do not change at all:

    mean         ridge of g - f w0 on f, w0 the colleagues' average weights on their own and on other columns
    scale        the same curve, its coefficients shrunk towards the colleagues' averages
    correlation  with each colleague (k r + K r0)/(k + K), r over the k prompts that have both, r0 the
                 colleagues' average, scaled down if needed so that the matrix stays a correlation matrix
    laws, slope  those of the pool, with the newcomer's own classes of the mean, and laws of its own if every
                 specialist has its own

A newcomer without any score (`extend_unscored`) has the averages themselves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pandora_router.calibrate.laws import cut, levels
from pandora_router.calibrate.means import STRENGTHS, Linear, fit_ridge
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.residuals import LEAST, OWN, REACH, Correlation, Laws, Scale, fit_curve
from pandora_router.calibrate.signals import FittedSignal
from pandora_router.errors import UsageError
from pandora_router.types import Matrix, Vector

PENALTY = (5.0, 15.0, 15.0)  # strength of shrinkage of the newcomer's scale; 5 on a is 10 prompts
BELIEF = 30.0  # weight, in prompts, of the colleagues' average correlation


def extend(signal: FittedSignal, readings: Readings) -> FittedSignal:
    """The model with one more specialist, in the last column of F and G (n, M + 1).

    G must have the newcomer's column; NaN cells of colleagues are not used for the correlation.
    """
    mean = _linear(signal)
    boxes = len(mean.intercept)
    if readings.cheap.shape[1] != boxes + 1:
        raise UsageError(
            "cheap estimates",
            expected=f"{boxes + 1} columns: the {boxes} known specialists, then the new one",
            came=f"{readings.cheap.shape[1]}",
            do="Add one specialist at a time.",
        )
    rows = ~np.isnan(readings.costly[:, -1])
    if rows.sum() < 8:
        raise UsageError(
            "costly estimates of the new specialist",
            expected="8 or more prompts that have one; a few dozen is better",
            came=f"{int(rows.sum())}",
            do="Score more prompts with it first.",
        )
    scored = readings.rows(rows)
    fitted, mu, error = _new_mean(mean, scored.cheap, scored.costly[:, -1])
    scale = _new_scale(signal.scale, mu, error)
    extended = FittedSignal(fitted, scale, slope=signal.slope, decided=_new_decided(signal, fitted))
    if signal.correlation is not None:
        before = signal.expected(scored.cheap[:, :-1])
        colleagues = (scored.costly[:, :-1] - before) / signal.scale.of(before)
        newcomer = error / scale.of(np.column_stack([before, mu]))[:, -1]
        extended = replace(extended, correlation=_new_row(signal.correlation, colleagues, newcomer))
    if signal.laws is not None:
        extended = replace(extended, laws=_new_laws(signal.laws, mu, error, scale))
    return extended


def extend_unscored(signal: FittedSignal) -> FittedSignal:
    """The model with one more specialist of which nothing is known, in the last column of F and G.

    Its means differ from its cheap estimate as those of its colleagues do on average from theirs:
    m_new = f_new + mean over k of (m_k - f_k). All else is the average of the colleagues.
    """
    boxes = len(_linear(signal).intercept)
    scale, correlation, laws = signal.scale, signal.correlation, signal.laws
    grown = Scale(
        np.vstack([scale.coefficients, scale.coefficients.mean(axis=0)]),
        *(np.append(part, part.mean()) for part in (scale.centre, scale.spread, scale.lowest, scale.highest)),
    )
    if correlation is not None:
        correlation = _with_row(correlation, np.full(boxes, _usual(correlation.matrix)))
    if laws is not None:
        own = laws.quantiles.reshape(boxes, -1, laws.quantiles.shape[1]).mean(axis=0) if laws.own else []
        quantiles = np.vstack([laws.quantiles, own]) if laws.own else laws.quantiles
        laws = Laws(quantiles, np.vstack([laws.edges, laws.edges.mean(axis=0)]))
    decided = _average_column(signal.decided) if isinstance(signal.decided, Linear) else None
    return FittedSignal(
        _average_column(_linear(signal)), grown, correlation, laws, slope=signal.slope, decided=decided
    )


def _average_column(mean: Linear) -> Linear:
    """The mean with one column more: its own f, and what the colleagues add to theirs on average."""
    boxes = len(mean.intercept)
    weights = np.eye(boxes + 1)
    weights[:boxes, :boxes] = mean.weights
    weights[:boxes, -1] = (mean.weights - np.eye(boxes)).mean(axis=1)
    intercept, strength = (np.append(part, part.mean()) for part in (mean.intercept, mean.strength))
    return Linear(weights, intercept, strength)


def _new_laws(laws: Laws, mu: Vector, error: Vector, scale: Scale) -> Laws:
    """Those of the pool, with classes of the newcomer's mean, or laws of its own if each has its own."""
    if not laws.own:
        own = cut(mu[:, None], np.ones((len(mu), 1), dtype=np.bool_), len(laws.quantiles))
        return Laws(laws.quantiles, np.vstack([laws.edges, own]))
    spread = scale.of(np.repeat(mu[:, None], len(scale.centre), axis=1))[:, -1:]
    new = levels(mu[:, None], error[:, None] / spread, spread)
    return Laws(np.vstack([laws.quantiles, new.quantiles]), np.vstack([laws.edges, new.edges]))


def _new_decided(signal: FittedSignal, fitted: Linear) -> Linear | None:
    """The mean that decides: that of the colleagues, and for the newcomer its mean of G."""
    before = signal.decided
    if not isinstance(before, Linear):
        return None
    weights = fitted.weights.copy()
    weights[:-1, :-1] = before.weights
    intercept, strength = fitted.intercept.copy(), fitted.strength.copy()
    intercept[:-1], strength[:-1] = before.intercept, before.strength
    return Linear(weights, intercept, strength)


def _linear(signal: FittedSignal) -> Linear:
    """The colleagues' mean, refusing what cannot be extended."""
    if not isinstance(signal.mean, Linear):
        raise UsageError(
            "the signal model to extend",
            expected="one whose mean is linear (RidgeMean or CheapMean)",
            came=type(signal.mean).__name__,
            do="Fit the model anew with all specialists.",
        )
    return signal.mean


def _new_mean(mean: Linear, f: Matrix, g: Vector) -> tuple[Linear, Vector, Vector]:
    """The mean with one column more; the newcomer's leave-one-out means and errors (n,)."""
    boxes = len(mean.intercept)
    own = float(np.diag(mean.weights).mean())
    others = (mean.weights.sum() - np.trace(mean.weights)) / (boxes * (boxes - 1)) if boxes > 1 else 0.0
    aim = np.append(np.full(boxes, others), own)
    weights, intercept, strength, error = fit_ridge(f, (g - f @ aim)[:, None], STRENGTHS)
    table = np.zeros((boxes + 1, boxes + 1))
    table[:boxes, :boxes] = mean.weights
    table[:, -1] = aim + weights[:, 0]
    grown = Linear(table, np.append(mean.intercept, intercept[0]), np.append(mean.strength, strength[0]))
    return grown, g - error[:, 0], error[:, 0]


def _new_scale(scale: Scale, mu: Vector, error: Vector) -> Scale:
    """The scale with one row more."""
    lowest, highest = np.quantile(mu, REACH)
    centre, spread = mu.mean(), max(float(mu.std()), 1e-9)
    aim = scale.coefficients.mean(axis=0)
    square = np.maximum(error**2, LEAST**2)
    if scale.coefficients[:, 1:].any():
        curve = fit_curve((np.clip(mu, lowest, highest) - centre) / spread, square, aim, PENALTY)
    else:
        pull = 2.0 * PENALTY[0]
        level = (square.sum() + pull * np.exp(aim[0])) / (len(square) + pull)
        curve = np.array([np.log(level), 0.0, 0.0])
    return Scale(
        np.vstack([scale.coefficients, curve]),
        np.append(scale.centre, centre),
        np.append(scale.spread, spread),
        np.append(scale.lowest, lowest),
        np.append(scale.highest, highest),
    )


def _new_row(correlation: Correlation, colleagues: Matrix, newcomer: Vector) -> Correlation:
    """The correlation with one row and column more."""
    usual = _usual(correlation.matrix)
    boxes = len(correlation.matrix)
    row = np.full(boxes, usual)
    for j in range(boxes):
        both = ~np.isnan(colleagues[:, j])
        x, y = colleagues[both, j], newcomer[both]
        size = np.sqrt((x**2).sum() * (y**2).sum())
        if size > 0.0:
            row[j] = (both.sum() * (x @ y) / size + BELIEF * usual) / (both.sum() + BELIEF)
    return _with_row(correlation, row)


def _usual(matrix: Matrix) -> float:
    """The average correlation of two colleagues."""
    boxes = len(matrix)
    return float((matrix.sum() - boxes) / (boxes * (boxes - 1))) if boxes > 1 else 0.0


def _with_row(correlation: Correlation, row: Vector) -> Correlation:
    """The correlation with `row` as that of the newcomer, scaled down where that is needed."""
    matrix = correlation.matrix
    if correlation.factor is not None:
        return _new_loading(correlation, row)
    explained = float(row @ np.linalg.pinv(matrix, hermitian=True) @ row)
    row = row * np.sqrt(min(1.0, (1.0 - OWN) / max(explained, 1e-300)))
    return Correlation(np.block([[matrix, row[:, None]], [row[None], np.ones((1, 1))]]))


def _new_loading(correlation: Correlation, row: Vector) -> Correlation:
    """The loading whose correlations with the colleagues come closest to `row`."""
    factor = correlation.factor
    assert factor is not None
    loading = np.linalg.lstsq(factor, row, rcond=1e-6)[0]
    loading = loading * np.sqrt(min(1.0, (1.0 - OWN) / max(float(loading @ loading), 1e-300)))
    near = factor @ loading
    matrix = np.block([[correlation.matrix, near[:, None]], [near[None], np.ones((1, 1))]])
    return Correlation(matrix, np.vstack([factor, loading]))
