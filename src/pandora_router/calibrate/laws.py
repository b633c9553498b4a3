r"""The law of standardised residuals (G - h(f)) / scale, in place of the normal law.

A law is Q equally likely values with mean 0 and standard deviation 1. There are two ways to fit them:

quantiles   the sorted residuals of a class, cut into Q equal groups, each replaced by its mean. Classes are
            terciles of the mean, each specialist against its own terciles, pooled over specialists
            (docs/method.md, section 9). They move with the mean, as a smooth G does.
levels      values of G stay where they are and their weights move. With p_i the frequency of the value g_i of
            one specialist, the law at mean mu is p_i exp(t g_i) up to a factor, with the t at which its mean
            is mu. For a G of two values (a verifier, a test, a strong judge) this is exactly the law of two
            values with mean mu.

`likeliest` compares these two and the normal law by the held-out likelihood of G given f, and is the default.
"""

from __future__ import annotations

import functools
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pandora_router.calibrate.residuals import Laws, classify
from pandora_router.errors import UsageError
from pandora_router.types import Mask, Matrix, Vector

LawKind = Literal["likeliest", "normal", "quantiles", "levels"]
CLASSES = 3
LEVELS = 12  # classes of the mean of each specialist in the law "levels"
VALUES = 32  # equally likely values per law; also the fewest residuals a law is made of
ATOMS = 64  # values of G that are tilted
BLUR = 0.2  # standard deviation of the normal noise around each value, for likelihoods
PARTS = 2  # parts of the prompts, of which each is predicted from the others
MOST_PROMPTS, MOST_SPECIALISTS = 500, 6  # likelihoods are of at most so many: leads are many standard errors
REACH, HALVINGS = 100.0, 30  # tilts that are tried, in units of 1 / range of the values
SURE = 2.0  # standard errors by which another law must be more likely than "quantiles"


def fit_laws(mean: Matrix, standardised: Matrix, spread: Matrix, kind: LawKind) -> Laws | None:
    """Fit the laws of standardised residuals, NaN where missing, around `mean`; None for "normal".

    `spread` has their standard deviations; all are (N, M).
    """
    if kind not in get_args(LawKind):
        raise UsageError(
            "law", expected=f"one of {', '.join(get_args(LawKind))}", came=repr(kind), do="Choose one."
        )
    match kind:
        case "normal":
            return None
        case "quantiles":
            return _quantiles(mean, standardised)
        case "levels":
            return levels(mean, standardised, spread)
        case "likeliest":
            return fit_laws(mean, standardised, spread, likeliest(mean, standardised, spread))


