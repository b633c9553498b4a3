"""`pandora doctor`: try each specialist with a few small calls and propose lines for pandora.yaml.

Nobody sees from outside what a provider bills for a cancelled call. Where the provider states the bill of a
call (`GET generation?id=...`, as OpenRouter does), `cancel` is proposed from it; otherwise the report says
which line of the provider's own bill tells.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pandora_router.cli.console import echo, echo_json
from pandora_router.cli.probes import LONG, Probe, ProbeReply, billed, hear, listed_models, probes
from pandora_router.text import counted, did_you_mean, money

if TYPE_CHECKING:
    from pandora_router.config.file import Config
    from pandora_router.config.specialists import ChatSettings
    from pandora_router.gateway.providers.backend import Backend
    from pandora_router.prices import Tariff
    from pandora_router.transport.endpoint import Endpoint

ABILITIES = ("tools", "images", "json_schema")
PRICES = "prices: {in: ..., out: ...}"
NOT_SERVED = "runs in `collect` and is not served by the gateway: not tried."
NOT_TRIED = {
    "function": "It runs your code, which only you know what to ask: not tried.",
    "mcp": "It calls a tool, which only you know what to ask: not tried.",
}


@dataclass
class Finding:
    """What was found out about one specialist.

    failure: why it does not answer, "" if it does. tried: what became of each call. settings: keys of its
    entry with the values that are proposed. notes: what is left to do, in sentences. spent: in money.
    """

    failure: str = ""
    tried: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    spent: float = 0.0
    line: str = ""


@click.command()
@click.argument("config", type=click.Path(path_type=Path), default=Path("pandora.yaml"))
@click.option("--yes", is_flag=True, help="Make the calls without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def doctor(config: Path, yes: bool, as_json: bool) -> None:
    """Try the specialists of CONFIG [pandora.yaml] and propose what its entries should say.

    Each specialist behind an endpoint gets up to seven small calls: a streamed one, a cancelled one, one each
    with tools, a JSON schema and an image, and one on each other wire. What they cost at most is said first,
    and you are asked. The entries that are printed in the end replace those of the file, which is not
    changed. The exit code is 1 if a specialist does not answer.

    \b
    Examples:
      pandora doctor
      pandora doctor pandora.yaml --yes --json
    """
    from pandora_router.cli.price_notes import price_notes

    settings, entries, unpriced = _read(config)
    findings = {name: Finding() for name in settings.answering}
    patients = _patients(settings, config.parent, findings, unpriced)
    if patients:
        _ask(patients, settings.value.currency, yes)
    asyncio.run(_examine(patients, findings))
    for patient in patients:
        name, address = patient.backend.name, patient.backend.endpoint.base_url
        if not patient.unpriced:
            findings[name].notes += price_notes(patient.stated, entries[name].get("prices"), address)
    for name, finding in findings.items():
        if name in unpriced and "prices" not in finding.settings:
            finding.notes.append(f"Its entry lacks {PRICES}, in money per million tokens, or `prices: free`.")
        entry = {**entries[name], **finding.settings}
        finding.line = f"{name}: {_flow(entry)}" if finding.settings else ""
    notes = _missing_keys(settings, config)
    if as_json:
        echo_json({"specialists": {name: asdict(f) for name, f in findings.items()}, "notes": notes})
    else:
        _show(findings, notes, settings.value.currency)
    click.get_current_context().exit(any(finding.failure for finding in findings.values()))


@dataclass(frozen=True)
class Patient:
    """A specialist that can be called, its entry, the calls to make, and whether the entry has no prices."""

    backend: Backend
    stated: ChatSettings
    calls: list[Probe]
    unpriced: bool

    def most(self) -> float:
        """What the calls cost at most."""
        return sum(self.backend.prices.most(len(json.dumps(c.body)), c.tokens) for c in self.calls)


def _read(path: Path) -> tuple[Config, dict[str, Any], set[str]]:
    """The file, its entries as written, and the specialists behind an endpoint that state no prices.

    Missing prices count as 0 here; every other mistake raises `UsageError`, as in `read_config`.
    """
    from pandora_router.config.document import read_document, validated
    from pandora_router.config.file import Config
    from pandora_router.config.shorthand import expanded, with_efforts

    document = with_efforts(read_document(path))
    content = document.content if isinstance(document.content, dict) else {}
    entries = content.get("specialists")
    entries = (
        {n: dict(e) for n, e in entries.items() if isinstance(e, dict)} if isinstance(entries, dict) else {}
    )
    unpriced = {name for name, e in entries.items() if e.get("kind") == "chat" and "prices" not in e}
    for name in unpriced:
        content["specialists"][name]["prices"] = {"in": 0, "out": 0}
    config = validated(Config, expanded(document))
    config.check()
    return config, entries, unpriced


def _patients(
    config: Config, folder: Path, findings: Mapping[str, Finding], unpriced: set[str]
) -> list[Patient]:
    made = [_patient(name, config, folder, finding, name in unpriced) for name, finding in findings.items()]
    return [patient for patient in made if patient is not None]


def _patient(name: str, config: Config, folder: Path, finding: Finding, unpriced: bool) -> Patient | None:
    """The specialist with its calls; None, with the reason in `finding`, if it cannot be called."""
    from pandora_router.config.gateway import backend
    from pandora_router.config.shared import Builder
    from pandora_router.config.specialists import ChatSettings
    from pandora_router.errors import UsageError

    stated = config.specialists[name]
    if not isinstance(stated, ChatSettings):
        finding.notes.append(NOT_TRIED.get(stated.kind, f"kind: {stated.kind} {NOT_SERVED}"))
        return None
    variable = config.endpoints[stated.endpoint].key_from
    if variable is not None and not os.environ.get(variable):
        finding.failure = f"the environment variable {variable} with its key is not set"
        finding.notes.append(f"Set the key: export {variable}=...")
        return None
    try:
        built = backend(name, config, Builder(config, folder, dry_run=True))
        return Patient(built, stated, probes(stated), unpriced)
    except UsageError as error:
        finding.failure = str(error)
        return None


def _ask(patients: list[Patient], sign: str, yes: bool) -> None:
    """Say what the calls cost at most, and ask whether to make them unless `yes`."""
    calls = counted(sum(len(patient.calls) for patient in patients), "call")
    echo(f"{calls} to {counted(len(patients), 'specialist')}, at most:", err=True)
    for patient in patients:
        name = patient.backend.name
        amount = "unknown: its entry has no prices" if patient.unpriced else money(patient.most(), sign)
        echo(f"  {name}: {amount}", err=True)
    echo(f"  together: {money(sum(patient.most() for patient in patients), sign)}", err=True)
    if not yes:
        click.confirm("Make these calls?", abort=True, err=True)


async def _examine(patients: list[Patient], findings: Mapping[str, Finding]) -> None:
    """Make the calls, one after the other at each specialist, all specialists at the same time."""
    await asyncio.gather(*(_visit(patient, findings[patient.backend.name]) for patient in patients))


async def _visit(patient: Patient, finding: Finding) -> None:
    """Make the calls to one specialist; the rest is left out if it does not answer the first one."""
    backend, stated = patient.backend, patient.stated
    listed = await listed_models(backend.endpoint)
    heard: dict[str, ProbeReply] = {}
    for call in patient.calls:
        came = heard[call.what] = await hear(backend, call, leave=call.what == "cancel")
        came.failure = came.failure or ("" if call.shows(came.text) else f"not shown in {call.tokens} tokens")
        finding.tried[call.what] = came.failure or "yes"
        finding.spent += _owed(patient, call, came)
        if call.what == "stream" and came.failure:
            finding.failure = came.failure
            finding.notes += _unanswered(came, backend, stated, listed)
            return
        if call.what == "cancel":
            await _cancelled(backend.endpoint, stated, came, finding)
    able = [name for name in ABILITIES if name in heard and not heard[name].failure]
    others = [name for name in stated.supports or () if name not in ABILITIES]
    wires = [
        stated.wires[0],
        *(w for w in ("chat", "responses", "messages") if w in heard and not heard[w].failure),
    ]
    if stated.supports is None:
        finding.settings["supports"] = able
    else:
        _propose(finding, "supports", [*able, *others], stated.supports)
    _propose(finding, "wires", wires, stated.wires)
    _about_stream(heard["stream"], stated, finding)
    _about_model(listed.get(backend.model, {}), stated, patient.unpriced, finding)


def _propose(finding: Finding, key: str, value: Sequence[str], now: Sequence[str]) -> None:
    if set(value) != set(now):
        finding.settings[key] = list(value)


def _owed(patient: Patient, call: Probe, heard: ProbeReply) -> float:
    """What a call costs by the provider's counts; without them at most, and nothing if it was refused."""
    prices: Tariff = patient.backend.prices
    if heard.usage is not None and heard.usage.complete:
        return prices.of(heard.usage)
    return prices.most(len(json.dumps(call.body)), call.tokens) if heard.charged else 0.0


