"""Simple stand-ins for the estimators room, so that signal models can be measured on real data.

f is kNN-50 over TF-IDF + SVD of the prompts; g is LightGBM averaged with ridge on prompt features and, where
the data has them, features of the first 400 characters of the specialist's own text. Both are trained on the
train split only. Arrays (numbers, never texts) can be cached as .npz.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import lightgbm
import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import RidgeCV

from pandora_router.data import Fractions, Free, Table, resplit
from pandora_router.data.importers.folder import read_folder

NEIGHBOURS = 50
SPLITS = ("train", "calibration", "test")
BOOSTING = {
    "objective": "regression",
    "learning_rate": 0.04,
    "num_leaves": 15,
    "min_data_in_leaf": 20,
    "feature_fraction": 0.4,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 5.0,
    "num_threads": 1,
    "seed": 0,
    "deterministic": True,
    "verbose": -1,
}


@dataclass(frozen=True)
class Setting:
    """A folder, the specialists that take part with their fees, and how much of it to use."""

    folder: str
    fees: Mapping[str, float] = field(default_factory=dict)
    per_trillion: float = 0.0
    prompts: int = 12000
    fractions: Fractions = field(default_factory=lambda: Fractions(0.5, 0.2, 0.3))


def _pair(small: str, large: str, fee: float) -> Setting:
    return Setting("zeroeval_math", {small: 0.0, large: fee})


SETTINGS: dict[str, Setting] = {
    "math gemma-2-2b/gemini-pro .45": _pair("gemma-2-2b-it", "gemini-1.5-pro", 0.45),
    "math gemma-2-2b/o1-mini .6": _pair("gemma-2-2b-it", "o1-mini-2024-09-12", 0.6),
    "math gpt-3.5/gpt-4o .3": _pair("gpt-3.5-turbo-0125", "gpt-4o-2024-08-06", 0.3),
    "mmlupro 8B/70B .2": Setting(
        "mmlupro_cot",
        {"Meta-Llama-3.1-8B-Instruct": 0.0, "Meta-Llama-3.1-70B-Instruct": 0.2},
        fractions=Fractions(0.4, 0.1, 0.5),
    ),
    "mirage 4 systems": Setting(
        "rag_mirage",
        {
            "gpt-3.5/closed-book": 0.0,
            "gpt-3.5/medrag-32": 0.02,
            "gpt-4/closed-book": 0.08,
            "gpt-4/medrag-32": 0.12,
        },
    ),
    "adarague 0/.05/.10": Setting(
        "rag_adarague", {"no_retrieval": 0.0, "one_step_bm25": 0.05, "multi_step_ircot": 0.10}
    ),
    "mmlupro 8 models": Setting(
        "mmlupro_cot",
        dict.fromkeys(
            (
                "Phi-3-mini-4k-instruct",
                "mathstral-7B",
                "Yi-6B-Chat",
                "Meta-Llama-3.1-8B-Instruct",
                "Yi-34B",
                "Mixtral-8x7B-Instruct-v0.1",
                "Meta-Llama-3.1-70B-Instruct",
                "Qwen1.5-72B-Chat",
            ),
            0.0,
        ),
        per_trillion=3.0,
        fractions=Fractions(0.4, 0.1, 0.5),
    ),
    "openllm 18 models": Setting("openllm_pool", per_trillion=3.0, fractions=Fractions(0.5, 0.1, 0.4)),
    "routerdc7": Setting("routerdc7", fractions=Fractions(0.6, 0.1, 0.3)),
}


@dataclass(frozen=True)
class Arrays:
    """Cheap estimates, costly estimates and rewards of one split, each (N, M)."""

    f: np.ndarray
    g: np.ndarray
    r: np.ndarray


def arrays(name: str, data: Path, seed: int, cache: Path | None = None) -> dict[str, Arrays]:
    """The calibration and test arrays of a setting on a fresh split, from the cache if they are there."""
    file = None if cache is None else cache / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}-{seed}.npz"
    if file is None or not file.exists():
        made = _make(SETTINGS[name], data, seed)
        if file is None:
            return made
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, **{f"{s}_{k}": getattr(a, k) for s, a in made.items() for k in ("f", "g", "r")})
    with np.load(file) as stored:
        return {s: Arrays(*(stored[f"{s}_{k}"] for k in ("f", "g", "r"))) for s in SPLITS[1:]}


def _make(setting: Setting, data: Path, seed: int) -> dict[str, Arrays]:
    table, reward = _load(setting, data, seed)
    where = {split: np.flatnonzero(table.split == split) for split in SPLITS}
    embedded = _embed(table.prompts, where["train"], 100)
    cheap = _neighbours(embedded, reward, where["train"])
    surface = np.array([_surface(text) for text in table.prompts])
    costly = np.empty_like(cheap)
    for j in range(cheap.shape[1]):
        features = [embedded, surface, cheap]
        own = [] if table.contexts is None else [text or "" for text in table.contexts[:, j]]
        if any(own):
            features += [_embed(own, where["train"], 60), np.array([_surface(text) for text in own])]
        costly[:, j] = _regress(np.hstack(features), reward[:, j], where["train"])
    return {s: Arrays(cheap[where[s]], costly[where[s]], reward[where[s]]) for s in SPLITS[1:]}


def _load(setting: Setting, data: Path, seed: int) -> tuple[Table, np.ndarray]:
    table = read_folder(data / setting.folder, fees=Free())
    if setting.fees:
        table = table.only(tuple(setting.fees))
    complete = (~table.missing).mean(axis=0) > 0.9
    table = table.only([name for name, kept in zip(table.specialists, complete, strict=True) if kept])
    keep = np.sort(np.random.default_rng(seed).permutation(len(table))[: setting.prompts])
    table = resplit(table.rows(keep), seed=seed, fractions=setting.fractions)
    fee = np.array([setting.fees.get(name, 0.0) for name in table.specialists])
    if setting.per_trillion:
        import pyarrow.parquet

        models = pyarrow.parquet.read_table(data / setting.folder / "models.parquet").to_pylist()
        size = {row["model"]: row["params_b"] for row in models}
        fee = fee + np.array([size[name] for name in table.specialists]) / 1000.0 * setting.per_trillion
    return table, table.score - fee


def _embed(texts: object, train: np.ndarray, size: int) -> np.ndarray:
    texts = list(texts)  # type: ignore[call-overload]
    words = TfidfVectorizer(sublinear_tf=True, min_df=2, ngram_range=(1, 2), max_features=50000)
    words.fit([texts[i] for i in train])
    matrix = words.transform(texts)
    size = min(size, matrix.shape[1] - 1)
    reduced = TruncatedSVD(size, random_state=0).fit(matrix[train]).transform(matrix)
    return reduced / np.maximum(np.linalg.norm(reduced, axis=1, keepdims=True), 1e-9)


def _neighbours(embedded: np.ndarray, reward: np.ndarray, train: np.ndarray) -> np.ndarray:
    """The mean reward of the nearest train prompts, a train prompt never its own neighbour."""
    known = np.where(np.isnan(reward[train]), np.nanmean(reward[train], axis=0), reward[train])
    place = np.full(len(embedded), -1)
    place[train] = np.arange(len(train))
    result = np.empty(reward.shape)
    for lo in range(0, len(embedded), 2000):
        rows = np.arange(lo, min(lo + 2000, len(embedded)))
        near = embedded[rows] @ embedded[train].T
        own = place[rows] >= 0
        near[np.flatnonzero(own), place[rows][own]] = -np.inf
        result[rows] = known[np.argpartition(-near, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]].mean(axis=1)
    return result


def _surface(text: str) -> list[float]:
    words = text.split()
    digits = sum(c.isdigit() for c in text)
    signs = [text.count(sign) for sign in ("\n", "\\", "$", "=", "?", ",", "(", "**", "answer", "not")]
    return [len(text), len(words), digits, len(set(words)) / (len(words) + 1.0), *map(float, signs)]


def _regress(features: np.ndarray, target: np.ndarray, train: np.ndarray) -> np.ndarray:
    train = train[~np.isnan(target[train])]
    x, y = features[train], target[train]
    trees = lightgbm.train(BOOSTING, lightgbm.Dataset(x, y), num_boost_round=150).predict(features)
    scaled = (features - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-9)
    line = RidgeCV(np.logspace(1, 5, 9)).fit(scaled[train], y).predict(np.clip(scaled, -5, 5))
    return 0.5 * (np.asarray(trees) + line)
