"""The config file: closed, and every mistake told with its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pandora_router.boxes import Costs
from pandora_router.calibrate import Auto, Calibrated, CheapMean, EmpiricalDraws
from pandora_router.cli.init import TEMPLATE
from pandora_router.config import Config, read_config
from pandora_router.data import save
from pandora_router.errors import UsageError
from pandora_router.router import External, NeighbourRecipe, StackRecipe
from pandora_router.search import Always, KnowledgeGradient, Rollout
from tests.support.command import pandora
from tests.support.tables import generate

LEAST = "data: {table: t}\ninspection_cost: 0.01\n"


def read(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "pandora.yaml"
    path.write_text(text, encoding="utf-8")
    return read_config(path)


def test_the_least_file_has_the_defaults(tmp_path: Path) -> None:
    config = read(tmp_path, LEAST)
    assert config.cheap.build() == NeighbourRecipe(50)
    assert config.costly.build() == StackRecipe()
    assert config.signal.build() == Calibrated()
    assert config.policy.build() == KnowledgeGradient()
    assert config.costs(("a", "b")) == 0.01


def test_the_template_is_valid_and_every_commented_line_too(tmp_path: Path) -> None:
    text = TEMPLATE.format(table="t")
    assert read(tmp_path, text) == read(tmp_path, LEAST.replace("0.01", "0.002"))
    alive = []
    for line in text.splitlines():
        told = line.lstrip()
        indent = line[: len(line) - len(told)]
        if told.startswith(
            ("# cheap:", "# signal:", "#   ", "# policy:", "# timeout:", "# fee_weight:", "# split:")
        ):
            alive.append(indent + told[2:])
        else:
            alive.append(line)
    assert read(tmp_path, "\n".join(alive)).signal.build() == Calibrated()


@pytest.mark.parametrize(
    ("text", "built"),
    [
        ("policy: {kind: auto, rule: one_standard_error}", Auto((), 5, "one_standard_error")),
        ("policy: {kind: rollout}", Rollout()),
        ("policy: {kind: always}", Always()),
        ("policy: {depth: 1}", KnowledgeGradient(1)),
        ("signal: {kind: draws}", EmpiricalDraws()),
        ("signal: {mean: identity, slope: false}", Calibrated(CheapMean(), slope=False)),
        ("costly: {peek: 100, agreement: true}", StackRecipe(100, True)),
        ("cheap: {k: 3}", NeighbourRecipe(3)),
    ],
)
def test_strings_become_objects(tmp_path: Path, text: str, built: object) -> None:
    config = read(tmp_path, LEAST + text)
    part = text.split(":")[0]
    assert getattr(config, part).build() == built


def test_a_judge_and_a_remote_embedder_are_built_without_a_call(tmp_path: Path) -> None:
    text = (
        "costly: {kind: judge, base_url: 'http://127.0.0.1:9/v1', model: m}\n"
        "cheap: {embedder: {kind: remote, base_url: 'http://127.0.0.1:9/v1', model: e}}\n"
    )
    config = read(tmp_path, LEAST + text)
    costly = config.costly.build()
    assert isinstance(costly, External)
    assert costly.name == "judge m"
    recipe = config.cheap.build()
    assert recipe.embedder is not None
    assert "127.0.0.1:9" in recipe.embedder.name


def test_costs_in_parts(tmp_path: Path) -> None:
    config = read(tmp_path, "data: {table: t}\ninspection_cost: {shared: 0.1, own: {a: 0.2, b: 0.3}}")
    costs = config.costs(("b", "a"))
    assert isinstance(costs, Costs)
    np.testing.assert_allclose(costs.marginal, [0.4, 0.3])
    with pytest.raises(UsageError, match="none for 'c'"):
        config.costs(("a", "b", "c"))
    with pytest.raises(UsageError, match="one for 'b'"):
        config.costs(("a",))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LEAST + "polcy: {kind: auto}\n", r"line 3.*'polcy'.*Did you mean 'policy'\?"),
        (LEAST + "cheap:\n  k: 3\n  embeder: words\n", r"line 5.*'embeder'.*Did you mean 'embedder'\?"),
        (LEAST + "costly:\n  kind: judge\n  modle: x\n", r"line 5.*'modle'.*Did you mean 'model'\?"),
        (LEAST + "costly: {pek: 3}\n", r"line 3.*'pek'.*Did you mean 'peek'\?"),
        (LEAST + "data2: 3\n", r"line 3.*'data2'.*'data'"),
        ("data: {tabel: t}\ninspection_cost: 1\n", r"line 1.*'tabel'.*Did you mean 'table'\?"),
        ("inspection_cost: 1\n", "the key data"),
        ("", "the key data"),
        (LEAST + "policy: {kind: atuo}\n", "line 3.*atuo"),
        (LEAST + "cheap: {k: 0}\n", "line 3.*at least 1, got 0 for cheap.k"),
        (LEAST + "inspection_cost: 0.02\n", "line 3.*'inspection_cost' again"),
        ("data: {table: t}\ninspection_cost: -1\n", "line 2.*at least 0"),
        ("data: {table: t}\ninspection_cost: .nan\n", "line 2.*finite"),
        ("data: [unclosed\n", "line 2.*YAML"),
        ("- a\n- b\n", "line 1"),
    ],
)
def test_mistakes_are_told_with_line_and_nearest_key(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=rf"(?s)pandora\.yaml.*{told}"):
        read(tmp_path, text)


def test_yaml_builds_no_objects(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the tag"):
        read(tmp_path, "data: !!python/object/apply:os.getcwd []\n")


def test_the_table_of_a_config(tmp_path: Path) -> None:
    save(generate(), tmp_path / "t")
    text = "data:\n  table: t\n  fee_weight: 2\n  specialists: [large, small]\n  split: {seed: 3, train: 0.5, calibration: 0.5, test: 0}\ninspection_cost: 0\n"  # noqa: E501
    table = read(tmp_path, text).table(tmp_path)
    assert table.specialists == ("large", "small")
    assert table.fee_weight == 2
    assert set(table.split.tolist()) == {"train", "calibration"}


def test_init_writes_once(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    assert pandora("init", str(path), "--table", "x/y").exit_code == 0
    assert read_config(path).data.table == "x/y"
    again = pandora("init", str(path))
    assert again.exit_code == 2
    assert "one that exists" in again.output
