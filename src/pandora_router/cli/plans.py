"""collect.yaml made a plan: the only place where its strings become objects.

The schema is closed: a key nobody knows is an error at start, before anything is bought. Paths are relative
to the file. Keys of endpoints are named by environment variable and never stand in the file.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pandora_router.cli.section import Section, read_yaml
from pandora_router.collect import graders
from pandora_router.collect.assemble import Plan, Question
from pandora_router.collect.graders import Comparison, Grader
from pandora_router.data.importers.sheet import read_sheet
from pandora_router.data.splits import draw, keep
from pandora_router.errors import UsageError
from pandora_router.estimators.judge import Judge
from pandora_router.specialists import templates
from pandora_router.specialists.asking import Asking
from pandora_router.specialists.chat import ChatEndpoint
from pandora_router.specialists.function import Function
from pandora_router.specialists.local import LocalModel
from pandora_router.specialists.prices import FREE, Prices
from pandora_router.specialists.retrieval import Passages, Retrieval
from pandora_router.specialists.sampling import Sampling, same
from pandora_router.specialists.specialist import Specialist
from pandora_router.specialists.templates import Template, few_shot
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.rate_limit import RateLimit

TOP = (
    "prompts",
    "budget",
    "samples",
    "at_once",
    "give_up",
    "fee_weight",
    "log_probabilities",
    "seed",
    "grader",
    "endpoints",
    "specialists",
)
PROMPTS = ("file", "prompt", "answer", "prompt_id", "task", "split", "separator", "first")
ENDPOINT = ("base_url", "key_from", "timeout", "retries", "pause", "at_once", "per_minute")
PRICES = ("in", "out", "second", "call")
ASKING = (
    "template",
    "system",
    "temperature",
    "tokens",
    "tokens_as",
    "context_tokens",
    "context_characters",
    "options",
    "as_text",
    "examples",
)
KINDS = {
    "chat": ("endpoint", "model", "prices", "stream", *ASKING),
    "local": ("path", "prices", "window", "deadline", *ASKING),
    "retrieval": ("inner", "passages", "text", "title", "k", "price", "template"),
    "sampling": ("inner", "n", "majority_of"),
    "function": ("function", "prices", "version", "deadline", "at_once"),
}
KEYS_OF = {"same": same, "boxed": lambda text: graders.final(text).strip()}


def read_plan(path: Path) -> Plan:
    """The plan a file describes, checked from end to end."""
    top = Section(path.name, read_yaml(path), TOP)
    people = _People(top, path.parent)
    shown = [name for name in people.names if not people.section(name).flag("hidden")]
    return Plan(
        questions=_questions(top, path.parent),
        specialists=tuple(people.get(name) for name in shown),
        graders=_graders(top, people),
        budget=top.number("budget"),
        samples=top.count("samples", 1),
        at_once=top.count("at_once", 64),
        give_up=top.count("give_up", 5),
        fee_weight=top.number("fee_weight", 1.0),
        log_probabilities=top.flag("log_probabilities"),
    )


def _questions(top: Section, folder: Path) -> tuple[Question, ...]:
    given = top.content.get("prompts")
    names = {"file": given} if isinstance(given, str) else given
    said = Section(f"{top.place}.prompts", names, PROMPTS)
    sheet = read_sheet(folder / said.text("file"))
    texts, wanted = sheet.text(said.text("prompt", "prompt")), sheet.text(said.text("answer", "answer"))
    prompts = [str(texts.values[code]) for code in texts.codes]
    answers = [str(wanted.values[code]) for code in wanted.codes]

    def optional(key: str) -> list[str] | None:
        column = said.text(key, key)
        if column not in sheet.columns and key not in said.content:
            return None
        return [text or "" for text in sheet.optional_text(column)]

    ids = optional("prompt_id") or [f"p{i + 1}" for i in range(len(prompts))]
    tasks = optional("task") or [""] * len(prompts)
    split = optional("split")
    seed = top.count("seed", 0, least=0)
    splits = draw(prompts, tasks, seed=seed) if split is None else keep(split)
    apart = said.content.get("separator")
    references = [tuple(text.split(said.text("separator")) if apart else (text,)) for text in answers]
    rows = zip(ids, prompts, references, tasks, splits.tolist(), strict=True)
    return tuple(Question(*row) for row in rows)[: said.count("first", len(prompts))]


def _graders(top: Section, people: _People) -> dict[str, Grader]:
    given = top.content.get("grader")
    if isinstance(given, Mapping) and not set(given) & {"judge", "function", "template"}:
        by_task = Section(f"{top.place}.grader", given)
        return {("" if task == "other" else task): _grader(by_task, task, people) for task in given}
    return {"": _grader(top, "grader", people)}


def _grader(section: Section, key: str, people: _People) -> Grader:
    if isinstance(section.content.get(key), Mapping):
        said = section.section(key, ("judge", "template", "function"))
        if "function" in said.content:
            return Comparison(_imported(said, "function"))
        judge = people.get(said.one_of("judge", people.names))
        return Judge(judge, _template(said, "judge", {"question", "answer", "reference"}))
    return Comparison(graders.NAMED[section.one_of(key, tuple(graders.NAMED))])


@dataclass
class _People:
    """The specialists of a file by name, each made once; wrappers name whom they wrap."""

    top: Section
    folder: Path
    made: dict[str, Specialist] = field(default_factory=dict)
    endpoints: dict[str, tuple[Endpoint, RateLimit]] = field(default_factory=dict)
    making: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order of the file."""
        return tuple(self.top.section("specialists").content)

    def section(self, name: str) -> Section:
        """What the file says of one specialist."""
        every = self.top.section("specialists")
        kind = every.section(name).one_of("kind", tuple(KINDS))
        return every.section(name, ("kind", "hidden", *KINDS[kind]))

    def get(self, name: str) -> Specialist:
        """The specialist of that name."""
        if name in self.making:
            came = " -> ".join((*self.making, name))
            raise self.section(name).refusal(
                "somebody at the end of a chain of inner", came, "Break the circle."
            )
        if name not in self.made:
            before, self.making = self.making, (*self.making, name)
            said = self.section(name)
            make: Callable[[str, Section], Specialist] = getattr(self, f"_{said.text('kind')}")
            self.made[name] = make(name, said)
            self.making = before
        return self.made[name]

    def _chat(self, name: str, said: Section) -> Specialist:
        endpoint, gate = self._endpoint(said)
        return ChatEndpoint(name, endpoint, said.text("model"), _prices(said), _asking(said, 1024), gate)

    def _local(self, name: str, said: Section) -> Specialist:
        path = self.folder / said.text("path")
        window, deadline = said.count("window", 2048), said.number("deadline", 300.0)
        return LocalModel(name, path, _prices(said), _asking(said, 256), window, deadline)

    def _retrieval(self, name: str, said: Section) -> Specialist:
        columns = {key: said.text(key, key) for key in ("text", "title")}
        passages = Passages.read(self.folder / said.text("passages"), **columns)
        template = _template(said, "open_book", {"question", "passages"})
        return Retrieval(
            name, self._inner(said), passages, said.count("k", 4), template, said.number("price", 0.0)
        )

    def _sampling(self, name: str, said: Section) -> Specialist:
        key = KEYS_OF[said.one_of("majority_of", tuple(KEYS_OF), "same")]
        return Sampling(name, self._inner(said), said.count("n", 5), key)

    def _function(self, name: str, said: Section) -> Specialist:
        call, deadline = _imported(said, "function"), said.number("deadline", 60.0)
        return Function(
            name, call, _prices(said), said.text("version", "1"), deadline, said.count("at_once", 4)
        )

    def _inner(self, said: Section) -> Specialist:
        return self.get(said.one_of("inner", self.names))

    def _endpoint(self, said: Section) -> tuple[Endpoint, RateLimit]:
        every = self.top.section("endpoints")
        name = said.one_of("endpoint", tuple(every.content))
        if name not in self.endpoints:
            self.endpoints[name] = _made_endpoint(every.section(name, ENDPOINT))
        return self.endpoints[name]


