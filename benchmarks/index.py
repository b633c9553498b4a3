"""Prints what approximate indexes cost and find against exact search, on vectors of real texts.

    OMP_NUM_THREADS=1 python -m benchmarks.index --rows 150000

Rows are default word vectors of the contexts of mmlupro_cot (the largest body of text in the shared data);
1,000 others are the queries. Indexes that are not installed are passed over.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable

import numpy as np

from benchmarks.folders import load
from pandora_router.estimators.embedders.embedder import default_embedder
from pandora_router.estimators.nearest import CANDIDATES as SEARCH
from pandora_router.estimators.nearest import EFFORT, LINKS, Edges, Exact, Graph, Packing, unit_rows


def with_faiss(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    packing = Packing.fit(rows)
    codes = packing.codes(rows)
    graph = Graph(packing, codes, Edges.build(unit_rows(codes)))
    return lambda queries: graph.nearest(queries, 3)


def with_usearch(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    library = importlib.import_module("usearch.index")
    index = library.Index(
        ndim=rows.shape[1],
        metric="ip",
        dtype="f32",
        connectivity=LINKS,
        expansion_add=EFFORT,
        expansion_search=SEARCH,
    )
    index.add(np.arange(len(rows)), rows, threads=1)
    return lambda queries: np.atleast_2d(index.search(queries, 3, threads=1).keys)


def with_hnswlib(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    library = importlib.import_module("hnswlib")
    index = library.Index(space="ip", dim=rows.shape[1])
    index.init_index(max_elements=len(rows), ef_construction=EFFORT, M=LINKS)
    index.set_num_threads(1)
    index.add_items(rows)
    index.set_ef(SEARCH)
    return lambda queries: index.knn_query(queries, 3)[0]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=150_000)
    chosen = options.parse_args()
    texts = sorted({str(text) for text in load("mmlupro_cot").contexts.flat if text})
    drawn = np.random.default_rng(0).permutation(len(texts))[: chosen.rows + 1000]
    vectors = default_embedder().embed([texts[i][:200] for i in drawn])
    rows, queries = vectors[1000:], vectors[:1000]
    exact = Exact(rows)
    truth = exact.nearest(queries, 3)
    makers: dict[str, Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]]] = {
        "exact": lambda rows: lambda queries: exact.nearest(queries, 3),
        "faiss": with_faiss,
        "usearch": with_usearch,
        "hnswlib": with_hnswlib,
    }
    print(f"{len(rows)} rows of width {rows.shape[1]}; links {LINKS}, effort {EFFORT}, search {SEARCH}")
    for name, make in makers.items():
        start = time.process_time()
        try:
            ask = make(rows)
        except (ImportError, AttributeError, RuntimeError) as error:
            print(f"{name:8s} not measured: {type(error).__name__}")
            continue
        built = time.process_time() - start
        taken, hits = [], []
        for i in range(len(queries)):
            start = time.perf_counter()
            found = ask(queries[i : i + 1])
            taken.append(1e3 * (time.perf_counter() - start))
            hits.append(len(set(found[0].tolist()) & set(truth[i].tolist())) / 3)
        print(
            f"{name:8s} build {built:7.1f} CPU-s  recall@3 {np.mean(hits):.3f}"
            f"  one query p50 {np.median(taken):.2f} p95 {np.percentile(taken, 95):.2f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
