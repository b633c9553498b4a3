"""`pandora demo`: route generated prompts, show one decision with its prices, and what each policy costs.

Nothing here is fitted and nothing is downloaded: four made-up specialists whose rewards are drawn from the
model the router assumes. It shows the machine at work, not results on real data.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from pandora_router.cli.failures import told_plainly
from pandora_router.cli.progress import SlowProgress
from pandora_router.search import (
    Batch,
    Committing,
    Inspect,
    KnowledgeGradient,
    Obligatory,
    Policy,
    Relative,
    Rollout,
    Trace,
    baselines,
    drive,
    reveal,
    run,
)
from pandora_router.search.gradient import gradient

SPECIALISTS = ("small", "large", "retrieval", "calculator")
USUAL = np.array([0.52, 0.58, 0.50, 0.47])  # mean reward over prompts
SPREAD = np.array([0.10, 0.06, 0.14, 0.18])  # how much the cheap estimate tells prompts apart
DOUBT = np.array([0.16, 0.10, 0.20, 0.22])  # what it leaves open and an inspection would show
SHARED = 0.5  # correlation of what is left open: hard prompts are hard for all


@dataclass(frozen=True)
class Instance:
    """Prompts with what is known beforehand (`batch`) and what inspections would show (`values`)."""

    batch: Batch
    values: np.ndarray


def generate(prompts: int, cost: float, rng: np.random.Generator) -> Instance:
    """Draw cheap means around each specialist's usual reward, then values around the means."""
    boxes = len(SPECIALISTS)
    mean = USUAL + SPREAD * rng.standard_normal((prompts, boxes))
    correlation = SHARED + (1.0 - SHARED) * np.eye(boxes)
    std = np.tile(DOUBT, (prompts, 1))
    noise = np.sqrt(SHARED) * rng.standard_normal((prompts, 1))
    noise = noise + np.sqrt(1.0 - SHARED) * rng.standard_normal((prompts, boxes))
    return Instance(Batch(mean, std, cost, correlation=correlation), mean + std * noise)


def compare(instance: Instance, cost: float, tell: SlowProgress) -> list[dict[str, float | str]]:
    """Regret + inspection cost of every way to route, with standard errors, on the same prompts."""
    batch, values = instance.batch, instance.values
    oracle = values.max(axis=1)
    rows = np.arange(len(values))
    taken: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    best = int(batch.mean.mean(axis=0).argmax())
    taken[f"always {SPECIALISTS[best]}"] = (np.full(len(values), best), np.zeros(len(values)))
    for name, plan in {
        "mean-only": baselines.never(batch.mean),
        "inspect-all": baselines.always(batch.mean),
        "top-2": baselines.top(batch.mean),
    }.items():
        taken[name] = (plan.choices(values), plan.opened.sum(axis=1))
    policies: dict[str, Policy] = {
        "Obligatory": Obligatory(),
        "Committing (paper)": Committing(),
        "Rollout": Rollout(),
        "Relative": Relative(),
        "KnowledgeGradient": KnowledgeGradient(),
    }
    for done, (name, policy) in enumerate(policies.items()):
        tell("routing", done, len(policies))
        decisions = run(policy, batch, values)
        taken[name] = (decisions.choice, decisions.inspections)
    table: list[dict[str, float | str]] = []
    for name, (choice, inspections) in taken.items():
        regret = oracle - values[rows, choice]
        total = regret + cost * inspections
        table.append(
            {
                "policy": name,
                "regret": float(regret.mean()),
                "inspection_cost": float(cost * inspections.mean()),
                "total": float(total.mean()),
                "standard_error": float(total.std(ddof=1) / np.sqrt(len(total))),
                "inspections": float(inspections.mean()),
            }
        )
    return table


