"""What `pandora fit` promises beside what `pandora serve` then delivers, by the provider's own books.

    python -m benchmarks.promise --page docs/promise.md

Three models of known quality stand behind HTTP (`tests.support.provider`). `pandora collect` asks them once;
for each kind of `cancel`, `pandora fit` and `pandora serve` run as processes, with the file that
`pandora init` writes and the edits of `edited`. Fresh requests then go to `model: auto`, half of them
streamed. Right answers are counted in what clients received, dollars and looks in the log of the provider.
The same questions are also put to the fitted router without a gateway, at the fare of the fit (`Replayed`):
a difference comes either from other questions or from other prices. Then what `observe: true` says the router
would do is held against what it does, and the promise of `pandora serve --demo` against what its local models
deliver.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import aiohttp
from tests.support.provider import Provider
from tests.support.provider_models import Asked, Bill, Model
from tests.support.provider_replies import Said
from tools.pages import put

from benchmarks import served
from pandora_router.collect.assemble import Question
from pandora_router.config import read_config
from pandora_router.prices import Lengths
from pandora_router.report.tables import grid
from pandora_router.router import Decision, Router
from pandora_router.router.revalue import at_speed

Cancel = Literal["stops", "unknown", "bills_full"]
CANCELS: tuple[Cancel, ...] = ("stops", "unknown", "bills_full")
RIGHT_ANSWER = 0.001
"""Dollars that a right answer is worth."""
COLLECTED, ASKED, AT_ONCE = 500, 1000, 12
KINDS = {
    "ledger": "A ledger shows {a} coins in the morning and {b} coins more at night. How many coins in all?",
    "orchard": "Beside {a} apple trees an orchard has {b} pear trees. How many trees does the orchard have?",
    "voyage": "The ship sailed {a} miles to the island and {b} miles onward. What distance did it sail?",
    "cipher": "Decode the two registers {a} and {b}, then report the checksum, which is their sum.",
}
QUALITY = {
    "small": {"ledger": 0.9, "orchard": 0.7, "voyage": 0.5, "cipher": 0.2},
    "middle": {"ledger": 0.9, "orchard": 0.85, "voyage": 0.8, "cipher": 0.5},
    "big": {"ledger": 0.97, "orchard": 0.97, "voyage": 0.97, "cipher": 0.97},
}
PRICES = {"small": (0.1, 0.4), "middle": (0.25, 1.0), "big": (0.5, 2.0)}
"""Dollars per million tokens of input and of output."""
SPEEDS = {"small": (0.05, 0.0015), "middle": (0.05, 0.002), "big": (0.05, 0.004)}
"""Seconds to the first token, and for each further one. Not much faster than real providers: what a provider
writes while a decision is taken is part of the price of a look, and our processors are shared."""
TELLING = 0.95
"""Share of answers whose first words show whether the answer will be right."""
SURE = "This is familiar ground, so the steps are plain and each of them can be checked at once. "
UNSURE = "Hmm, this might be wrong, perhaps something was overlooked, but maybe it goes like this. "
FILLER = "Add the parts with care, carry what is left over, and look at the total once more. "


def question(number: int) -> tuple[str, str]:
    """A prompt and its right answer."""
    rng = random.Random(f"question {number}")
    kind = rng.choice(list(KINDS))
    first, second = rng.randrange(1000, 9000), rng.randrange(1000, 9000)
    return KINDS[kind].format(a=first, b=second), str(first + second)


def text_of(model: str, prompt: str) -> str:
    """What a model says: right with the probability of `QUALITY`, the same each time it is asked."""
    rng = random.Random(f"{model} {prompt}")
    kind = next(name for name, form in KINDS.items() if form.split("{a}")[0] in prompt)
    first, second = (
        int(word) for word in prompt.replace(".", " ").replace(",", " ").split() if word.isdigit()
    )
    right = rng.random() < QUALITY[model][kind]
    shown = right if rng.random() < TELLING else not right
    answer = first + second if right else first + second + rng.randrange(1, 90)
    begun = (SURE if shown else UNSURE) * 3 + FILLER * 2
    return begun + FILLER * rng.randrange(4, 12) + f"The answer is {answer}."


def says(asked: Asked) -> Said:
    """An answer in tokens of four characters."""
    text = text_of(asked.model, asked.prompt)
    return Said(tuple(text[i : i + 4] for i in range(0, len(text), 4)))


def provider(cancel: Cancel) -> Provider:
    """The three models; what the file calls `unknown` is priced as billed in full, and so it is here."""
    bills: Literal["stops", "bills_full"] = "stops" if cancel == "stops" else "bills_full"
    models = {
        name: Model(says, (read, read, read, wrote), *SPEEDS[name], bills)
        for name, (read, wrote) in PRICES.items()
    }
    return Provider(models)


def edited(text: str, url: str, cancel: Cancel, value: Value) -> str:
    """The file of `pandora init` with our models, what an answer and a second are worth, and no keys."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("  right_answer:"):
            line = f"  right_answer: {value.right_answer}"
        elif line.startswith("  second:"):
            line = f"  second: {value.second}"
        elif line.startswith("  local:"):
            line = f'  local: {{base_url: "{url}", at_once: 64}}'
        elif line.startswith("  large:"):
            continue
        elif line.startswith("  small:"):
            told = "" if cancel == "unknown" else f", cancel: {cancel}"
            for name, (read, wrote) in PRICES.items():
                prices = f"{{in: {read}, out: {wrote}}}"
                lines.append(
                    f"  {name}: {{kind: chat, endpoint: local, model: {name}, prices: {prices}{told}}}"
                )
            continue
        elif line.startswith("  default:"):  # until there is a router
            lines.append("  keys: none")
            line = "  router: router"
        lines.append(line)
    return "\n".join(lines) + "\n"


