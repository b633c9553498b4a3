"""What the gateway costs: processor time and latency of a request beside a bare pass-through and litellm.

    python -m benchmarks.gateway [--requests 3000] [--litellm .venv-litellm] [--page docs/gateway-speed.md]

Every server runs alone on one core, in front of the same stub, in the same run; the load comes from the other
core. CPU is that of the server's processes by the kernel's count, so a busy machine blurs latencies more than
CPU. `auto` decides with the default cheap estimate among ten specialists. Goals: by name at most 1.5 times
bare; 25 times less than litellm; `auto` under 2 ms of CPU more than by name; the first token at 16 streams
within 5 ms of bare.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import secrets
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import served
from benchmarks.served import Server
from pandora_router.data.table import Table
from pandora_router.router import Router, StackRecipe

PROMPTS = [f"Which of the {i} rivers near city {i * 7} is the longest, and why?" for i in range(200)]
BARE, NAMED, AUTO, LITELLM = (
    "bare Starlette + aiohttp",
    "ours, by name",
    "ours, auto among 10",
    "litellm proxy",
)


@dataclass(frozen=True)
class Cost:
    """What one way of asking costs: CPU in microseconds a request, latencies in milliseconds."""

    server: str
    kind: str
    cpu: float
    p50: float
    p99: float
    first: float = 0.0


def measure(name: str, server: Server, model: str, stream: bool, count: int) -> Cost:
    """CPU at 16 requests at once, then latency one at a time and the first token at 16 streams."""
    bodies = [served.request(model, stream=stream, prompt=prompt) for prompt in PROMPTS]
    asyncio.run(served.drive(server.url, bodies, 200, 16, server.key))  # warm
    before = server.cpu()
    busy = asyncio.run(served.drive(server.url, bodies, count, 16, server.key))
    cpu = (server.cpu() - before) / count
    if any(one.status != 200 for one in busy):
        raise RuntimeError(f"{name}: {sum(one.status != 200 for one in busy)} of {count} requests failed")
    alone = [
        one.whole
        for one in asyncio.run(served.drive(server.url, bodies, max(count // 5, 100), 1, server.key))
    ]
    p50, p99 = (1000.0 * float(np.quantile(alone, q)) for q in (0.5, 0.99))
    first = 1000.0 * statistics.median(one.first for one in busy)
    found = Cost(name, "stream" if stream else "JSON", 1e6 * cpu, p50, p99, first if stream else 0.0)
    print(found, file=sys.stderr, flush=True)
    return found


WORDS = ("river", "king", "number", "count", "name", "long", "word", "city", "law", "cell", "sum", "verb")


def fit(folder: Path, names: list[str]) -> None:
    """A router with the default cheap estimate over `names`, which buys nothing at this price."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(WORDS), (800, 6))
    prompts = tuple(f"{i} " + " ".join(WORDS[k] for k in row) for i, row in enumerate(drawn))
    skill = rng.random((len(WORDS), len(names)))
    chance = skill[drawn].mean(axis=1)
    split = np.array(["train"] * 500 + ["calibration"] * 200 + ["test"] * 100)
    table = Table(
        prompt_ids=tuple(map(str, range(800))),
        prompts=prompts,
        tasks=("words",) * 800,
        split=split,
        specialists=tuple(names),
        score=(rng.random(chance.shape) < chance).astype(float),
        fee=np.full(chance.shape, 0.001),
    )
    costly = StackRecipe(rounds=20, folds=2)
    Router.fit(table, costly=costly, inspection_cost=0.5).save(folder / "router", replace=True)


