"""`python -m benchmarks.looks`: what looking before deciding costs and earns, through a live gateway.

Four specialists of the demo answer held-out questions over HTTP: SmolLM2-135M with examples, live in this
process (or from the record with --played), and a calculator, the open book and the strong model, whose
recorded answers are played at their recorded speed (divided by --speed). Prices per token are those at which
the recorded processor seconds cost 5 cents an hour, and a right answer is worth ten processor seconds, as in
the demo. Every way is asked the same questions:

    held          looks through the gateway: streams are held, the winner's goes on, the policy knows it
    held, blind   the same calls and bills, by a policy that does not know that looks come back
    capped        a look is a call of its own (8 tokens), the winner is asked again: nothing comes back
    no looks      the same router without inspections
    always all    everybody begins, the best goes on
    always X      one specialist, no routing

Money is what the gateway charged (a loser: its prompt and what it wrote until it was cancelled), seconds are
from question to last byte. "net" is right answers minus money at the value of a right answer, per question.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table as Shown
from scipy.optimize import nnls

from benchmarks.stage import BOOK, CALCULATOR, NAMES, NOTHING, SMALL, STRONG, Stage
from pandora_router.boxes import Costs
from pandora_router.collect.assemble import Question
from pandora_router.data import Table
from pandora_router.demo.questions import recorded
from pandora_router.demo.records import Recorded, graded
from pandora_router.demo.specialists import FIRST
from pandora_router.demo.study import WEIGHT
from pandora_router.gateway.generation import Settings, Site
from pandora_router.gateway.http.app import Gateway
from pandora_router.gateway.providers.backend import Backend
from pandora_router.prices import Tariff
from pandora_router.router import Router, StackRecipe
from pandora_router.router.deciding import Looks, deciding
from pandora_router.router.driver import estimated, judged
from pandora_router.router.inspection import request_costs
from pandora_router.router.purchases import Ask, Paid
from pandora_router.search import Always, Never, Policy
from pandora_router.search.state import Action, State
from pandora_router.specialists.specialist import Answer
from pandora_router.store.money import dollars
from pandora_router.store.worker import Store
from pandora_router.transport.endpoint import Endpoint
from pandora_router.wires.look import LookLength, shown

PER_HOUR = 0.05
"""Dollars for an hour of one processor, as in the demo."""


@dataclass(frozen=True)
class Blind:
    """A policy that is told that no look comes back."""

    policy: Policy

    def start(self, state: State) -> Policy:
        return replace(self, policy=self.policy.start(self._blinded(state)))

    def next(self, state: State) -> Action:
        return self.policy.next(self._blinded(state))

    def _blinded(self, state: State) -> State:
        costs = state.boxes.costs
        plain = Costs(costs.own, costs.shared, costs.group)
        return replace(state, boxes=state.boxes._changed(costs=plain))  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Result:
    """One question answered in one way; `looks` is how many specialists were looked at."""

    right: float
    money: float
    seconds: float
    looks: int


def tariffs(record: Recorded) -> dict[str, Tariff]:
    """Dollars per million tokens at which recorded processor seconds cost `PER_HOUR` (least squares)."""
    found = {}
    for name in NAMES:
        answers = [one for (_, who), one in record.answers.items() if who == name and one.tokens_out]
        if not answers:
            found[name] = Tariff(0.0, 0.0)  # a calculator takes no tokens and next to no time
            continue
        tokens = np.array([[one.tokens_in or 0, one.tokens_out or 0] for one in answers], dtype=float)
        per_token, _ = nnls(tokens, np.array([one.seconds for one in answers]))
        found[name] = Tariff(*(1e6 * PER_HOUR / 3600.0 * per_token))
    return found


def priced(record: Recorded, prices: dict[str, Tariff]) -> Table:
    """The recorded table of the four, with fees in dollars and contexts as the gateway will show them.

    A right answer is worth 1 / WEIGHT processor seconds.
    """
    table = record.table.only(NAMES)
    fee = np.full(table.score.shape, np.nan)
    contexts = np.full(table.score.shape, None, dtype=object)
    for i, id_ in enumerate(table.prompt_ids):
        for j, name in enumerate(NAMES):
            answer = record.answers.get((id_, name))
            if answer is not None:
                read, written = answer.tokens_in or 0, answer.tokens_out or 0
                fee[i, j] = (
                    read * prices[name].per_million_in + written * prices[name].per_million_out
                ) / 1e6
                contexts[i, j] = _visible(name, answer)
    table = replace(table, fee=fee, contexts=contexts).with_fee_weight(WEIGHT * 3600.0 / PER_HOUR)
    return table.rows(~table.missing.any(axis=1))


def _visible(name: str, answer: Answer) -> str:
    if name == CALCULATOR:
        return answer.text or NOTHING
    return answer.context or " " if name == BOOK else shown(answer.context, answer.logprobs)


def fitted(
    table: Table, record: Recorded, prices: dict[str, Tariff], costly: StackRecipe | None = None
) -> Router:
    """f and g as in the demo; a look pays the prompt and the first tokens, and comes back."""
    looks = []
    for name in table.specialists:
        read = float(np.mean([one.tokens_in or 0 for (_, who), one in record.answers.items() if who == name]))
        looks.append((read * prices[name].per_million_in + FIRST * prices[name].per_million_out) / 1e6)
    own = table.fee_weight * np.array(looks)
    costs = Costs(own, refund=own)
    return Router.fit(table, costly=costly, inspection_cost=costs)


class Served:
    """A gateway over the stage with one router; `second` is the price of a second of waiting, in dollars."""

    def __init__(
        self, stage: Stage, router: Router, prices: dict[str, Tariff], folder: Path, second: float = 0.0
    ) -> None:
        import uvicorn

        backends = tuple(
            Backend(
                name,
                Endpoint(stage.url, timeout=600.0),
                name,
                prices[name],
                max_output=200 if name == STRONG else 16,
                cancel="stops",
                peek=LookLength(tokens=FIRST if name in (SMALL, STRONG) else 0, chances=True),
            )
            for name in router.specialists
        )
        self.store = Store(str(folder / f"{time.time_ns()}.sqlite"))
        site = Site(backends, Settings(STRONG, deadline=600.0), router, second=second, hash=router.id)
        config = uvicorn.Config(
            Gateway(site, self.store), host="127.0.0.1", port=0, log_level="warning", lifespan="off"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}/v1"

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self.store.close()

    def ask(self, model: str, question: Question) -> Result:
        begun = time.perf_counter()
        headers, body = _post(self.url, {"model": model, "messages": _said(question)})
        seconds = time.perf_counter() - begun
        id_ = headers["x-pandora-decision-id"]
        row = self.store.submit(lambda open_: open_.rows("SELECT cost FROM decisions WHERE id = ?", id_))
        inspected = [name for name in headers["x-pandora-inspected"].split(",") if name]
        return Result(_right(question, body), dollars(row.result()[0][0]), seconds, len(inspected))


def capped(stage: Stage, router: Router, prices: dict[str, Tariff]) -> Callable[[Question], Result]:
    """Looks that are calls of their own: 8 tokens are asked for, and the winner is asked again."""

    def cost(name: str, usage: dict[str, Any]) -> float:
        read, written = usage["prompt_tokens"], usage["completion_tokens"]
        return float(read * prices[name].per_million_in + written * prices[name].per_million_out) / 1e6

    def ask(question: Question) -> Result:
        begun, money, count = time.perf_counter(), 0.0, 0
        weight = router.fee_weight if router.fee_weight > 0 else 1.0
        costs = request_costs(
            router.specialists, weight, dict(zip(router.specialists, router.costs.own / weight, strict=True))
        )
        cheap = judged(router.cheap, [question.text])[0]
        names = frozenset(router.specialists)
        choosing = deciding(router, question.text, cheap, None, None, Looks(names, costs))
        try:
            wanted: Ask = next(choosing)
            while True:
                seen = {}
                for name in wanted.specialists:
                    more = {"max_tokens": FIRST, "logprobs": True}
                    _, body = _post(stage.url, {"model": name, "messages": _said(question), **more})
                    money, count = money + cost(name, body["usage"]), count + 1
                    seen[name] = _context(name, body, stage.answers[question.text, name])
                predictor = router.predictor
                assert predictor is not None
                paid: Paid = estimated(predictor, [replace(wanted, contexts={**wanted.contexts, **seen})])[0]
                wanted = choosing.send(replace(paid, contexts=seen))
        except StopIteration as end:
            name = end.value.specialist
        _, body = _post(stage.url, {"model": name, "messages": _said(question)})
        money += cost(name, body["usage"])
        return Result(_right(question, body), money, time.perf_counter() - begun, count)

    return ask


def _context(name: str, body: dict[str, Any], record: Answer) -> str:
    if name in (CALCULATOR, BOOK):
        return _visible(name, record)  # what the look of the gateway shows, too
    told = ((body["choices"][0].get("logprobs") or {}).get("content") or [])[:FIRST]
    text = "".join(one["token"] for one in told) or body["choices"][0]["message"]["content"]
    return shown(text, tuple(one["logprob"] for one in told))


def _said(question: Question) -> list[dict[str, str]]:
    return [{"role": "user", "content": question.text}]


def _right(question: Question, body: dict[str, Any]) -> float:
    text = body["choices"][0]["message"]["content"] or ""
    return graded(question, Answer(text.strip(), None, None, seconds=0.0, fee=0.0))


def _post(url: str, body: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    sent = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(sent, timeout=600) as answer:
        return dict(answer.headers.items()), json.loads(answer.read())


async def _asked(ask: Callable[[Question], Result], questions: list[Question], at_once: int) -> list[Result]:
    gate = asyncio.Semaphore(at_once)

    async def one(question: Question) -> Result:
        async with gate:
            return await asyncio.to_thread(ask, question)

    return list(await asyncio.gather(*(one(question) for question in questions)))


def measure(
    questions: list[Question], stage: Stage, router: Router, prices: dict[str, Tariff], at_once: int
) -> dict[str, list[Result]]:
    """The results of every way, question by question."""
    policy = router.policy
    ways: dict[str, tuple[Policy, str]] = {
        "held": (policy, "auto"),
        "held, blind": (Blind(policy), "auto"),
        "no looks": (Never(), "auto"),
        "always all": (Always(), "auto"),
        f"always {STRONG}": (Never(), STRONG),
        f"always {BOOK}": (Never(), BOOK),
    }
    found: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for way, (searching, model) in ways.items():
            with closing(Served(stage, router.with_policy(searching), prices, Path(folder))) as served:
                for name in router.specialists:  # lengths are measured before they are used
                    for question in questions[:3]:
                        served.ask(name, question)

                def ask(question: Question, served: Served = served, model: str = model) -> Result:
                    return served.ask(model, question)

                found[way] = asyncio.run(_asked(ask, questions, at_once))
    found["capped"] = asyncio.run(_asked(capped(stage, router, prices), questions, at_once))
    return found


def report(found: dict[str, list[Result]], weight: float, speed: float) -> Shown:
    """A line per way; differences are to the first, paired by question."""
    shown = Shown(title=f"{len(found['held'])} questions", title_justify="left")
    for heading in (
        "way",
        "right",
        "looks",
        "$ / 1,000 right",
        "s / right",
        "net",
        "held earns more by (se)",
    ):
        shown.add_column(heading, justify="left" if heading == "way" else "right")
    nets = {way: np.array([one.right - weight * one.money for one in rows]) for way, rows in found.items()}
    for way, rows in found.items():
        right = max(sum(one.right for one in rows), 1e-9)
        more = nets["held"] - nets[way]
        error = more.std(ddof=1) / np.sqrt(len(more))
        shown.add_row(
            way,
            f"{100 * right / len(rows):.1f} %",
            f"{np.mean([one.looks for one in rows]):.2f}",
            f"{1000 * sum(one.money for one in rows) / right:.4f}",
            f"{speed * sum(one.seconds for one in rows) / right:.2f}",
            f"{nets[way].mean():.4f}",
            "" if way == "held" else f"{more.mean():+.4f} ({error:.4f})",
        )
    return shown


def held_out(table: Table, count: int) -> list[Question]:
    """The first `count` of the shuffled questions that the router was not fitted on."""
    known = set(table.rows(table.split == "test").prompt_ids)
    questions = [one for one in recorded() if one.id in known]
    np.random.default_rng(0).shuffle(questions)
    return questions[:count]


def played(record: Recorded) -> dict[tuple[str, str], Answer]:
    """The recorded answers by the text of the question and the specialist."""
    texts = {one.id: one.text for one in recorded()}
    return {(texts[id_], name): one for (id_, name), one in record.answers.items() if id_ in texts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument(
        "--speed", type=float, default=1.0, help="how much faster than recorded answers are played"
    )
    parser.add_argument("--played", action="store_true", help="play the small model from the record too")
    parser.add_argument("--at-once", type=int, default=2)
    chosen = parser.parse_args()
    record = Recorded.read()
    prices = tariffs(record)
    table = priced(record, prices)
    router = fitted(table, record, prices)
    questions = held_out(table, chosen.questions)
    router.warm()
    with closing(Stage(played(record), speed=chosen.speed, played=chosen.played)) as stage:
        found = measure(questions, stage, router, prices, chosen.at_once)
    console = Console(width=140)
    for name, price in prices.items():
        console.print(
            f"{name}: ${price.per_million_in:.4f} in, ${price.per_million_out:.4f} out per million tokens"
        )
    console.print(report(found, router.fee_weight, chosen.speed))


if __name__ == "__main__":
    main()
