"""The HTML report in a real Chromium: what its script drew, and what it does when somebody uses it."""

from __future__ import annotations

import html
import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pandora_router.boxes import Costs
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import Standing
from pandora_router.evaluate import results
from pandora_router.evaluate.arms import DEFAULT, RAW, named
from pandora_router.evaluate.experiments import Experiment
from pandora_router.evaluate.outcomes import sweep
from pandora_router.evaluate.results import Results
from pandora_router.evaluate.trials import Trial
from pandora_router.report import summary
from pandora_router.report.html import BAND, page
from tests.support.elements import Elements

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
browser = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"),
    reason="no Chromium: `apt-get install chromium` (CI installs it)",
)
COSTS = (0.001, 0.01, 0.05)
EVIL = """A </script><img src=x onerror="document.title='broken'"> & <b>"pair"</b> **bold**"""
ARMS = ("never inspect", "always inspect, raw g", "oracle", "f-only")


def arrays(rng: np.random.Generator, n: int) -> Readings:
    chance = rng.random((n, 2))
    f, g = (np.clip(chance + s * rng.standard_normal((n, 2)), 0, 1) for s in (0.3, 0.1))
    score = (rng.random((n, 2)) < chance).astype(float)
    fee = np.broadcast_to([0.0, 0.1], (n, 2))
    return Readings(f, g, score - fee, fee)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Results]:
    """Two experiments of three splits each, on disk and read back."""
    home, made = tmp_path_factory.mktemp("results"), []
    for name, title in (("first", EVIL), ("second", "Another")):
        experiment = Experiment(name, "nowhere", title=title, neighbours=(7, 3), costs=COSTS)
        for seed in (1, 2, 3):
            rng = np.random.default_rng([seed, len(name)])
            runs = {}
            for k in experiment.neighbours:
                trial = Trial(arrays(rng, 120), arrays(rng, 200), Standing(0, 0))
                runs[k] = trial, sweep(trial, named(ARMS), COSTS, lambda c: Costs([c, c]), seed)
            results.write(home / name, experiment, seed, "key", results.flat(experiment, seed, runs))
        made.append(results.read(home / name))
    return made


@pytest.fixture(scope="module")
def document(found: list[Results]) -> str:
    pictures = {one.name: f"figures/{one.name}.png" for one in found}
    return page(found, summary.markdown(found, pictures))


def rendered(document: str, folder: Path, *, view: str = "", script: str = "") -> str:
    """The page as it stands after its script, and one of ours, ran."""
    if CHROMIUM is None:
        pytest.fail("no Chromium in CI")
    path = folder / "page.html"
    path.write_text(document.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    words = [
        "--headless=new",
        "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=2000",
    ]
    words += ["--no-sandbox"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [CHROMIUM, *words, "--dump-dom", f"{path.as_uri()}#{view}"],
        capture_output=True,
        timeout=90,
        check=True,
    )
    return done.stdout.decode()


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path)]


def affine(values: list[float], pixels: list[float]) -> bool:
    """Whether pixels are a + b x values to a tenth of a pixel."""
    fit = np.polyfit(values, pixels, 1)
    return bool(np.allclose(np.polyval(fit, values), pixels, atol=0.11))


