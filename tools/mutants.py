"""Small wrong changes to the code, and the tests that must notice them: `python -m tools.mutants [ROOM ...]`.

    python -m tools.mutants                 every change of the list
    python -m tools.mutants money store     those of two rooms

Each `Mutant` replaces one piece of one file by another that means something else. It is made in a copy of
`src` in a temporary folder, and the tests of its file (`TESTS`) run against that copy; the working tree is
never changed. A mutant survives if all of them pass: none of them holds what the line promises. Prints a line
per mutant and the number of survivors, and exits with 1 if more than `MOST` survive. Before the first mutant
of a file its tests run on the code as it is, because a test that fails anyway notices nothing. About half an
hour on a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "pandora_router"
MOST = 3
"""Survivors that are allowed."""
SECONDS = 3600.0
"""A run of tests that takes longer ends the command with an error: it says nothing about the mutant."""
TESTS: dict[str, tuple[str, ...]] = {
    "index.py": (
        "tests/oracles/test_index.py::test_unit_loss_is_exact_to_four_units_in_the_last_place",
        "tests/oracles/test_index.py::test_inverse_is_exact_to_eight_units_in_the_last_place",
        "tests/oracles/test_index.py::test_compiled_twins",
    ),
    "search/payoffs.py": (
        "tests/oracles/test_payoffs.py::test_a_box_that_was_opened_before_is_worth_its_value_and_its_refund_once",
        "tests/oracles/test_payoffs.py::test_a_lost_box_still_moves_with_the_others",
    ),
    "calibrate/reward_mean.py": ("tests/oracles/test_pooled.py",),
    "calibrate/choose.py": (
        "tests/oracles/test_pooled.py::test_the_guard_forgives_one_standard_error_of_many_prompts_and_less_of_few",
    ),
    "calibrate/ways.py": (
        "tests/laws/test_outcomes.py::test_of_equally_cheap_specialists_the_better_one_is_called_the_cheapest",
    ),
    "evaluate/statistics.py": (
        "tests/oracles/test_statistics.py::test_the_error_is_the_textbook_one_when_rows_are_alone",
        "tests/oracles/test_statistics.py::test_with_few_clusters_the_interval_is_that_of_student",
        "tests/oracles/test_statistics.py::test_a_star_of_two_splits_needs_students_many_standard_errors",
        "tests/oracles/test_statistics.py::test_clusters_whose_rows_cancel_do_not_narrow_the_doubt",
        "tests/oracles/test_statistics.py::test_the_doubt_is_the_larger_of_both_errors",
    ),
    "evaluate/outcomes.py": (
        "tests/laws/test_outcomes.py::test_standard_error_is_that_of_the_prompts",
        "tests/laws/test_outcomes.py::test_gains_and_savings_are_what_is_left_after_looks",
    ),
    "gateway/request/choice.py": ("tests/gateway/test_prices.py",),
    "prices/lengths.py": ("tests/specialists/test_prices.py", "tests/gateway/test_prices.py"),
    "prices/tariff.py": ("tests/specialists/test_prices.py", "tests/gateway/test_prices.py"),
    "store/money.py": ("tests/store/test_money.py",),
    "store/accounts.py": ("tests/store/test_laws.py",),
    "store/budgets.py": ("tests/store/test_laws.py",),
    "store/maintenance.py": ("tests/store/test_dead_processes.py", "tests/store/test_maintenance.py"),
    "store/rollups.py": (
        "tests/store/test_queries.py::test_totals_are_the_sums_of_the_closed_decisions",
        "tests/store/test_queries.py::test_feedback_that_replaces_feedback_is_counted_once",
        "tests/store/test_laws.py::test_sums_per_minute_equal_sums_over_the_log",
    ),
    "market/mechanisms.py": (
        "tests/laws/test_auction.py",
        "tests/scripts/test_market_scripts.py",
        "tests/laws/test_market_laws.py::test_descending_with_a_reserve_is_the_obligatory_router_with_an_outside_option",
        "tests/laws/test_market_laws.py::test_one_bidder_alone_needs_a_reserve",
        "tests/laws/test_market_laws.py::test_the_batch_is_the_driver",
        "tests/laws/test_market_laws.py::test_the_sealed_batch_is_the_driver",
        "tests/oracles/test_market_vectors.py",
    ),
    "market/posted.py": (
        "tests/laws/test_auction.py",
        "tests/scripts/test_market_scripts.py",
    ),
    "learn/drift.py": ("tests/learn/test_refit.py", "tests/learn/test_trial_rows.py"),
    "learn/evidence.py": ("tests/learn/test_evidence.py", "tests/learn/test_trial_rows.py"),
    "learn/pace.py": ("tests/learn/test_pace.py",),
    "learn/refit.py": ("tests/learn/test_refit.py",),
    "estimators/pooled.py": ("tests/learn/test_pooled.py",),
    "boxes/costs.py": (
        "tests/oracles/test_side_by_side.py",
        "tests/laws/test_boxes.py::test_only_the_group_of_a_box_is_settled",
    ),
    "calibrate/laws.py": ("tests/oracles/test_laws.py",),
    "learn/exploration.py": ("tests/learn/test_exploration.py",),
    "learn/mix.py": ("tests/learn/test_mix.py",),
    "market/plans.py": ("tests/laws/test_market_laws.py", "tests/oracles/test_market_vectors.py"),
    "market/strategies.py": ("tests/laws/test_auction.py", "tests/scripts/test_market_scripts.py"),
    "store/alerts.py": ("tests/store/test_trials.py",),
    "store/explored.py": ("tests/store/test_explored.py", "tests/store/test_export.py"),
    "store/export.py": ("tests/store/test_export.py",),
    "store/promises.py": ("tests/store/test_promises.py",),
    "store/versions.py": ("tests/store/test_trials.py",),
}
"""The tests that hold what a file promises: they run for every mutant of the file, with no other test.

