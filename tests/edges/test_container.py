"""The container without an engine: the image's command and health check on a read-only root, as nobody."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("uvicorn", reason="pip install 'pandora-router[serve]'")

from pandora_router.search import kernels
from tests.gateway.stub import Stub
from tests.support.command import listening
from tests.support.routers import fitted
from tests.support.sealed import NOBODY, possible, sealed

ROOT = Path(__file__).parent.parent.parent
CONFIG = """
endpoints: {{local: {{base_url: "{url}"}}}}
specialists:
{specialists}
serve: {{keys: none, router: router, default: {default}, store: {store}}}
"""


def instruction(name: str) -> str:
    """The last instruction of this name in the Dockerfile, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    found = re.findall(rf"^{name} (.*)$", text, re.MULTILINE)
    return re.sub(r"\s+", " ", str(found[-1]))


def words(name: str) -> list[str]:
    """The command of an instruction in its JSON form."""
    return [str(word) for word in json.loads(re.search(r"\[.*\]", instruction(name))[0])]  # type: ignore[index]


def test_the_image_promises_what_compose_holds_it_to() -> None:
    assert instruction("USER") == "10001:10001"
    assert "pandora warm" in (ROOT / "Dockerfile").read_text()
    assert words("CMD")[:2] == ["pandora", "serve"]
    compose: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    gateway = compose["services"]["gateway"]
    assert gateway["read_only"] is True
    assert gateway["tmpfs"] == ["/tmp"]
    assert gateway["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in gateway["ports"])
    told = (ROOT / "compose.yaml").read_text() + (ROOT / "Dockerfile").read_text()
    assert not re.search(r"(?i)password: [^$]|--(extra-)?index-url|https?://(?!127\.0\.0\.1)", told)


@pytest.fixture
def folders() -> Iterator[tuple[Path, Path, Path]]:
    """Folders that nobody may enter: for the configuration, for temporary files, for data."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        there = Path(made)
        for name in ("config", "tmp", "data"):
            (there / name).mkdir()
        yield there / "config", there / "tmp", there / "data"


@pytest.mark.slow
@pytest.mark.skipif(not possible(), reason="needs root and mount namespaces")
def test_the_gateway_serves_from_a_read_only_root_as_nobody(folders: tuple[Path, Path, Path]) -> None:
    config, temporary, data = folders
    kernels.warm()  # the image is built with compiled searches
    router = fitted()
    router.save(config / "router")
    with closing(Stub()) as stub:
        lines = "\n".join(
            f"  {name}: {{kind: chat, endpoint: local, model: small, prices: {{in: 1, out: 10}}}}"
            for name in router.specialists
        )
        text = CONFIG.format(
            url=stub.url, specialists=lines, default=router.specialists[0], store=data / "store.sqlite"
        )
        (config / "pandora.yaml").write_text(text)
        command = [sys.executable, "-m", "pandora_router", *words("CMD")[1:]]
        command[command.index("/config/pandora.yaml")] = str(config / "pandora.yaml")
        command[command.index("0.0.0.0")] = "127.0.0.1"  # without keys
        command[command.index("8080")] = "0"
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(temporary),
            "TMPDIR": str(temporary),
        }
        process = sealed(
            command, [temporary, data], environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        with listening(process, 600) as (url, lines):
            check = [word.replace("http://127.0.0.1:8080", url) for word in words("HEALTHCHECK")]
            subprocess.run([sys.executable, *check[1:]], check=True, timeout=300)
            assert owner(process.pid) == NOBODY
            asked = {"model": "auto", "messages": [{"role": "user", "content": "count the river king"}]}
            request = urllib.request.Request(
                f"{url}/v1/chat/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=300) as answer:
                decision = answer.headers["x-pandora-decision-id"]
                assert answer.headers["x-pandora-policy"] != "default"
            with urllib.request.urlopen(f"{url}/dashboard/decisions/{decision}", timeout=300) as answer:
                assert b'class="decision"' in answer.read()
            process.send_signal(signal.SIGTERM)
            assert process.wait(300) == 0, lines
            assert not list(data.iterdir())  # it was written in a file system of its own


def owner(pid: int) -> int:
    """The user that a process runs as, once it has given up its rights."""
    for _ in range(600):
        user = os.stat(f"/proc/{pid}").st_uid
        if user != 0:
            return user
        time.sleep(0.1)
    return 0


@pytest.mark.skipif(not possible(), reason="needs root and mount namespaces")
def test_a_sealed_program_can_write_only_where_it_may(folders: tuple[Path, Path, Path]) -> None:
    config, temporary, data = folders
    code = (
        "import os, sys\n"
        f"open({str(temporary / 'a')!r}, 'w').close(); open({str(data / 'a')!r}, 'w').close()\n"
        f"for where in ({str(config)!r}, '/', os.getcwd()):\n"
        "    try: open(where + '/a', 'w'); print('wrote', where)\n"
        "    except OSError as error: print(error.errno)\n"
        "print(os.getuid())"
    )
    process = sealed([sys.executable, "-c", code], [temporary, data], {}, stdout=subprocess.PIPE)
    told, _ = process.communicate(timeout=300)
    assert told.split() == ["30", "30", "30", str(NOBODY)]