def _made_endpoint(said: Section) -> tuple[Endpoint, RateLimit]:
    key_from = said.text("key_from") if "key_from" in said.content else None
    if key_from is not None and not os.environ.get(key_from):
        came = "an environment without it (or a key in place of its name)"
        raise UsageError(
            f"{said.place}.key_from",
            expected="the name of an environment variable that holds the key",
            came=came,
            do="Export it, or leave key_from out if no key is needed.",
        )
    timeout, pause = said.number("timeout", 60.0), said.number("pause", 0.5)
    retries = said.count("retries", 6, least=0)
    per_minute = said.number("per_minute") if "per_minute" in said.content else None
    gate = RateLimit(said.count("at_once", 8), per_minute)
    return Endpoint(said.text("base_url"), key_from, timeout, retries, pause), gate


def _prices(said: Section) -> Prices:
    """Stated prices; a specialist without any is an error, never free."""
    given = said.content.get("prices")
    if given == "free":
        return FREE
    if given is None:
        do = "Write prices: {in: 0.15, out: 0.6} per million tokens, or prices: free if that is true."
        raise UsageError(f"{said.place}.prices", expected="prices", came="none", do=do)
    prices = said.section("prices", PRICES)
    other = {"second", "call"} & set(prices.content)
    inwards, outwards = (prices.number(key, 0.0 if other else None) for key in ("in", "out"))
    return Prices(inwards, outwards, prices.number("second", 0.0), prices.number("call", 0.0))


