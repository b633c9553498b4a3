"""litellm: the heuristic of its complexity router, which reads the prompt alone and learns nothing.

`heuristic_v2` predicts from bundled statistics which of four tiers will do (bundled threshold, .75). A user
names a model for each tier: here the specialists that no other one beats in both mean score and mean fee,
from the weakest to the strongest, spread evenly over the tiers.
"""

import numpy as np
from litellm.router_strategy.adaptive_router.classifier import classify_prompt
from litellm.router_strategy.complexity_router.tier_predictor import (
    TierSuccessPredictor,
    resolve_tier_artifact,
)
from shared import answer

TIERS = 4


def fit(task):
    """The specialist of each tier."""
    score, fee = task.score.mean(axis=0), task.fee.mean(axis=0)
    efficient = [
        j
        for j in range(len(score))
        if not any(
            score[i] >= score[j] and fee[i] <= fee[j] and (score[i] > score[j] or fee[i] < fee[j])
            for i in range(len(score))
        )
    ]
    ladder = sorted(efficient, key=lambda j: score[j])
    tier = [ladder[int(at)] for at in np.linspace(0, len(ladder) - 1, TIERS).round()]
    predictor = TierSuccessPredictor(resolve_tier_artifact("ultrafeedback"))

    def decide(row):
        prompt = task.test_prompts[row]
        return tier[predictor.predict(prompt, classify_prompt(prompt)).required_tier - 1]

    return decide


if __name__ == "__main__":
    answer(fit)