def pandora(folder: Path, *words: str) -> str:
    """Run the command in `folder`; returns what it printed."""
    command = [sys.executable, "-m", "pandora_router", *words]
    environment = served.environment()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"pandora {' '.join(words)}: {done.stdout}{done.stderr}"[-3000:])
    return done.stdout


@dataclass(frozen=True)
class Value:
    """What a right answer and a second of waiting are worth, in dollars."""

    right_answer: float = RIGHT_ANSWER
    second: float = 0.0001


USUAL, HURRIED = Value(), Value(0.005, 0.001)
"""The second makes the router look at several specialists side by side."""


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """The mean of a sample."""
        mean = sum(values) / len(values)
        spread = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return cls(mean, math.sqrt(spread / len(values)))

    def apart(self, other: Estimate) -> float:
        """How many standard errors of their difference two estimates are apart."""
        error = math.hypot(self.error, other.error)
        if self.mean == other.mean:
            return 0.0
        return abs(self.mean - other.mean) / error if error else math.inf


@dataclass(frozen=True)
class Measured:
    """Right answers and looks per prompt, and dollars per 1,000 prompts."""

    right: Estimate
    dollars: Estimate
    looks: Estimate

    def apart(self, other: Measured) -> dict[str, float]:
        """Distances to another measurement in standard errors."""
        return {
            name: getattr(self, name).apart(getattr(other, name)) for name in ("right", "dollars", "looks")
        }


def promised(record: Mapping[str, Any], right_answer: float = RIGHT_ANSWER) -> Measured:
    """What the record of a fit promises, on its test prompts; `right_answer` is worth so many dollars."""
    found = record["report"]["routing"]["ways"]["router"]
    scale = 1000.0 * right_answer
    return Measured(
        Estimate(found["accuracy"], found["accuracy_error"]),
        Estimate(scale * found["cost"], scale * found["cost_error"]),
        Estimate(found["inspections"], found["inspections_error"]),
    )


@dataclass(frozen=True)
class Received:
    """One answer as its client got it."""

    id: str
    prompt: str
    text: str
    specialist: str
    inspected: tuple[str, ...]

    @property
    def first_step(self) -> tuple[str, str]:
        """The first look, or else who answered."""
        return (self.inspected[0], "") if self.inspected else ("", self.specialist)


async def ask(url: str, prompts: Sequence[str], *, stream: bool, at_once: int = AT_ONCE) -> list[Received]:
    """Send the prompts to `model: auto`, `at_once` at the same time."""
    places = iter(prompts)
    done: list[Received] = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:

        async def client() -> None:
            for prompt in places:
                answer = await _one(session, url, prompt, stream)
                done.append(answer)

        await asyncio.gather(*(client() for _ in range(at_once)))
    return done


async def _one(session: aiohttp.ClientSession, url: str, prompt: str, stream: bool) -> Received:
    body = json.loads(served.request("auto", stream=stream, prompt=prompt))
    async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
        raw = await answer.text()
        answer.raise_for_status()
    if stream:
        events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]
        parts = [choice["delta"].get("content") or "" for event in events for choice in event["choices"]]
        text = "".join(parts)
    else:
        text = json.loads(raw)["choices"][0]["message"]["content"]
    told = answer.headers
    inspected = tuple(filter(None, told["x-pandora-inspected"].split(",")))
    return Received(told["x-pandora-decision-id"], prompt, text, told["x-pandora-specialist"], inspected)


