"""Prints the error of the fine-tuned transformer beside the default g, fitted on train, measured on test.

    OMP_NUM_THREADS=1 python -m benchmarks.transformer gsm8k_6b_175b --forms all named context --epochs 3

Forms: "all" (prompt, all specialists at once), "named" (specialist in the text), "context" (named, with the
specialist's first 400 characters or passages). `--train` and `--specialists` bound the work.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.folders import load
from pandora_router.estimators.boosted import Boosted
from pandora_router.estimators.peek import Peek
from pandora_router.estimators.served import Text
from pandora_router.estimators.transformer import Tuning, fine_tune


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder")
    options.add_argument("--forms", nargs="*", default=["all"], choices=["all", "named", "context"])
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--layers", type=int, default=6)
    options.add_argument("--tokens", type=int, default=192)
    options.add_argument("--train", type=int, default=100_000)
    options.add_argument("--test", type=int, default=100_000)
    options.add_argument("--specialists", type=int, default=1000)
    chosen = options.parse_args()
    folder = load(chosen.folder).only(chosen.specialists)
    train = folder.take(folder.rows("train")[: chosen.train])
    test = folder.take(folder.rows("test")[: chosen.test])
    arrays = train.prompts, train.reward, train.specialists
    found = {"mean": np.broadcast_to(np.nanmean(train.reward, axis=0), test.reward.shape)}
    found["g"] = Boosted.fit(*arrays).predict(test.prompts)
    if folder.contexts is not None:
        own = Boosted.fit(*arrays, contexts=train.contexts, peek=Peek(400))
        found["g+own 400"] = own.predict(test.prompts, test.contexts)
    seconds = {}
    tuning = Tuning(epochs=chosen.epochs, layers=chosen.layers)
    for form in chosen.forms:
        kind = "all" if form == "all" else "named"
        seen = (train.contexts, test.contexts) if form == "context" else (None, None)
        start = time.process_time()
        model = fine_tune(*arrays, contexts=seen[0], form=kind, text=Text(kind, chosen.tokens), tuning=tuning)
        seconds[f"transformer {form}"] = time.process_time() - start
        found[f"transformer {form}"] = model.predict(test.prompts, seen[1])
        found[f"mean of g and {form}"] = (found["g"] + found[f"transformer {form}"]) / 2
    print(
        f"{folder.name}: {len(train.prompts)} train, {len(test.prompts)} test prompts,"
        f" {len(test.specialists)} specialists"
    )
    base = np.nanmean((found["g"] - test.reward) ** 2, axis=1)
    for label, predicted in found.items():
        gap = np.nanmean((predicted - test.reward) ** 2, axis=1) - base
        noise = gap.std() / np.sqrt(len(gap))
        spent = f"  {seconds[label]:.0f} CPU-s" if label in seconds else ""
        print(
            f"  {label:22s} {(base + gap).mean():.4f}  minus g {gap.mean():+.4f} ({noise:.4f}){spent}",
            flush=True,
        )


if __name__ == "__main__":
    main()
