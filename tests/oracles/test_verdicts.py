"""Verdicts, averages and prices against brute force on results that are written here by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import Routed, Standing
from pandora_router.evaluate import results
from pandora_router.evaluate.arms import DEFAULT
from pandora_router.evaluate.experiments import Experiment, UsdPrices
from pandora_router.evaluate.outcomes import Outcomes, Run
from pandora_router.evaluate.reliability import slope
from pandora_router.evaluate.results import Results
from pandora_router.evaluate.trials import Trial
from pandora_router.report import paired, summary
from pandora_router.report.paired import Gap, Verdict, against, averaged, chosen_elsewhere, gaps, verdict_on
from paper import paper_tables
from tests.conftest import ROOT

COSTS = (0.01, 0.1)
PROMPTS = 200


def made(
    tmp_path: Path, losses: dict[str, list[list[float]]], seeds: int = 3, noise: float = 0.01
) -> Results:
    """Results whose arms lose, at each of two costs and in each split, what `losses` say, give or take."""
    experiment = Experiment(name="made", data="none", costs=COSTS)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        score = np.zeros((PROMPTS, 2))
        test = Readings(rng.random((PROMPTS, 2)), score, score)
        runs = []
        for at, cost in enumerate(COSTS):
            for arm, levels in losses.items():
                level = levels[at][seed] if isinstance(levels[at], list) else levels[at]
                spent = level + noise * rng.standard_normal(PROMPTS)
                routed = Routed(np.zeros(PROMPTS, dtype=np.intp), spent, np.ones(PROMPTS))
                outcomes = Outcomes.of(routed, test, 0)
                runs.append(Run(arm, cost, outcomes, routed.total(test), routed))
        results.write(
            tmp_path / "made",
            experiment,
            seed,
            "key",
            results.flat(experiment, seed, {5: (Trial(test, test, Standing(0, 0)), runs)}),
        )
    return results.read(tmp_path / "made")


def judged(tmp_path: Path, losses: dict[str, list[list[float]]], **more: float) -> Verdict:
    return verdict_on(made(tmp_path, losses, **more), 5)  # type: ignore[arg-type]


FLAT = {"never inspect": [[0.5] * 3, [0.5] * 3], "always inspect, raw g": [[0.4] * 3, [0.9] * 3]}


def test_better_than_all_needs_every_rival(tmp_path: Path) -> None:
    said = judged(tmp_path, {DEFAULT: [[0.3] * 3, [0.6] * 3], **FLAT})
    assert said.better_than_all == (0.01,)  # at 0.1 it beats "always inspect" but not "never inspect"
    assert said.behind == said.behind_elsewhere == (0.1,)
    assert said.worst.static == "never inspect"
    assert said.worst.mean == pytest.approx(0.1, abs=0.005)
    assert said.average.static == "never inspect"  # 0.5 against 0.65 averaged over costs
    assert set(said.average_beats) == {"never inspect", "always inspect, raw g"}
    assert said.words == "better than every static arm, but worse at one cost"


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        (2.5, " more per 1,000 prompts (s.e. 11.55)."),
        (1.5, " more per 1,000 prompts (s.e. 11.55, within two standard errors)."),
        (-1.5, " less per 1,000 prompts (s.e. 11.55, within two standard errors)."),
        (-2.5, " less per 1,000 prompts (s.e. 11.55)."),
    ],
)
def test_the_first_sentence_says_whether_a_lead_is_within_two_standard_errors(
    tmp_path: Path, errors: float, said: str
) -> None:
    """Leads of three splits, each 0.02 above the one before: their mean has an error of 0.02 / sqrt(3)."""
    lead = errors * 0.02 / np.sqrt(3.0)
    behind = [[0.5 + lead + step for step in (-0.02, 0.0, 0.02)]] * 2
    sentence = summary.sentence(
        made(tmp_path, {DEFAULT: [[0.5] * 3] * 2, "never inspect": behind}, noise=0.0)
    )
    assert sentence.endswith(f"earns {1e3 * abs(lead):.2f}{said}")


def test_a_gap_is_judged_by_the_larger_standard_error() -> None:
    def gap(mean: float, error: float, split_error: float, star: bool = False) -> Gap:
        return Gap(mean, error, split_error, star, 0.1, "never inspect")

    assert gap(1.5, 1.0, 0.5).behind
    assert not gap(0.9, 1.0, 0.5).behind
    assert not gap(1.5, 1.0, 2.0).behind  # the larger of the two counts
    assert gap(1.5, 1.0, np.nan).behind  # of one split there is only one
    assert [gap(-3.0, 1.0, 1.0, star=star).ahead for star in (False, True)] == [False, True]
    assert not gap(3.0, 1.0, 1.0, star=True).ahead
    assert gap(3.0, 1.0, 2.0).errors_behind == 1.5
    assert gap(0.0, 0.0, np.nan).errors_behind == 0.0


def test_the_same_decisions_are_never_worse(tmp_path: Path) -> None:
    said = judged(tmp_path, {DEFAULT: FLAT["never inspect"], **FLAT}, noise=0.0)
    assert said.behind == (0.01,)
    assert said.worst.cost == 0.01
    alone = judged(
        tmp_path / "alone",
        {DEFAULT: FLAT["never inspect"], "never inspect": FLAT["never inspect"]},
        noise=0.0,
    )
    assert alone.behind == alone.better_than_all == ()
    assert alone.words == "never worse"


def test_numbers_are_plain_means(tmp_path: Path) -> None:
    found = made(tmp_path, {DEFAULT: [[0.3, 0.5, 0.4], [0.6] * 3], **FLAT})
    totals = {
        (n, arm, c): seed.totals([(5, c, arm)])[5, c, arm]
        for n, seed in found.seeds.items()
        for arm in found.arms
        for c in COSTS
    }
    for name, rows in ((s.static, s) for s in averaged(found, 5)):
        each = [np.mean([totals[n, DEFAULT, c] - totals[n, name, c] for c in COSTS]) for n in found.seeds]
        assert rows.mean == pytest.approx(np.mean(each))
        assert rows.split_error == pytest.approx(np.std(each, ddof=1) / np.sqrt(3))
    for cost, static in ((0.01, "always inspect, raw g"), (0.1, "never inspect")):
        gap = next(g for g in gaps(found, 5) if g.cost == cost)
        each = [np.mean(totals[n, DEFAULT, cost] - totals[n, static, cost]) for n in found.seeds]
        assert gap.static == static
        assert gap.mean == pytest.approx(np.mean(each))
        assert gap == max(against(found, 5)[cost], key=lambda g: g.mean)


def test_the_static_arm_is_chosen_on_the_other_splits(tmp_path: Path) -> None:
    """Never inspecting is best on splits 0 and 1, always inspecting on split 2, and each only there."""
    losses = {
        DEFAULT: [[0.5] * 3, [0.5] * 3],
        "never inspect": [[0.1, 0.1, 0.9]] * 2,
        "always inspect, raw g": [[0.6, 0.6, 0.2]] * 2,
    }
    found = made(tmp_path, losses, noise=0.0)
    # left out 0: means of the others .5 and .4; left out 2: .1 and .6
    picked = np.mean([0.5 - 0.6, 0.5 - 0.6, 0.5 - 0.9])
    assert [gap.mean for gap in chosen_elsewhere(found, 5)] == pytest.approx([picked] * 2, abs=1e-6)
    one = Results(found.name, found.title, found.control, {0: found.seeds[0]})
    assert chosen_elsewhere(one, 5) == ()


def test_levels_and_two_experiments(tmp_path: Path) -> None:
    low, high = (made(tmp_path / x, {DEFAULT: [[y] * 3, [y] * 3]}) for x, y in (("low", 0.2), ("high", 0.3)))
    assert paired.levels(low, ((5, 0.01, DEFAULT),)).mean[0] == pytest.approx(0.2, abs=0.005)
    assert paired.between(high, low, (5, DEFAULT)).mean[0] == pytest.approx(0.1, abs=0.005)


def test_prices_are_those_of_the_paper() -> None:
    """USD of f-only and g-always in the paper's figure, from the tokens and prices of its text."""
    mathematics = UsdPrices(embed=0.2, read=0.0, write=2.5, written=20, tokens=43)
    assert 1e6 * mathematics.prompt(0, 2, 0) == pytest.approx(17, abs=0.5)
    assert 1e6 * mathematics.prompt(0, 2, 2, cheap=False) == pytest.approx(100)
    assert mathematics.costly(0) / mathematics.cheap(0) == pytest.approx(5.8, abs=0.05)
    retrieval = UsdPrices(embed=0.2, read=0.0, write=0.0, call=0.014, tokens=10.1)
    assert 1e3 * retrieval.prompt(0, 3, 0) == pytest.approx(0.006, abs=5e-4)
    assert 1e3 * retrieval.prompt(0, 3, 3, cheap=False) == pytest.approx(42)
    pool = UsdPrices(embed=0.2, read=0.25, write=2.5, written=1, tokens=126)
    assert 1e3 * pool.prompt(0, 110, 0) == pytest.approx(2.77, abs=0.005)
    assert 1e3 * pool.prompt(0, 110, 110, cheap=False) == pytest.approx(3.74, abs=0.005)
    assert pool.cheap(4 * 126) == UsdPrices(embed=0.2).cheap(4 * 126)  # 504 characters are 126 tokens


def test_the_slope_of_differences_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(0)
    g = rng.random((50, 4))
    reward = 0.6 * g + rng.random((50, 1)) + 0.1 * rng.standard_normal((50, 4))
    fixed = np.kron(np.eye(50), np.ones((4, 1)))  # one effect per prompt
    design = np.column_stack([g.ravel(), fixed])
    assert slope(g, reward) == pytest.approx(np.linalg.lstsq(design, reward.ravel(), rcond=None)[0][0])
    assert slope(np.ones((5, 2)), np.ones((5, 2))) is None


def test_the_papers_tables_are_copied_whole() -> None:
    path = ROOT.parent / "shared" / "paper" / "figures.json"
    if not path.is_file():
        pytest.skip("figures.json lies in the shared folder beside the repository, which is absent here")
    told, known = paper_tables.markdown(path), json.loads(path.read_text())["tables"]
    for domain in ("MATH", "RAG", "EmbedLLM"):
        regret, cost, total = known["overall"][domain]["pandora-router"]
        assert f"| {regret:.3f} | {cost:.3f} | {total:.3f} |" in told
        row = " | ".join(f"{one['pandora-router']:.3f}" for one in known["regret_plus_cost_per_c_g"][domain])
        assert f"| pandora-router | {row} |" in told
