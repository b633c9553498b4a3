"""The defaults work with no network, no environment and no torch, and import nothing they do not need."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import socket, sys, threading

def refuse(*_, **__):
    raise AssertionError("a socket was opened")

socket.socket.connect = refuse
socket.getaddrinfo = refuse
before = threading.active_count()
from pandora_router.estimators.stack.boosted import Boosted, Trees
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.states import load_estimator

prompts = [f"question {i} about {'numbers' if i % 2 else 'rivers'}" for i in range(40)]
reward = [[i % 2, 0.5] for i in range(40)]
f = Neighbours.fit(prompts, reward, ["a", "b"])
g = Boosted.fit(prompts, reward, ["a", "b"], trees=Trees(rounds=5))
assert f.predict(prompts[:3]).shape == g.predict(prompts[:3]).shape == (3, 2)
g.save(sys.argv[1])
assert load_estimator(sys.argv[1]).specialists == ("a", "b")
assert threading.active_count() == before
unwanted = {"torch", "wordllama", "requests", "onnxruntime", "faiss", "urllib3"} & set(sys.modules)
assert not unwanted, unwanted
"""


def test_defaults_fit_save_and_load_offline(tmp_path: object) -> None:
    environment = {"OMP_NUM_THREADS": "1", "PATH": ""}
    command = [sys.executable, "-W", "error", "-c", SCRIPT, f"{tmp_path}/g"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
