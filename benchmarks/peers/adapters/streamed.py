"""The files between `benchmarks.learn` and a rival that learns from a stream of requests."""

import json
import sys
from collections.abc import Callable
from typing import Any


def stream(start: Callable[[Any, Any, int], Any]) -> None:
    """Run `start(features, rewards, seed)` -> learner on a task and write whom it asked.

    A learner has `ask(features) -> (specialist, ticket)`, `rated(ticket, reward)` and `best(features)`. It is
    told the reward of the specialist that it asked alone, if that is rated, `delay` requests later.
    """
    import numpy as np

    with np.load(sys.argv[1], allow_pickle=False) as task:
        settings = json.loads(str(task["settings"]))
        learner = start(task["known"], task["known_reward"], settings["seed"])
        fresh, reward, rated, held = task["fresh"], task["fresh_reward"], task["rated"], task["held"]
    waiting, asked = [], []
    for i, features in enumerate(fresh):
        specialist, ticket = learner.ask(features)
        asked.append(specialist)
        if rated[i, specialist]:
            waiting.append((i + settings["delay"], ticket, float(reward[i, specialist])))
        while waiting and waiting[0][0] <= i:
            _, ticket, value = waiting.pop(0)
            learner.rated(ticket, value)
    later = [learner.best(features) for features in held]
    np.savez(sys.argv[2], asked=np.array(asked), later=np.array(later))
