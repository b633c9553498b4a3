"""Suites written by others against a live gateway: LangChain's for chat models, schemathesis."""

from __future__ import annotations

import re

import pytest

from tests.conformance.conftest import Environment

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