def test_the_page_loads_nothing_and_titles_are_text(document: str) -> None:
    elements = Elements(document)
    assert not [a for _, a in elements.all if {"src", "href", "srcset", "action"} & set(a)]
    assert not elements.of("link")
    assert not elements.of("img")
    assert (
        "default-src 'none'" in elements.of("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"]
    )
    assert not re.search(r"url\((?!#)|@import|fetch\(|XMLHttpRequest|innerHTML|eval\(", document)
    assert len(document) < 200_000
    data = re.search(r'id="data">(.*?)</script>', document, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["experiments"][0]["title"] == EVIL
    assert html.escape("</script><img") in document


@browser
def test_curves_lie_where_the_numbers_are(document: str, found: list[Results], tmp_path: Path) -> None:
    dom = Elements(rendered(document, tmp_path, view="experiment=second&f=3&metric=total&costs=log"))
    second, shown = found[1], (DEFAULT, "never inspect", "f-only")
    values, pixels = [], []
    for arm in shown:
        corners = points(dom.of("path", **{"class": "curve", "data-arm": arm})[0]["d"])
        assert affine([math.log(c) for c in COSTS], [x for x, _ in corners])
        values += [second.mean("total", (3, c, arm)) for c in COSTS]
        pixels += [y for _, y in corners]
    assert affine(values, pixels)
    assert not dom.of("path", **{"class": "curve", "data-arm": "oracle"})  # not among the first shown
    edge = points(dom.of("path", **{"class": "band", "data-arm": DEFAULT})[0]["d"])
    key = (3, COSTS[0], DEFAULT)
    splits = np.std([seed.rows[key]["total"] for seed in second.seeds.values()], ddof=1) / math.sqrt(3)
    half = BAND * max(float(splits), second.mean("total_error", key))
    mean = second.mean("total", key)
    assert affine([*values, mean + half, mean - half], [*pixels, edge[0][1], edge[-1][1]])


USE = """
const told = [], get = (id) => document.getElementById(id);
const all = (what) => [...document.querySelectorAll(what)];
const key = (name) => all("#explorer svg")[0].dispatchEvent(new KeyboardEvent("keydown", {key: name}));
const arms = () => all("path.curve").map((p) => p.dataset.arm).sort();
const button = (arm) => all(".legend button").find((b) => b.dataset.arm === arm);
const put = (id, value) => { get(id).value = value; get(id).dispatchEvent(new Event("change")); };
const say = () => all(".readout")[0].textContent;
told.push(arms());
button("never inspect").click();
button("oracle").click();
told.push(arms(), button("never inspect").getAttribute("aria-pressed"));
button("oracle").dispatchEvent(new MouseEvent("dblclick", {bubbles: true}));
told.push(arms());
key("ArrowRight");
key("ArrowRight");
told.push(say());
key("Escape");
told.push(say());
put("choose-metric", "above");
put("choose-experiment", "1");
key("End");
button("always inspect, raw g").click();
told.push(say(), location.hash, all("#explorer img").length, document.title);
get("choose-log").checked = false;
get("choose-log").dispatchEvent(new Event("change"));
told.push(all("path.curve")[0].getAttribute("d"));
const pre = document.createElement("pre");
document.body.append(Object.assign(pre, {id: "told", textContent: JSON.stringify(told)}));
"""


@browser
def test_somebody_uses_it(document: str, found: list[Results], tmp_path: Path) -> None:
    text = rendered(document, tmp_path, script=USE)
    first = re.search(r'<pre id="told">(.*?)</pre>', text, re.DOTALL)
    assert first is not None, text[-500:]
    start, changed, pressed, alone, read, gone, above, view, images, title, line = json.loads(
        html.unescape(first[1])
    )
    assert start == sorted([DEFAULT, "never inspect", "always inspect, raw g", "f-only"])
    assert changed == sorted([DEFAULT, "oracle", "always inspect, raw g", "f-only"])
    assert (pressed, alone) == ("false", ["oracle"])
    assert read.startswith("regret + cost at c = 0.05")
    assert "0.0000 ± 0.0000" in read  # what the oracle loses
    assert gone == ""
    pairs = [((7, 0.05, arm), (7, 0.05, DEFAULT)) for arm in ("oracle", RAW)]
    gap = found[1].compare(pairs)
    said = re.fullmatch(
        r".*c = 0.05● oracle(\S+) ± (\S+)( ★)?● always inspect, raw g(\S+) ± (\S+)( ★)?", above
    )
    assert said is not None, above
    assert [float(said[1]), float(said[4])] == pytest.approx(
        (1e3 * gap.mean).tolist(), abs=0.501
    )  # whole numbers are shown
    assert [said[3] is not None, said[6] is not None] == gap.star.tolist()
    assert view == "#experiment=second&f=7&metric=above&costs=log"
    assert (images, title) == (0, "pandora-router results")
    assert affine(list(COSTS), [x for x, _ in points(line)])
    assert EVIL in html.unescape(text)