def _unanswered(
    heard: ProbeReply, backend: Backend, stated: ChatSettings, listed: Mapping[str, Any]
) -> list[str]:
    if heard.status in (401, 403):
        key = backend.endpoint.key_from
        if key is None:
            where = f"endpoints.{stated.endpoint}"
            return [f"It asks for a key: write `key_from: NAME` under {where}, and export NAME=..."]
        return [f"It refuses the key in {key}."]
    if listed and stated.model not in listed:
        near = did_you_mean(stated.model, listed, f"It lists {', '.join(list(listed)[:8])}.")
        return [f"Its provider does not list the model {stated.model!r}. {near}"]
    return [f"Is a server running at {backend.endpoint.base_url}?"] if not heard.status else []


async def _cancelled(endpoint: Endpoint, stated: ChatSettings, heard: ProbeReply, finding: Finding) -> None:
    """Propose `cancel` from the provider's bill for the call that was cancelled, or say where to look."""
    at = time.strftime("%H:%M:%S", time.gmtime())
    if heard.failure:
        return
    tokens = await billed(endpoint, heard.id)
    if tokens is None:
        finding.notes.append(
            f"A call of {at} UTC was closed after {counted(heard.events, 'piece')} of at most {LONG} tokens. "
            "If the provider's own bill shows few output tokens for it, write `cancel: stops`; if it shows "
            f"about {LONG}, write `cancel: bills_full`."
        )
        return
    found = "stops" if tokens < LONG / 2 else "bills_full"
    finding.tried["cancel"] = f"billed {counted(tokens, 'token')} of {LONG} after {heard.events} had come"
    if found != stated.cancel:
        finding.settings["cancel"] = found


