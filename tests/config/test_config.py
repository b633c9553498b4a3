"""pandora.yaml: closed, in money, and every mistake told with its line."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from pandora_router.boxes import Costs
from pandora_router.calibrate import Auto, Calibrated, CheapMean, EmpiricalDraws
from pandora_router.cli.init import content
from pandora_router.config import open_router, read_config
from pandora_router.config.collect_section import bill
from pandora_router.config.experiments import read_experiment
from pandora_router.config.file import Config
from pandora_router.config.inspection import STACK_SECONDS, looking
from pandora_router.data import save
from pandora_router.data.table import Table
from pandora_router.errors import UsageError
from pandora_router.evaluate.estimates import table_of
from pandora_router.router import External, NeighbourRecipe, SetRecipe, StackRecipe
from pandora_router.search import Always, KnowledgeGradient, Rollout
from tests.support.command import pandora
from tests.support.tables import generate

PEOPLE = """
endpoints: {here: {base_url: "http://127.0.0.1:9/v1"}}
specialists:
  small: {kind: chat, endpoint: here, model: s, prices: {in: 1, out: 2}}
  large: {kind: chat, endpoint: here, model: l, prices: {in: 10, out: 20}}
  referee: {kind: chat, endpoint: here, model: r, prices: {in: 5, out: 5}, hidden: true}
