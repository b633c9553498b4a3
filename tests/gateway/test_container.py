"""The container without an engine: every step of the Dockerfile is carried out, and its command is run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("uvicorn", reason="pip install 'pandora-router[serve]'")

from tools.image import ROOT, Stage, build, instructions

from tests.gateway.stub import Stub
from tests.support.command import listening
from tests.support.routers import fitted

DOCKERFILE = instructions((ROOT / "Dockerfile").read_text())
CONFIG = """
endpoints: {{local: {{base_url: "{url}"}}}}
specialists:
{specialists}
serve: {{keys: required, router: router, default: {default}, store: /data/pandora.sqlite}}
"""

LOOK = "from pandora_router.search import kernels; kernels.ready()"


def words(name: str) -> list[str]:
    """The command of the last instruction of this name, which is in JSON."""
    rest = [rest for found, rest in DOCKERFILE if found == name][-1]
    return [str(word) for word in json.loads(re.search(r"\[.*\]", rest)[0])]  # type: ignore[index]


def possible() -> bool:
    """Whether this process may mount an overlay over the root of this machine and run a command in it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        stage = Stage(Path(folder) / "probe")
        stage.prepare()
        try:
            stage.build_step("true")
        except (OSError, subprocess.CalledProcessError):
            return False
    return True


@pytest.fixture(scope="module")
def image() -> Iterator[Stage]:
    """The image, built step by step."""
    if not possible():
        pytest.skip("NOT TESTED: building the image needs root, mount namespaces and overlays")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        try:
            yield build(Path(folder))
        except subprocess.CalledProcessError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"NOT TESTED: no packages could be installed ({error})")


def test_the_image_promises_what_compose_holds_it_to() -> None:
    named = dict(DOCKERFILE)
    assert named["USER"] == "10001:10001"
    assert words("CMD")[:2] == ["pandora", "serve"]
    compose: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    gateway = compose["services"]["gateway"]
    assert gateway["read_only"] is True
    assert gateway["tmpfs"] == ["/tmp"]
    assert gateway["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in gateway["ports"])
    told = (ROOT / "compose.yaml").read_text() + (ROOT / "Dockerfile").read_text()
    assert not re.search(r"(?i)password: [^$]|--(extra-)?index-url|https?://(?!127\.0\.0\.1)", told)


@pytest.mark.slow
def test_the_built_image_serves_from_a_read_only_root_as_an_unprivileged_user(
    image: Stage, tmp_path: Path
) -> None:
    router = fitted()
    router.save(tmp_path / "router")
    tmp_path.chmod(0o755)
    with closing(Stub()) as stub:
        lines = "\n".join(
            f"  {name}: {{kind: chat, endpoint: local, model: small, prices: {{in: 1, out: 10}}}}"
            for name in router.specialists
        )
        text = CONFIG.format(url=stub.url, specialists=lines, default=router.specialists[0])
        (tmp_path / "pandora.yaml").write_text(text)
        command = words("CMD")
        command[command.index("0.0.0.0")] = "127.0.0.1"
        command[command.index("8080")] = "0"
        process = image.start(command, tmp_path, {}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with listening(process, 600) as (url, lines):
            check = [word.replace("http://127.0.0.1:8080", url) for word in words("HEALTHCHECK")]
            assert image.inside(process.pid, check).returncode == 0
            added = image.inside(process.pid, told_to_run())
            key = added.stdout.strip()
            assert ask(url, "count the river king", key)["x-pandora-policy"] != "default", added
            with pytest.raises(urllib.error.HTTPError, match="401"):
                ask(url, "count the river king", "none")
            assert image.inside(process.pid, ["id", "-u"]).stdout == "10001\n"
            for place in ("/app/x", "/config/x", "/x"):
                assert "Read-only" in image.inside(process.pid, ["touch", place]).stderr
            root = Path(f"/proc/{process.pid}/root")
            built, used = (
                compiled(root / "app" / "kernels"),
                compiled(root / "tmp" / ".cache" / "pandora-router"),
            )
            assert built
            assert used == built  # the compiled searches of the image are used, and no other was compiled
            elsewhere = "NUMBA_CACHE_DIR=/proc/1/root"  # which only root may enter
            looked = image.inside(process.pid, ["env", elsewhere, "python", "-c", LOOK])
            assert looked.returncode == 0, looked.stderr
            process.send_signal(signal.SIGTERM)
            assert process.wait(300) == 0, lines


def told_to_run() -> list[str]:
    """The command that the page tells its reader to run in the container."""
    page = (ROOT / "docs" / "container.md").read_text()
    (command,) = re.findall(r"`docker exec CONTAINER ([^`]+)`", page)
    return shlex.split(command)


def compiled(folder: Path) -> dict[str, str]:
    """A hash of every compiled search below a folder, by its name."""
    files = [file for file in folder.rglob("*") if file.suffix in (".nbc", ".nbi")]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def ask(url: str, prompt: str, key: str) -> Any:
    """The headers of the gateway's answer to a prompt."""
    body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": prompt}]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return answer.headers
