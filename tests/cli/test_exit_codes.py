"""How commands end, in real processes: exit codes, one message on standard error, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pandora_router.cli.main import Verbs
from pandora_router.config import read_config
from pandora_router.config.market_objects import MarketPlan
from pandora_router.data import save
from pandora_router.errors import UpstreamError, UsageError
from tests.support.command import pandora, start
from tests.support.tables import generate


def ended(*words: object, **environment: str) -> tuple[int, str, str]:
    with start(*words, **environment) as run:
        out, said = run.communicate(timeout=120)
    assert "Traceback" not in said
    return run.returncode, out, said


def test_success_is_0_and_says_nothing_on_standard_error(saved_router: Path) -> None:
    code, out, _ = ended("route", "-r", saved_router, "tell about the river")
    assert (code, len(out.split())) == (0, 1)
    assert ended("--version")[0] == 0
    assert ended("fit", "-h")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rout"], "Did you mean 'route'"),
        (["route", "--nonsense"], "--nonsense"),
        (["route"], "a prompt, or --batch"),
        (["route", "-r", "nowhere", "hello"], "nowhere"),
        (["data", "check", "nowhere"], "nowhere"),
        (["fit", "nowhere.yaml", "-o", "out"], "nowhere.yaml"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2_with_one_message(words: list[str], said: str) -> None:
    code, out, message = ended(*words)
    assert (code, out) == (2, "")
    assert said in message


def test_messages_name_what_was_given_and_what_to_do(saved_router: Path, tmp_path: Path) -> None:
    """Each was met by a new user and could not be understood: options that do not exist, empty lists."""
    table, wide = tmp_path / "table", tmp_path / "wide.csv"
    save(generate(60), table)
    wide.write_text("prompt,mood\nhello,good\n")
    market = tmp_path / "pandora.yaml"
    market.write_text("table: t\n")
    store = tmp_path / "none.sqlite"
    for words, said in (
        (["fit", "--data", saved_router, "-o", tmp_path / "r"], "another kind (pandora-router artifact)"),
        (["fit", "--data", wide, "-o", tmp_path / "r"], f"pandora data import {wide} --format long|wide"),
        (["data", "import", wide, "--format", "wide", "--free", "-o", tmp_path / "t"], "--score-column"),
        (["route", "-r", saved_router, "hello", "--max-fee", "0.0000001"], "lowest mean fee is 0.01"),
        (["log", "tail", "--store", store], "no such file"),
        (["keys", "list", "--store", store], "PANDORA_STORE"),
        (["keys", "revoke", "team", "--store", store], "no such file"),
    ):
        result = pandora(*words)
        assert result.exit_code == 2, result.output
        assert said in result.stderr
        assert "--format (" not in result.stderr
    assert not store.exists()
    for name in ("", "team ", "te\nam", "te\u200bam"):
        assert "visible characters" in pandora("keys", "add", name, "--store", store).stderr
    assert pandora("keys", "add", "team", "--store", store).exit_code == 0
    assert pandora("keys", "list", "--store", store).exit_code == 0
    with pytest.raises(UsageError, match="who answers prompts that nobody wins, and a file that describes"):
        MarketPlan(read_config(market), market).market(None)  # type: ignore[arg-type]


def test_an_unwritable_output_is_2_and_found_before_the_work(saved_router: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("prompt\nhello\n")
    (tmp_path / "file").write_text("")
    words = ("route", "-r", saved_router, "--batch", tmp_path / "in.csv", "-o", tmp_path / "file" / "o.csv")
    code, _, message = ended(*words)
    assert (code, "a folder that can be written to" in message) == (2, True)


class Failing(Verbs):
    """All verbs, and one whose upstream fails."""

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return click.Command("route", callback=self.fail)

    @staticmethod
    def fail() -> None:
        raise UpstreamError("the specialist did not answer")


def test_a_failure_of_somebody_else_is_1() -> None:
    done = CliRunner().invoke(Failing(), ["route"])
    assert (done.exit_code, done.stderr) == (1, "Error: the specialist did not answer\n")


def test_ctrl_c_is_130(saved_router: Path) -> None:
    """While it waits for standard input; a batch that can be continued is in test_route_cli."""
    with start("route", "-r", saved_router, "--batch", "-", stdin=subprocess.PIPE) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        run.stdin.write('{"prompt": "tell"}\n' * 256)  # a whole chunk: its answer shows that it reads
        run.stdin.flush()
        assert run.stdout.readline()
        os.killpg(run.pid, signal.SIGINT)
        deadline = time.monotonic() + 60
        while run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        code = run.returncode
        run.stdin.close()
        run.stdout.close()
        assert run.stderr is not None
        said = run.stderr.read()
    assert (code, said.strip()) == (130, "Interrupted.")
