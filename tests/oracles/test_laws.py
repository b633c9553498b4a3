"""Laws of residuals against laws that are known, and what choosing among them earns with a sharp signal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq

from pandora_router.boxes.costs import as_costs
from pandora_router.calibrate import Calibrated, FittedSignal, extend, load, save
from pandora_router.calibrate.laws import LawKind, grouped, likeliest, tilted
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import search
from pandora_router.search import KnowledgeGradient
from pandora_router.types import Matrix


def answers(n: int, boxes: int = 4, seed: int = 0) -> Readings:
    """f is the chance of a right answer, and G is the answer's score itself, as a unit test would show it."""
    rng = np.random.default_rng(seed)
    hard = rng.uniform(0.15, 0.85, (n, 1))
    chance = np.clip(hard + rng.uniform(-0.15, 0.15, (n, boxes)), 0.02, 0.98)
    score = (rng.random((n, boxes)) < chance).astype(float)
    fee = np.broadcast_to(0.05 * np.arange(boxes), score.shape)
    return Readings(chance - fee, score - fee, score - fee, fee)


def smooth(n: int, boxes: int = 4, seed: int = 0) -> Readings:
    rng = np.random.default_rng(seed)
    f = rng.random((n, boxes))
    g = 0.2 + 0.5 * f + 0.1 * rng.standard_gamma(2.0, (n, boxes))
    return Readings(f, g, g + 0.1 * rng.standard_normal(g.shape))


def chosen(readings: Readings) -> LawKind:
    law = Calibrated().fit(readings).laws
    if law is None:
        return "normal"
    return "levels" if law.own else "quantiles"


@pytest.mark.parametrize("mean", [0.1, 0.35, 0.8])
def test_weights_are_tilted_as_a_root_finder_tilts_them(mean: float) -> None:
    values = np.sort(np.random.default_rng(1).standard_gamma(1.0, 50)) / 4.0

    def off(t: float) -> float:
        return float(np.average(values, weights=np.exp(t * (values - values.mean()))) - mean)

    t = brentq(off, -200.0, 200.0)
    exact = np.exp(t * (values - values.mean()))
    np.testing.assert_allclose(tilted(values[None], np.array([[mean]]))[0, 0], exact / exact.sum(), rtol=1e-6)


def test_two_values_stay_two_values_whatever_the_mean() -> None:
    weights = tilted(np.array([[0.0, 1.0]]), np.array([[0.25, 0.75]]))[0]
    np.testing.assert_allclose(weights, [[0.75, 0.25], [0.25, 0.75]], atol=1e-6)
    np.testing.assert_allclose(grouped(np.array([0.0, 1.0]), weights[0], 4), [0.0, 0.0, 0.0, 1.0], atol=1e-6)


def test_the_law_of_a_score_is_that_of_a_coin() -> None:
    readings = answers(4000)
    fitted = Calibrated(law="levels").fit(readings)
    assert fitted.laws is not None
    mean = fitted.expected(readings.cheap) + readings.fee  # the chance of a right answer
    shown = fitted.laws.quantiles[fitted.laws.rank(fitted.expected(readings.cheap))]
    share = (shown > 0.0).mean(axis=2)
    inside = (mean > 0.1) & (mean < 0.9)
    assert np.abs(share - mean)[inside].mean() < 0.04  # a class is .06 wide, a value 1/32


def test_the_likelier_law_is_chosen() -> None:
    assert chosen(answers(300)) == "levels"
    assert chosen(smooth(600)) == "quantiles"
    rng = np.random.default_rng(3)
    f = rng.random((2000, 2))
    bell = 0.3 + 0.4 * f + 0.1 * rng.standard_normal(f.shape)
    mean, spread = 0.3 + 0.4 * f, np.full(f.shape, 0.1)
    assert likeliest(mean, (bell - mean) / spread, spread) in ("normal", "quantiles")
    few = np.where(np.arange(300)[:, None] < 20, answers(300).costly, np.nan)
    assert chosen(Readings(answers(300).cheap, few)) == "quantiles"


def test_another_law_needs_proof_on_prompts_that_it_was_not_fitted_on() -> None:
    """Quantiles fit their own prompts best, but not new ones; a lead that may be chance is no proof."""

    def often(law: str, shape: tuple[int, int], residuals: Callable[[np.random.Generator], Matrix]) -> int:
        made = []
        for seed in range(12):
            rng = np.random.default_rng(seed)
            mean = rng.random(shape)
            made.append(likeliest(mean, residuals(rng), np.full(shape, 0.1)))
        return made.count(law)  # type: ignore[arg-type]

    assert often("normal", (400, 3), lambda rng: rng.standard_normal((400, 3))) >= 3
    heavy = often("quantiles", (200, 2), lambda rng: rng.standard_t(3, (200, 2)) / np.sqrt(3.0))
    assert heavy >= 11


@pytest.mark.parametrize("cost", [0.005, 0.05])
def test_a_signal_that_is_the_truth_is_bought_better(cost: float) -> None:
    """Regret + cost on new prompts, ahead of the law of quantiles by more than three standard errors."""
    known, new = answers(800), answers(1500, seed=1)
    lost = {}
    for law in ("quantiles", "likeliest"):
        signal = Calibrated(law=law).fit(known)  # type: ignore[arg-type]
        lost[law] = search(KnowledgeGradient(), signal, new, as_costs(cost, 4)).total(new)
    lead = lost["quantiles"] - lost["likeliest"]
    assert lead.mean() > 3.0 * lead.std(ddof=1) / np.sqrt(len(lead))


def test_a_newcomer_among_sharp_signals_has_a_law_of_its_own(tmp_path: Path) -> None:
    readings = answers(400)
    rows = slice(0, 3)
    before = Readings(*(part[:, rows] for part in readings.parts))
    fitted = Calibrated().fit(before)
    assert isinstance(fitted, FittedSignal)
    wider = extend(fitted, readings)
    assert wider.laws is not None
    assert wider.laws.own
    save(wider, tmp_path / "model")
    again = load(tmp_path / "model")
    batch, kept = wider.batch(readings.cheap, 0.01), again.batch(readings.cheap, 0.01)
    np.testing.assert_array_equal(batch.quantiles[batch.rank], kept.quantiles[kept.rank])
    share = (batch.quantiles[batch.rank][:, 3] > 0.0).mean()
    assert share == pytest.approx(readings.score[:, 3].mean(), abs=0.05)
