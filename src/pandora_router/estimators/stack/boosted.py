"""The default costly estimate g: gradient-boosted trees over features and simpler predictions. No torch.

One LightGBM ensemble (Ke et al. 2017) over all (prompt, specialist) pairs. Features are those of `evidence`
(surface, directions, ridge and neighbour predictions made without the pair's own reward), the specialist and,
with a `Peek`, features of how the specialist's answer begins. Squared loss. One ensemble is grown per fold
and stopped early on that fold; their mean is the prediction. `out_of_fold` keeps the prediction of each
training prompt by the ensemble fitted without it, for calibration. A non-negative blend with the ridge and
neighbour predictions, fitted on the out-of-fold predictions, protects against overfitting on small data.

One call predicts all specialists and is paid per prompt; with a peek each specialist is paid for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import Embedder, checked_texts
from pandora_router.estimators.linear import grouped_folds
from pandora_router.estimators.rewards import blend_weights, checked_contexts, checked_reward, told_of
from pandora_router.estimators.stack.ensemble import Ensemble, Trees, grow
from pandora_router.estimators.stack.features import Layer, PromptEvidence
from pandora_router.estimators.stack.peek import ContextEvidence, Peek
from pandora_router.estimators.states import Saved, Stages, read, write
from pandora_router.types import Advance, Contexts, Matrix, Positions, silent

__all__ = ["Boosted", "Trees"]


@dataclass(frozen=True)
class Boosted:
    """A fitted stack. `blend` has the weights of trees, ridge and neighbours, each minus the mean reward.

    `needs` has the specialists with contexts in training; the others are estimated from the prompt alone.
    """

    specialists: tuple[str, ...]
    evidence: PromptEvidence
    contexts: ContextEvidence | None
    boosters: tuple[Ensemble, ...] = field(repr=False)
    blend: Matrix
    out_of_fold: Matrix = field(repr=False)
    needs: frozenset[str] = frozenset()

    @classmethod
    def fit(
        cls,
        prompts: Sequence[str],
        reward: ArrayLike,
        specialists: Sequence[str],
        *,
        contexts: Contexts | None = None,
        peek: Peek | None = None,
        embedder: Embedder | None = None,
        trees: Trees = Trees(),  # noqa: B008 (frozen)
        seed: int = 0,
        progress: Advance | None = None,
        work: Path | str | None = None,
    ) -> Boosted:
        """Fit on rewards (prompts, specialists), NaN where missing; with a peek, on contexts as well.

        Identical prompts share a fold. `progress(what, fraction done)` is called between steps. Finished
        steps (evidence, contexts, the trees of each fold) are kept in `work`, so that an interrupted fit can
        resume. Linear algebra uses one thread, so that the result does not depend on the number of cores.
        Raises `UsageError` if there is a peek but no contexts.
        """
        from threadpoolctl import threadpool_limits

        say = progress or silent
        matrix = checked_reward(reward, len(prompts), specialists)
        checked = checked_contexts(contexts, matrix.shape) if peek is not None else None
        if peek is not None and checked is None:
            raise UsageError(
                "contexts", expected="contexts for a peek", came="none", do="Pass contexts, or peek=None."
            )
        folds = grouped_folds(checked_texts(prompts), trees.folds, seed)
        named = getattr(embedder, "name", None)
        stages = Stages.of(work, list(prompts), matrix, tuple(specialists), checked, peek, named, trees, seed)
        with threadpool_limits(1):  # more threads add in another order, and trees enlarge the difference
            say("embedding prompts", 0.0)
            evidence, layer = _prompt_stage(stages, prompts, matrix, specialists, folds, embedder)
            seen, columns = None, None
            if peek is not None and checked is not None:
                say("reading contexts", 0.2)
                seen, columns = _context_stage(
                    stages, peek, prompts, checked, matrix, evidence, layer, folds, embedder
                )
            blind = None if columns is None else columns.shape[2]
            boosters, outside = grow(_table(layer, columns), matrix, folds, trees, seed, say, blind, stages)
            usual = evidence.neighbours.mean
            blend = blend_weights((outside, layer.ridge, layer.far), matrix, usual)
            mixed = _mix(blend, outside, layer, usual)
        return cls(tuple(specialists), evidence, seen, boosters, blend, mixed, told_of(specialists, checked))

    @property
    def together(self) -> bool:
        """True if one purchase shows all specialists: it reads no contexts, or all of them at once."""
        return self.contexts is None or self.contexts.peek.agreement

    def predict(self, prompts: Sequence[str], contexts: Contexts | None = None) -> Matrix:
        """Estimated rewards (prompts, specialists).

        A stack fitted with a peek also takes `contexts` of that shape. Where a cell is None, or without
        contexts, the estimate is made from the prompt alone.
        """
        layer = self.evidence.layer(prompts)
        columns = None
        if self.contexts is not None:
            shape = (len(prompts), len(self.specialists))
            given = contexts if contexts is not None else np.full(shape, None, dtype=object)
            checked = checked_contexts(given, shape)
            columns = None if checked is None else self.contexts.columns(prompts, checked)
        table = _table(layer, columns)
        grown = np.mean([booster.predict(table) for booster in self.boosters], axis=0)
        return _mix(self.blend, grown.reshape(layer.ridge.shape), layer, self.evidence.neighbours.mean)

    def state(self) -> Saved:
        """The state to save; `from_state` restores it."""
        parts = {f"trees{i}": booster.state() for i, booster in enumerate(self.boosters)}
        parts["evidence"] = self.evidence.state()
        if self.contexts is not None:
            parts["contexts"] = self.contexts.state()
        arrays: dict[str, NDArray[Any]] = {"blend": self.blend, "out_of_fold": self.out_of_fold}
        settings = {"specialists": list(self.specialists), "trees": len(self.boosters)}
        settings["needs"] = sorted(self.needs)
        return Saved("boosted", settings, arrays, parts=parts)

    @classmethod
    def from_state(cls, saved: Saved, *, embedder: Embedder | None = None) -> Boosted:
        """Restore the estimator from its `state`; `embedder` only if it was a callable or remote."""
        settings, parts = saved.of_kind("boosted").settings, saved.parts
        seen = parts.get("contexts")
        return cls(
            tuple(settings["specialists"]),
            PromptEvidence.from_state(parts["evidence"], embedder=embedder),
            None if seen is None else ContextEvidence.from_state(seen, embedder=embedder),
            tuple(Ensemble.from_state(parts[f"trees{i}"]) for i in range(settings["trees"])),
            saved.arrays["blend"],
            saved.arrays["out_of_fold"],
            frozenset(settings["needs"]),
        )

    def save(self, folder: Path | str) -> Path:
        """Write the estimator to `folder`, atomically; an estimator already there is replaced."""
        return write(folder, self.state())

    @classmethod
    def load(cls, folder: Path | str, *, embedder: Embedder | None = None) -> Boosted:
        """Read an estimator written by `save`; `UsageError` if the folder is damaged or of another kind."""
        return cls.from_state(read(folder), embedder=embedder)


def _prompt_stage(
    stages: Stages,
    prompts: Sequence[str],
    reward: Matrix,
    specialists: Sequence[str],
    folds: Positions,
    embedder: Embedder | None,
) -> tuple[PromptEvidence, Layer]:
    """The prompt evidence and its training layer, read from `stages` if finished before."""
    stage = stages.get("prompts")
    if stage is not None:
        return PromptEvidence.from_state(stage.parts["evidence"], embedder=embedder), Layer(**stage.arrays)
    evidence, layer = PromptEvidence.fit(prompts, reward, specialists, folds, embedder)
    stages.put("prompts", Saved("stage", arrays=vars(layer), parts={"evidence": evidence.state()}))
    return evidence, layer


def _context_stage(
    stages: Stages,
    peek: Peek,
    prompts: Sequence[str],
    contexts: Contexts,
    reward: Matrix,
    evidence: PromptEvidence,
    layer: Layer,
    folds: Positions,
    embedder: Embedder | None,
) -> tuple[ContextEvidence, Matrix]:
    """The context evidence and its training columns, read from `stages` if finished before."""
    stage = stages.get("contexts")
    if stage is not None:
        return ContextEvidence.from_state(stage.parts["contexts"], embedder=embedder), stage.arrays["columns"]
    left, mean = reward - layer.ridge, evidence.neighbours.mean
    seen, columns = ContextEvidence.fit(peek, prompts, contexts, left, mean, folds, embedder)
    stages.put("contexts", Saved("stage", arrays={"columns": columns}, parts={"contexts": seen.state()}))
    return seen, columns


def _table(layer: Layer, columns: Matrix | None) -> NDArray[np.float32]:
    """One row per (prompt, specialist) pair: the specialist's number, its features, the shared ones."""
    prompts, specialists = layer.ridge.shape
    blocks = [
        np.tile(np.arange(specialists), prompts)[:, None],
        layer.own.reshape(prompts * specialists, -1),
        np.repeat(layer.shared, specialists, axis=0),
    ]
    if columns is not None:
        blocks.append(columns.reshape(prompts * specialists, -1))
    return np.hstack([block.astype(np.float32) for block in blocks])


def _mix(blend: Matrix, grown: Matrix, layer: Layer, mean: Matrix) -> Matrix:
    parts = (grown, layer.ridge, layer.far)
    mixed: Matrix = mean + sum(weight * (part - mean) for weight, part in zip(blend, parts, strict=True))
    return mixed
