"""One fresh split as input of the arms: readings to fit on, and readings to evaluate on.

A `Trial` has only numbers, no texts, so it can be cached and sent to workers. `estimates` computes it, `arms`
use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pandora_router.boxes import Costs
from pandora_router.calibrate import Calibrated, SignalModel, Unfitted, guard
from pandora_router.calibrate.choose import Fits
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.ways import Standing
from pandora_router.errors import UsageError
from pandora_router.evaluate.opened import SetTrial, set_trial
from pandora_router.search import Policy

FORMER = "former"  # the cheap estimate of the former default, in the arrays that `estimates` made


@dataclass(frozen=True, eq=False)
class Trial:
    """Calibration and test readings of one split. Signal models are fitted on first use and kept.

    test: must have every costly estimate and reward, because regret needs the best specialist in hindsight;
        otherwise `UsageError` is raised.
    standing: the best single and the cheapest specialist, determined without the test prompts.
    train: readings of the training prompts, with leave-one-out f and out-of-fold g.
    prompt: (N,) numbers that identify the test prompts, to compare runs prompt by prompt; 0 to N - 1 unless
        given.
    sets: the input of estimates that depend on everything opened; None if the experiment has none.
    former: the same split with the cheap estimate of the former default (50 neighbours, training prompts
        only).
    """

    calibration: Readings
    test: Readings
    standing: Standing
    train: Readings | None = None
    prompt: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    sets: SetTrial | None = None
    former: Trial | None = None
    fits: Fits = field(default_factory=dict, repr=False)  # what `Auto` fitted at other costs
    _fitted: dict[tuple[Unfitted, int], SignalModel] = field(default_factory=dict, repr=False)
    _ships: dict[tuple[object, ...], Policy] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not len(self.prompt):
            object.__setattr__(self, "prompt", np.arange(len(self.test)))
        if len(self.prompt) != len(self.test) or not self.test.complete.all():
            raise UsageError(
                "the test prompts of a trial",
                expected="one number per prompt, every costly estimate and every reward",
                came=f"{len(self.prompt)} numbers for {len(self.test)} prompts, "
                f"{int((~self.test.complete).sum())} of them incomplete",
                do="Leave incomplete prompts out of an evaluation: readings.rows(readings.complete).",
            )

    def signal(self, unfitted: Unfitted | None = None, prompts: int = 0) -> SignalModel:
        """A signal model fitted on the calibration prompts; the default one if `unfitted` is None.

        `prompts` limits their number, the same ones for every model: smaller sets are contained in larger
        ones. 0, or more than there are, means all.
        """
        known = self.calibration
        count = prompts if 0 < prompts < len(known) else 0
        wanted = (unfitted or Calibrated(), count)
        if wanted not in self._fitted:
            some = known
            if count:
                some = known.rows(np.random.default_rng(0).permutation(len(known))[:count])
            self._fitted[wanted] = wanted[0].fit(some.cheap, some.costly, some.reward, self.train)
        return self._fitted[wanted]

    def shipped(self, unfitted: Unfitted, policy: Policy, costs: Costs) -> Policy:
        """The policy that a fit would use at these costs: `policy`, or never inspecting if that was better.

        As in a fit, `policy` is used if there are too few complete prompts to compare.
        """
        at = (
            unfitted,
            policy,
            *(tuple(part.tolist()) for part in (costs.own, costs.shared, costs.group, costs.refund)),
        )
        if at not in self._ships:
            try:
                guarded = guard(unfitted, policy, self.calibration, costs, train=self.train, fits=self.fits)
                self._ships[at] = guarded[0].policy
            except UsageError:
                self._ships[at] = policy
        return self._ships[at]


def trial_of(arrays: Mapping[str, NDArray[np.float64]], k: int) -> Trial:
    """The trial whose cheap estimates use k neighbours, from the arrays made by `estimates`.

    Test prompts without every costly estimate and reward are left out. Raises `UsageError` if none is left.
    """

    def part(split: str, cheap: str = f"f{k}") -> Readings:
        g, score, fee = (arrays[f"{split}_{name}"] for name in ("g", "score", "fee"))
        return Readings(arrays[f"{split}_{cheap}"], g, score - fee, fee)

    calibration, test, train = part("calibration"), part("test"), part("train")
    whole = test.complete
    if not whole.any():
        raise UsageError(
            "the test prompts",
            expected="some that every specialist has answered",
            came=f"none of {len(test)}",
            do="Leave specialists with few scores out (`complete: 0.9` in an experiment), or score more.",
        )
    standing = Standing(*(int(x) for x in arrays["standing"]))
    prompt = arrays["test_prompt"].astype(np.int64)[whole]
    sets = set_trial(arrays, calibration, test, train, whole) if "train_folds" in arrays else None
    former = Trial(part("calibration", FORMER), part("test", FORMER).rows(whole), standing, prompt=prompt)
    return Trial(calibration, test.rows(whole), standing, train, prompt, sets, former)
