"""`pandora market` on the routing table of an experiment, on a small folder written here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from paper.__main__ import main as reproduce

from pandora_router.config.experiments import read_experiment
from pandora_router.evaluate import bids
from tests.evaluate.test_evaluate import write_folder
from tests.support.command import pandora

YAML = """
title: A small pair
data: small
specialists: {cheap: 0, dear: 0.2}
neighbours: [5]
seeds: 2
domain: MATH
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bidding")
    write_folder(place / "small")
    (place / "pair.yaml").write_text(YAML)
    return place


def run(home: Path, *arguments: str) -> str:
    given = [word.replace("HOME", str(home)) for word in arguments]
    result = pandora("market", *given)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_simulate_on_an_experiment(home):
    asked = ("simulate", "--experiment", "HOME/pair.yaml", "--cache", "HOME/cache", "--cost", "0.01")
    shown = run(home, *asked)
    for words in ("A small pair", "weak", "bidder", "second price", "router: rollout", "2 splits"):
        assert words in shown
    found = json.loads(run(home, *asked, "--seeds", "1", "--json"))
    assert found["splits"] == 1
    assert found["specialists"] == 2
    assert len(found["bidding"]) == 8
    assert all(row["regret"][0]["split_error"] is None for row in found["bidding"])
    assert {row["cost"] for row in found["mechanisms"]} == {0.01}


def test_simulate_on_a_stored_table_is_the_experiment_on_the_same_data(home):
    fees = ("--fee", "cheap=0", "--fee", "dear=0.2")
    done = pandora("data", "import", str(home / "small"), "-o", str(home / "stored"), *fees)
    assert done.exit_code == 0, done.output
    (home / "same.yaml").write_text(YAML.replace("[5]", "[50, 3]") + "peek: 9\n")
    asked = ("--seeds", "2", "--cost", "0.01", "--json")
    mine = json.loads(run(home, "simulate", "--table", "HOME/stored", "--peek", "9", *asked))
    theirs = json.loads(run(home, "simulate", "--experiment", "HOME/same.yaml", *asked))
    assert (mine.pop("name"), mine.pop("title")) == ("stored", "stored")
    assert theirs.pop("name") == "same"
    assert theirs.pop("title") == "A small pair"
    assert mine == theirs


def test_a_folder_that_is_no_table_is_refused(home):
    result = pandora("market", "simulate", "--table", str(home / "small"))
    assert result.exit_code != 0
    assert "pandora data import" in result.output
    both = ["--table", str(home / "small"), "--experiment", str(home / "pair.yaml")]
    assert "one of them" in pandora("market", "simulate", *both).output


def test_pages_with_figures_beside_the_papers(home):
    pytest.importorskip("matplotlib")
    curve = {name: [[0.01, 0.1], [0.1, 0.2]] for name in ("f-only", "g-always", "pandora-bidder")}
    domain = {"MATH": {"surplus_regret": curve, "efficiency_regret": curve}}
    figures = {f"bidding_{who}_opponents": {"domains": domain} for who in ("strong", "weak")}
    (home / "figures.json").write_text(json.dumps({"figures": figures}))
    asked = [str(home / "pair.yaml"), "--data", str(home), "-o", str(home / "out"), "--generated", "0"]
    asked += ["--page", str(home / "bidding.md"), "--paper", str(home / "figures.json")]
    done = CliRunner().invoke(reproduce, ["bidding", *asked])
    assert done.exit_code == 0, done.output
    long, short = (home / "out" / "bidding.md").read_text(), (home / "bidding.md").read_text()
    assert "Written by `python -m paper bidding`" in short
    assert str(home) not in long
    assert "(figures/bidding_pair_k5.png)" in long
    assert "| second price |" in long
    assert "| second price |" not in short
    assert (home / "out" / "figures" / "bidding_pair_k5.png").is_file()


def test_the_papers_panels_are_left_out_without_its_numbers(home):
    pytest.importorskip("matplotlib")
    curves = pytest.importorskip("paper.curves")
    game = bids.Game(read_experiment(home / "pair.yaml"), home, 5, (1, 2), (0.01, 0.1), (), home / "cache")
    (found,) = bids.run([game])
    assert len(curves.bidding(found, paper=home / "none.json").axes) == 4


def test_mistakes_are_told_plainly(home):
    result = pandora("market", "simulate", "--experiment", str(home / "none.yaml"))
    assert result.exit_code == 2
    assert "none.yaml" in result.output
