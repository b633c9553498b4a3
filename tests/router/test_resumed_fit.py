"""Long fits broken off with kill -9: the stack goes on with the next fold, a judge is never paid twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pandora_router.data import save
from pandora_router.estimators.stack.boosted import Boosted, Trees
from pandora_router.estimators.stack.peek import Peek
from pandora_router.router import Router
from pandora_router.text import money
from tests.support.command import pandora
from tests.support.tables import generate
from tests.support.upstream import Upstream


def killed_when(code: str, ready: Callable[[], bool], cwd: Path, *words: str) -> None:
    """Run code in a process of its own and kill -9 it as soon as `ready`."""
    process = subprocess.Popen([sys.executable, "-c", code, *words], cwd=cwd)
    deadline = time.monotonic() + 120
    while not ready() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    assert process.poll() is None, "it ended before it could be killed"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


FIT = """
import sys
from pandora_router.estimators.stack.boosted import Boosted, Trees
from pandora_router.estimators.stack.peek import Peek
sys.path.insert(0, sys.argv[1])
from tests.support.tables import generate
t = generate(200, 2, contexts=True)
Boosted.fit(t.prompts, t.reward, t.specialists, contexts=t.contexts, peek=Peek(40),
            trees=Trees(rounds=400, patience=400, folds=5), work=sys.argv[2])
"""


def test_a_killed_stack_goes_on_with_the_next_fold_and_ends_the_same(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    killed_when(FIT, lambda: bool(list(tmp_path.glob("*/trees-1"))), tmp_path, str(root), str(tmp_path))
    before = {p: p.stat().st_mtime_ns for p in tmp_path.glob("*/*/manifest.json")}
    assert {p.parent.name for p in before} >= {"prompts", "contexts", "trees-0", "trees-1"}
    assert "trees-4" not in {p.parent.name for p in before}
    t = generate(200, 2, contexts=True)
    trees = Trees(rounds=400, patience=400, folds=5)
    how = {"contexts": t.contexts, "peek": Peek(40), "trees": trees}
    resumed = Boosted.fit(t.prompts, t.reward, t.specialists, work=tmp_path, **how)  # type: ignore[arg-type]
    assert {p: p.stat().st_mtime_ns for p in before} == before
    whole = Boosted.fit(t.prompts, t.reward, t.specialists, **how)  # type: ignore[arg-type]
    np.testing.assert_allclose(
        resumed.predict(t.prompts, t.contexts), whole.predict(t.prompts, t.contexts), atol=1e-9
    )
    other = Boosted.fit(t.prompts, 1.0 - t.reward, t.specialists, work=tmp_path, **how)  # type: ignore[arg-type]
    assert not np.allclose(other.out_of_fold, resumed.out_of_fold), "stages of other data were used"


MAIN = "from pandora_router.cli.main import main; main()"
CONFIG = """
endpoints: {{here: {{base_url: "{url}", at_once: 4}}}}
specialists:
  small: {{kind: chat, endpoint: here, model: s, prices: free}}
  large: {{kind: chat, endpoint: here, model: l, prices: free}}
  judge: {{kind: chat, endpoint: here, model: thoughtful, prices: {{call: 0.001}}, tokens: 32, hidden: true}}
fit: {{costly: {{kind: judge, judge: judge}}}}
"""


def percent(prompt: str) -> str:
    return json.dumps({"percent": sum(prompt.encode()) % 101})


def test_a_killed_fit_with_a_judge_never_buys_a_judgement_twice(tmp_path: Path) -> None:
    table = generate(99, 2)
    save(table, tmp_path / "table")
    cells = int((table.split == "calibration").sum()) * 2
    journal = tmp_path / ".router.work" / "judgements.journal"

    def lines() -> int:
        return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0

    with Upstream(slow=0.03) as upstream:
        upstream.said = percent
        (tmp_path / "pandora.yaml").write_text(CONFIG.format(url=upstream.url))
        words = ["fit", "pandora.yaml", "-o", "router"]
        killed_when(
            "from pandora_router.cli.main import main; main()", lambda: lines() >= 8, tmp_path, *words
        )
        time.sleep(0.2)
        assert not (tmp_path / "router").exists()
        bought, asked = lines(), sum(upstream.asked.values())
        assert 8 <= bought <= asked <= bought + 4
        assert asked < cells
        out = str(tmp_path / "router")
        result = pandora("fit", str(tmp_path / "pandora.yaml"), "-o", out)
        assert result.exit_code == 0, result.output
        assert f"{cells - bought:,} verdicts of the judge ({bought:,} were bought before)" in result.stderr
        assert money((cells - bought) * 0.001) in result.stderr
        assert sum(upstream.asked.values()) - asked == cells - bought
        assert len(upstream.asked) == cells
    assert Router.load(out, costly=object.__new__(Silent)).specialists == table.specialists
    assert not journal.exists()


class Silent:
    needs: frozenset[str] = frozenset()
    together = False

    async def estimate(self, query: object, specialists: object) -> np.ndarray:
        raise AssertionError("nobody is asked")
