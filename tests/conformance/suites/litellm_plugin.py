"""The routing plug-in inside litellm's real Router and real proxy, in front of `UPSTREAM`.

Run with the interpreter of `.venv-litellm`; PANDORA_ROUTER names the folder of a fitted router.
"""

import asyncio
import json
import os
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


async def sdk() -> None:
    litellm.callbacks = [plugged.headers]
    router = litellm.Router(model_list=MODELS, plugins=[plugged.PandoraRouting(FOLDER)], num_retries=0)
    for text in PROMPTS * 3:
        asked = [{"role": "user", "content": text}]
        answer = await router.acompletion(model="auto", messages=asked)
        chosen = known.route(text).specialist
        assert chosen in answer.choices[0].message.content, (chosen, answer)
        headers = answer._hidden_params["additional_headers"]
        assert headers["llm_provider-x-pandora-specialist"] == chosen, headers
        assert headers["llm_provider-x-pandora-decision-id"], headers
    print("sdk: ok")


def proxy() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "model_list": MODELS,
        "router_settings": {"plugins": ["pandora_router.gateway.litellm.plugin"], "num_retries": 0},
        "litellm_settings": {"callbacks": ["pandora_router.gateway.litellm.headers"], "telemetry": False},
    }
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


asyncio.run(sdk())
proxy()
