"""Seconds from `pandora serve --demo` to the first answered request.

    python -m benchmarks.first_answer [--runs 3]

Each run starts the command anew, on a free port, and sends a chat completion with `model: "auto"` as often as
it takes. The first run of a fresh install also fits the demo's router, which is then kept. Goal: under ten
seconds on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

from benchmarks import served

GOAL = 10.0
LONGEST = 300.0


def first_answer(port: int) -> tuple[float, float, str]:
    """Start the demo; seconds and processor seconds until a request is answered, and who answered it.

    Raises `RuntimeError` if it ends, or if nobody answers within `LONGEST` seconds.
    """
    command = [sys.executable, "-m", "pandora_router", "serve", "--demo", "--port", str(port)]
    body = served.request("auto", stream=False, prompt="What is 12 x 7?")
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while time.monotonic() - begun < LONGEST and process.poll() is None:
            asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", body)
            try:
                with urllib.request.urlopen(asked, timeout=60) as answer:
                    json.loads(answer.read())
                    who = str(answer.headers["x-pandora-specialist"])
                    return time.monotonic() - begun, served.Server(process, "").cpu(), who
            except urllib.error.HTTPError as error:
                error.close()
            except OSError:
                time.sleep(0.02)
    finally:
        process.terminate()
        process.wait(60)
    raise RuntimeError("the demo did not answer")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_answer", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    seconds = []
    for number in range(parser.parse_args().runs):
        took, cpu, who = first_answer(served.free_port())
        seconds.append(took)
        text = f"run {number + 1}: answered by {who} after {took:.1f} s, {cpu:.1f} s of processor time"
        print(f"{text}, load of the machine {os.getloadavg()[0]:.1f}", flush=True)
    met = "met" if min(seconds) < GOAL else "missed"
    print(f"quickest: {min(seconds):.1f} s (goal: under {GOAL:g}): {met}")


if __name__ == "__main__":
    main()
