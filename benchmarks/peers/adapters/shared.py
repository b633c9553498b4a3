"""The files between the benchmark and a peer: what a peer is given, and what it gives back.

A task holds vectors and texts of the training and test prompts and, for the training prompts only, the score
and the fee of every specialist; fees are in units of score, so that score - fee is what is to be maximised.
A peer gives back the number of the specialist it chose for each test prompt and its processor time.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path


class Task:
    """One task: arrays `vectors`, `score`, `fee` of training, `test` vectors, and texts of both."""

    def __init__(self, path: str | Path) -> None:
        import numpy as np

        with np.load(path, allow_pickle=False) as found:
            self.vectors, self.test = found["vectors"], found["test"]
            self.score, self.fee = found["score"], found["fee"]
            texts = json.loads(str(found["texts"]))
        self.prompts, self.test_prompts = texts["train"], texts["test"]
        self.specialists = texts["specialists"]
        self.net = self.score - self.fee


def answer(fit: Callable[[Task], Callable[[int], int]]) -> None:
    """Run `fit(task)`, which returns a function (row of the test prompts) -> specialist; write the choices.

    The first 20 decisions are made twice: the first time to warm up. Times are of this process's CPU.
    """
    import numpy as np

    task = Task(sys.argv[1])
    begun = time.process_time()
    decide = fit(task)
    fitted = time.process_time() - begun
    for row in range(min(20, len(task.test))):
        decide(row)
    chosen, spent = [], []
    for row in range(len(task.test)):
        begun = time.process_time_ns()
        chosen.append(decide(row))
        spent.append(1e-3 * (time.process_time_ns() - begun))
    np.savez(sys.argv[2], chosen=np.array(chosen), fit_seconds=fitted, microseconds=np.median(spent))
