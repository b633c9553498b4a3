"""Estimates from everything opened, in evaluations: arrays on disk, and their part of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pandora_router.calibrate import Calibrated, FittedSignal
from pandora_router.calibrate.readings import Readings
from pandora_router.calibrate.sets import SetSignal
from pandora_router.calibrate.signals import SignalModel
from pandora_router.data import Table
from pandora_router.estimators.sets import SetTrees, Signs, new_signs, second_folds, training_signs
from pandora_router.estimators.stack.boosted import Boosted
from pandora_router.router.sets import HeldOut, Weighed, joined
from pandora_router.types import Mask, Positions

FOLDS = 5


def signs_of(first: Boosted, parts: Mapping[str, Table], seed: int) -> dict[str, NDArray[np.float64]]:
    """The features of each split as arrays, and the folds of the training prompts; no texts."""
    made: dict[str, NDArray[np.float64]] = {}
    for name, part in parts.items():
        assert part.contexts is not None
        if name == "train":
            signs = training_signs(first, part.prompts, part.contexts)
            made["train_folds"] = second_folds(part.prompts, FOLDS, seed).astype(np.float64)
        else:
            signs = new_signs(first, part.prompts, part.contexts)
        made |= {f"{name}_signs_{field.name}": getattr(signs, field.name) for field in fields(signs)}
    return made


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
    arrays: Mapping[str, NDArray[np.float64]],
    calibration: Readings,
    test: Readings,
    train: Readings,
    whole: Mask,
) -> SetTrial:
    """The part of a trial that `signs_of` computed; `whole` are the complete test prompts."""

    def signs(split: str) -> Signs:
        return Signs(*(arrays[f"{split}_signs_{field.name}"] for field in fields(Signs)))

    fold = np.concatenate([arrays["train_folds"], np.full(len(calibration), -1.0)]).astype(np.intp)
    known = joined(signs("train"), signs("calibration"))
    return SetTrial(train.beside(calibration), known, fold, test.rows(whole), signs("test").rows(whole))
