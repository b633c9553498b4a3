"""What `pandora fit` promises beside what `pandora serve` then delivers, by the provider's own books.

    python -m benchmarks.promise --page docs/promise.md

Three models of known quality stand behind HTTP (`tests.support.provider`). `pandora collect` asks them once;
for each kind of `cancel`, `pandora fit` and `pandora serve` run as processes, with the file that
`pandora init` writes and the edits of `edited`. Fresh requests then go to `model: auto`, half of them
streamed. Right answers are counted in what clients received, dollars and looks in the log of the provider.
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
from collections.abc import Sequence
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
from pandora_router.report.tables import grid

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


def edited(text: str, url: str, cancel: Cancel, *, observe: bool = False) -> str:
    """The file of `pandora init` with our models, what an answer is worth, and no keys."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("  right_answer:"):
            line = f"  right_answer: {RIGHT_ANSWER}"
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
        elif line.startswith("  router:"):
            lines += ["  keys: none", *(["  observe: true"] if observe else [])]
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
        return abs(self.mean - other.mean) / error if error else math.inf * (self.mean != other.mean or 0.0)


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


def promised(record: dict[str, Any], way: str = "router") -> Measured:
    """What the record of a fit says of a way of routing, on its test prompts."""
    found = record["report"]["routing"]["ways"][way]
    scale = 1000.0 * RIGHT_ANSWER
    return Measured(
        Estimate(found["accuracy"], found["accuracy_error"]),
        Estimate(scale * found["cost"], scale * found["cost_error"]),
        Estimate(found["inspections"], found["inspections_error"]),
    )


@dataclass(frozen=True)
class Received:
    """One answer as its client got it."""

    prompt: str
    text: str
    specialist: str
    inspected: frozenset[str]


async def ask(url: str, numbers: Sequence[int], *, stream: bool) -> list[Received]:
    """Ask fresh questions, `AT_ONCE` at the same time."""
    places = iter(numbers)
    done: list[Received] = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:

        async def client() -> None:
            for number in places:
                answer = await _one(session, url, question(number)[0], stream)
                done.append(answer)

        await asyncio.gather(*(client() for _ in range(AT_ONCE)))
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
    inspected = frozenset(filter(None, answer.headers["x-pandora-inspected"].split(",")))
    return Received(prompt, text, answer.headers["x-pandora-specialist"], inspected)


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
        assert called == sorted(answer.inspected | {answer.specialist}), (answer, called)
    return Measured(
        Estimate.of([answer.text.endswith(f"The answer is {wanted[answer.prompt]}.") for answer in answers]),
        Estimate.of([1e-6 * sum(bill.nanodollars for bill in bills[one.prompt]) for one in answers]),
        Estimate.of([float(len(answer.inspected)) for answer in answers]),
    )


@dataclass(frozen=True)
class Kept:
    """One promise and what became of it."""

    cancel: Cancel
    promised: Measured
    streamed: Measured
    whole: Measured


def write(folder: Path, running: Provider, cancel: Cancel) -> None:
    """Write the file of `pandora init`, edited, to the new `folder`."""
    folder.mkdir()
    pandora(folder, "init")
    file = folder / "pandora.yaml"
    file.write_text(edited(file.read_text(), running.url, cancel))


def collect(folder: Path, collected: int = COLLECTED) -> Path:
    """Ask all models the first questions; returns the routing table. No call is cancelled."""
    with closing(provider("stops")) as running:
        write(folder, running, "stops")
        pairs = (question(number) for number in range(collected))
        lines = ({"prompt": prompt, "answer": answer} for prompt, answer in pairs)
        (folder / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        pandora(folder, "collect")
    return folder / "table"


def keep(table: Path, folder: Path, cancel: Cancel, collected: int = COLLECTED, asked: int = ASKED) -> Kept:
    """Fit on `table`, serve, and ask fresh questions: half as streams, half as whole answers."""
    with closing(provider(cancel)) as running:
        write(folder, running, cancel)
        shutil.copytree(table, folder / "table")
        record = json.loads(pandora(folder, "fit", "--json"))
        found: list[Measured] = []
        with served.gateway(None, folder / "pandora.yaml") as gateway:
            for stream in (True, False):
                first = collected + asked // 2 * (not stream)
                numbers = range(first, first + asked // 2)
                before = len(running.log)
                answers = asyncio.run(ask(gateway.url, numbers, stream=stream))
                await_quiet(running)
                found.append(delivered(answers, numbers, running.log[before:]))
    return Kept(cancel, promised(record), *found)


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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.promise", description=__doc__)
    parser.add_argument("--page", type=Path, help="put the table into this page")
    parser.add_argument("--asked", type=int, default=ASKED, help="fresh requests for each kind of cancel")
    parser.add_argument("--cancel", choices=CANCELS, action="append", help="only these kinds")
    given = parser.parse_args()
    promises = []
    with tempfile.TemporaryDirectory() as name:
        collected = collect(Path(name) / "collected")
        for cancel in given.cancel or CANCELS:
            promises.append(keep(collected, Path(name) / cancel, cancel, asked=given.asked))
            print(table(promises[-1:]), flush=True)
    if given.page is not None:
        put(f"{given.asked:,} fresh requests for each kind of `cancel`.\n\n{table(promises)}", given.page)


if __name__ == "__main__":
    main()