def delivered(answers: Sequence[Received], numbers: Sequence[int], log: Sequence[Bill]) -> Measured:
    """What clients got and the provider billed.

    Raises `AssertionError` if the provider was not called by exactly the looks and the answer of a request.
    """
    wanted = dict(question(number) for number in numbers)
    bills: dict[str, list[Bill]] = {}
    for bill in log:
        bills.setdefault(bill.prompt, []).append(bill)
    for answer in answers:
        called = sorted(bill.model for bill in bills[answer.prompt])
        assert called == sorted({*answer.inspected, answer.specialist}), (answer, called)
    return Measured(
        Estimate.of([answer.text.endswith(f"The answer is {wanted[answer.prompt]}.") for answer in answers]),
        Estimate.of([1e-6 * sum(bill.nanodollars for bill in bills[one.prompt]) for one in answers]),
        Estimate.of([float(len(answer.inspected)) for answer in answers]),
    )


@dataclass(frozen=True)
class Replayed:
    """What the fitted router does with the questions that a gateway was asked, at the fare of the fit.

    promised, replayed: looks a prompt on the test prompts of the fit and on these questions. more: looks of
    the gateway less those, question by question. fitted, served: mean price of a look in reward, by
    specialist.
    """

    cancel: str
    promised: Estimate
    replayed: Estimate
    more: Estimate
    fitted: Mapping[str, float]
    served: Mapping[str, float]


@dataclass(frozen=True)
class Kept:
    """One promise and what became of it."""

    cancel: str
    promised: Measured
    streamed: Measured
    whole: Measured
    replayed: Replayed | None = None


def write(folder: Path, running: Provider, cancel: Cancel, value: Value = USUAL) -> None:
    """Write the file of `pandora init`, edited, to the new `folder`."""
    folder.mkdir()
    pandora(folder, "init")
    file = folder / "pandora.yaml"
    file.write_text(edited(file.read_text(), running.url, cancel, value))


