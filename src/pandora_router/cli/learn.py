"""`pandora learn`: what the gateway's log teaches, and a router that learnt from it."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pandora_router.cli.console import Screen, echo, echo_json, table
from pandora_router.cli.keys import CONFIG, store_option, within
from pandora_router.cli.label import label, shadow
from pandora_router.errors import UsageError

if TYPE_CHECKING:
    from pandora_router.store.database import Transaction
    from pandora_router.store.rows import LiveTrial, Version
    from pandora_router.store.versions import PastTrial

days_option = click.option("--days", type=float, default=30.0, show_default=True, help="Days to go back.")
metric_option = click.option("--metric", default="reward", show_default=True, help="Feedback used as score.")


@click.group()
def learn() -> None:
    """Learn from the requests that the gateway served.

    \b
    Examples:
      pandora learn status                             # what was rated, and which specialists changed
      pandora learn refit -r router -o router-b        # a router that also knows the rated requests
      pandora learn trial router-b                     # try it on live requests, beside the serving router
      pandora learn promote                            # serve it; or let `learn: {promote: veto}` do that
      pandora learn rollback                           # serve the router of before
      pandora learn label                              # buy complete scores of some logged prompts
      pandora learn shadow                             # would an observing router have chosen better?
    """


@learn.command()
@metric_option
@days_option
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@store_option
def status(metric: str, days: float, as_json: bool, store: str) -> None:
    """Say what was rated, and whether a specialist earns other than was expected of it.

    A specialist has changed where the evidence reached 10,000: that takes at least 10,000 rated answers on
    average if it did not change by more than 0.03. Its first 300 rated answers are the level of comparison.

    \b
    Examples:
      pandora learn status --days 7
      pandora learn status --json
    """
    from pandora_router.learn.drift import FIRST, detect
    from pandora_router.store import alerts, versions
    from pandora_router.store.explored import delay, explored
    from pandora_router.store.export import surprises
    from pandora_router.store.money import dollars

    until = time.time()
    rated, known, past, worth, mixes = within(
        store,
        lambda open_: (
            surprises(open_, metric, until - days * 86_400.0, until),
            versions.versions(open_, 1),
            last := versions.past(open_, 1),
            versions.right_answer(open_, last[0][0].id) if last else None,
            alerts.mixes(open_),
        ),
    )
    found = {name: detect(differences) for name, differences in sorted(rated.items())}
    if as_json:
        echo_json({name: dataclasses.asdict(drift) for name, drift in found.items()})
        return
    for line in [*standing_lines(known, past, worth), *mix_lines(mixes)]:
        echo(line)
    if not found:
        echo(f"No answer of the last {days:g} days was rated (metric {metric!r}). See: POST /v1/feedback")
        return
    rows = []
    for name, drift in found.items():
        verdict = f"changed, noticed after {drift.alarm:,}" if drift.alarm is not None else "as expected"
        if drift.answers <= FIRST:
            verdict = f"{FIRST} ratings are needed"
        against = sum(rated[name]) / len(rated[name])
        rows.append(
            (name, verdict, f"{drift.answers:,}", f"{against:+.3f}", f"{drift.recent:+.3f}",
             f"{drift.evidence:,.0f}")
        )  # fmt: skip
    columns = ("specialist", "", "rated answers", "reward - expected", "change of it", "evidence")
    Screen().show(table(f"Rated answers of the last {days:g} days", columns, rows, words=2))
    taught, late = within(
        store,
        lambda open_: (explored(open_, metric, until - days * 86_400.0), delay(open_, metric)),
    )
    echo(
        f"Of the newest {late.ratings:,} ratings half came within {late.half:,.0f} s of their request, "
        f"95% within {late.most:,.0f} s."
    )
    if taught.requests:
        cost = f"${dollars(taught.cost):.4f}"
        echo(f"Asked for what they teach: {taught.requests:,} requests, {taught.rated:,} rated, {cost}.")


def standing_lines(
    known: Sequence[Version], past: Sequence[PastTrial], worth: float | None = None
) -> list[str]:
    """The newest version and the newest trial, in sentences; `worth` is that of a right answer in dollars."""
    from pandora_router.learn.evidence import CERTAIN, Evidence

    lines = [f"Serving {version.path} since {day(version.at)}: {version.why}." for version in known[:1]]
    for trial, ended, verdict, state in past[:1]:
        evidence = Evidence.from_dict(state)
        what = f"The router of before, {trial.path}," if trial.watch else f"The candidate {trial.path}"
        error = f" ({evidence.standard_error:.3f})" if evidence.rated > 1 else ""
        gain = 1000.0 * (worth or 0.0) * evidence.mean
        money = f", {'-' if gain < 0.0 else '+'}${abs(gain):,.2f} per 1,000 such requests" if gain else ""
        lines += [
            f"{what} {'is' if ended is None else 'was'} tried on {trial.share:.0%} of disputed requests, "
            f"from {day(trial.started)} on.",
            f"{evidence.rated:,} of them count: its reward is {evidence.mean:+.3f}{error} higher on "
            f"each{money}. Evidence that it is better: {evidence.promote:,.3g}; that it is worse: "
            f"{evidence.drop:,.3g}; {CERTAIN:g} proves it.",
            f"The rule is {trial.rule}." if ended is None else f"It has ended: {verdict}.",
        ]
    return lines


def mix_lines(mixes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Whether the mix of prompts has changed, by the detector that ran last; nothing before it ran."""
    from pandora_router.learn.drift import ALARM, FIRST
    from pandora_router.learn.mix import MixState

    if not mixes:
        return []
    state = MixState.from_dict(list(mixes.values())[-1])
    novelty = f"{state.levels[0]:.0%} of known prompts are less novel than the first of these on average"
    if state.prompts <= FIRST:
        return [f"{state.prompts:,} prompts were compared to the known ones ({novelty}); {FIRST} are needed."]
    return [
        f"{state.prompts:,} prompts were compared to the known ones ({novelty}). Evidence that their mix "
        f"has changed since: {state.evidence:,.3g}; an alarm is raised at {ALARM:,.0f}."
    ]


