"""The artifact: whole or absent, and refused when anything about it changed."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pandora_router.boxes import Costs
from pandora_router.data import save
from pandora_router.errors import UsageError
from pandora_router.estimators.estimator import Scorer
from pandora_router.router import External, NeighbourRecipe, Router, StackRecipe
from pandora_router.router.artifact import FitRecord
from pandora_router.search import Optimal
from tests.support import routers
from tests.support.command import pandora
from tests.support.tables import generate, row_contexts

QUICK = StackRecipe(rounds=20, folds=2)
CONFIG = """\
fit:
  inspection: 0.002
  cheap: {k: 10}
  costly: {kind: stack, rounds: 20, folds: 2}
"""


@cache
def fitted() -> Router:
    return Router.fit(generate(), cheap=NeighbourRecipe(10), costly=QUICK, inspection_cost=0.002)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fitted().save(tmp_path / "router")
    return tmp_path / "router"


def test_what_the_manifest_says(folder: Path) -> None:
    told = json.loads((folder / "manifest.json").read_text())
    assert (told["format"], told["version"]) == ("pandora-router artifact", 5)
    assert told["record"]["fingerprint"] == generate().fingerprint()
    assert {"numpy", "lightgbm", "python", "pandora-router"} <= set(told["record"]["versions"])
    assert {"cheap", "costly", "signal", "policy"} <= set(told["record"]["settings"])
    assert told["record"]["evidence"]["evidence"]
    content = folder / told["content"]
    on_disk = {p.relative_to(content).as_posix() for p in content.rglob("*") if p.is_file()}
    assert set(told["files"]) == on_disk == {"state.json", "arrays.safetensors"}
    assert generate().prompts[0] not in (folder / "manifest.json").read_text()


def test_the_record_of_a_fit_is_in_the_manifest_and_comes_back(folder: Path) -> None:
    written = json.loads((folder / "manifest.json").read_text())["record"]
    keys = "fingerprint prompts versions settings evidence lengths report fit_cpu_seconds"
    assert set(written) == set(keys.split())
    record = Router.load(folder).record
    assert record.to_dict() == written
    assert record.standing["single"] in fitted().specialists
    added = dataclasses.replace(record, added=({"specialist": "poet"},))
    assert FitRecord.from_dict(added.to_dict()) == added
    with pytest.raises(TypeError):
        FitRecord.from_dict({**written, "unheard": 1})


def test_every_file_changed_cut_or_gone_is_refused(folder: Path, tmp_path: Path) -> None:
    names = [p.relative_to(folder) for p in folder.rglob("*") if p.is_file()]
    assert len(names) == 3
    for name in names:
        raw = (folder / name).read_bytes()
        middle = len(raw) // 2
        changed = raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :]
        for harm in (changed, raw[:-7], None):
            copy = tmp_path / "copy"
            shutil.copytree(folder, copy)
            (copy / name).unlink()
            if harm is not None:
                (copy / name).write_bytes(harm)
            with pytest.raises(UsageError):
                Router.load(copy)
            shutil.rmtree(copy)


def edited(folder: Path, change: dict[str, object]) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 3}, "format version 5, got 3. Another version"),
        ({"format": "pandora-router table"}, "another kind"),
        ({"specialists": ["small", "large"]}, "an edited one"),
        ({"default": "large"}, "an edited one"),
        ({"policy": {"kind": "Never", "settings": {}}}, "an edited one"),
        ({"files": {}}, "an edited one"),
    ],
)
def test_an_edited_manifest_is_refused(folder: Path, change: dict[str, object], told: str) -> None:
    edited(folder, change)
    with pytest.raises(UsageError, match=told):
        Router.load(folder)


def test_a_part_that_lacks_a_specialist_is_refused(tmp_path: Path) -> None:
    """Sealed and hashed, but put together from two routers."""
    small = Router.fit(generate(m=2), cheap=NeighbourRecipe(10), costly=QUICK, inspection_cost=0.002)
    for part in ("cheap", "costly", "signal", "costs", "fees"):
        mixed = dataclasses.replace(fitted(), **{part: getattr(small, part)})
        mixed.save(tmp_path / part)
        with pytest.raises(UsageError, match=r"lawyer|3 specialists in every part|\(3,\) was expected"):
            Router.load(tmp_path / part)


def test_what_is_there_is_only_replaced_on_request(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="that is there already"):
        fitted().save(folder)
    fitted().save(folder, replace=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="did not write"):
        fitted().save(tmp_path / "other", replace=True)
    with pytest.raises(UsageError, match=r"no such folder.*pandora fit"):
        Router.load(tmp_path / "nothing")
    with pytest.raises(UsageError, match="policy to keep"):
        fitted().with_policy(Optimal()).save(tmp_path / "optimal")
    assert not (tmp_path / "optimal").exists()


def test_a_ready_made_estimator_is_handed_over_again(tmp_path: Path) -> None:
    ready = Scorer(lambda query, name: 0.5)
    router = Router.fit(generate(), costly=External(ready), inspection_cost=0.01)
    router.save(tmp_path / "r")
    with pytest.raises(UsageError, match="costly="):
        Router.load(tmp_path / "r")
    again = Router.load(tmp_path / "r", costly=ready)
    assert again.route("count the king").specialist == router.route("count the king").specialist


@pytest.fixture
def place(tmp_path: Path) -> Path:
    save(generate(), tmp_path / "table")
    (tmp_path / "pandora.yaml").write_text(CONFIG)
    return tmp_path


def killed(place: Path, words: list[str], ready: Path, pattern: str) -> None:
    """Start a command in a process of its own and kill -9 it as soon as its work folder has something."""
    code = "from pandora_router.cli.main import main; main()"
    process = subprocess.Popen([sys.executable, "-c", code, *words], cwd=place)
    deadline = time.monotonic() + 60
    while not list(ready.glob(pattern)) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize("moment", [".router.work/estimator-*", ".router.draft-*/data-*/state.json"])
def test_fit_killed_leaves_nothing_and_goes_on(place: Path, moment: str) -> None:
    killed(place, ["fit", "pandora.yaml", "-o", "router"], place, moment)
    assert not (place / "router").exists()
    assert list((place / ".router.work").glob("estimator-*"))
    result = pandora("fit", place / "pandora.yaml", "-o", place / "router", "--json")
    assert result.exit_code == 0, result.output
    assert "an inspection costs" in result.stderr
    told = json.loads(result.stdout)
    assert {p.name for p in place.iterdir()} == {"pandora.yaml", "router", "table"}
    assert Router.load(place / "router").id == told["id"] == fitted().id
    prompts = generate().in_split("test").prompts[:20]
    assert [d.specialist for d in Router.load(place / "router").route_batch(prompts)] == [
        fitted().route(p).specialist for p in prompts
    ]


def test_a_stage_that_was_finished_is_not_fitted_again(tmp_path: Path) -> None:
    order = {"cheap": NeighbourRecipe(10), "costly": QUICK, "inspection_cost": 0.002, "work": tmp_path / "w"}
    Router.fit(generate(), **order)  # type: ignore[arg-type]
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "w").rglob("*")}
    steps: list[str] = []
    Router.fit(generate(), progress=lambda what, share: steps.append(what), **order)  # type: ignore[arg-type]
    assert "growing trees" not in steps
    assert stamps == {p: p.stat().st_mtime_ns for p in (tmp_path / "w").rglob("*")}
    Router.fit(generate(n=280), **order)  # type: ignore[arg-type]
    assert len(list((tmp_path / "w").iterdir())) == 6


def test_route_and_explain_as_a_user_types_them(tmp_path: Path) -> None:
    table = generate(contexts=True)
    router = Router.fit(table, cheap=NeighbourRecipe(10), costly=QUICK, inspection_cost=0.0005)
    router.save(tmp_path / "r")
    prompt, told = table.prompts[0], row_contexts(table, 0)
    assert pandora("route", "-r", tmp_path / "r", prompt).stdout.strip() == router.route(prompt).specialist
    assert "the default: the prompt is empty" in pandora("route", "-r", tmp_path / "r", " ").stdout
    (tmp_path / "told.json").write_text(json.dumps(told))
    result = pandora("explain", "-r", tmp_path / "r", prompt, "--contexts", tmp_path / "told.json", "--json")
    story = json.loads(result.stdout)
    assert story["decision"]["specialist"] == router.route(prompt, told).specialist
    assert len(story["alternatives"]) == 2
    pairs = [word for name, text in told.items() for word in ("--context", f"{name}={text}")]
    shown = pandora("explain", "-r", tmp_path / "r", prompt, *pairs[:2]).stdout
    for word in ("Step 1", "reservation", "backup", "runner-up", "not inspected", "not for sale", "gives up"):
        assert word in shown
    assert shown.index("chance to be right") < shown.index("net value") < shown.index("reservation")
    for choice in (story["chosen"], *story["alternatives"]):  # a worth has the weighted fee taken off
        fee = table.fee_weight * choice["mean_fee"]
        assert choice["score"] == pytest.approx(choice["worth"] + fee, abs=1e-9)
    both = pandora("explain", "-r", tmp_path / "r", prompt, "--json", "--html", tmp_path / "page.html")
    assert json.loads(both.stdout)["decision"]["specialist"] in (tmp_path / "page.html").read_text()
    for wrong in (["--context", "small"], ["--context", "nobody=x"], ["--contexts", tmp_path / "pandora"]):
        assert pandora("route", "-r", tmp_path / "r", prompt, *wrong).exit_code == 2
    assert pandora("route", "-r", tmp_path / "r").exit_code == 2
    assert pandora("route", prompt, "-r", tmp_path / "none").exit_code == 2


def test_refunds_are_kept(tmp_path: Path) -> None:
    """What comes back of each look is read back."""
    router = routers.fitted()
    own = np.full(len(router.specialists), 0.01)
    for refund in (0.5 * own, np.zeros_like(own)):
        costs = Costs(own, refund=refund)
        dataclasses.replace(router, costs=costs).save(tmp_path / f"router{refund[0]}")
        assert Router.load(tmp_path / f"router{refund[0]}").costs.refund.tolist() == refund.tolist()