Other tests of the repository may notice a mutant too; one that survives here may be noticed there.
"""


@dataclass(frozen=True)
class Mutant:
    """One change: in `path` below the package, the only occurrence of `old` becomes `new`."""

    room: str
    path: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}: {self.old.strip()}  ->  {self.new.strip() or 'nothing'}"

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests that run against this mutant."""
        return TESTS[self.path]

    def of(self, text: str) -> str:
        """The changed text. Raises `ValueError` unless `old` occurs in it exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.path}: {self.old!r} occurs {text.count(self.old)} times, not once")
        return text.replace(self.old, self.new)


MUTANTS = (
    Mutant("named", "index.py", "LINEAR = 9.0 ", "LINEAR = 5.0 "),
    Mutant("named", "search/payoffs.py", "worth -= trace.refunded", "worth -= 0.0"),
    Mutant("named", "calibrate/reward_mean.py", "SLOPE = (0.75, 0.2)", "SLOPE = (0.75, 0.4)"),
    Mutant(
        "named",
        "gateway/request/choice.py",
        "min(compared.lengths.output.given(answered.reader.usage.output), compared.most)",
        "answered.reader.usage.output",
    ),
    Mutant(
        "named", "prices/lengths.py", "whole = min(round(size * ratio), size)", "whole = round(size * ratio)"
    ),
    Mutant("statistics", "evaluate/statistics.py", "spread / draws * count / (count - 1)", "spread / draws"),
    Mutant("statistics", "evaluate/statistics.py", "half = quantile(level, count - 1)", "half = 1.96"),
    Mutant(
        "statistics",
        "evaluate/statistics.py",
        "quantile(level, count - 1) * split_error",
        "quantile(level, np.inf) * split_error",
    ),
    Mutant("statistics", "evaluate/statistics.py", "np.maximum(1.0, np.divide", "np.maximum(0.0, np.divide"),
    Mutant("statistics", "evaluate/outcomes.py", "/ (n - 1) / n))", "/ n / n))"),
    Mutant(
        "statistics",
        "calibrate/choose.py",
        "self.error * min(1.0, self.prompts / MANY)",
        "self.error",
    ),
    Mutant("statistics", "calibrate/ways.py", "-float(means[j])))", "float(means[j])))"),
    Mutant("money", "store/money.py", "else math.ceil(amount * UNIT)", "else math.floor(amount * UNIT)"),
    Mutant(
        "money", "store/money.py", "timedelta(days=today.weekday())", "timedelta(days=today.isoweekday() % 7)"
    ),
    Mutant(
        "money",
        "prices/tariff.py",
        'may = {"cached_in", "cached_write", *demand.parts}',
        'may = {"cached_in", *demand.parts}',
    ),
    Mutant("money", "prices/lengths.py", "if now - at < CACHED else 0", "if now - at < 2 * CACHED else 0"),
    Mutant("money", "prices/lengths.py", "share = max(1.0 / self.count, NEW)", "share = 1.0 / self.count"),
    Mutant(
        "money",
        "prices/lengths.py",
        "written = min(seen + lengths.held, answer)",
        "written = min(seen, answer)",
    ),
    Mutant("store", "store/accounts.py", "latest, ahead = now + 60.0 - step", "latest, ahead = now + 60.0"),
    Mutant("store", "store/budgets.py", "used = min(max(cost, 0), lease.remaining)", "used = max(cost, 0)"),
    Mutant("store", "store/budgets.py", "if lease.closed_at is None or cost:", "if lease.closed_at is None:"),
    Mutant(
        "store", "store/budgets.py", "open_.grow(GROW, row, (0, need, 0))", "open_.grow(GROW, row, (0, 0, 0))"
    ),
    Mutant("store", "store/maintenance.py", "seen_at < now - SILENT", "seen_at < now - 10 * SILENT"),
    Mutant("store", "store/rollups.py", "now * now - old * old", "now * now"),
    Mutant("market", "market/mechanisms.py", "max(_highest(limits)[1], self.reserve)", "_highest(limits)[1]"),
    Mutant("market", "market/mechanisms.py", "if limit >= price}", "if limit > price}"),
    Mutant(
        "market",
        "market/mechanisms.py",
        "max(until, limit) <= self.reserve",
        "max(until, limit) < self.reserve",
    ),
    Mutant("market", "market/mechanisms.py", "answer.limit >= price", "answer.limit > price"),
    Mutant("market", "market/mechanisms.py", "float(mean[j]) - worth, looking", "looking"),
    Mutant("market", "market/posted.py", "float(costs.own.sum()) - back", "float(costs.own.sum())"),
    Mutant("learning", "learn/drift.py", "last = later[-FIRST:]", "last = later"),
    Mutant("learning", "learn/evidence.py", "width / min(delta, 1.0 - delta)", "width / delta"),
    Mutant(
        "learning",
        "learn/evidence.py",
        "self.least else replace(made, vetoed=made.mean < -made.standard_error)",
        "self.least else replace(made, vetoed=made.mean < 0.0)",
    ),
    Mutant("learning", "learn/pace.py", "expected=forget * self.expected", "expected=self.expected"),
    Mutant("learning", "learn/refit.py", "there = traffic.specialists.index(name)", "there = column"),
    Mutant(
        "learning", "estimators/pooled.py", "share = tc / (ts + specialists * tc)", "share = tc / (ts + tc)"
    ),
    Mutant("statistics", "calibrate/laws.py", "if lead.mean() > SURE * lead", "if lead.mean() > 0.0 * lead"),
    Mutant(
        "statistics",
        "calibrate/laws.py",
        "fit_laws(mean[~held], standardised[~held], spread[~held], kind)",
        "fit_laws(mean, standardised, spread, kind)",
    ),
    Mutant("statistics", "store/promises.py", "z * z / (4 * n * n)", "z * z / (4 * n)"),
    Mutant("statistics", "store/promises.py", "(total + 2.0) / len(more)", "(total + 4.0) / len(more)"),
    Mutant(
        "statistics", "store/promises.py", "if self.low >= self.promise", "if self.reached >= self.promise"
    ),
    Mutant("statistics", "evaluate/outcomes.py", "gain = score - fee - routed.spent", "gain = score - fee"),
    Mutant(
        "statistics", "learn/evidence.py", "(self.rated - 1)\n        return", "self.rated\n        return"
    ),
    Mutant("money", "prices/tariff.py", "usage.read > threshold", "usage.read >= threshold"),
    Mutant("money", "prices/tariff.py", "(usage.written - usage.written_hour)", "usage.written"),
    Mutant("money", "prices/tariff.py", "return whole if whole >= CACHEABLE else 0", "return whole"),
    Mutant("money", "prices/tariff.py", "== ANY and name != BATCH)", "== ANY)"),
    Mutant("money", "store/alerts.py", "score - fee - float(worth)", "score - float(worth)"),
    Mutant(
        "money",
        "evaluate/outcomes.py",
        "readings.fee[:, single] - fee - routed.spent",
        "readings.fee[:, single] - fee",
    ),
    Mutant(
        "store",
        "store/promises.py",
        "ORDER BY f.at DESC, f.id DESC LIMIT 1) FROM",
        "ORDER BY f.at, f.id LIMIT 1) FROM",
    ),
    Mutant("store", "store/promises.py", "AND d.worth IS NOT NULL ", ""),
    Mutant("store", "store/promises.py", "float(mean + deducted)", "float(mean)"),
    Mutant("store", "store/versions.py", "AND r.counted_at IS NULL AND r.at", "AND r.at"),
    Mutant("store", "store/versions.py", '"AND d.specialist = d.asked) rated', '") rated'),
    Mutant(
        "store",
        "store/versions.py",
        "parent.artifact, parent.parent, why",
        "parent.artifact, parent.number, why",
    ),
    Mutant("store", "store/maintenance.py", "if deleted == log.BLOCK:", "if deleted > log.BLOCK:"),
    Mutant(
        "market",
        "market/strategies.py",
        "looks = lower <= call.price <= upper",
        "looks = call.price <= upper",
    ),
    Mutant("market", "market/strategies.py", "return Bid(mean - self.shade)", "return Bid(mean)"),
    Mutant(
        "market",
        "market/plans.py",
        "looks = batch.mean < price if sealed",
        "looks = batch.mean > price if sealed",
    ),
    Mutant("market", "market/plans.py", "Plans(plans.looks & ~mine, plans", "Plans(plans.looks, plans"),
    Mutant(
        "market",
        "market/plans.py",
        "self.inspected & self._won, self.refund, 0.0)\n\n",
        "self.inspected, self.refund, 0.0)\n\n",
    ),
    Mutant(
        "learning", "learn/exploration.py", "times = (ratings - counts) / counts", "times = ratings / counts"
    ),
    Mutant("learning", "learn/exploration.py", "if taught > loss[m] and", "if taught > 0.0 and"),
    Mutant("learning", "learn/exploration.py", "sum(self.law.noise) / rate))", "sum(self.law.noise)))"),
    Mutant("learning", "learn/exploration.py", "< old, SHARE, 1.0)", "< old, 1.0, 1.0)"),
    Mutant("learning", "learn/mix.py", "alarms=self.alarms + 1, keys=self.keys)", "alarms=self.alarms + 1)"),
    Mutant(
        "learning",
        "learn/evidence.py",
        "evidence.after(mean, largest(together[0].share, 1.0 - WORST))",
        "evidence.after(mean, largest(0.5, 1.0 - WORST))",
    ),
    Mutant(
        "learning", "learn/evidence.py", "share = max(per_key, 1.0 / max(len(mine), 1))", "share = per_key"
    ),
    Mutant("learning", "learn/drift.py", "shift=self.shift + self.change", "shift=self.change"),
    Mutant("store", "store/explored.py", "SELECT count(DISTINCT f.decision)", "SELECT count(f.decision)"),
    Mutant("store", "store/explored.py", "(19 * len(late) - 1) // 20", "(9 * len(late) - 1) // 10"),
    Mutant(
        "store",
        "store/export.py",
        "ORDER BY f.at DESC, f.id DESC LIMIT 1),\n           d.worth",
        "ORDER BY f.at, f.id LIMIT 1),\n           d.worth",
    ),
    Mutant("learning", "learn/pace.py", "SPARE * math.sqrt(expected)", "0.0 * math.sqrt(expected)"),
    Mutant("learning", "learn/pace.py", " / max(learnt.ratio, 1e-9)", ""),
    Mutant("money", "boxes/costs.py", "waits.sum() - waits.max()", "waits.sum() - waits.min()"),
    Mutant(
        "money",
        "boxes/costs.py",
        "shared[self.group[box]] = 0.0\n        locked",
        "shared[:] = 0.0\n        locked",
    ),
)


def passes(source: Path, tests: Sequence[str]) -> bool:
    """Whether these tests pass with the package in `source`; stops at the first that fails.

    Tests draw the same examples each time, so that a mutant is noticed for what it changes, not by chance.

    Raises `subprocess.TimeoutExpired` after `SECONDS`.
    """
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider", *tests]
    same_examples = {"PYTHONPATH": str(source), "HYPOTHESIS_PROFILE": "ci"}
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | same_examples, capture_output=True, timeout=SECONDS, check=False
    )
    return done.returncode == 0


def survives(mutant: Mutant, source: Path) -> bool:
    """Whether the tests of its file pass with the mutant in the copy `source`, restored afterwards."""
    path = source / PACKAGE / mutant.path
    kept = path.read_text(encoding="utf-8")
    path.write_text(mutant.of(kept), encoding="utf-8")
    try:
        return passes(source, mutant.tests)
    finally:
        path.write_text(kept, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [*dict.fromkeys(mutant.room for mutant in MUTANTS)]
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=", ".join(known))
    rooms = parser.parse_args().rooms or known
    if unknown := [room for room in rooms if room not in known]:
        parser.error(f"no such room: {', '.join(unknown)}; choose from {', '.join(known)}")
    survivors: list[Mutant] = []
    sound: set[tuple[str, ...]] = set()
    tried = 0
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source)
        for mutant in (each for room in rooms for each in MUTANTS if each.room == room):
            if mutant.tests not in sound and not passes(source, mutant.tests):
                sys.exit(f"{mutant.path}: its tests fail on the code as it is. Mend them first.")
            sound.add(mutant.tests)
            begun, tried = time.monotonic(), tried + 1
            alive = survives(mutant, source)
            survivors += [mutant] * alive
            word = "SURVIVES" if alive else "noticed"
            print(f"{mutant.room:10}  {word:8}  {time.monotonic() - begun:4.0f} s  {mutant}", flush=True)
    print(f"{len(survivors)} of {tried} survive")
    sys.exit(len(survivors) > MOST)


if __name__ == "__main__":
    main()
