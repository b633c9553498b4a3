"""ParetoBandit on a stream: disjoint LinUCB with forgetting, warm-started from the known prompts.

Settings are its own defaults; its log-scaled cost penalty is off, because the reward already has the fee.
"""

import hashlib
import logging
import tempfile
from pathlib import Path

import numpy as np
from pareto_bandit import BanditRouter
from pareto_bandit.calibration import generate_warmup_priors
from pareto_bandit.feature_service import FeatureService
from pareto_bandit.types import RouterConfig
from sklearn.decomposition import PCA
from streamed import stream


class Learner:
    """The bandit; it explores by its upper confidence bounds."""

    def __init__(self, known, reward, seed):
        logging.disable(logging.WARNING)
        width = known.shape[1]
        self.pca = PCA(n_components=width, random_state=0).fit(known)
        rewards = [
            {"prompt": str(i), "rewards": {f"s{j}": float(value) for j, value in enumerate(row)}}
            for i, row in enumerate(reward)
        ]
        raw = {hashlib.sha256(str(i).encode()).hexdigest(): row for i, row in enumerate(known)}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "priors.joblib"
            generate_warmup_priors(
                rewards, "given", self.pca, output_path=path, precomputed_raw_embeddings=raw
            )
            price = {"input_cost_per_m": 1.0, "output_cost_per_m": 1.0}
            self.router = BanditRouter.create(
                model_registry={f"s{j}": dict(price) for j in range(reward.shape[1])},
                feature_service=FeatureService.for_precomputed(width + 1),
                priors=str(path),
                cost_penalty=0.0,
                bandit_seed=seed,
                config=RouterConfig(reward_min=float(reward.min()), reward_max=float(reward.max())),
            )
        self.scale = 1.0 / np.sqrt(self.pca.explained_variance_)

    def context(self, features):
        """Whitened components and a constant."""
        return np.append((features - self.pca.mean_) @ self.pca.components_.T * self.scale, 1.0)

    def ask(self, features):
        """The specialist of the highest upper confidence bound."""
        name, log = self.router.route(self.context(features))
        return int(name[1:]), log.request_id

    def rated(self, ticket, reward):
        """Learn from one reward."""
        self.router.process_feedback(ticket, reward)

    def best(self, features):
        """The specialist of the highest estimate."""
        with self.router.exploit():
            return int(self.router.route(self.context(features))[0][1:])


if __name__ == "__main__":
    stream(Learner)
