"""`pandora explain`: one decision, step by step."""

from __future__ import annotations

import html
from pathlib import Path

import click
from rich.table import Table as Grid

from pandora_router.cli.console import Screen, echo, echo_json, table
from pandora_router.cli.options import CONTEXT, CONTEXTS, ROUTER, read_contexts
from pandora_router.config import served_router
from pandora_router.errors import UsageError
from pandora_router.folders import replace_text
from pandora_router.router import Explanation
from pandora_router.router import explain as tell
from pandora_router.router.decision import BoxStatus, Purchase
from pandora_router.router.explanation import Line, Step, amount
from pandora_router.router.picture import decision_svg
from pandora_router.text import money

MOST = 12  # specialists shown in a step; the others are only counted


@click.command()
@click.argument("prompt")
@ROUTER
@CONTEXT
@CONTEXTS
@click.option("--all", "everybody", is_flag=True, help=f"Show all specialists, not only the best {MOST}.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path),
    help="Write a page with a picture of the decision to this new file.",
)
def explain(
    prompt: str,
    artifact: Path,
    pairs: tuple[str, ...],
    file: Path | None,
    everybody: bool,
    as_json: bool,
    page: Path | None,
) -> None:
    """Route PROMPT and explain the decision: estimates, prices, purchases, runner-up, every alternative.

    \b
    Examples:
      pandora explain "What is 12 x 7?"
      pandora explain -r router "What is 12 x 7?" --contexts begun.json --json
      pandora explain "What is 12 x 7?" --html decision.html
    """
    if page is not None and page.exists():
        raise UsageError(str(page), expected="a new file", came="one that exists", do="Name another file.")
    router = served_router(artifact)
    contexts = read_contexts(pairs, file)
    story = tell(router, router.route(prompt, contexts), contexts)
    if page is not None:
        replace_text(page, drawn(story, prompt))
    if as_json:
        echo_json(story.to_dict())
        return
    if page is not None:
        echo(f"The decision is drawn in {page}")
        return
    show(Screen(), story, 10**6 if everybody else MOST)


def drawn(story: Explanation, prompt: str) -> str:
    """The decision as an HTML page without external resources."""
    worth, chosen = story.right_answer, story.chosen
    bill = (
        {} if chosen is None else {"chance to be right": f"{chosen.score:.3f}", "fee": money(chosen.mean_fee)}
    )
    for name, cost in story.bills.items():
        bill[name] = f"{amount(cost)} of reward" if worth is None else money(cost * worth)
    picture = decision_svg(story.decision.to_dict(), bill=bill)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>pandora-router decision</title>'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src '
        "'unsafe-inline'; base-uri 'none'\"></head><body>\n"
        f"<h1>One decision</h1>\n<pre>{html.escape(prompt)}</pre>\n{picture}\n</body></html>\n"
    )


def show(screen: Screen, story: Explanation, most: int) -> None:
    """Print a decision step by step."""
    decision = story.decision
    if decision.declined_because is not None:
        screen.say(
            f"{decision.specialist}, the default: the router declined because {decision.declined_because}"
        )
        return
    _choices(screen, story, most)
    estimates = decision.estimates
    cheap = {name: float(estimates.cheap[j]) for j, name in enumerate(estimates.specialists)}
    refunds = any(line.refund > 0.0 for step in story.steps for line in step.lines)
    for number, step in enumerate(story.steps, 1):
        screen.show(_table(step, number, cheap if number == 1 else {}, most, refunds=refunds))
        screen.say(f"-> {step.action}: {step.why}")
        if step.purchase is not None:
            _came(screen, step.purchase)
        if step.seen:
            screen.say(f"   {step.seen}")
        screen.print()
    unseen = [
        n for n, s in zip(estimates.specialists, estimates.status, strict=True) if s is BoxStatus.UNAVAILABLE
    ]
    if unseen:
        screen.say(f"Estimates not for sale, because no context was given: {', '.join(unseen)}")
    screen.say(
        f"{decision.specialist} answers; runner-up {story.runner_up!s}; "
        f"not inspected: {', '.join(story.held) or 'none'}"
    )
    bills = ", ".join(f"{name} {amount(bill)}" for name, bill in story.bills.items())
    screen.say(f"inspection costs: {bills}")
    screen.say(f"decision {decision.id}, artifact {decision.artifact}, {decision.seconds * 1e3:.1f} ms")


def _came(screen: Screen, purchase: Purchase) -> None:
    for name, g in zip(purchase.specialists, purchase.estimates, strict=True):
        outcome = f"{purchase.status}: {purchase.note}" if g is None else f"g = {g:.4f}"
        screen.say(f"   {name}: {outcome}")


def _table(step: Step, number: int, cheap: dict[str, float], most: int, *, refunds: bool) -> Grid:
    columns = ("specialist", "status", *(("f",) if cheap else ()), "mean", "std", "reservation", "backup")
    last = ("cost", "refund", "news") if refunds else ("cost", "news")
    lines = sorted(step.lines, key=lambda line: -line.mean)
    rows = []
    for line in lines[:most]:
        first = [f"{cheap[line.specialist]:z.3f}"] if cheap else []
        rows.append((line.specialist, line.status, *first, *_numbers(line, refunds)))
    title = f"Step {number} (spent so far: {amount(step.spent)})"
    grid = table(title, (*columns, *last), rows, words=2)
    if len(lines) > most:
        grid.caption = f"{len(lines) - most} more with lower means (show them with --all)"
    return grid


def _numbers(line: Line, refunds: bool) -> list[str]:
    sold = line.status is BoxStatus.SEALED
    prices = [
        "-" if not sold else endless if price is None else f"{price:z.3f}"
        for price, endless in ((line.reservation_price, "inf"), (line.backup_price, "-inf"))
    ]
    numbers = [line.inspection_cost, *([line.refund] if refunds else []), line.news]
    tail = [amount(number) if sold else "-" for number in numbers]
    return [f"{line.mean:z.3f}", f"{line.std:z.3f}", *prices, *tail]


def _choices(screen: Screen, story: Explanation, most: int) -> None:
    """Who could answer, in chances and money: the chosen specialist first, then the others by their worth."""
    chosen, worth = story.chosen, story.right_answer
    if chosen is None:
        return
    spent = story.bills["this decision"] * (worth or 0.0)
    bought = f", after {money(1000 * spent)} per 1,000 for estimates" if spent else ""
    valued = "" if worth is None else f"; 1,000 right answers are worth {money(1000 * worth)}"
    screen.say(
        f"{chosen.specialist} answers{bought}: chance to be right {chosen.score:.3f}, fee per 1,000 answers "
        f"{money(1000 * chosen.mean_fee)}{valued}"
    )
    rows = []
    for choice in (chosen, *story.alternatives[:most]):
        worths = choice.worth, choice.gives_up
        shown = [f"{x:z.3f}" if worth is None else money(1000 * x * worth) for x in worths]
        fee = money(1000 * choice.mean_fee)
        rows.append((choice.specialist, choice.status, f"{choice.score:z.3f}", fee, *shown))
    columns = ("specialist", "status", "chance to be right", "fee", "net value", "gives up")
    title = "Who could answer, after the estimates that were bought (money per 1,000 such prompts)"
    screen.show(table(title, columns, rows, words=2))
    screen.print()
