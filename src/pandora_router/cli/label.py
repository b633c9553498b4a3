"""`pandora learn label` and `shadow`: have logged prompts answered by others and scored by a judge."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pandora_router.cli.console import echo
from pandora_router.cli.keys import store_option, within
from pandora_router.errors import UsageError

if TYPE_CHECKING:
    from pandora_router.config.file import Config
    from pandora_router.learn.evidence import Evidence
    from pandora_router.store.export import Dispute

AT_ONCE = 20
"""Disputed requests that are bought before the evidence is read again."""


@click.command()
@click.argument("config", type=click.Path(path_type=Path, dir_okay=False), default=Path("pandora.yaml"))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("labels"), show_default=True,
    help="Routing table to write, or to add to.",
)  # fmt: skip
@click.option("--most", type=click.IntRange(1), default=200, show_default=True, help="Prompts at most.")
@click.option("--days", type=float, default=30.0, show_default=True, help="Days to go back.")
@store_option
def label(config: Path, output: Path, most: int, days: float, store: str) -> None:
    """Have logged prompts answered by every specialist and scored; write them as a routing table.

    A rated answer tells about one specialist, a prompt that all have answered about all of them. The prompts
    are a fair sample of those in the log (`serve: {bodies: true}`), whoever rated them. The section `grading`
    must name a judge or a function, since nothing is known of the right answer. At most
    `learn: {labels: {budget: DOLLARS}}` is spent in a month, and it counts against the budget of `goal`, too.
    Every bought answer is written to a journal beside the table, so that nothing is bought twice if the
    command is stopped and run again.

    \b
    Examples:
      pandora learn label
      pandora learn label pandora.yaml -o labels --most 50 --days 7
      pandora learn refit -r router -o router-b --labels labels
    """
    from pandora_router import folders
    from pandora_router.cli.collect import bought
    from pandora_router.collect.assemble import Question
    from pandora_router.config import read_config
    from pandora_router.data import merge, storage
    from pandora_router.store.export import sampled_prompts

    settings, now = read_config(config), time.time()
    known = storage.load(output) if output.exists() else None
    folders.check_output(output, storage.KIND, replace=known is not None, inputs=[config])
    drawn = within(store, lambda open_: sampled_prompts(open_, most, now - days * 86_400.0, now))
    plan = settings.label_plan(config.parent, tuple(Question(id_, text) for id_, text in drawn))
    month = datetime.fromtimestamp(now, UTC).strftime("%Y-%m")
    journal = output.with_name(f"{output.name}-{month}.journal")
    with counted(settings, journal, plan.budget, store) as most_money:
        collected = bought(replace(plan, budget=most_money), journal, settings.value.currency)
    if not collected.answers:
        raise UsageError(
            "learn.labels",
            expected="a budget for the answers of all specialists to one prompt, at their worst case",
            came=f"{plan.budget:g} a month, and no answer {'; '.join(collected.stopped.values())}".strip(),
            do="Raise learn.labels.budget, or give specialists and judge a lower limit of `tokens`.",
        )
    table = collected.table
    tables = [table] if known is None else [known.with_fee_weight(table.fee_weight), table]
    storage.save(merge(tables, prefer="last").table, output, replace=True, inputs=[config])
    whole = int((~table.missing.any(axis=1)).sum())
    echo(
        f"{whole:,} of {len(table):,} prompts have a score of every specialist, in {output}; "
        f"{settings.value.currency}{collected.spent:.4f} spent this month. "
        f"Next: pandora learn refit --labels {output}"
    )


@click.command()
@click.argument("config", type=click.Path(path_type=Path, dir_okay=False), default=Path("pandora.yaml"))
@click.option("--most", type=click.IntRange(1), default=400, show_default=True, help="Disputes at most.")
@click.option("--days", type=float, default=30.0, show_default=True, help="Days to go back.")
@store_option
def shadow(config: Path, most: int, days: float, store: str) -> None:
    """Compare an observing router to what it observes (`serve: {mode: observe}`), on disputed requests only.

    Where the router would have asked another specialist than the default, both answer the logged prompt and
    the judge of `grading` scores both answers. Buying ends as soon as one side is proven better, or when
    `learn: {shadow: {budget: DOLLARS}}` of this month is spent, which counts against the budget of `goal`,
    too. Every bought answer is in a journal beside the configuration: run again, the command goes on with
    what is new. Prompts must have been stored (`serve: {bodies: true}`).

    \b
    Examples:
      pandora learn shadow
      pandora learn shadow pandora.yaml --most 100 --days 7
    """
    from pandora_router.collect.assemble import Question
    from pandora_router.config import read_config
    from pandora_router.learn.evidence import CERTAIN
    from pandora_router.store.export import disputes

    settings, now = read_config(config), time.time()
    judged, found = within(store, partial(disputes, since=now - days * 86_400.0, until=now))
    if not found:
        raise UsageError(
            "disputed requests",
            expected="some that the router would have sent to another specialist, with a kept prompt",
            came=f"none among {judged:,} observed requests of the last {days:g} days",
            do="Serve with serve: {mode: observe, bodies: true} first.",
        )
    month = datetime.fromtimestamp(now, UTC).strftime("%Y-%m")
    journal = config.parent / f"shadow-{month}.journal"
    one = found[0]
    plan = settings.shadow_plan(config.parent, (Question(one.id, one.prompt),), (one.asked, one.proposed))
    with counted(settings, journal, plan.budget, store) as most_money:
        evidence, spent = compared(settings, config, found[:most], journal, most_money)
    share, sign = len(found) / judged, settings.value.currency
    echo(
        f"The router disputes {len(found):,} of {judged:,} observed requests ({share:.0%}). On "
        f"{evidence.rated:,} of them both answers were scored: its choice earns {evidence.mean:+.3f} "
        f"({evidence.standard_error:.3f}) more on each. {sign}{spent:.4f} spent this month."
    )
    if evidence.promote >= CERTAIN:
        echo("It is proven better. Next: serve: {mode: route}")
    elif evidence.drop >= CERTAIN:
        echo("It is proven worse. Next: fit it on more scored prompts.")
    else:
        echo(
            f"Evidence that it is better: {evidence.promote:,.3g}; that it is worse: {evidence.drop:,.3g}; "
            f"{CERTAIN:g} proves it. Next: pandora learn shadow, with more requests or budget."
        )


def compared(
    settings: Config, config: Path, found: Sequence[Dispute], journal: Path, most: float
) -> tuple[Evidence, float]:
    """The evidence from `found`, in this order, and what was spent this month; ends once it is decided.

    The purchases in `journal` cost `most` at most, those of earlier runs included.
    """
    from pandora_router.cli.collect import bought
    from pandora_router.collect.assemble import Question
    from pandora_router.learn.evidence import CERTAIN, WORST, Evidence

    evidence, spent = Evidence.start(), 0.0
    for start in range(0, len(found), AT_ONCE):
        some, rewards = found[start : start + AT_ONCE], dict[str, dict[str, float]]()
        for names in sorted({(one.asked, one.proposed) for one in some}):
            mine = [one for one in some if (one.asked, one.proposed) == names]
            questions = tuple(Question(one.id, one.prompt) for one in mine)
            plan = replace(settings.shadow_plan(config.parent, questions, names), budget=most)
            collected = bought(plan, journal, settings.value.currency)
            spent = collected.spent
            if not collected.answers:
                continue
            table = collected.table.only(names)
            for id_, row in zip(table.prompt_ids, table.reward.tolist(), strict=True):
                rewards[id_] = dict(zip(names, row, strict=True))
        before = evidence.rated
        for one in some:
            pair = [rewards.get(one.id, {}).get(name, math.nan) for name in (one.asked, one.proposed)]
            asked, proposed = (min(max(reward, WORST), 1.0) for reward in pair)
            if math.isfinite(sum(pair)) and max(evidence.promote, evidence.drop) < CERTAIN:
                evidence = evidence.after(proposed - asked, 1.0 - WORST)
        if evidence.rated == before or max(evidence.promote, evidence.drop) >= CERTAIN:
            break
    return evidence, spent


@contextmanager
def counted(settings: Config, path: Path, budget: float, store: str) -> Iterator[float]:
    """Count what is bought inside against the budget of `goal`; gives the most that the journal may cost.

    That is `budget`, with what the journal at `path` has cost before, or less where the budget of `goal` has
    less left. The rest of it is reserved until the end, so that requests cannot spend the same money.
    Raises `UsageError` if nothing is left.
    """
    from pandora_router.collect.journal import Journal
    from pandora_router.config.worth import shared_budget
    from pandora_router.store.explored import charge_labels, set_aside
    from pandora_router.store.money import dollars, nanodollars

    if settings.goal is None or settings.goal.budget is None:
        yield budget
        return
    shared = shared_budget("", settings.goal.budget, settings.goal.per)

    def cost() -> float:
        with Journal(path) as journal:
            return float(journal.spent + journal.lost)

    before, name = cost(), str(path.resolve())
    wanted = nanodollars(max(budget - before, 0.0))
    amount = within(
        store, lambda open_: set_aside(open_, shared, name, wanted, nanodollars(before), time.time())
    )
    if amount == 0 < wanted:
        raise UsageError(
            "the budget of goal",
            expected="money that is left for labels",
            came=f"nothing left of {settings.goal.budget:g} per {shared.period} (pandora log status)",
            do="Wait for the next period, or raise the budget.",
        )
    try:
        yield budget if amount == wanted else before + dollars(amount)
    finally:
        within(store, lambda open_: charge_labels(open_, shared, name, nanodollars(cost()), time.time()))
