"""The mean and slope learnt from training and calibration prompts, and the guard, against plain code."""

from __future__ import annotations

import numpy as np
import pytest

from pandora_router.boxes import Costs
from pandora_router.calibrate import Calibrated, Guarded, guard
from pandora_router.calibrate.choose import MANY
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.reward_mean import HALF, SLOPE, NewsSlope, fit_reward_mean, fit_slope
from pandora_router.search import KnowledgeGradient, Never, State, drive, reveal


def world(prompts: int, seed: int, *, told: float = 0.6, noise: float = 0.0) -> Readings:
    """Three specialists; g is the truth plus `noise`, of whose differences rewards follow a part."""
    rng = np.random.default_rng(seed)
    truth = 0.5 + 0.2 * rng.standard_normal((prompts, 3))
    f = truth + 0.2 * rng.standard_normal((prompts, 3))
    g = 0.5 + (truth - 0.5) / told + noise * rng.standard_normal((prompts, 3))
    return Readings(f, g, truth + 0.1 * rng.standard_normal((prompts, 3)))


def ridge(x: np.ndarray, y: np.ndarray, per_prompt: float) -> np.ndarray:
    """Weights and intercept on standardised columns, by the normal equations."""
    centre, scale = x.mean(axis=0), x.std(axis=0)
    z = (x - centre) / scale
    weights = np.linalg.solve(z.T @ z + len(x) * per_prompt * np.eye(x.shape[1]), z.T @ (y - y.mean()))
    return np.append(weights / scale, y.mean() - (weights / scale) @ centre)


def test_the_deciding_mean_has_a_share_of_two_ridges_over_all_known_prompts() -> None:
    """The rest of it has an oracle of its own (`test_believed`)."""
    train, known = world(300, 1), world(120, 2)
    fitted = Calibrated().fit(known, train)
    x = np.vstack([train.cheap, known.cheap])
    new = world(5, 3).cheap
    near_f = fit_reward_mean(x, np.vstack([train.reward, known.reward])).of(new)
    share = 0.5 * 420 / (420 + HALF)
    for j in range(3):
        halves = []
        for targets in ((train.reward, known.reward), (train.costly, known.costly)):
            y = np.concatenate([targets[0][:, j], targets[1][:, j]])
            errors = {}
            for strength in np.logspace(-4.0, 3.0, 29):  # leave-one-out by brute force on a grid
                w = ridge(x, y, strength)
                z = (x - x.mean(axis=0)) / x.std(axis=0)
                gram = np.linalg.inv(z.T @ z + len(x) * strength * np.eye(3))
                hat = 1.0 / len(x) + np.einsum("ij,jk,ik->i", z, gram, z)
                errors[strength] = float((((y - x @ w[:-1] - w[-1]) / (1.0 - hat)) ** 2).mean())
            halves.append(ridge(x, y, min(errors, key=errors.__getitem__)))
        expected = new @ (0.5 * (halves[0] + halves[1]))[:-1] + 0.5 * (halves[0] + halves[1])[-1]
        blended = (1.0 - share) * near_f[:, j] + share * expected
        assert fitted.believed(new)[:, j] == pytest.approx(blended)
    batch = fitted.batch(new, 0.01)
    assert batch.mean == pytest.approx(fitted.believed(new))
    shown = fitted.values(new, new + 0.1)
    assert shown == pytest.approx(fitted.believed(new) + fitted.slope * (new + 0.1 - fitted.expected(new)))
    row = fitted.prior(new[0], 0.01)
    assert row.boxes.mean == pytest.approx(batch.mean[0])
    assert [row.value(j, new[0, j] + 0.1) for j in range(3)] == pytest.approx(shown[0].tolist())


