"""One fresh split as input of the arms: readings to fit on, and readings to evaluate on.

A `Trial` has only numbers, no texts, so it can be cached and sent to workers. `estimates` computes it, `arms`
use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pandora_router.boxes import Costs
from pandora_router.calibrate import Calibrated, FittedSignal, SignalModel, Unfitted, guard
from pandora_router.calibrate.choose import Fits
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.set_signal import SetSignal
from pandora_router.calibrate.ways import Standing
from pandora_router.data import Table
from pandora_router.errors import UsageError
from pandora_router.estimators.set_layer import SetTrees, Signs, new_signs, second_folds, training_signs
from pandora_router.estimators.stack.boosted import Boosted
from pandora_router.router.recipes import SetRecipe
from pandora_router.router.set_stage import HeldOut, Weighed, joined
from pandora_router.search import Policy
from pandora_router.types import Mask, Matrix, Positions, Vector


def sign_names(split: str) -> dict[str, str]:
    """The name of the array of each feature of a split."""
    return {field.name: f"{split}_signs_{field.name}" for field in fields(Signs)}


def signs_of(first: Boosted, parts: Mapping[str, Table], recipe: SetRecipe) -> dict[str, Vector]:
    """The features of each split as arrays, and the folds of the training prompts as in a fit; no texts."""
    arrays: dict[str, Vector] = {}
    for name, part in parts.items():
        assert part.contexts is not None
        if name == "train":
            signs = training_signs(first, part.prompts, part.contexts)
            arrays["train_folds"] = second_folds(part.prompts, recipe.folds, recipe.seed).astype(np.float64)
        else:
            signs = new_signs(first, part.prompts, part.contexts)
        arrays |= {array: getattr(signs, field) for field, array in sign_names(name).items()}
    return arrays


@dataclass(frozen=True, eq=False)
class SetTrial:
    """Features and readings of the known prompts (training first) and of the test prompts of one split."""

    known: Readings
    known_signs: Signs
    fold: Positions
    test: Readings
    test_signs: Signs
    _signals: list[SetSignal] = field(default_factory=list, repr=False)

    @cached_property
    def second(self) -> SetTrees:
        """The second layer, grown on the training prompts."""
        train = self.fold >= 0
        return SetTrees.fit(self.known_signs.rows(train), self.known.reward[train], self.fold[train])

    @cached_property
    def weighed(self) -> Weighed:
        """Both kinds of estimates on the known prompts."""
        return Weighed(HeldOut(self.known, self.known_signs, self.fold, self.second), Calibrated())

    @cached_property
    def fresh(self) -> HeldOut:
        """The test prompts, which were not used in training."""
        return HeldOut(self.test, self.test_signs, np.full(len(self.test), -1, dtype=np.intp), self.second)

    def signal(self, base: SignalModel) -> SetSignal:
        """The final model with estimates from everything opened; fitted once."""
        assert isinstance(base, FittedSignal)
        if not self._signals:
            self._signals.append(self.weighed.signal(base))
        return self._signals[0]


def set_trial(
    arrays: Mapping[str, Vector],
    calibration: Readings,
    test: Readings,
    train: Readings,
    whole: Mask,
) -> SetTrial:
    """The part of a trial that `signs_of` computed; `whole` are the complete test prompts."""

    def signs(split: str) -> Signs:
        return Signs(**{field: arrays[name] for field, name in sign_names(split).items()})

    fold = np.concatenate([arrays["train_folds"], np.full(len(calibration), -1.0)]).astype(np.intp)
    known = joined(signs("train"), signs("calibration"))
    return SetTrial(train.beside(calibration), known, fold, test.rows(whole), signs("test").rows(whole))


@dataclass(frozen=True, eq=False)
class Reworded:
    """Test prompts that have a paraphrase, by position, and the readings of the paraphrases.

    A paraphrase has the rewards of its prompt. `costly` is NaN where costly estimates read what is not known
    of a paraphrase, the beginnings of its answers.
    """

    rows: Positions
    readings: Readings

    @classmethod
    def of(cls, test: Readings, cheap: Matrix, costly: Matrix) -> Reworded | None:
        """From estimates of paraphrases (N, M), NaN where a test prompt has none; None if none has one."""
        rows = np.flatnonzero(np.isfinite(cheap).all(axis=1))
        if not len(rows):
            return None
        return cls(rows, Readings(cheap[rows], costly[rows], test.reward[rows], test.fee[rows]))


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
    reworded: paraphrases of test prompts; None if the experiment has none.
    """

    calibration: Readings
    test: Readings
    standing: Standing
    train: Readings | None = None
    prompt: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    sets: SetTrial | None = None
    reworded: Reworded | None = None
    fits: Fits = field(default_factory=dict, repr=False)  # what `Auto` fitted at other costs
    _fitted: dict[tuple[Unfitted, int], SignalModel] = field(default_factory=dict, repr=False)
    _ships: dict[tuple[object, ...], Policy] = field(default_factory=dict, repr=False)
    _opens: dict[tuple[object, ...], bool] = field(default_factory=dict, repr=False)

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
            self._fitted[wanted] = wanted[0].fit(some, self.train)
        return self._fitted[wanted]

    def opens(self, policy: Policy, own_policy: Policy, costs: Costs) -> bool:
        """Whether a fit would use estimates from everything opened at these costs.

        `own_policy` is what ships with estimates from own beginnings. As in a fit, those are used if there
        are too few complete prompts to compare.
        """
        if self.sets is None or len(costs.shared):
            return False
        at = (policy, own_policy, *_parts(costs))
        if at not in self._opens:
            try:
                self._opens[at] = self.sets.weighed.compare(policy, own_policy, costs).better
            except UsageError:
                self._opens[at] = False
        return self._opens[at]

    def shipped(self, unfitted: Unfitted, policy: Policy, costs: Costs) -> Policy:
        """The policy that a fit would use at these costs: `policy`, or never inspecting if that was better.

        As in a fit, `policy` is used if there are too few complete prompts to compare.
        """
        at = (unfitted, policy, *_parts(costs))
        if at not in self._ships:
            try:
                guarded = guard(unfitted, policy, self.calibration, costs, train=self.train, fits=self.fits)
                self._ships[at] = guarded[0].policy
            except UsageError:
                self._ships[at] = policy
        return self._ships[at]


def _parts(costs: Costs) -> Iterator[tuple[float, ...]]:
    """The parts of costs as values that can be a key."""
    return (tuple(part.tolist()) for part in (costs.own, costs.shared, costs.group, costs.refund))


def trial_of(arrays: Mapping[str, Vector], k: int) -> Trial:
    """The trial whose cheap estimates use k neighbours, from the arrays made by `estimates`.

    Test prompts without every costly estimate and reward are left out. Raises `UsageError` if none is left.
    """

    def part(split: str) -> Readings:
        g, score, fee = (arrays[f"{split}_{name}"] for name in ("g", "score", "fee"))
        return Readings(arrays[f"{split}_f{k}"], g, score - fee, fee)

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
    again = [arrays[name][whole] for name in (f"test_again_f{k}", "test_again_g") if name in arrays]
    reworded = Reworded.of(test.rows(whole), *again) if again else None
    return Trial(calibration, test.rows(whole), standing, train, prompt, sets, reworded)
