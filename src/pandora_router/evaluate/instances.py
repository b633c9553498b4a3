"""What one split of one data set looks like to a way of routing: calibration and test arrays.

An `Instance` holds numbers only, never texts, so it can be cached and shared. It refuses to know where
estimates come from (`estimates`) and what is done with them (`arms`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pandora_router.calibrate import Calibrated, SignalModel, Unfitted
from pandora_router.calibrate.choose import Fits
from pandora_router.errors import UsageError
from pandora_router.types import Matrix, Vector


@dataclass(frozen=True, eq=False)
class Arrays:
    """One split: cheap estimates f, costly estimates g, score and weighted fee (N, M), prompt numbers (N,).

    Only prompts with every reward belong here: regret needs the best specialist in hindsight.
    """

    f: Matrix
    g: Matrix
    score: Matrix
    fee: Matrix
    prompt: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in ("g", "score", "fee"):
            if getattr(self, name).shape != self.f.shape:
                raise UsageError(
                    f"arrays of a split: {name}",
                    expected=f"shape {self.f.shape}, as f has",
                    came=f"{getattr(self, name).shape}",
                    do="Give one row per prompt and one column per specialist.",
                )
        if len(self.prompt) != len(self.f) or not np.isfinite(self.score - self.fee).all():
            raise UsageError(
                "arrays of a split",
                expected="one number per prompt and every reward measured",
                came=f"{len(self.prompt)} numbers for {len(self.f)} prompts, or missing rewards",
                do="Leave prompts with missing rewards out of an evaluation.",
            )

    @property
    def reward(self) -> Matrix:
        """score - fee, with fees already weighted (N, M)."""
        return self.score - self.fee

    def __len__(self) -> int:
        return len(self.f)

    @cached_property
    def cluster(self) -> NDArray[np.intp]:
        """A number per distinct f vector (N,): prompts that share one get the same first decision."""
        return np.unique(self.f, axis=0, return_inverse=True)[1].ravel()


@dataclass(frozen=True, eq=False)
class Instance:
    """Calibration and test arrays of one split; `single` and `cheapest` were chosen without the test prompts.

    Signal models are fitted on the calibration prompts when first asked for, each once.
    """

    calibration: Arrays
    test: Arrays
    single: int
    cheapest: int
    fits: Fits = field(default_factory=dict, repr=False)  # what `Auto` fitted at other costs
    _fitted: dict[tuple[Unfitted, int], SignalModel] = field(default_factory=dict, repr=False)

    def signal(self, unfitted: Unfitted | None = None, prompts: int = 0) -> SignalModel:
        """A signal model fitted on the calibration prompts; the default one if none is named.

        With `prompts` only so many of them are used, the same ones for every model: smaller sets lie inside
        larger ones. 0, or more than there are, means all.
        """
        known = self.calibration
        count = prompts if 0 < prompts < len(known) else 0
        wanted = (unfitted or Calibrated(), count)
        if wanted not in self._fitted:
            rows = np.random.default_rng(0).permutation(len(known))[:count] if count else slice(None)
            self._fitted[wanted] = wanted[0].fit(known.f[rows], known.g[rows], known.reward[rows])
        return self._fitted[wanted]


def standing(reward: Matrix, fee: Matrix) -> tuple[int, int]:
    """The specialist of highest mean reward and that of lowest mean fee (ties: higher reward)."""
    means: Vector = np.nanmean(reward, axis=0)
    fees: Vector = np.nanmean(fee, axis=0)
    cheapest = min(range(len(means)), key=lambda j: (float(fees[j]), -float(means[j])))
    return int(means.argmax()), cheapest


def instance_of(arrays: Mapping[str, NDArray[np.float64]], k: int) -> Instance:
    """The instance whose cheap estimates look at k neighbours, from the arrays that `estimates` made."""

    def part(split: str) -> Arrays:
        f = arrays[f"{split}_f{k}"]
        g, score, fee = (arrays[f"{split}_{name}"] for name in ("g", "score", "fee"))
        whole = np.isfinite(score - fee).all(axis=1)
        if not whole.any():
            raise UsageError(
                f"the {split} prompts",
                expected="some that every specialist has answered",
                came=f"none of {len(f)}",
                do="Leave specialists with few scores out (`complete: 0.9` in an experiment), or score more.",
            )
        prompt = arrays[f"{split}_prompt"].astype(np.int64)
        return Arrays(f[whole], g[whole], score[whole], fee[whole], prompt[whole])

    single, cheapest = (int(x) for x in arrays["standing"])
    return Instance(part("calibration"), part("test"), single, cheapest)
