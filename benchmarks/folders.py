"""Reads one folder of the shared routing data into arrays.

Kept apart from `pandora_router.data` so that the estimators can be measured on their own. Nothing here is
written back: the data are other people's and stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pandora_router.data import Table

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
SCORED = (
    "openllm_pool",
    "mmlupro_cot",
    "zeroeval_math",
    "gsm8k_6b_175b",
    "rag_adarague",
    "rag_mirage",
    "routellm",
    "routerbench_part",
    "routerdc7",
)


@dataclass(frozen=True)
class Folder:
    """Prompts x specialists: reward is NaN and context None where the cell is missing."""

    name: str
    prompts: tuple[str, ...]
    specialists: tuple[str, ...]
    reward: NDArray[np.float64]
    contexts: NDArray[np.object_] | None
    split: NDArray[np.str_]
    task: NDArray[np.str_]

    def rows(self, split: str) -> NDArray[np.intp]:
        """Rows of one split."""
        return np.flatnonzero(self.split == split)

    def columns(self, which: NDArray[np.intp]) -> Folder:
        """The same folder with only these specialists."""
        contexts = None if self.contexts is None else self.contexts[:, which]
        kept = tuple(self.specialists[j] for j in which), self.reward[:, which], contexts
        return Folder(self.name, self.prompts, *kept, self.split, self.task)

    def take(self, rows: NDArray[np.intp]) -> Folder:
        """The same folder with only these rows."""
        return Folder(
            self.name,
            tuple(self.prompts[i] for i in rows),
            self.specialists,
            self.reward[rows],
            None if self.contexts is None else self.contexts[rows],
            self.split[rows],
            self.task[rows],
        )


def load(name: str, root: Path = DATA) -> Folder:
    folder = root / name
    prompts = pq.read_table(folder / "prompts.parquet").to_pydict()
    scores = pq.read_table(folder / "scores.parquet", columns=["prompt_id", "model", "score"]).to_pydict()
    specialists = tuple(dict.fromkeys(scores["model"]))
    row = {key: i for i, key in enumerate(prompts["prompt_id"])}
    column = {key: j for j, key in enumerate(specialists)}
    reward = np.full((len(row), len(column)), np.nan)
    rows = [row[key] for key in scores["prompt_id"]]
    reward[rows, [column[key] for key in scores["model"]]] = scores["score"]
    contexts = None
    if (folder / "context.parquet").exists():
        told = pq.read_table(folder / "context.parquet").to_pydict()
        contexts = np.full(reward.shape, None, dtype=object)
        for key, model, text in zip(told["prompt_id"], told["model"], told["context"], strict=True):
            if key in row and model in column:
                contexts[row[key], column[model]] = text
    split = np.asarray(prompts["split"])
    return Folder(
        name, tuple(prompts["prompt"]), specialists, reward, contexts, split, np.asarray(prompts["task"])
    )


def beginnings(table: Table) -> list[dict[str, str]] | None:
    """The contexts of each prompt by specialist, for `Router.route_batch`; None without contexts."""
    if table.contexts is None:
        return None
    named = (zip(table.specialists, row, strict=True) for row in table.contexts)
    return [{name: text for name, text in row if text is not None} for row in named]
