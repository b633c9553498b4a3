"""The benchmark reads the evidence of a trial as the gateway does."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import learn_trials

from pandora_router.learn.evidence import LEAST, Evidence, verdict


@pytest.mark.parametrize(("mean", "seed"), [(0.3, 0), (-0.3, 1), (0.05, 2), (0.0, 3), (-0.02, 4), (0.02, 5)])
def test_all_at_once_is_one_after_the_other(mean: float, seed: int) -> None:
    d = np.clip(np.random.default_rng(seed).normal(mean, 0.9, LEAST + 300), -2.5, 2.5)
    evidence, proven, vetoed, dropped = Evidence.start(), 0, None, False
    for value in d.tolist():
        evidence = evidence.after(value, 2.0)
        says = verdict(evidence, "veto")
        if vetoed is None and says != "go on":
            vetoed = says == "promote"
        says = verdict(evidence, "proof")
        if says != "go on" and not proven and not dropped:
            proven, dropped = (evidence.rated, False) if says == "promote" else (0, True)
    assert learn_trials.ends(d, 2.0) == (proven, bool(vetoed))