def likeliest(mean: Matrix, standardised: Matrix, spread: Matrix) -> LawKind:
    """The law of the highest held-out likelihood of G; "quantiles" unless another is ahead by `SURE` errors.

    Half of the prompts (a sample of prompts and specialists, if there are many) are predicted by laws fitted
    on the other half, in turn. The likelihood of a residual is its density under the values of its law plus
    normal noise of standard deviation `BLUR`, so that laws of values and the normal law can be compared. Its
    logarithm is averaged over the specialists of a prompt, and differences are tested over prompts.
    """
    rows = np.random.default_rng(0).permutation(len(mean))[:MOST_PROMPTS]
    boxes = mean.shape[1]
    columns = np.arange(0, boxes, -(-boxes // MOST_SPECIALISTS))
    mean, standardised, spread = (a[np.ix_(rows, columns)] for a in (mean, standardised, spread))
    part = np.arange(len(mean)) % PARTS
    kinds: tuple[LawKind, ...] = ("quantiles", "normal", "levels")
    density = {kind: np.full(len(mean), np.nan) for kind in kinds}
    for k in range(PARTS):
        held = part == k
        if np.isfinite(standardised[~held]).sum(axis=0).min() < VALUES:
            return "quantiles"
        for kind in kinds:
            laws = fit_laws(mean[~held], standardised[~held], spread[~held], kind)
            density[kind][held] = _log_density(laws, mean[held], standardised[held])
    ahead: dict[LawKind, float] = {}
    for kind in kinds[1:]:
        lead = density[kind] - density["quantiles"]
        lead = lead[~np.isnan(lead)]
        if lead.mean() > SURE * lead.std(ddof=1) / np.sqrt(len(lead)):
            ahead[kind] = float(lead.mean())
    return max(ahead, key=lambda kind: ahead[kind], default="quantiles")


def _log_density(laws: Laws | None, mean: Matrix, standardised: Matrix) -> Vector:
    """Mean log density of the residuals of each prompt (N,), NaN where it has none."""
    values = normal_law()[None] if laws is None else laws.quantiles
    rank = np.zeros(mean.shape, dtype=np.intp) if laws is None else laws.rank(mean)
    present = ~np.isnan(standardised)
    away = (np.where(present, standardised, 0.0)[:, :, None] - values[rank]) / BLUR
    density = np.log(np.exp(-0.5 * np.minimum(away**2, 1000.0)).mean(axis=2))
    counts = present.sum(axis=1)
    return np.where(counts > 0, np.where(present, density, 0.0).sum(axis=1) / np.maximum(counts, 1), np.nan)


def _quantiles(mean: Matrix, standardised: Matrix) -> Laws:
    """One law per tercile of the mean, for all specialists."""
    present = ~np.isnan(standardised)
    edges = cut(mean, present, CLASSES)
    rank = classify(mean, edges)
    return Laws(np.stack([law_of(standardised[present & (rank == k)]) for k in range(CLASSES)]), edges)


def levels(mean: Matrix, standardised: Matrix, spread: Matrix) -> Laws:
    """Laws of each specialist whose values stay where G was seen; their weights move with the mean.

    The frequencies of the values, as `ATOMS` equally likely ones, are tilted to the mean of each of `LEVELS`
    classes.
    """
    present = ~np.isnan(standardised)
    edges = cut(mean, present, LEVELS)
    level = classify(mean, edges)
    value = mean + spread * standardised
    atoms, centres = np.empty((mean.shape[1], ATOMS)), np.empty((mean.shape[1], LEVELS))
    for j in range(mean.shape[1]):
        rows = present[:, j]
        atoms[j] = grouped(np.sort(value[rows, j]), np.full(rows.sum(), 1.0 / rows.sum()), ATOMS)
        often = np.bincount(level[rows, j], minlength=LEVELS)
        total = np.bincount(level[rows, j], mean[rows, j], minlength=LEVELS)
        centres[j] = np.where(often > 0, total / np.maximum(often, 1), mean[rows, j].mean())
    weights = tilted(atoms, centres)
    laws = [grouped(atoms[j], weight, VALUES) for j in range(len(atoms)) for weight in weights[j]]
    return Laws(standard(np.array(laws)), edges)


def tilted(values: Matrix, means: Matrix) -> NDArray[np.float64]:
    """Weights (M, C, V) proportional to exp(t value), with the t at which the mean is each of `means` (M, C).

    `values` (M, V) ascend in each row. Means beyond the values are moved inside.
    """
    low_value, spread = values[:, :1], np.maximum(values[:, -1:] - values[:, :1], 1e-300)
    unit = ((values - low_value) / spread)[:, None]
    wanted = np.clip((means - low_value) / spread, 0.01, 0.99)
    low, high = np.full(means.shape, -REACH), np.full(means.shape, REACH)
    weights = np.empty((*means.shape, values.shape[1]))
    for _ in range(HALVINGS):
        at = 0.5 * (low + high)
        np.exp(at[..., None] * unit - np.maximum(at, 0.0)[..., None], out=weights)
        mean = (weights * unit).sum(axis=2) / weights.sum(axis=2)
        low, high = np.where(mean > wanted, low, at), np.where(mean > wanted, at, high)
    return weights / weights.sum(axis=2, keepdims=True)


def grouped(values: Vector, weights: Vector, groups: int) -> Vector:
    """The means (groups,) of equally likely groups of ascending values with these weights, which sum to 1."""
    mass = np.concatenate([[0.0], np.cumsum(weights)])
    moment = np.concatenate([[0.0], np.cumsum(weights * values)])
    return np.diff(np.interp(np.linspace(0.0, 1.0, groups + 1) * mass[-1], mass, moment)) * groups


def standard(laws: Matrix) -> Matrix:
    """Rows with mean 0 and standard deviation 1, ascending; rows of one value become the normal law."""
    centred = laws - laws.mean(axis=1, keepdims=True)
    spread = centred.std(axis=1, keepdims=True)
    usual = normal_law()
    return np.sort(np.where(spread > 1e-9, centred / np.where(spread > 1e-9, spread, 1.0), usual), axis=1)


def cut(mean: Matrix, present: Mask, classes: int) -> Matrix:
    """Edges (M, classes - 1) that divide each specialist's means into classes of equal size.

    An edge lies midway between two neighbouring means, so rounding never moves a mean across it.
    """
    edges = np.empty((mean.shape[1], classes - 1))
    for j in range(mean.shape[1]):
        values = np.unique(mean[present[:, j], j])
        at = np.quantile(mean[present[:, j], j], np.arange(1, classes) / classes)
        above = np.clip(np.searchsorted(values, at, side="right"), 1, max(len(values) - 1, 1))
        upper = values[np.minimum(above, len(values) - 1)]
        edges[j] = 0.5 * (values[above - 1] + upper)
    return edges


def law_of(residuals: Vector) -> Vector:
    """The `VALUES` group means of sorted residuals, with mean 0 and standard deviation 1.

    With fewer residuals than values it is the normal law in the same form.
    """
    if len(residuals) < VALUES or not residuals.std() > 0.0:
        return normal_law()
    ordered = np.sort(residuals)
    return _compressed(ordered)


@functools.cache
def normal_law() -> Vector:
    """The normal law in the form of the others."""
    from scipy.special import ndtri

    return _compressed(ndtri((np.arange(64 * VALUES) + 0.5) / (64 * VALUES)))


def _compressed(ordered: Vector) -> Vector:
    groups = np.array([part.mean() for part in np.array_split(ordered, VALUES)])
    centred = groups - groups.mean()
    return np.sort(centred / centred.std())