@contextmanager
def ours(core: int | None, target: str, specialists: int, workers: int = 1) -> Iterator[Server]:
    """`pandora serve` with a fitted router over so many specialists."""
    names = [f"s{i}" for i in range(specialists)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fit(folder, names)
        models = dict.fromkeys(names, "stub")
        with served.gateway(
            core, served.write_config(folder, target, models, router="router"), workers
        ) as one:
            yield one


@contextmanager
def litellm(core: int | None, target: str, environment: Path) -> Iterator[Server]:
    """The litellm proxy from a virtual environment, without a database."""
    port = served.free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(
            f"model_list: [{{model_name: stub, litellm_params: {{model: openai/stub, "
            f'api_base: "{target}/v1", api_key: none}}}}]\n'
            "litellm_settings: {telemetry: false}\n"
        )
        program = str((environment / "bin" / "litellm").resolve())
        command = [program, "--config", str(config), "--port", str(port), "--host", "127.0.0.1"]
        key = f"sk-{secrets.token_hex(32)}"
        variables = {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_LOG": "ERROR",
            "LITELLM_MASTER_KEY": key,
        }
        url = f"http://127.0.0.1:{port}"
        with served.started(command, f"{url}/health/liveliness", core, **variables) as one:
            one.url, one.key = url, key
            yield one


def compare(count: int, environment: Path | None, cores: tuple[int, int]) -> list[Cost]:
    """All servers, one after the other, on core `cores[0]`; stub and load on the other."""
    first, other = cores
    found: list[Cost] = []
    with served.upstream(other) as stub:
        with served.bare(first, stub.url) as one:
            found += [measure(BARE, one, "stub", stream, count) for stream in (False, True)]
        with ours(first, stub.url, 10) as one:
            found += [measure(NAMED, one, "s0", stream, count) for stream in (False, True)]
            found += [measure(AUTO, one, "auto", stream, count) for stream in (False, True)]
        if environment is not None:
            with litellm(first, stub.url, environment) as one:
                few = max(count // 20, 100)
                found += [measure(LITELLM, one, "stub", stream, few) for stream in (False, True)]
    return found


def growth(count: int, cores: tuple[int, int]) -> list[tuple[str, float, float]]:
    """CPU in microseconds and requests per second of `auto` by workers, specialists and prompt length."""
    rows: list[tuple[str, float, float]] = []
    with served.upstream(cores[1]) as stub:

        def row(what: str, core: int | None, specialists: int, workers: int, prompt: str) -> None:
            with ours(core, stub.url, specialists, workers) as one:
                bodies = [served.request("auto", stream=False, prompt=f"{i} {prompt}") for i in range(100)]
                asyncio.run(served.drive(one.url, bodies, 200, 16))
                before, begun = one.cpu(), os.times().elapsed
                asyncio.run(served.drive(one.url, bodies, count, 32))
                rows.append((what, 1e6 * (one.cpu() - before) / count, count / (os.times().elapsed - begun)))

        for workers in (1, 2):
            row(
                f"{workers} worker{'s' * (workers > 1)}, 10 specialists, 40 characters",
                None,
                10,
                workers,
                "x" * 40,
            )
        for specialists in (3, 30):
            row(f"1 worker, {specialists} specialists, 40 characters", cores[0], specialists, 1, "x" * 40)
        for length in (1_000, 10_000, 100_000):
            words = "river king number " * (length // 18)
            row(f"1 worker, 10 specialists, {length:,} characters", cores[0], 10, 1, words)
    return rows


def verdicts(found: list[Cost]) -> list[str]:
    """Each goal, what was measured, and whether it is met."""
    by = {(one.server, one.kind): one for one in found}
    lines = []
    for kind in ("JSON", "stream"):
        named, plain, auto = (by[name, kind] for name in (NAMED, BARE, AUTO))
        lines.append(_said(f"by name, {kind}: CPU times bare", named.cpu / plain.cpu, 1.5, "at most"))
        more = (auto.cpu - named.cpu) / 1000.0
        lines.append(_said(f"auto, {kind}: ms of CPU more than by name", more, 2.0, "under"))
        if (LITELLM, kind) in by:
            times = by[LITELLM, kind].cpu / named.cpu
            met = "met" if times >= 25 else "missed"
            lines.append(f"litellm, {kind}: {times:.1f} times our CPU by name (goal: at least 25): {met}")
    late = by[NAMED, "stream"].first - by[BARE, "stream"].first
    lines.append(_said("first token at 16 streams, by name: ms more than bare", late, 5.0, "at most"))
    return lines


def _said(what: str, value: float, goal: float, word: str) -> str:
    return f"{what}: {value:.2f} (goal: {word} {goal:g}): {'met' if value <= goal else 'missed'}"


def page(found: list[Cost], rows: list[tuple[str, float, float]], count: int) -> str:
    """The measurements as Markdown."""
    plain = {one.kind: one for one in found if one.server == BARE}
    lines = [
        "# Speed of the gateway",
        "",
        f"Written by `python -m benchmarks.gateway --requests {count}`: Python {platform.python_version()},",
        f"{os.cpu_count()} cores ({platform.machine()}). One core for each server, the same stub upstream,",
        "load from another core. CPU is what the kernel counts for the server at 16 requests at once;",
        "latencies are of one request at a time; the first token is the median at 16 streams.",
        f"The load of the machine was {os.getloadavg()[1]:.1f}; latencies mean little above its cores.",
        "",
        "| server | answer | CPU, µs | times bare | p50, ms | added | p99, ms | added | first token, ms |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        bare = plain[one.kind]
        first = f"{one.first:.1f}" if one.first else ""
        lines.append(
            f"| {one.server} | {one.kind} | {one.cpu:,.0f} | {one.cpu / bare.cpu:.2f} | {one.p50:.2f} | "
            f"{one.p50 - bare.p50:+.2f} | {one.p99:.2f} | {one.p99 - bare.p99:+.2f} | {first} |"
        )
    lines += ["", *(f"- {line}" for line in verdicts(found))]
    if rows:
        lines += ["", "How `auto` grows (JSON, 32 requests at once):", ""]
        lines += ["| served | CPU, µs a request | requests a second |", "|---|---|---|"]
        lines += [f"| {what} | {cpu:,.0f} | {rate:,.0f} |" for what, cpu, rate in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--litellm", type=Path, help="virtual environment with litellm[proxy]")
    parser.add_argument("--no-growth", action="store_true", help="leave out the table of growth")
    parser.add_argument("--page", type=Path, help="write the page to this file")
    given = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    pair = (cores[0], cores[-1])
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {pair[1]})
    found = compare(given.requests, given.litellm, pair)
    os.sched_setaffinity(0, set(cores))
    rows = [] if given.no_growth else growth(max(given.requests // 3, 100), pair)
    told = page(found, rows, given.requests)
    print(told)
    if given.page is not None:
        given.page.write_text(told)


if __name__ == "__main__":
    main()
