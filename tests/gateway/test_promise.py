"""The law: what `pandora fit` promises is what `pandora serve` delivers, by the provider's own books.

For each kind of `cancel`, streamed and whole answers are compared with the promise. Right answers and
dollars: none of the four figures may be beyond three combined standard errors, and at most one beyond two.
Looks depend on the machine as well: a look is priced by its seconds, and one that is late is not made, so a
machine that is busier than while it collected looks less often (docs/promise.md shows by how much). They must
be within `LOOKS` of the promise; where the two sides priced looks differently, there were none at all.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="pip install 'pandora-router[serve]'")

from benchmarks import promise

LOOKS = 0.3
"""The largest difference in looks, as a share of those promised, on a machine that other tests share."""


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return promise.collect(tmp_path_factory.mktemp("promise") / "collected")


@pytest.mark.slow
@pytest.mark.parametrize("cancel", promise.CANCELS)
def test_what_is_promised_is_delivered(collected: Path, tmp_path: Path, cancel: promise.Cancel) -> None:
    assert_delivered(promise.keep(collected, tmp_path / "router", cancel, asked=300))


@pytest.mark.slow
def test_what_is_promised_is_delivered_by_looks_side_by_side(collected: Path, tmp_path: Path) -> None:
    """A second has a price: looks of one purchase begin together, and each is charged what the books say."""
    folder = tmp_path / "router"
    assert_delivered(promise.keep(collected, folder, "stops", asked=300, value=promise.HURRIED))
    with closing(sqlite3.connect(folder / "pandora.sqlite")) as store:
        rows = [json.loads(detail)["decision"] for (detail,) in store.execute("SELECT detail FROM decisions")]
    sets = [(row, bought) for row in rows for bought in row["purchases"] if len(bought["specialists"]) > 1]
    assert len(sets) > 0.2 * len(rows)
    for row, bought in sets:
        lines = [row["specialists"][name] for name in bought["specialists"]]
        money = sum(line["inspection_cost"] - line["wait"] for line in lines)
        assert bought["cost"] == pytest.approx(money + max(line["wait"] for line in lines))


def assert_delivered(kept: promise.Kept) -> None:
    """Looks, right answers and dollars are as promised, for streamed and for whole answers."""
    assert kept.promised.looks.mean > 0.2  # a router that never looks would keep its promise easily
    for delivered in (kept.streamed, kept.whole):
        assert delivered.looks.mean == pytest.approx(kept.promised.looks.mean, rel=LOOKS), promise.table(
            [kept]
        )
    ways = [delivered.apart(kept.promised) for delivered in (kept.streamed, kept.whole)]
    apart = [way[figure] for way in ways for figure in ("right", "dollars")]
    assert max(apart) <= 3.0, promise.table([kept])
    assert sum(distance > 2.0 for distance in apart) <= 1, promise.table([kept])


def test_what_observe_says_is_what_is_done(collected: Path, tmp_path: Path) -> None:
    """The first step of nearly every request; measured lengths and speeds may tip a near tie."""
    found = promise.observe(collected, tmp_path / "observed", asked=120)
    assert found.did.mean > 0.2  # or nothing was looked at
    assert found.same.mean >= 0.9, promise.observed_table(found)