def test_the_slope_is_the_formula_of_the_method_in_a_plain_loop() -> None:
    train, known = world(200, 4), world(80, 5)
    mean_t, mean_c = np.full((200, 3), 0.5), np.full((80, 3), 0.5)
    k, v = {}, {}
    for name, part, mean in (("train", train, mean_t), ("cal", known, mean_c)):
        k[name], v[name] = [], []
        for i in range(len(part)):
            x, y = part.costly[i] - mean[i], part.reward[i] - mean[i]
            x, y = x - x.mean(), y - y.mean()
            k[name].append(float(x @ y))
            v[name].append(float(x @ x))
    n, spread = 280, float(np.mean(v["cal"]))
    raw = (sum(k["train"]) + sum(k["cal"])) / n / spread
    own = sum(k["train"]) / sum(v["train"])
    squares = sum((a - own * b) ** 2 for a, b in zip(k["train"], v["train"], strict=True))
    squares += sum((a - raw * b) ** 2 for a, b in zip(k["cal"], v["cal"], strict=True))
    told, believed = n**2 * spread**2 / squares, 1.0 / SLOPE[1] ** 2
    expected = (told * raw + believed * SLOPE[0]) / (told + believed)
    found = fit_slope(mean_c, known.costly, known.reward, (mean_t, train.costly, train.reward))
    assert found == pytest.approx(expected)
    assert found == pytest.approx(0.6, abs=0.05)  # the truth of this world
    assert fit_slope(mean_c, np.full((80, 3), np.nan), known.reward) == SLOPE[0] == 0.75


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_training_prompts_with_one_score_do_not_speak_against_the_news(share: float) -> None:
    """A share of the training prompts keeps one score of three, as traffic does: the slope stays the truth.

    Dropping those prompts is the plain way to the same number.
    """
    train, known = world(2_000, 6, told=0.9), world(500, 7, told=0.9)
    rng = np.random.default_rng(8)
    single = rng.random(2_000) < share
    kept = np.arange(3)[None, :] == rng.integers(0, 3, (2_000, 1))
    reward = np.where(single[:, None] & ~kept, np.nan, train.reward)
    mean_t, mean_c = np.full((2_000, 3), 0.5), np.full((500, 3), 0.5)
    slope = fit_slope(mean_c, known.costly, known.reward, (mean_t, train.costly, reward))
    assert slope == pytest.approx(0.9, abs=0.06)  # v is known from 500 prompts
    complete = (mean_t[~single], train.costly[~single], train.reward[~single])
    assert slope == pytest.approx(fit_slope(mean_c, known.costly, known.reward, complete))


def test_without_out_of_fold_estimates_half_is_the_mean_of_calibration() -> None:
    train, known = world(300, 6), world(120, 7)
    blind = Readings(train.cheap, np.full(train.cheap.shape, np.nan), train.reward)
    fitted = Calibrated().fit(known, blind)
    alone = Calibrated().fit(known)
    every = blind.beside(known)
    rewards, _ = Calibrated().mean.fit(Readings(every.cheap, every.reward))
    new = world(9, 8).cheap
    assert alone.decided is None
    plain, share = 0.5 * (rewards.of(new) + alone.expected(new)), 0.5 * 420 / (420 + HALF)
    near_f = fit_reward_mean(every.cheap, every.reward).of(new)
    assert fitted.believed(new) == pytest.approx((1.0 - share) * near_f + share * plain)


@pytest.mark.parametrize(("noise", "cost", "stays"), [(0.0, 0.001, True), (3.0, 0.05, False)])
def test_the_guard_switches_a_search_off_that_loses(noise: float, cost: float, stays: bool) -> None:
    """Good g almost for free: the search stays. g of noise, taken at its word, at a price: off."""
    known, train = world(200, 9, told=1.0, noise=noise), world(600, 10, told=1.0, noise=noise)
    signal = Calibrated(slope=False)
    guarded, choice = guard(signal, KnowledgeGradient(), known, Costs([cost] * 3), train=train)
    assert choice.prompts == 800
    assert guarded.on is stays
    assert isinstance(guarded.policy, KnowledgeGradient if stays else Never)
    assert (guarded.gain > 0.0) is stays
    assert (guarded.gain < -guarded.error) is not stays
    facts = {"on": stays, "gain": guarded.gain, "error": guarded.error, "prompts": 800}
    assert guarded.news is not None
    assert guarded.to_dict() == facts | {"news": guarded.news.to_dict()}
    assert (guarded.news.best > 0.5) is stays  # true differences, and noise


@pytest.mark.parametrize(
    ("prompts", "errors", "stays"),
    [
        (500, -1.01, False),
        (500, -0.99, True),
        (500, 0.0, True),
        (500, 1.01, True),
        (100, -0.26, False),
        (100, -0.24, True),
        (100, 0.0, True),
    ],
)
def test_the_guard_forgives_one_standard_error_of_many_prompts_and_less_of_few(
    prompts: int, errors: float, stays: bool
) -> None:
    guarded = Guarded.of(KnowledgeGradient(), errors * 0.01, 0.01, prompts)
    assert guarded.policy == (KnowledgeGradient() if stays else Never())
    assert guarded.on is stays