"""


def read(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "pandora.yaml"
    path.write_text(text, encoding="utf-8")
    return read_config(path)


def test_an_empty_file_has_the_defaults(tmp_path: Path) -> None:
    config = read(tmp_path, "")
    assert config.fit.cheap.build(config) == NeighbourRecipe((25, 50, 200))
    assert config.fit.costly.build(config) == SetRecipe()
    assert config.fit.signal.build() == Calibrated()
    assert config.fit.policy.build() == KnowledgeGradient()


@pytest.mark.parametrize("goal", ["", "{budget: 500, per: month}", "{keep: 0.95, of: large}"])
def test_the_template_is_valid_and_every_commented_line_too(tmp_path: Path, goal: str) -> None:
    text = content("t", None, goal)
    config = read(tmp_path, text)
    assert config.answering == ("small", "large")
    assert config.value.right_answer == (None if goal else 1.0)
    assert (config.goal is None) == (not goal)
    assert (
        config.serve.default == "small"
    )  # `serve` works at once; `fit` says the line that serves its router
    assert config.serve.router is None
    alive = []
    for line in text.splitlines():
        bare = re.sub(r"^(\s*)# ( *[a-z_]+:)", r"\1\2", line)
        alive.append(line if line.startswith("# def") else bare)
    every = read(tmp_path, "\n".join(alive))
    assert every.fit.default == "small"
    assert every.serve.port == 8080
    assert every.serve.router == "router"
    assert set(every.specialists) >= {"small", "large"}


@pytest.mark.parametrize(
    ("text", "built"),
    [
        ("policy: {kind: auto, rule: one_standard_error}", Auto((), 5, "one_standard_error")),
        ("policy: {kind: rollout}", Rollout()),
        ("policy: {kind: always}", Always()),
        ("policy: {depth: 1}", KnowledgeGradient(1)),
        ("signal: {kind: draws}", EmpiricalDraws()),
        ("signal: {mean: identity, slope: false}", Calibrated(CheapMean(), slope=False)),
        ("signal: {pooled: false}", Calibrated(pooled=False)),
    ],
)
def test_strings_become_objects(tmp_path: Path, text: str, built: object) -> None:
    config = read(tmp_path, f"fit: {{{text}}}")
    assert getattr(config.fit, text.split(":")[0]).build() == built


def test_estimates_from_all_that_was_opened_are_a_recipe(tmp_path: Path) -> None:
    config = read(tmp_path, "fit: {costly: {kind: opened, peek: 200}}")
    assert config.fit.costly.build(config) == SetRecipe(200)
    assert config.fit.costly.characters(generate(contexts=True)) == 200


def test_recipes_a_judge_and_a_remote_embedder_are_built_without_a_call(tmp_path: Path) -> None:
    config = read(tmp_path, "fit: {costly: {kind: stack, peek: 100, agreement: true}, cheap: {k: 3}}")
    assert config.fit.costly.build(config) == StackRecipe(100, True)
    assert config.fit.cheap.build(config) == NeighbourRecipe(3)
    remote = "{kind: remote, endpoint: here, model: e}"
    more = f"fit: {{costly: {{kind: judge, judge: referee}}, cheap: {{embedder: {remote}}}}}"
    config = read(tmp_path, PEOPLE + more)
    costly = config.fit.costly.build(config)
    assert isinstance(costly, External)
    assert costly.name == "judge referee"
    embedder = config.fit.cheap.build(config).embedder
    assert embedder is not None
    assert "127.0.0.1:9" in embedder.name


def priced(
    tmp_path: Path, fit: str, *, contexts: bool = False, value: str = "{}", cancel: str = "unknown"
) -> tuple[float | Costs, Table]:
    table = generate()
    if not contexts:
        table = Table(**{**{k: getattr(table, k) for k in table.__dataclass_fields__}, "contexts": None})
    people = PEOPLE.replace("kind: chat", f"kind: chat, cancel: {cancel}")
    config = read(tmp_path, f"{people}\nvalue: {value}\nfit: {fit}")
    if config.value.right_answer is not None:
        table = table.with_fee_weight(1 / config.value.right_answer)
    return looking(config, table.only(["small", "large"])).cost, table


def test_inspections_are_stated_in_money_and_paid_in_reward(tmp_path: Path) -> None:
    assert priced(tmp_path, "{inspection: 0.001}", value="{right_answer: 0.05}")[0] == pytest.approx(0.02)
    parts = "{inspection: {shared: 0.1, own: {small: 0.2, large: 0.3}}}"
    costs = priced(tmp_path, parts, value="{right_answer: 2}")[0]
    assert isinstance(costs, Costs)
    np.testing.assert_allclose(costs.marginal, [0.15, 0.2])
    each = priced(tmp_path, "{inspection: {each: 0.1, own: {large: 0.3}}}")[0]
    assert isinstance(each, Costs)
    np.testing.assert_allclose(each.marginal, [0.1, 0.3])


def test_inspections_without_a_number_are_priced(tmp_path: Path) -> None:
    value = "{right_answer: 0.5, second: 0.001, cpu_second: 0.002}"
    assert priced(tmp_path, "{}", value=value)[0] == pytest.approx(2 * STACK_SECONDS * 0.003)
    looks, table = priced(tmp_path, "{costly: {peek: 400}}", contexts=True, value=value)
    assert isinstance(looks, Costs)
    tokens = np.mean([len(prompt) for prompt in table.prompts]) / 4
    longest = 1024  # the fees of this table would pay for more than an answer may have
    np.testing.assert_allclose(
        looks.marginal, [2 * (tokens + 2 * longest) / 1e6, 2 * (10 * tokens + 20 * longest) / 1e6]
    )
    stops, _ = priced(tmp_path, "{costly: {peek: 400}}", contexts=True, value=value, cancel="stops")
    assert isinstance(stops, Costs)
    np.testing.assert_allclose(stops.marginal, [2 * (tokens + 200) / 1e6, 2 * (10 * tokens + 2000) / 1e6])
    verdict = priced(tmp_path, "{costly: {kind: judge, judge: referee}}", value=value)[0]
    assert verdict == pytest.approx(2 * 5 * (tokens + 160) / 1e6)


@pytest.mark.parametrize(
    ("fit", "share"),
    [
        ("{costly: {peek: 400}}", 1.0),  # a look begins the answer
        ("{costly: {peek: 400}, inspection: 0.001}", 1.0),
        ("{costly: {kind: opened, peek: 400}}", 1.0),
        ("{costly: {peek: 400}, inspection: {each: 0.001}}", 1.0),
        ("{costly: {peek: 400}, inspection: {each: 0.001, refund: none}}", 0.0),
        ("{costly: {peek: 400}, inspection: {each: 0.001, refund: 0.25}}", 0.25),
        ("{inspection: {each: 0.001, refund: full}, costly: {peek: 0}}", 1.0),
        ("{costly: {kind: stack, peek: 400, agreement: true}, inspection: {each: 0.001}}", 0.0),  # one price
        ("{costly: {kind: judge, judge: referee}, inspection: {each: 0.001}}", 0.0),  # a verdict is no answer
        ("{costly: {peek: 0}, inspection: {each: 0.001}}", 0.0),
    ],
)
def test_what_begins_an_answer_comes_back(tmp_path: Path, fit: str, share: float) -> None:
    costs = priced(tmp_path, fit, contexts=True)[0]
    assert isinstance(costs, Costs)
    assert (costs.own > 0.0).all()
    np.testing.assert_allclose(costs.refund, share * costs.own)


def test_a_refund_is_a_share_or_a_word(tmp_path: Path) -> None:
    for wrong in ("half", "1.5", "-0.1"):
        with pytest.raises(UsageError, match="refund"):
            priced(tmp_path, f"{{inspection: {{each: 0.001, refund: {wrong}}}}}")


@pytest.mark.parametrize(
    ("fit", "told"),
    [
        ("{inspection: {own: {smal: 1, large: 2}}}", "'smal'.*Did you mean 'small'"),
        ("{inspection: {own: {small: 1}}}", "none for 'large'"),
        ("{inspection: {}}", "none for 'small'"),
    ],
)
def test_names_in_inspection_costs_are_checked(tmp_path: Path, fit: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        priced(tmp_path, fit)


CHAT = "{kind: chat, endpoint: here, model: m, prices: free"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("value: {}\nfot: {}\n", r"line 2.*'fot'.*Did you mean 'fit'\?"),
        ("fit:\n  cheap:\n    embeder: words\n", r"line 3.*'embeder'.*Did you mean 'embedder'\?"),
        ("fit:\n  costly:\n    kind: judge\n    juge: x\n", r"line 4.*'juge'.*Did you mean 'judge'\?"),
        ("fit:\n  costly: {pek: 3}\n", r"line 2.*'pek'.*Did you mean 'peek'\?"),
        ("fit: {policy: {kind: atuo}}\n", r"line 1.*'atuo' for fit.policy.*Did you mean 'auto'\?"),
        ("fit: {cheap: {k: 0}}\n", "at least 1, got 0 for fit.cheap.k"),
        ("fit: {inspection: -1}\n", "a number of at least 0, got -1 for fit.inspection. Change"),
        ("fit: {inspection: a lot}\n", "a number, got 'a lot' for fit.inspection. Change"),
        ("fit: {inspection: .nan}\n", "fit.inspection"),
        ("fit:\n  costly: {kind: stack, agreement: true}\n", "line 2.*`peek` beside `agreement"),
        (f"specialists: {{a: {CHAT}}}}}", "specialists.a.endpoint.*a name that is defined.*'here'"),
        (PEOPLE + "  b: {kind: sampling, inner: smal}", "Did you mean 'small'"),
        (PEOPLE + "  b: {kind: sampling, inner: c}\n  c: {kind: sampling, inner: b}", "`inner` that ends"),
        (PEOPLE + "  b: {kind: chat, endpoint: here, model: m}", "the key prices in specialists.b"),
        (PEOPLE + "  b: {kind: chat, endpoint: here, model: m, prices: {in: 1}}", "both in and out"),
        (PEOPLE + f"  b: {CHAT}, supports: [tool]}}", r"Did you mean 'tools'"),
        (PEOPLE + "fit: {default: smal}", "fit.default.*Did you mean 'small'"),
        (PEOPLE + "grading: {judge: refree}", "grading.judge.*Did you mean 'referee'"),
        (PEOPLE + 'specialists2: {"a\u200b": 1}', "specialists2"),
        ('specialists: {"a\\u200b": {kind: sampling, inner: b}}', "visible characters"),
        ("serve: {port: 0}", "at least 1, got 0 for serve.port"),
        ("serve: {keys: maybe}", "one of required, none"),
        ("- a\n- b\n", "line 1: expected names with values"),
    ],
)
def test_mistakes_are_told_with_line_and_nearest_name(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=rf"(?s){told}"):
        read(tmp_path, text)


def test_the_table_of_a_config(tmp_path: Path) -> None:
    save(generate(), tmp_path / "table")
    text = (
        "value: {right_answer: 0.5}\nfit:\n  specialists: [large, small]\n"
        "  split: {seed: 3, train: 0.5, calibration: 0.5, test: 0}\n"
    )
    table = read(tmp_path, text).routing_table(tmp_path)
    assert table.specialists == ("large", "small")
    assert table.fee_weight == 2
    assert set(table.split.tolist()) == {"train", "calibration"}


def test_a_table_or_an_artifact_of_other_specialists_is_refused(tmp_path: Path, saved_router: Path) -> None:
    save(generate(), tmp_path / "table")
    with pytest.raises(UsageError, match=r"'smal', which the file has and the table has not.*'small'"):
        read(tmp_path, PEOPLE.replace("small:", "smal:")).routing_table(tmp_path)
    names = open_router(saved_router).specialists
    people = "".join(f"  {name}: {{kind: chat, endpoint: here, model: m, prices: free}}\n" for name in names)
    text = 'endpoints: {here: {base_url: "http://127.0.0.1:9/v1"}}\nspecialists:\n' + people
    assert open_router(saved_router, read(tmp_path, text)).specialists == names
    with pytest.raises(UsageError, match="which the file has and the router has not"):
        open_router(saved_router, read(tmp_path, text + f"  more: {CHAT}}}\n"))


def test_an_artifact_knows_the_identity_of_its_specialists(tmp_path: Path) -> None:
    table = generate().only(["small", "large"])
    save(table, tmp_path / "table")
    fit = "fit: {costly: {rounds: 5, folds: 2}}\n"
    config = read(tmp_path, PEOPLE + fit)
    config.fitted(config.routing_table(tmp_path)).save(tmp_path / "router")
    cheaper = PEOPLE.replace("{in: 1, out: 2}", "{in: 0.5, out: 1}")
    assert open_router(tmp_path / "router", read(tmp_path, cheaper + fit)).specialists == ("small", "large")
    with pytest.raises(UsageError, match=r"specialists\.large: .*another model"):
        open_router(tmp_path / "router", read(tmp_path, PEOPLE.replace("model: l", "model: l2") + fit))


def test_functions_are_named_and_not_imported_by_a_dry_run(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("prompt,answer\none,1\ntwo,2\n")
    text = PEOPLE + (
        '  sums: {kind: function, function: "no_such_module:run", prices: {call: 0.5}}\n'
        'prompts: q.csv\ngrading: {function: "neither_this:one"}\ncollect: {budget: 5}\n'
    )
    config = read(tmp_path, text)
    assert config.imports() == ["no_such_module:run", "neither_this:one"]
    cost = bill(config, config.plan(tmp_path, dry_run=True))
    assert (cost.answers, cost.prompts) == (6, 2)
    assert 1.0 < cost.expected < cost.worst
    with pytest.raises(UsageError, match="no_such_module:run"):
        config.plan(tmp_path)


@pytest.mark.parametrize(
    ("options", "tokens"), [("{n: 4}", 400), ("{max_completion_tokens: 150}", 150), ("{n_predict: 999}", 200)]
)
def test_the_expected_bill_follows_what_is_sent(tmp_path: Path, options: str, tokens: int) -> None:
    (tmp_path / "q.csv").write_text("prompt,answer\none,1\ntwo,2\n")
    text = (
        "endpoints: {here: {base_url: http://127.0.0.1:9/v1}}\nspecialists:\n  small: {kind: chat, endpoint: "
        f"here, model: s, prices: {{in: 0, out: 1000000}}, tokens: 100, options: {options}}}\n"
        "prompts: q.csv\ngrading: exact\ncollect: {budget: 5}\n"
    )
    config = read(tmp_path, text)
    cost = bill(config, config.plan(tmp_path, dry_run=True))
    assert cost.expected == 2 * tokens  # a dollar a token
    assert cost.worst >= cost.expected


PRICED = """
value: {right_answer: 0.05, second: 0.001}
endpoints: {here: {base_url: "http://127.0.0.1:9/v1"}}
specialists:
  small: {kind: chat, endpoint: here, model: s, prices: {in: 1, out: 2}}
  large: {kind: chat, endpoint: here, model: l, prices: {in: 10, out: 20}}
