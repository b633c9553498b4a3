"""ParetoBandit under a budget: its pacer alone on the worths of another router, and the whole of it.

The pacer is its `BudgetPacer` with its own defaults, soft, since there is no ceiling of prices to filter by:
a price `lambda_t` of the fee of the dearest specialist, so that a right answer is worth that fee / lambda_t.

The whole is its `BanditRouter` with that pacer in its default mode, warm-started from all known prompts, on
25 whitened principal components. It is told the score and the fee of every answer at once. Prices are scaled
so that the dearest specialist is at the top of the range that it expects; its own cost penalty beside the
pacer is off, since the pacer is what sets the price of money here.
"""

import hashlib
import json
import logging
import sys
import tempfile
from pathlib import Path

import numpy as np
from pareto_bandit import BanditRouter
from pareto_bandit.budget_pacer import BudgetPacer, PacingMode
from pareto_bandit.calibration import generate_warmup_priors
from pareto_bandit.feature_service import FeatureService
from pareto_bandit.types import RouterConfig
from sklearn.decomposition import PCA

COMPONENTS = 25


def paced(worths, money, rows, target, dearest):
    """The place of the worth (T,) that the pacer alone serves for each request."""
    pacer = BudgetPacer(target, mode=PacingMode.SOFT)
    middles = (np.log(worths[1:]) + np.log(worths[:-1])) / 2.0
    at = np.empty(len(rows), dtype=np.int64)
    for place, row in enumerate(rows):
        at[place] = np.searchsorted(middles, np.log(dearest / max(pacer.lambda_t, 1e-12)))
        pacer.observe(float(money[row, at[place]]))
    return at


class Whole:
    """The router, made anew for each stream from the same known prompts."""

    def __init__(self, known, score, fees):
        width = min(COMPONENTS, known.shape[1], len(known) - 1)
        self.pca = PCA(n_components=width, random_state=0).fit(known)
        self.scale = 1.0 / np.sqrt(self.pca.explained_variance_)
        self.known, self.score = known, score
        self.prices = 100.0 * np.asarray(fees) / max(fees)

    def run(self, vectors, score, fee, rows, target):
        """The specialist (T,) of each request."""
        contexts = (vectors - self.pca.mean_) @ self.pca.components_.T * self.scale
        contexts = np.hstack([contexts, np.ones((len(contexts), 1))])
        router = self.router(contexts.shape[1], target)
        chosen = np.empty(len(rows), dtype=np.int64)
        for place, row in enumerate(rows):
            name, log = router.route(contexts[row])
            chosen[place] = at = int(name[1:])
            log.cost_usd = float(fee[row, at])
            router.process_feedback(log.request_id, float(score[row, at]))
        return chosen

    def router(self, width, target):
        told = [
            {"prompt": str(i), "rewards": {f"s{j}": float(value) for j, value in enumerate(row)}}
            for i, row in enumerate(self.score)
        ]
        raw = {hashlib.sha256(str(i).encode()).hexdigest(): row for i, row in enumerate(self.known)}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "priors.joblib"
            generate_warmup_priors(told, "given", self.pca, output_path=path, precomputed_raw_embeddings=raw)
            return BanditRouter.create(
                model_registry={
                    f"s{j}": {"input_cost_per_m": price, "output_cost_per_m": price}
                    for j, price in enumerate(self.prices)
                },
                feature_service=FeatureService.for_precomputed(width),
                priors=str(path),
                cost_penalty=0.0,
                budget_pacer=BudgetPacer(target),
                bandit_seed=0,
                config=RouterConfig(
                    reward_min=float(min(self.score.min(), 0.0)), reward_max=float(max(self.score.max(), 1.0))
                ),
            )


def main(task, out):
    """Read the task, write for each stream the worths of the pacer and the specialists of the whole."""
    logging.disable(logging.WARNING)
    with np.load(task, allow_pickle=False) as told:
        parts = {name: told[name] for name in told.files}
    targets = json.loads(str(parts["targets"]))
    whole = Whole(parts["known"], parts["known_score"], parts["known_fee"].mean(axis=0))
    dearest = float(parts["known_fee"].mean(axis=0).max())
    made = {}
    for number, target in enumerate(targets):
        rows = parts[f"rows{number}"]
        made[f"at{number}"] = paced(parts["worths"], parts["money"], rows, target, dearest)
        made[f"chosen{number}"] = whole.run(parts["fresh"], parts["score"], parts["fee"], rows, target)
    np.savez(out, **made)


if __name__ == "__main__":
    main(*sys.argv[1:])
