"""Metrics for Prometheus, read from the store, so that all workers report the same counters.

Counters are sums over the roll-ups per hour, which retention never deletes, so they only grow. Gauges
describe the worker that answered.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from pandora_router.store.database import Row, Transaction
from pandora_router.store.money import dollars

if TYPE_CHECKING:
    from pandora_router.gateway.http.app import Gateway

# name -> (column of the roll-ups, unit factor, help)
COUNTERS = {
    "requests_total": ("requests", 1.0, "Requests that were answered or failed."),
    "errors_total": ("errors", 1.0, "Requests that ended in an error."),
    "declined_total": ("declined", 1.0, "Requests that the router could not judge."),
    "looks_total": ("looks", 1.0, "Costly estimates bought before deciding."),
    "cost_dollars_total": ("cost", dollars(1), "Money paid for answers and looks."),
    "inspection_cost_total": (
        "inspection_cost",
        dollars(1),
        "Dollars for lost looks and estimates.",
    ),
    "overhead_seconds_total": ("overhead", 1.0, "Seconds between a request and the call upstream."),
    "first_token_seconds_total": ("first_token", 1.0, "Seconds to the first content, summed."),
    "first_tokens_total": ("first_tokens", 1.0, "Requests with a first content."),
    "seconds_total": ("seconds", 1.0, "Seconds to the end of answers, summed."),
}


def _sums(open_: Transaction) -> list[Row]:
    columns = ", ".join(f"sum({column})" for column, _, _ in COUNTERS.values())
    return open_.rows(f"SELECT specialist, {columns} FROM hours GROUP BY specialist ORDER BY specialist")


async def text(gateway: Gateway) -> bytes:
    """All metrics in Prometheus's text format."""
    rows = await gateway.store.run(_sums)
    lines: list[str] = []
    for at, (name, (_, unit, help_)) in enumerate(COUNTERS.items(), start=1):
        lines += [f"# HELP pandora_{name} {help_}", f"# TYPE pandora_{name} counter"]
        lines += [
            f'pandora_{name}{{specialist="{_escaped(row[0])}"}} {float(row[at]) * unit:.9g}' for row in rows
        ]
    now = time.monotonic()
    lines += [
        "# HELP pandora_circuit_open Whether a specialist is left alone.",
        "# TYPE pandora_circuit_open gauge",
    ]
    for name, circuit in gateway.circuits.items():
        broken = int(circuit.state(now) == "open")
        lines.append(f'pandora_circuit_open{{specialist="{_escaped(name)}",worker="{os.getpid()}"}} {broken}')
    lines += [
        "# HELP pandora_look_share Expected cost of a look over that of a whole answer; 0 if none is made.",
        "# TYPE pandora_look_share gauge",
    ]
    for look in gateway.outlooks():
        share = 0.0 if look.off or not look.fare.whole else look.fare.money / look.fare.whole
        labels = f'specialist="{_escaped(look.specialist)}",worker="{os.getpid()}"'
        lines.append(f"pandora_look_share{{{labels}}} {share:.9g}")
    lines += [
        "# HELP pandora_requests_in_flight Requests that are being answered.",
        "# TYPE pandora_requests_in_flight gauge",
        f'pandora_requests_in_flight{{worker="{os.getpid()}"}} {gateway.busy}',
        "# HELP pandora_generation Number of the configuration that is served.",
        "# TYPE pandora_generation gauge",
        f'pandora_generation{{worker="{os.getpid()}"}} {gateway.site.generation}',
    ]
    return ("\n".join(lines) + "\n").encode()


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