def day(at: float) -> str:
    """A time to the minute, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


serving_option = click.option(
    "-r", "--router", "serving", type=click.Path(path_type=Path),
    help="The router that the file of the gateway names [serve.router of pandora.yaml, else router].",
)  # fmt: skip


@learn.command()
@click.argument("candidate", type=click.Path(path_type=Path), required=False)
@click.option(
    "--rule", type=click.Choice(("veto", "proof")), default="veto", show_default=True,
    help="Promote it unless it is worse (veto), or once it is proven to be better (proof).",
)  # fmt: skip
@click.option(
    "--share", type=click.FloatRange(0.02, 0.98), default=0.5, show_default=True,
    help="Share of disputed requests that the candidate decides.",
)  # fmt: skip
@click.option("--stop", is_flag=True, help="End the running trial; the serving router goes on.")
@serving_option
@store_option
def trial(
    candidate: Path | None, rule: str, share: float, stop: bool, serving: Path | None, store: str
) -> None:
    """Try the router in the folder CANDIDATE on live requests, beside the serving one.

    Both decide each `auto` request that belongs to no conversation. Where they differ, or one of them would
    first buy estimates, a coin says which of the two serves the request. What clients rate then is evidence
    for and against the candidate, in `learn status`. With `learn: {promote: veto}` or `proof` in pandora.yaml
    the gateway ends the trial by the rule: it promotes the candidate or drops it.

    \b
    Examples:
      pandora learn trial router-b
      pandora learn trial router-b --rule proof --share 0.2
      pandora learn trial --stop
    """
    from pandora_router.learn.evidence import Evidence
    from pandora_router.store import versions

    now = time.time()
    if stop:
        ended = within(store, lambda open_: versions.end(open_, "stopped by hand", now))
        echo("The trial has ended; the serving router goes on." if ended else "No trial is running.")
        return
    if candidate is None:
        raise click.UsageError("Name the folder of the candidate, or --stop.")
    made = within(store, lambda open_: proposed(open_, candidate, serving, rule, share, now))
    within(store, lambda open_: versions.begin(open_, made, Evidence.start().to_dict()))
    echo(
        f"The gateway tries {made.path} (router {made.artifact}) against router {made.against}, on "
        f"{share:.0%} of the requests where they may differ. Next: pandora learn status"
    )


@learn.command()
@click.argument("candidate", type=click.Path(path_type=Path), required=False)
@serving_option
@store_option
def promote(candidate: Path | None, serving: Path | None, store: str) -> None:
    """Serve the candidate of the running trial, or the router in the folder CANDIDATE, from now on.

    The router of before keeps a tenth of the disputed requests; with `learn: {promote: veto}` or `proof` the
    gateway goes back to it once the evidence turns. The file pandora.yaml stays as it is; as soon as its
    serve.router names another router, that one is served.

    \b
    Examples:
      pandora learn promote
      pandora learn promote router-b
    """
    from pandora_router.gateway.http.learner import promote as promoted
    from pandora_router.store import versions

    now = time.time()

    def change(open_: Transaction) -> str:
        running = versions.lineup(open_).trial
        if candidate is not None:
            running = proposed(open_, candidate, serving, "veto", 0.5, now)
            versions.end(open_, "replaced by hand", now)
        if running is None or running.watch:
            raise UsageError(
                "what to promote",
                expected="a running trial, or the folder of a router",
                came="none",
                do="Name it: pandora learn promote router-b",
            )
        promoted(open_, running, "promoted by hand", now)
        return running.path

    echo(f"The gateway serves {within(store, change)} within seconds. To go back: pandora learn rollback")


@learn.command()
@store_option
def rollback(store: str) -> None:
    """Serve the router of before the last promotion again, and end a running trial.

    \b
    Examples:
      pandora learn rollback
      pandora learn rollback --store postgresql://host/pandora
    """
    from pandora_router.store import versions

    version = within(store, lambda open_: versions.go_back(open_, "went back by hand", time.time()))
    echo(f"The gateway serves {version.path} (router {version.artifact}) within seconds.")


def proposed(
    open_: Transaction, candidate: Path, serving: Path | None, rule: str, share: float, now: float
) -> LiveTrial:
    """A trial of `candidate` against what is served; raises `UsageError` if the two cannot be compared."""
    from pandora_router.config import open_router, read_config
    from pandora_router.store import versions
    from pandora_router.store.rows import LiveTrial

    if serving is None and CONFIG.is_file():
        named = read_config(CONFIG).serve.router
        serving = None if named is None else CONFIG.resolve().parent / named
    serving = (serving or Path("router")).resolve()
    other, basis = open_router(candidate), open_router(serving)
    version = versions.lineup(open_).version
    path, artifact = str(serving), basis.id
    if version is not None and version.basis == basis.id:
        path, artifact = version.path, version.artifact
    if other.id == artifact or set(other.specialists) != set(basis.specialists):
        raise UsageError(
            "the candidate",
            expected=f"another router than {artifact}, for {', '.join(basis.specialists)}",
            came=f"router {other.id}, for {', '.join(other.specialists)}",
            do="Make one: pandora learn refit -r router -o router-b",
        )
    return LiveTrial(
        *(uuid.uuid4().hex, str(candidate.resolve()), other.id, path, artifact, basis.id),
        *("proof" if rule == "proof" else "veto", share, False, now),
    )


@learn.command()
@click.option(
    "-r", "--router", "folder", type=click.Path(path_type=Path), default=Path("router"), show_default=True,
    help="The router that served the requests.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Folder to write to.")
@click.option("--complaints", is_flag=True, help="Bad answers are rated more often than good ones.")
@click.option("--labels", type=click.Path(path_type=Path), help="Table that `pandora learn label` wrote.")
@click.option(
    "--per-key", type=click.FloatRange(0.0, 1.0, min_open=True), default=0.2, show_default=True,
    help="Largest share of the ratings that may come from one API key.",
)  # fmt: skip
@click.option("--replace", is_flag=True, help="Replace an existing artifact.")
@metric_option
@days_option
@store_option
def refit(
    folder: Path,
    output: Path,
    complaints: bool,
    labels: Path | None,
    per_key: float,
    replace: bool,
    metric: str,
    days: float,
    store: str,
) -> None:
    """Write a router that also knows the rated requests of the log; the old one stays as it is.

    Prompts must have been stored (`serve: {bodies: true}`). Each rated answer tells about one specialist;
    what it says about the others follows from how their scores go together on the prompts of the fit, and
    from looks that were bought before the decision. To try the new router on live requests: pandora learn
    trial. To serve it, name its folder in serve.router.

    \b
    Examples:
      pandora learn refit -r router -o router-b
      pandora learn refit -r router -o router-b --complaints --labels labels --days 7
    """
    from pandora_router.config import open_router
    from pandora_router.data import storage
    from pandora_router.learn.evidence import allowance
    from pandora_router.learn.refit import refit as learnt
    from pandora_router.store.export import news_of_looks, routing_table

    router, until = open_router(folder), time.time()
    since, most = until - days * 86_400.0, partial(allowance, per_key=per_key)
    traffic = within(store, lambda open_: routing_table(open_, metric, since, until, most))
    fair = None if labels is None else storage.load(labels)
    looks = within(
        store, lambda open_: news_of_looks(open_, traffic.prompts, router.specialists, since, until)
    )
    made = learnt(router, traffic, complaints=complaints, fair=fair, looks=looks)
    data = {"metric": metric, "since": day(since), "until": day(until)}
    record = dataclasses.replace(made.router.record, learnt={**made.router.record.learnt, **data})
    dataclasses.replace(made.router, record=record).save(output, replace=replace, inputs=[folder])
    rows = [
        (one, f"{n:,}", f"{mean:.3f}", f"{said:.3f}") for one, (n, mean, said) in made.specialists.items()
    ]
    columns = ("specialist", "ratings", "mean score", "was expected")
    Screen().show(table(f"Rated answers of the last {days:g} days", columns, rows))
    bias = f" Bad answers were rated more often: {made.offset:+.2f} in log-odds." if complaints else ""
    echo(
        f"{made.ratings:,} ratings of {made.requests:,} requests learnt; router {made.router.id}, from "
        f"{router.id}, is in {output}.{bias}"
    )
    echo(
        f"It chooses another specialist for {made.disputed:.0%} of these prompts. Whether that is better is "
        f"not known before a trial on such requests. Next: pandora learn trial {output}"
    )


learn.add_command(label)
learn.add_command(shadow)
