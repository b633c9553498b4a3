"""`preset: paper` fits the paper's router, from Python and from a file; what is named beside it wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from pandora_router.boxes import Costs
from pandora_router.calibrate import GaussianJoint
from pandora_router.config import read_config
from pandora_router.config.file import Config
from pandora_router.config.fit_section import CheapSettings, LinearSettings, TransformerSettings
from pandora_router.data import save
from pandora_router.errors import UsageError
from pandora_router.router import NeighbourRecipe, Router, StackRecipe
from pandora_router.search import Committing, Never
from tests.support.tables import generate

QUICK = StackRecipe(rounds=20, folds=2)
TABLE = generate(200, 3)
PROMPTS = TABLE.in_split("test").prompts[:20]
COST = 1e-4
EACH = Costs([COST] * 3)
"""Paid for each box: simulations of joint outcomes with a shared cost are not compiled."""


def decided(router: Router) -> list[tuple[object, ...]]:
    decisions = router.route_batch(PROMPTS)
    return [(d.specialist, d.trace.actions, d.estimates.cheap.tolist(), d.costly) for d in decisions]


def written(folder: Path, fit: str) -> Config:
    (folder / "pandora.yaml").write_text(f"fit: {fit}\n")
    return read_config(folder / "pandora.yaml")


def test_one_word_is_the_four_parts_of_the_paper(tmp_path: Path) -> None:
    parts = {
        "cheap": NeighbourRecipe(3),
        "signal": GaussianJoint(),
        "policy": Committing("backup", samples=100),
    }
    wanted = decided(Router.fit(TABLE, costly=QUICK, inspection_cost=EACH, **parts))  # type: ignore[arg-type]
    router = Router.fit(TABLE, preset="paper", costly=QUICK, inspection_cost=EACH)
    assert router.policy == Committing("backup", "monte_carlo", 100)
    assert decided(router) == wanted
    assert len({one[0] for one in wanted}) > 1, "every prompt has the same specialist"
    save(TABLE, tmp_path / "table")
    stack = "{kind: stack, rounds: 20, folds: 2}"
    config = written(tmp_path, f"{{preset: paper, inspection: {{each: {COST}}}, costly: {stack}}}")
    assert decided(config.fitted(config.routing_table(tmp_path))) == wanted


def test_what_is_named_beside_the_preset_wins(tmp_path: Path) -> None:
    router = Router.fit(TABLE, preset="paper", costly=QUICK, policy=Never(), inspection_cost=COST)
    assert router.policy == Never()
    fit = written(tmp_path, "{preset: paper, cheap: {embedder: words}, costly: {tokens: 64}}").fit
    assert isinstance(fit.cheap, CheapSettings)
    assert (fit.cheap.k, fit.cheap.embedder) == (3, "words")
    assert isinstance(fit.costly, TransformerSettings)
    assert fit.costly.tokens == 64
    assert (fit.signal.kind, fit.policy.kind) == ("gaussian_joint", "committing")
    fit = written(tmp_path, "{preset: paper, cheap: {kind: linear}, policy: {kind: rollout}}").fit
    assert isinstance(fit.cheap, LinearSettings)
    assert fit.policy.kind == "rollout"


def test_another_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'paper' or None"):
        Router.fit(TABLE, preset="papers")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="preset"):
        written(tmp_path, "{preset: papers}")
