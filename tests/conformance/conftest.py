"""A gateway as users start it, in front of a capable model, and environments with the clients of others."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="pip install 'pandora-router[serve]'")

from tests.conformance.upstream import capable
from tests.gateway.test_serve import served

SUITES = Path(__file__).with_name("suites")
CONFIG = """
endpoints: {{local: {{base_url: "{url}"}}}}
specialists:
  small: {{kind: chat, endpoint: local, model: small, prices: {{in: 1, out: 10}},
           wires: [chat, responses, messages], supports: [tools, json_schema, logprobs]}}
  large: {{kind: chat, endpoint: local, model: large, prices: {{in: 2, out: 20}},
           wires: [chat, responses, messages], supports: [tools, images, audio, files, json_schema]}}
serve: {{keys: none, default: small}}
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment of its own and the gateway that its programs speak to."""

    folder: Path
    url: str

    def run(self, program: str, *arguments: str) -> str:
        """What a program of the environment prints; fails with its output if it ends with an error."""
        hidden = ("PYTHONPATH", "PYTEST_", "OPENAI_", "ANTHROPIC_", "http_proxy", "HTTP_PROXY", "CI")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        done = subprocess.run(
            [self.folder / "bin" / program, *arguments],
            env={**kept, "GATEWAY": self.url, "LANGSMITH_TRACING": "false", "NO_PROXY": "127.0.0.1"},
            cwd=SUITES,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        told = f"{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
        assert done.returncode == 0, told
        return told


def environment(name: str, made_by: str, url: str) -> Environment:
    """The environment in the folder `name` of the checkout (or where PANDORA_<NAME> says).

    Without it the test is skipped; in CI, which builds all of them, it fails.
    """
    variable = "PANDORA_" + name.strip(".").replace("-", "_").upper()
    folder = Path(os.environ.get(variable) or Path(__file__).parents[2] / name)
    if not (folder / "bin").is_dir():
        if os.environ.get("CI"):
            raise RuntimeError(f"CI must build {name}: {made_by}")
        pytest.skip(f"{made_by} builds {name}")
    return Environment(folder.resolve(), url)


@pytest.fixture(scope="package")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running gateway."""
    folder = tmp_path_factory.mktemp("conformance")
    with closing(capable()) as provider:
        (folder / "pandora.yaml").write_text(CONFIG.format(url=provider.url))
        with served(folder) as (_, url, lines):
            yield url
        assert not any("Traceback" in line or "bug" in line for line in lines), lines


@pytest.fixture
def clients(gateway: str) -> Environment:
    return environment(".venv-clients", "make clients", gateway)


@pytest.fixture
def litellm(gateway: str) -> Environment:
    return environment(".venv-litellm", "make litellm", gateway)