def story(instance: Instance) -> tuple[int, Trace]:
    """The first prompt on which the router bought something and still left boxes sealed."""
    for i in range(len(instance.values)):
        trace = drive(KnowledgeGradient(), instance.batch.state(i), reveal(instance.values[i]))
        if 2 <= len(trace.inspected) < len(SPECIALISTS):
            return i, trace
    return 0, drive(KnowledgeGradient(), instance.batch.state(0), reveal(instance.values[0]))


def print_story(console: Console, instance: Instance, prompt: int, trace: Trace) -> None:
    """Show one decision step by step: prices, what each inspection was worth, what it showed."""
    state = instance.batch.state(prompt)
    console.print(f"\n[bold]Prompt {prompt}, decided step by step[/bold]")
    for step, action in enumerate(trace.actions):
        boxes = state.boxes
        table = Table(title=f"Before step {step + 1} (spent so far: {state.spent:.3f})", title_justify="left")
        for heading in (
            "specialist",
            "mean",
            "std",
            "reservation",
            "backup",
            "news is worth",
        ):
            table.add_column(heading, justify="left" if heading == "specialist" else "right")
        worth = gradient(boxes, state.outside)
        for j, name in enumerate(SPECIALISTS):
            cells = [f"{boxes.mean[j]:.3f}"]
            if boxes.sealed[j]:
                prices = (boxes.reservation_price()[j], boxes.backup_price()[j])
                cells += [f"{boxes.std[j]:.3f}", *(f"{p:.3f}" for p in prices), f"{worth[j]:.4f}"]  # type: ignore[attr-defined]
            else:
                cells += ["opened", "", "", ""]
            table.add_row(name, *cells)
        console.print(table)
        if isinstance(action, Inspect):
            for box, value in zip(action.boxes, trace.values[step], strict=True):
                price = float(state.boxes.inspection_cost[box])
                console.print(
                    f"-> inspect [bold]{SPECIALISTS[box]}[/bold] for {price:.3f}: it shows {value:.3f}"
                )
                assert value is not None
                state = state.observe(box, value)
        else:
            how = "sealed" if boxes.sealed[action.box] else "opened"
            console.print(
                f"-> no inspection is worth its cost any more: take [bold]{SPECIALISTS[action.box]}[/bold] "
                f"({how}, {boxes.mean[action.box]:.3f}); inspections cost {trace.spent:.3f}"
            )


@click.command(epilog="Examples:\n\n  pandora demo\n\n  pandora demo --cost 0.03 --prompts 5000 --json")
@click.option("--prompts", default=2000, show_default=True, type=click.IntRange(2, 1_000_000))
@click.option(
    "--cost", default=0.01, show_default=True, type=click.FloatRange(0), help="Cost of one inspection."
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--json", "as_json", is_flag=True, help="Print the table for machines.")
@told_plainly
def demo(prompts: int, cost: float, seed: int, as_json: bool) -> None:
    """Route generated prompts among four made-up specialists and show a decision with its prices."""
    instance = generate(prompts, cost, np.random.default_rng(seed))
    with SlowProgress() as tell:
        table = compare(instance, cost, tell)
    prompt, trace = story(instance)
    if as_json:
        decision = {
            "prompt": prompt,
            "inspected": trace.inspected,
            "selected": trace.selected,
            "spent": trace.spent,
        }
        click.echo(json.dumps({"cost": cost, "prompts": prompts, "policies": table, "decision": decision}))
        return
    console = Console()
    print_story(console, instance, prompt, trace)
    shown = Table(title=f"\n{prompts:,} generated prompts, inspection cost {cost:g} (lower is better)")
    for heading in ("policy", "regret", "cost", "total", "(se)", "inspections"):
        shown.add_column(heading, justify="left" if heading == "policy" else "right")
    lowest = min(float(row["total"]) for row in table)
    for row in table:
        mark = "bold" if row["total"] == lowest else ""
        figures = [f"{row[k]:.4f}" for k in ("regret", "inspection_cost", "total", "standard_error")]
        shown.add_row(str(row["policy"]), *figures, f"{row['inspections']:.2f}", style=mark)
    console.print(shown)
