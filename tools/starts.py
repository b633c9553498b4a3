"""CPU seconds that the core and each extra take to start, for `python -m tools.sizes`.

Each command runs in a Python process of its own; user and system seconds of the process are added, and the
least of `REPEATS` runs counts: the first run of a fresh install also compiles byte-code.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPEATS = 3
HELP = ("-m", "pandora_router.cli.main", "--help")
LOAD = "import sys; from pandora_router.router import Router; Router.load(sys.argv[1])"
# What a process has imported when it starts the work that the extra is for.
IMPORTS = {
    "http": "pandora_router.transport.client, httptools, aiohappyeyeballs",
    "fit": "pandora_router.data.storage, pandora_router.router, pyarrow.parquet",
    "plots": "pandora_router.report.plots",
    "index": "pandora_router.estimators.nearest, faiss",
    "ray": "pandora_router.run.ray, ray",
    "serve": "pandora_router.config.gateway, pandora_router.gateway.http.server, uvicorn, httptools, uvloop",
    "otel": "opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "litellm": "pandora_router.gateway.litellm, litellm",
    "postgres": "pandora_router.store, psycopg",
    "local": "xllamacpp",
    "demo": "pandora_router.cli.demo, pyarrow.parquet, sympy, xllamacpp",
    "transformer": "pandora_router.estimators.transformer.served, onnxruntime",
}


def cpu_seconds(*arguments: str, repeats: int = REPEATS) -> float | None:
    """Return the CPU seconds of `python *arguments`, the least of `repeats` runs; None if a run fails."""
    least = float("inf")
    for _ in range(repeats):
        process = subprocess.Popen(
            [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            return None
        least = min(least, usage.ru_utime + usage.ru_stime)
    return least


def start_times(extra: str | None, router: Path | None = None) -> Iterator[tuple[str, float | None]]:
    """Yield what is started and its CPU seconds, None where it cannot start in this environment.

    For the core (`extra` None): an empty Python, `import pandora_router`, `pandora --help` and, if the folder
    `router` of a fitted router is given, loading it. For an extra: the imports of its work.
    """
    if extra is not None:
        yield f"[{extra}] imported", cpu_seconds("-c", f"import {IMPORTS[extra]}")
        return
    yield "python alone", cpu_seconds("-c", "pass")
    yield "import pandora_router", cpu_seconds("-c", "import pandora_router")
    yield "pandora --help", cpu_seconds(*HELP)
    if router is not None:
        yield "a router loaded", cpu_seconds("-c", LOAD, str(router))
