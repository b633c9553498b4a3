"""Real clients against a live gateway: openai, anthropic, langchain, llm, pydantic-ai, curl, litellm."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Environment

pytestmark = pytest.mark.slow


def test_clients(clients: Environment) -> None:
    told = clients.run("python", "-m", "pytest", "-c", "pytest.ini", "clients_suite.py")
    assert "12 passed" in told, told


def test_litellm(litellm: Environment) -> None:
    assert "litellm: ok" in litellm.run("python", "litellm_suite.py")


def test_provider_check(clients: Environment) -> None:
    arguments = ("--base-url", f"{clients.url}/v1", "--tier", "6", "--model", "small")
    told = clients.run("trustedrouter-provider-check", *arguments)
    assert "Summary: 22 pass, 0 fail, 0 warn, 1 skip" in told, told  # skipped: a marketplace's catalogue