def test_the_guard_compares_prompt_by_prompt_with_models_that_never_saw_the_prompt() -> None:
    """Gain and standard error again: refits in a plain loop, one search at a time, judged on both splits."""
    known, train = world(60, 11, noise=0.3), world(90, 12, noise=0.3)
    costs, policy, signal = Costs([0.01] * 3), KnowledgeGradient(), Calibrated()
    guarded, choice = guard(signal, policy, known, costs, train=train)
    fold_known = np.random.default_rng(0).permutation(60) % 5
    rng = np.random.default_rng(0)
    rng.permutation(90)  # which training prompts are judged: here all of them
    fold_train = rng.permutation(90) % 5
    leads = []
    for fold in range(5):
        rest = known.rows(fold_known != fold)
        fitted = signal.fit(rest, train.rows(fold_train != fold))
        for part, held in ((known, fold_known == fold), (train, fold_train == fold)):
            for i in np.flatnonzero(held):
                values = fitted.values(part.cheap[i : i + 1], part.costly[i : i + 1])[0]
                boxes = fitted.boxes(part.cheap[i], costs)
                trace = drive(policy, State(boxes), reveal(values))
                never = int(boxes.mean.argmax())
                leads.append(part.reward[i, trace.selected] - trace.spent - part.reward[i, never])
    assert len(leads) == choice.prompts == guarded.prompts == 150
    assert guarded.gain == pytest.approx(np.mean(leads))
    assert guarded.error == pytest.approx(np.std(leads, ddof=1) / np.sqrt(150))
    assert guarded.tolerance == pytest.approx(guarded.error * 150 / MANY)
    assert guarded.on is (guarded.gain >= -guarded.tolerance)


def test_the_slope_of_few_prompts_is_a_posterior_mean() -> None:
    """Prior N(0.75, 0.2^2) of docs/method.md, section 11, times the likelihood of the estimate, on a grid."""
    rng = np.random.default_rng(4)
    news = rng.normal(size=(12, 2))
    reward = 0.3 * news + 0.4 * rng.normal(size=(12, 2))
    x, y = np.diff(news)[:, 0], np.diff(reward)[:, 0]
    plain = float((x * y).sum() / (x * x).sum())
    error = float(np.sqrt((((x * y) - plain * x * x) ** 2).sum()) / (x * x).sum())  # clustered by prompt
    grid = np.linspace(-3.0, 5.0, 200_001)
    log = -0.5 * ((grid - 0.75) / 0.2) ** 2 - 0.5 * ((grid - plain) / error) ** 2
    weight = np.exp(log - log.max())
    posterior = float((grid * weight).sum() / weight.sum())
    assert fit_slope(np.zeros((12, 2)), news, reward) == pytest.approx(posterior, abs=1e-6)
    assert abs(posterior - plain) > 0.05


def fixed_effects(news: np.ndarray, surprise: np.ndarray) -> tuple[float, float]:
    """Least squares with a constant per prompt, and the sandwich error clustered by prompt (textbook)."""
    prompts, boxes = news.shape
    x = np.column_stack([news.ravel(), np.repeat(np.eye(prompts), boxes, axis=0)])
    beta = np.linalg.lstsq(x, surprise.ravel())[0]
    scores = (x * (surprise.ravel() - x @ beta)[:, None]).reshape(prompts, boxes, -1).sum(axis=1)
    bread = np.linalg.inv(x.T @ x)
    return float(beta[0]), float(np.sqrt((bread @ scores.T @ scores @ bread)[0, 0]))


def test_news_is_a_regression_with_a_constant_per_prompt_over_all_and_between_the_three_best() -> None:
    """News of the two specialists that are never chosen comes true, that of the three others does not."""
    rng = np.random.default_rng(8)
    mean = np.tile([0.9, 0.1, 0.8, 0.85, 0.2], (60, 1))
    news = rng.standard_normal((60, 5))
    reward = mean + news * [0.0, 1.0, 0.0, 0.0, 1.0] + 0.1 * rng.standard_normal((60, 5))
    measured = NewsSlope.of((mean, mean + news, reward))
    assert measured is not None
    best = [0, 2, 3]
    assert (measured.slope, measured.error) == pytest.approx(fixed_effects(news, reward - mean))
    among = fixed_effects(news[:, best], (reward - mean)[:, best])
    assert (measured.contenders, measured.best, measured.best_error) == pytest.approx((3, *among))
    assert measured.best < 0.1 < 0.3 < measured.slope
    assert NewsSlope.of((mean, mean, reward)) is None  # without news there is nothing to say
    spare = np.column_stack([reward[:, :4], np.full(60, np.nan)])
    assert NewsSlope.of((mean, mean + news, spare)) is not None  # a specialist whose answers nobody scored