def _asking(said: Section, tokens: int) -> Asking:
    options: Mapping[str, Any] = said.section("options").content if "options" in said.content else {}
    examples = _examples(said)
    return Asking(
        template=few_shot(*examples) if examples else _template(said, "plain", {"question"}),
        system=said.text("system", ""),
        temperature=said.number("temperature", 0.0),
        tokens=said.count("tokens", tokens),
        tokens_as=said.text("tokens_as", "max_tokens"),
        context_tokens=said.count("context_tokens", 0, least=0),
        context_characters=said.count("context_characters", 400, least=0),
        options=options,
        as_text=bool(examples) or said.flag("as_text"),
        stream="stream" in said.content and said.flag("stream"),
    )


def _examples(said: Section) -> list[tuple[str, str]]:
    """Worked examples as pairs of question and answer, for a text to be continued; they are a template."""
    given = said.content.get("examples", [])
    pairs = isinstance(given, list) and all(isinstance(one, list) and len(one) == 2 for one in given)
    if not pairs or (given and "template" in said.content):
        expected = "a list of pairs [question, answer], and no template beside it"
        raise UsageError(f"{said.place}.examples", expected=expected, came="something else", do="Change it.")
    return [(str(asked), str(answer)) for asked, answer in given]


def _template(said: Section, default: str, fields: set[str]) -> Template:
    """A template by name, or by its text, which must hold {question} and no field not filled in here."""
    text = said.text("template", default)
    fitting = {name: one for name, one in templates.NAMED.items() if one.fields <= fields}
    template = (
        Template(text) if "{question}" in text else fitting[said.one_of("template", tuple(fitting), default)]
    )
    if not template.fields <= fields:
        came = ", ".join(sorted(template.fields))
        raise said.refusal(
            f"a template with fields among {', '.join(sorted(fields))}", came, "Change the template."
        )
    return template


def _imported(said: Section, key: str) -> Callable[..., Any]:
    """A function of the user's own, as module:name."""
    module, _, name = said.text(key).partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        do = "Write module:name; the module must be importable (PYTHONPATH)."
        raise UsageError(f"{said.place}.{key}", expected="a function", came=str(error), do=do) from error
    if not callable(found):
        raise UsageError(
            f"{said.place}.{key}", expected="a function", came=type(found).__name__, do="Name one."
        )
    function: Callable[..., Any] = found
    return function
