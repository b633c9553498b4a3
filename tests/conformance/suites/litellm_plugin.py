"""The routing plug-in inside litellm's real Router and real proxy, in front of `UPSTREAM`.

Run with the interpreter of `.venv-litellm`; PANDORA_ROUTER names the folder of a fitted router.
"""

import asyncio
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import litellm
import yaml
from litellm.integrations.custom_logger import CustomLogger

from pandora_router.gateway import litellm as plugged
from pandora_router.router import Router

UPSTREAM, FOLDER = os.environ["UPSTREAM"], os.environ["PANDORA_ROUTER"]
PROMPTS = ["count the river king number 7", "tell about the river", "sum of stars 12", "a king and a star"]
KEY = f"sk-{secrets.token_hex(32)}"  # the proxy does not start without one
known = Router.load(FOLDER)
MODELS = [
    {
        "model_name": "auto",
        "litellm_params": {"model": f"openai/{name}", "api_base": UPSTREAM, "api_key": "none"},
    }
    for name in known.specialists
]
PAGE = (Path(__file__).parents[3] / "docs" / "litellm.md").read_text()


def block(kind: str) -> str:
    """The only code block of this kind on the page about litellm."""
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, flags=re.S | re.M)
    return found


class Seen(CustomLogger):
    """Keeps the metadata of every request that succeeded."""

    signals: list[dict] = []  # noqa: RUF012

    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        metadata = kwargs["litellm_params"]["metadata"]
        self.signals.append(metadata["routing_plugin_signals"]["pandora"])


async def page() -> None:
    """The Python of the page, with the names of this router and the address of the stub in it."""
    source = block("python").replace(", ...}", f', "api_base": "{UPSTREAM}", "api_key": "none"}}')
    for name, ours in zip(("small", "large"), known.specialists, strict=False):
        source = source.replace(f"openai/{name}", f"openai/{ours}")
    names: dict = {}
    exec(source.replace('PandoraRouting("router")', f"PandoraRouting({FOLDER!r})"), names)
    for text in PROMPTS:
        answer = await names["router"].acompletion(model="auto", messages=[{"role": "user", "content": text}])
        chosen = known.route(text, among=list(known.specialists[:2])).specialist
        assert chosen in answer.choices[0].message.content, (chosen, answer)
    print("page: ok")


async def sdk() -> None:
    litellm.callbacks = [plugged.headers, Seen()]
    router = litellm.Router(model_list=MODELS, plugins=[plugged.PandoraRouting(FOLDER)], num_retries=0)
    for text in PROMPTS * 3:
        asked = [{"role": "user", "content": text}]
        answer = await router.acompletion(model="auto", messages=asked)
        decision = known.route(text)
        chosen = decision.specialist
        assert chosen in answer.choices[0].message.content, (chosen, answer)
        headers = answer._hidden_params["additional_headers"]
        assert headers["llm_provider-x-pandora-specialist"] == chosen, headers
        for _ in range(600):
            if Seen.signals:
                break
            await asyncio.sleep(0.1)
        told = Seen.signals.pop()
        assert told["decision_id"] == headers["llm_provider-x-pandora-decision-id"], (told, headers)
        for cost in (told["inspection_cost"], float(headers["llm_provider-x-pandora-inspection-cost"])):
            assert abs(cost - decision.trace.spent) < 1e-9, (told, headers, decision.trace.spent)
    answer = await router.acompletion(model="auto", messages=[{"role": "user", "content": " "}])  # declined
    assert not [name for name in answer._hidden_params["additional_headers"] if "x-pandora" in name]
    assert any(name in answer.choices[0].message.content for name in known.specialists), answer
    print("sdk: ok")


def proxy() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"model_list": MODELS, **yaml.safe_load(block("yaml"))}
    settings["router_settings"]["num_retries"] = 0
    settings["litellm_settings"]["telemetry"] = False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proxy.yaml"
        path.write_text(json.dumps(settings))  # JSON is YAML
        command = [
            Path(sys.executable).with_name("litellm"),
            "--config",
            path,
            "--port",
            str(port),
            "--host",
            "127.0.0.1",
        ]
        with (Path(folder) / "log").open("w+") as log:
            environment = {**os.environ, "LITELLM_MASTER_KEY": KEY}
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment)
            try:
                speak(f"http://127.0.0.1:{port}", process)
            except BaseException:
                log.seek(0)
                print(log.read()[-6000:])
                raise
            finally:
                process.terminate()
                process.wait(60)
    print("proxy: ok")


def speak(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 400
    while True:
        try:
            urllib.request.urlopen(f"{url}/health/liveliness", timeout=5).close()
            break
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            assert process.poll() is None, "the proxy ended"
            assert time.monotonic() < until, "the proxy did not start"
            time.sleep(0.5)
    for text in PROMPTS:
        body = {"model": "auto", "messages": [{"role": "user", "content": text}]}
        request = urllib.request.Request(
            f"{url}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            told = json.loads(answer.read())
            chosen = known.route(text).specialist
            assert chosen in told["choices"][0]["message"]["content"], told
            assert answer.headers["x-pandora-specialist"] == chosen, dict(answer.headers)
            assert answer.headers["x-pandora-decision-id"], dict(answer.headers)
            assert float(answer.headers["x-pandora-inspection-cost"]) == known.route(text).trace.spent


asyncio.run(page())
asyncio.run(sdk())
proxy()