def collect(folder: Path, collected: int = COLLECTED) -> Path:
    """Ask all models the first questions; returns the routing table. No call is cancelled."""
    with closing(provider("stops")) as running:
        write(folder, running, "stops")
        pairs = (question(number) for number in range(collected))
        lines = ({"prompt": prompt, "answer": answer} for prompt, answer in pairs)
        (folder / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        pandora(folder, "collect")
    return folder / "table"


def decided(folder: Path, prompts: Sequence[str]) -> tuple[Router, list[Decision]]:
    """The router in `folder`, and what it decides with the lengths and speeds of its fit and all looks."""
    router = Router.load(folder / "router")
    lengths = {name: Lengths.of(means) for name, means in router.record.lengths.items()}
    second = read_config(folder / "pandora.yaml").value.second
    shown = [
        {name: text_of(name, prompt)[: router.record.peek] for name in router.specialists}
        for prompt in prompts
    ]
    return router, at_speed(router, second, lengths).route_batch(prompts, shown)


def replay(folder: Path, cancel: str, promise: Estimate, answers: Sequence[Received], url: str) -> Replayed:
    """Ask the fitted router what the gateway at `url` was asked, and compare looks and their prices."""
    router, decisions = decided(folder, [answer.prompt for answer in answers])
    pairs = list(zip(answers, decisions, strict=True))
    rows = [asyncio.run(_row(url, answer.id))["detail"]["decision"] for answer in answers[::10]]
    served_at = {
        name: sum(row["specialists"][name]["inspection_cost"] for row in rows) / len(rows)
        for name in router.specialists
    }
    return Replayed(
        cancel,
        promise,
        Estimate.of([float(len(decision.inspected)) for decision in decisions]),
        Estimate.of([float(len(answer.inspected) - len(decision.inspected)) for answer, decision in pairs]),
        dict(zip(router.specialists, router.costs.marginal.tolist(), strict=True)),
        served_at,
    )


def keep(
    table: Path,
    folder: Path,
    cancel: Cancel,
    collected: int = COLLECTED,
    asked: int = ASKED,
    value: Value = USUAL,
) -> Kept:
    """Fit on `table`, serve, and ask fresh questions: half as streams, half as whole answers.

    Where a second of waiting has a price (`value`), looks are made side by side if that pays.
    """
    with closing(provider(cancel)) as running:
        write(folder, running, cancel, value)
        shutil.copytree(table, folder / "table")
        record = json.loads(pandora(folder, "fit", "--json"))
        found: list[Measured] = []
        received: list[Received] = []
        with served.gateway(None, folder / "pandora.yaml") as gateway:
            for stream in (True, False):
                first = collected + asked // 2 * (not stream)
                numbers = range(first, first + asked // 2)
                before = len(running.log)
                answers = asyncio.run(ask(gateway.url, [question(n)[0] for n in numbers], stream=stream))
                await_quiet(running)
                found.append(delivered(answers, numbers, running.log[before:]))
                received += answers
            again = replay(folder, cancel, promised(record).looks, received, gateway.url)
    return Kept(cancel, promised(record, value.right_answer), found[0], found[1], again)


@dataclass(frozen=True)
class Observed:
    """What `observe: true` said the router would do first, and what it then did with the same questions.

    would, did: share of requests whose first step is a look. same: share with the same first step: the same
    look, or the same specialist without one. would_replayed, did_replayed: share with the same first step as
    the fitted router takes without a gateway, at the fare of the fit.
    """

    would: Estimate
    did: Estimate
    same: Estimate
    would_replayed: Estimate
    did_replayed: Estimate


def observe(table: Path, folder: Path, cancel: Cancel = "stops", asked: int = ASKED // 2) -> Observed:
    """Ask fresh questions of a gateway that only observes, then of one that routes, with one router.

    Raises `AssertionError` if the one that observes called anybody but the default.
    """
    prompts = [question(number)[0] for number in range(COLLECTED, COLLECTED + asked)]
    with closing(provider(cancel)) as running:
        write(folder, running, cancel)
        shutil.copytree(table, folder / "table")
        pandora(folder, "fit")
        file = folder / "pandora.yaml"
        routing = file.read_text()
        file.write_text(routing.replace("  keys: none", "  keys: none\n  observe: true"))
        with served.gateway(None, file) as gateway:
            answers = asyncio.run(ask(gateway.url, prompts, stream=False))
            would = {one.prompt: _first_step(asyncio.run(_row(gateway.url, one.id))) for one in answers}
            assert len(running.calls) == 1, running.calls
        (folder / "pandora.sqlite").unlink()
        file.write_text(routing)
        with served.gateway(None, file) as gateway:
            answers = asyncio.run(ask(gateway.url, prompts, stream=False))
    did = {one.prompt: one.first_step for one in answers}
    fitted = {
        prompt: (decision.inspected[0], "") if decision.inspected else ("", decision.specialist)
        for prompt, decision in zip(prompts, decided(folder, prompts)[1], strict=True)
    }
    return Observed(
        Estimate.of([float(bool(look)) for look, _ in would.values()]),
        Estimate.of([float(bool(look)) for look, _ in did.values()]),
        Estimate.of([float(would[prompt] == did[prompt]) for prompt in did]),
        Estimate.of([float(would[prompt] == fitted[prompt]) for prompt in did]),
        Estimate.of([float(did[prompt] == fitted[prompt]) for prompt in did]),
    )


def _first_step(row: dict[str, Any]) -> tuple[str, str]:
    """The first look that an observed decision would have made, or else who would have answered."""
    looks = row["detail"].get("would_look") or []
    return (looks[0], "") if looks else ("", row["proposed"])


async def _row(url: str, decision: str) -> dict[str, Any]:
    """A decision as the gateway's log has it."""
    where = f"{url}/v1/routing/decisions/{decision}"
    async with aiohttp.ClientSession() as session, session.get(where) as answer:
        row: dict[str, Any] = await answer.json()
    return row


def demo(asked: int, seed: int = 23) -> Kept:
    """What the fit of `pandora serve --demo` promises, and what its models deliver on fresh questions.

    The models run on this machine; each question is asked streamed and whole. The demo has no provider with
    books: dollars are those of its gateway, where a call has a fixed price.
    """
    from pandora_router.demo import local_gateway, questions
    from pandora_router.demo.study import PRICE, WEIGHT

    record = Router.load(local_gateway.fitted(lambda what, share: None)).record
    fresh = {question.text: question for question in questions.fresh(asked, seed)}
    port = served.free_port()
    command = [sys.executable, "-m", "pandora_router", "serve", "--demo", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    found: list[Measured] = []
    with served.started(command, f"{url}/healthz", None):
        for stream in (True, False):
            answers = asyncio.run(ask(url, list(fresh), stream=stream, at_once=1))
            costs = [asyncio.run(_row(url, one.id))["cost"] for one in answers]
            found.append(
                Measured(
                    Estimate.of([_right(fresh[one.prompt], one.text) for one in answers]),
                    Estimate.of([1e-6 * cost for cost in costs]),
                    Estimate.of([float(len(one.inspected)) for one in answers]),
                )
            )
    return Kept("local models", promised(record.to_dict(), PRICE / 3600.0 / WEIGHT), found[0], found[1])


def _right(question: Question, text: str) -> float:
    from pandora_router.demo import records
    from pandora_router.specialists.specialist import Answer

    return records.graded(question, Answer(text, None, None, 0.0, 0.0))


def await_quiet(running: Provider) -> None:
    """Wait until the provider has billed every call."""
    until = time.monotonic() + 30
    while sum(running.calls.values()) > len(running.log) and time.monotonic() < until:
        time.sleep(0.05)


def table(promises: Sequence[Kept]) -> str:
    """Promised beside delivered as Markdown; standard errors in brackets, distances in standard errors."""
    rows = []
    for kept in promises:
        for name, what in (("promised", kept.promised), ("streamed", kept.streamed), ("whole", kept.whole)):
            apart = what.apart(kept.promised)
            figures = [(what.right, 3), (what.dollars, 4), (what.looks, 3)]
            cells = [f"{one.mean:.{digits}f} ({one.error:.{digits}f})" for one, digits in figures]
            far = "" if name == "promised" else ", ".join(f"{value:.1f}" for value in apart.values())
            rows.append([kept.cancel, name, *cells, far])
    columns = ["cancel", "", "right", "dollars per 1,000", "looks a prompt", "standard errors apart"]
    return grid(columns, rows)


def replayed_table(promises: Sequence[Kept]) -> str:
    """Looks promised, of the fitted router with the fresh questions, and of the gateway, as Markdown."""
    rows = []
    for again in (kept.replayed for kept in promises if kept.replayed is not None):
        looks = [f"{one.mean:.3f} ({one.error:.3f})" for one in (again.promised, again.replayed)]
        prices = [", ".join(f"{price:.3f}" for price in at.values()) for at in (again.fitted, again.served)]
        rows.append([again.cancel, *looks, f"{again.more.mean:+.3f} ({again.more.error:.3f})", *prices])
    columns = ["cancel", "promised", "fitted router, fresh questions", "gateway less fitted router"]
    return grid([*columns, "price of a look, fit", "price of a look, gateway"], rows)


def observed_table(found: Observed) -> str:
    """What `observe: true` said beside what was done, as Markdown."""
    shares = {
        "would look first": found.would,
        "looked first": found.did,
        "the same first step": found.same,
        "would: the same as the fitted router": found.would_replayed,
        "did: the same as the fitted router": found.did_replayed,
    }
    return grid(["", "share"], [[name, f"{one.mean:.3f} ({one.error:.3f})"] for name, one in shares.items()])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.promise", description=__doc__)
    parser.add_argument("--page", type=Path, help="put the tables into this page")
    parser.add_argument("--asked", type=int, default=ASKED, help="fresh requests for each kind of cancel")
    parser.add_argument("--cancel", choices=CANCELS, action="append", help="only these kinds")
    parser.add_argument("--demo", type=int, default=30, help="questions for the demo's local models; 0: none")
    given = parser.parse_args()
    parts = []

    def say(text: str) -> None:
        parts.append(text)
        print(text, flush=True)

    with tempfile.TemporaryDirectory() as name:
        collected = collect(Path(name) / "collected")
        kinds = given.cancel or CANCELS
        say(f"{given.asked:,} fresh requests for each kind of `cancel`.")
        promises = [keep(collected, Path(name) / kind, kind, asked=given.asked) for kind in kinds]
        say(table(promises))
        say("Looks a prompt, and the price of a look at `small`, `middle` and `big` in units of reward.")
        say(replayed_table(promises))
        say(f"`observe: true`, `cancel: stops`, {given.asked // 2:,} fresh requests.")
        say(observed_table(observe(collected, Path(name) / "observed", asked=given.asked // 2)))
    if given.demo:
        say(f"`pandora serve --demo`: {given.demo} fresh questions, each streamed and whole.")
        say(table([demo(given.demo)]))
    if given.page is not None:
        put("\n\n".join(parts), given.page)


if __name__ == "__main__":
    main()