def _about_stream(heard: ProbeReply, stated: ChatSettings, finding: Finding) -> None:
    """Propose `looks: false` where a look would read, or pay for, the whole answer."""
    if heard.hidden:
        finding.notes.append("It reasons before it answers and does not show it: looks would see nothing.")
    elif heard.events < 2:
        finding.notes.append("Its stream came in one piece: a look would wait for the whole answer.")
    if stated.looks and (heard.hidden or heard.events < 2):
        finding.settings["looks"] = False
    if heard.usage is None or not heard.usage.complete:
        finding.notes.append("It sends no token counts with a stream: costs will be estimated.")


def _about_model(listed: Mapping[str, Any], stated: ChatSettings, unpriced: bool, finding: Finding) -> None:
    """Propose what the provider's list of models says and the entry does not."""
    from pandora_router.wires.usage import tokens_of

    top = listed.get("top_provider")
    most = tokens_of(top, "max_completion_tokens") or tokens_of(listed, "max_output_tokens")
    window = tokens_of(listed, "context_length") or tokens_of(listed, "max_model_len")
    if stated.window is None and window:
        finding.settings["window"] = window
    if stated.max_output_tokens is None and most:
        finding.settings["max_output_tokens"] = most
    elif stated.max_output_tokens is None:
        finding.notes.append(
            "max_output_tokens is not stated: budgets reserve 4,096 tokens for a request without a limit."
        )
    pricing = listed.get("pricing")
    parts = [_price(pricing, name) for name in ("prompt", "completion")]
    if unpriced and None not in parts:
        finding.settings["prices"] = dict(zip(("in", "out"), parts, strict=True))


def _price(pricing: object, member: str) -> float | None:
    """A price in money per million tokens, from one per token; None if it is not stated."""
    stated = pricing.get(member) if isinstance(pricing, Mapping) else None
    try:
        return round(1e6 * float(stated), 6) if isinstance(stated, int | float | str) else None
    except ValueError:
        return None


def _missing_keys(config: Config, path: Path) -> list[str]:
    """What to do before clients can call the gateway, if it requires keys and has none."""
    from pandora_router.cli.keys import within
    from pandora_router.store import accounts

    store = config.store_address(path.parent)
    there = "://" in store or Path(store).exists()
    if config.serve.keys != "required" or (there and within(store, accounts.keys)):
        return []
    return ["Clients of the gateway need a key and there is none yet. Make one: pandora keys add NAME"]


def _flow(entry: Mapping[str, Any]) -> str:
    """An entry as one line of YAML."""
    import yaml

    text: str = yaml.safe_dump(dict(entry), default_flow_style=True, sort_keys=False, width=10**6)
    return text.strip()


def _show(findings: Mapping[str, Finding], notes: list[str], sign: str) -> None:
    for name, finding in findings.items():
        answers = f"does not answer: {finding.failure}" if finding.failure else "answers"
        echo(f"{name} {answers}." if finding.tried or finding.failure else f"{name}:")
        for what, became in finding.tried.items():
            echo(f"  {what}: {became}")
        for note in finding.notes:
            echo(f"  {note}")
    lines = [finding.line for finding in findings.values() if finding.line]
    if lines:
        echo("\nReplace these entries under `specialists`:")
        echo("\n".join(f"  {line}" for line in lines))
    for note in notes:
        echo(note)
    echo(f"Spent at most {money(sum(finding.spent for finding in findings.values()), sign)}.", err=True)
