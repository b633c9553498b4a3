"""Fixtures all tests share: a fitted router, the reference vectors, and how hypothesis searches."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.cpu import pytest_runtest_makereport, pytest_runtest_protocol, pytest_terminal_summary

__all__ = ["pytest_runtest_makereport", "pytest_runtest_protocol", "pytest_terminal_summary"]

if TYPE_CHECKING:
    from pandora_router.router import Router

# Tables of tests are small: two threads of linear algebra would mostly wait for each other, in a busy loop,
# at twice the processor time. Set before numpy is imported; processes that tests start inherit it.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

ROOT = Path(__file__).resolve().parent.parent
VECTORS = ROOT.parent / "shared" / "vectors.json"

# a background job of a shell ignores Ctrl-C, and so would every process that a test starts and interrupts
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("local", deadline=None, max_examples=40, suppress_health_check=quiet)
settings.register_profile(
    "ci", deadline=None, max_examples=40, derandomize=True, suppress_health_check=quiet, database=None
)
settings.register_profile("deep", deadline=None, max_examples=1000, suppress_health_check=quiet)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "local"))


# files that fit whole routers, most of a minute together; single tests carry the marker themselves
SLOW = {
    "test_bidding_cli.py",
    "test_bidding_slow.py",
    "test_default_sets.py",
    "test_demo.py",
    "test_evaluate.py",
    "test_exit_codes.py",
    "test_kernel_cache.py",
    "test_latency.py",
    "test_market_slow.py",
    "test_page.py",
    "test_ray.py",
    "test_resumed_fit.py",
    "test_runners.py",
    "test_sampled_fit.py",
    "test_stream.py",
    "test_transformer.py",
    "test_tuned_router.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow files, and let files with slow tests begin: none of them is left for the end.

    With `--dist loadfile --no-loadscope-reorder` files are handed out in this order, so that both cores are
    busy to the end; the order of tests within a file stays.
    """
    for item in items:
        if item.path.name in SLOW:
            item.add_marker(pytest.mark.slow)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def load_vectors() -> list[dict[str, Any]]:
    """The reference vectors, or none where the shared folder is absent."""
    if not VECTORS.exists():
        return []
    vectors: list[dict[str, Any]] = json.loads(VECTORS.read_text())["vectors"]
    return vectors


def of_kind(kind: str) -> list[Any]:
    """Parameters for one test per vector of a kind; a single skipped one where there are none."""
    found = [pytest.param(v, id=f"{kind}-{v['id']}") for v in load_vectors() if v["kind"] == kind]
    reason = "vectors.json lies in the shared folder beside the repository, which is absent here"
    return found or [pytest.param(None, marks=pytest.mark.skip(reason=reason), id=f"{kind}-absent")]


@pytest.fixture(scope="session")
def vectors() -> list[dict[str, Any]]:
    """All reference vectors."""
    found = load_vectors()
    if not found:
        pytest.skip("vectors.json lies in the shared folder beside the repository, which is absent here")
    return found


@pytest.fixture(scope="session")
def router() -> Router:
    """A small fitted router; immutable, so all tests share it."""
    from tests.support import routers

    return routers.fitted()


@pytest.fixture(scope="session")
def saved_router(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact of that router; tests must not write into it."""
    from tests.support import routers

    return routers.saved(tmp_path_factory.mktemp("artifact"))


@pytest.fixture(scope="session", autouse=True)
def compiled_kernels() -> None:
    """Compile the search kernels once on a machine: without them plain code would be compared with itself.

    A kernel that a test file imports before `kernels.load` has run is not looked for on disk, and numba then
    compiles all that call it anew in every process, a minute of work.
    """
    from pandora_router.search import kernels

    if kernels.warm() is not None:  # they are kept on disk
        strangers = [name for name, kernel in vars(kernels.load()).items() if kernel.stats.cache_path is None]
        assert not strangers, f"imported before kernels.load(): {strangers}"
