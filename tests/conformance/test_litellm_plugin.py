"""litellm's own Router and proxy with the routing plug-in, in an environment of their own."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.conformance.conftest import environment
from tests.gateway.stub import Stub
from tests.support.routers import fitted


@pytest.mark.slow
def test_litellm_calls_whom_the_router_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = environment(".venv-litellm", "make litellm", "")
    fitted().save(tmp_path / "router")
    with closing(Stub()) as stub:
        monkeypatch.setenv("UPSTREAM", stub.url)
        monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # nothing is fetched
        monkeypatch.setenv("PANDORA_ROUTER", str(tmp_path / "router"))
        said = there.run("python", "litellm_plugin.py")
    assert "page: ok" in said
    assert "sdk: ok" in said
    assert "proxy: ok" in said
