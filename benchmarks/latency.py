"""Prints how long one prompt and a batch take with f and g fitted on openllm_pool (11,002 x 19).

OMP_NUM_THREADS=1 python -m benchmarks.latency
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.folders import load
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.stack.boosted import Boosted


def main() -> None:
    folder = load("openllm_pool")
    train, test = folder.take(folder.rows("train")), folder.take(folder.rows("test"))
    for name, fit in (("f (kNN-3)", Neighbours.fit), ("g (boosted)", Boosted.fit)):
        fitted = fit(train.prompts, train.reward, train.specialists)
        fitted.predict(test.prompts[:2])
        taken = []
        for prompt in test.prompts[:300]:
            start = time.perf_counter()
            fitted.predict([prompt])
            taken.append(1e3 * (time.perf_counter() - start))
        start = time.perf_counter()
        fitted.predict(test.prompts)
        rate = len(test.prompts) / (time.perf_counter() - start)
        print(
            f"{name:12s} one prompt p50 {np.median(taken):.2f} p95 {np.percentile(taken, 95):.2f} ms,"
            f" batch of {len(test.prompts)}: {rate:.0f} prompts/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