table: table
"""


@pytest.mark.parametrize(
    ("fit", "contexts"),
    [
        ("fit: {}", False),
        ("fit: {inspection: 0.001}", False),
        ("fit: {inspection: {shared: 0.002, own: {large: 0.003}, each: 0.001, refund: none}}", False),
        ("fit: {costly: {peek: 40}}", True),
        ("fit: {costly: {kind: stack, peek: 40, agreement: true}, inspection: 0.004}", True),
        ("fit: {inspection: 0.001, split: {train: 0.5, calibration: 0.25, test: 0.25}}", False),
    ],
)
def test_an_evaluation_of_a_config_charges_what_a_fit_with_it_charges(
    tmp_path: Path, fit: str, contexts: bool
) -> None:
    save(generate(120, contexts=contexts).only(["small", "large"]), tmp_path / "table")
    config = read(tmp_path, PRICED + fit)
    table = config.routing_table(tmp_path)
    price = looking(config, table)
    experiment = read_experiment(tmp_path / "pandora.yaml")
    evaluated = table_of(experiment, tmp_path)
    assert evaluated.specialists == table.specialists
    np.testing.assert_array_equal(evaluated.reward, table.reward)
    assert (experiment.peek, len(experiment.costs)) == (price.peek, 1)
    router = config.fitted(table)
    together, fitted = router.costly.together, router.costs
    charged = experiment.costs_at(experiment.costs[0], table.specialists, together=together)
    for bought in range(2):
        np.testing.assert_allclose(charged.paid(bought).marginal, fitted.paid(bought).marginal, rtol=1e-12)
    np.testing.assert_allclose(charged.marginal, fitted.marginal, rtol=1e-12)
    np.testing.assert_allclose(charged.refund, fitted.refund, rtol=1e-12)


@pytest.mark.parametrize(
    "fit", ["fit: {cheap: {kind: linear}}", "fit: {policy: {kind: never}}", "fit: {costly: {kind: stack}}"]
)
def test_a_config_that_an_experiment_cannot_measure_is_refused(tmp_path: Path, fit: str) -> None:
    save(generate(120).only(["small", "large"]), tmp_path / "table")
    read(tmp_path, PRICED + fit)
    with pytest.raises(UsageError, match="the usual router"):
        read_experiment(tmp_path / "pandora.yaml")


def test_init_writes_once(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    save(generate(30), tmp_path / "x" / "y")
    assert pandora("init", path, "--data", tmp_path / "x" / "y").exit_code == 0
    assert read_config(path).table == "x/y"
    again = pandora("init", path)
    assert again.exit_code == 2
    assert "--replace" in again.output
    assert pandora("init", path, "--replace").exit_code == 0
    assert read_config(path).table == "table"


def test_init_writes_the_goal_that_is_stated(tmp_path: Path) -> None:
    path = tmp_path / "pandora.yaml"
    assert pandora("init", path, "--budget", "80", "--per", "week").exit_code == 0
    goal = read_config(path).goal
    assert goal is not None
    assert (goal.budget, goal.per) == (80.0, "week")
    assert pandora("init", path, "--replace", "--keep", "0.9", "--of", "gpt-4.1").exit_code == 0
    config = read_config(path)
    assert config.goal is not None
    assert (config.goal.keep, config.goal.of, config.answering) == (0.9, "gpt-4.1", ("small", "gpt-4.1"))
    for half in (("--keep", "0.9"), ("--per", "day"), ("--budget", "5", "--keep", "0.9", "--of", "large")):
        refused = pandora("init", path, "--replace", *half)
        assert refused.exit_code == 2
        assert "--keep and --of" in refused.output


def test_init_describes_the_specialists_of_a_table(tmp_path: Path) -> None:
    table = generate(60, m=3)
    names = ("gpt 4.1: mini", "true", "Llama-3_8b")
    fee = np.broadcast_to([0.001, 0.0, 0.25], table.fee.shape)
    save(dataclasses.replace(table, specialists=names, fee=fee), tmp_path / "table")
    path = tmp_path / "pandora.yaml"
    assert pandora("init", path, "--data", tmp_path / "table").exit_code == 0
    config = read_config(path)
    assert config.answering == names
    assert [config.specialists[name].prices.call for name in names] == [0.001, 0.0, 0.25]
    assert config.routing_table(tmp_path).specialists == names


@pytest.mark.parametrize("weight", [1.0, 20.0, 0.0])
def test_init_states_the_worth_that_a_fit_without_a_file_assumes(tmp_path: Path, weight: float) -> None:
    table = generate(60, m=2).with_fee_weight(weight)
    save(table, tmp_path / "table")
    path = tmp_path / "pandora.yaml"
    assert pandora("init", path, "--data", tmp_path / "table").exit_code == 0
    stated, without = read_config(path), Config.model_validate({"table": str(tmp_path / "table")})
    assert stated.value.right_answer == (1.0 / weight if weight else None)
    assert stated.routing_table(tmp_path).fee_weight == without.routing_table(tmp_path).fee_weight == weight
    assert pandora("init", tmp_path / "example.yaml").exit_code == 0
    assert read_config(tmp_path / "example.yaml").value.right_answer == 1.0 / Table.fee_weight


def test_a_file_with_other_specialists_than_the_table_says_how_to_write_one(tmp_path: Path) -> None:
    save(dataclasses.replace(generate(60, m=2), specialists=("ours", "theirs")), tmp_path / "table")
    assert pandora("init", tmp_path / "pandora.yaml").exit_code == 0
    with pytest.raises(UsageError, match=r"ours, theirs in the table and small, large in the file") as caught:
        read_config(tmp_path / "pandora.yaml").routing_table(tmp_path)
    assert "pandora init --data table --replace" in caught.value.do


def test_a_long_wrong_value_is_shown_cut_with_its_length(tmp_path: Path) -> None:
    (tmp_path / "pandora.yaml").write_text(f"collect: {{budget: {'x' * 500}}}\n")
    with pytest.raises(UsageError) as caught:
        read_config(tmp_path / "pandora.yaml")
    assert f"'{'x' * 79}... (502 characters) for collect.budget" in str(caught.value)


def test_the_store_is_an_address_or_settings(tmp_path: Path) -> None:
    short = read(tmp_path, "serve: {store: here.sqlite}")
    long = read(tmp_path, "serve: {store: {address: here.sqlite, on_failure: serve}}")
    assert short.store_address(tmp_path) == long.store_address(tmp_path) == str(tmp_path / "here.sqlite")
    assert (short.serve.store.on_failure, long.serve.store.on_failure) == ("refuse", "serve")
    with pytest.raises(UsageError, match="one of refuse, serve"):
        read(tmp_path, "serve: {store: {on_failure: ignore}}")
    with pytest.raises(UsageError, match=r"serve\.store"):
        read(tmp_path, "serve: {store: 3}")
