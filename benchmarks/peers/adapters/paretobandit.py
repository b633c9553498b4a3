"""ParetoBandit: disjoint LinUCB on 25 whitened principal components, warm-started from all training prompts.

Settings as its README and `BEST_K3_HPARAMS` recommend (25 components, whitening, alpha, effective prior
sample size), greedy (`exploit`) because the test is not a stream. The reward it learns is score - fee, so its
own log-scaled cost penalty is switched off: with it every specialist's fee would count twice.
"""

import contextlib
import hashlib
import logging
import tempfile
from pathlib import Path

import numpy as np
from pareto_bandit import BanditRouter
from pareto_bandit.calibration import generate_warmup_priors
from pareto_bandit.feature_service import FeatureService
from pareto_bandit.types import RouterConfig
from shared import answer
from sklearn.decomposition import PCA

COMPONENTS = 25


def fit(task):
    """The bandit with priors from the training prompts."""
    logging.disable(logging.WARNING)
    pca = PCA(n_components=COMPONENTS, random_state=0).fit(task.vectors)
    rewards = [
        {"prompt": str(i), "rewards": {f"s{j}": float(r) for j, r in enumerate(row)}}
        for i, row in enumerate(task.net)
    ]
    raw = {hashlib.sha256(str(i).encode()).hexdigest(): v for i, v in enumerate(task.vectors)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "priors.joblib"
        generate_warmup_priors(rewards, "given", pca, output_path=path, precomputed_raw_embeddings=raw)
        price = {"input_cost_per_m": 1.0, "output_cost_per_m": 1.0}
        router = BanditRouter.create(
            model_registry={f"s{j}": dict(price) for j in range(task.net.shape[1])},
            feature_service=FeatureService.for_precomputed(COMPONENTS + 1),
            priors=str(path),
            cost_penalty=0.0,
            bandit_seed=0,
            config=RouterConfig(reward_min=float(task.net.min()), reward_max=float(task.net.max())),
        )
    scale = 1.0 / np.sqrt(pca.explained_variance_)
    stack = contextlib.ExitStack()
    stack.enter_context(router.exploit())

    def decide(row, keep=stack):
        vector = (task.test[row] - pca.mean_) @ pca.components_.T * scale
        return int(router.route(np.append(vector, 1.0))[0][1:])

    return decide


if __name__ == "__main__":
    answer(fit)
