"""xrouter-llm: difficulty of the prompt x capability of the model, then the cheapest that will do.

Settings as in its bundled configuration `auto` (completion threshold .7, fallback margin .05). It takes a
model's capability from published benchmarks; here it is the mean training score. Two specialists need
`min_models_per_prompt` = 2 instead of 3.
"""

import numpy as np
from shared import answer
from xrouter_llm.irt_router import IRTRouter
from xrouter_llm.policy import PolicyParams, RoutingPolicy
from xrouter_llm.profiles import ModelBenchmarkProfile
from xrouter_llm.types import BenchmarkRow


class Given:
    """Vectors that were computed before, looked up by the text of the prompt."""

    name = "given"

    def __init__(self, vectors):
        self.vectors = vectors

    def encode(self, texts):
        """One row per text."""
        return np.array([self.vectors[text] for text in texts])


def fit(task):
    """The item-response router on all training cells."""
    vectors = dict(zip(task.prompts, task.vectors, strict=True))
    vectors |= dict(zip(task.test_prompts, task.test, strict=True))
    names = [f"s{j}" for j in range(len(task.specialists))]
    share = 100 * task.score.mean(axis=0)
    profiles = [
        ModelBenchmarkProfile(name, {"gpqa_diamond": float(mean), "livecodebench": float(mean)})
        for name, mean in zip(names, share, strict=True)
    ]
    router = IRTRouter(
        benchmark_profiles=profiles,
        embedding_backend=Given(vectors),
        embedding_cache_dir=None,
        embedding_head_chars=0,
        embedding_tail_chars=0,
        embedding_focus_chars=0,
        min_models_per_prompt=min(3, len(names)),
        random_state=0,
    )
    rows = [
        BenchmarkRow(str(i), prompt, name, float(task.score[i, j]), float(task.fee[i, j]))
        for i, prompt in enumerate(task.prompts)
        for j, name in enumerate(names)
    ]
    router.fit(rows)
    costs = dict(zip(names, task.fee.mean(axis=0).tolist(), strict=True))
    policy = RoutingPolicy(PolicyParams(completion_threshold=0.7, fallback_quality_margin=0.05))

    def decide(row):
        told = router.predict(task.test_prompts[row], model_ids=names, costs=costs)
        return int(policy.select(told).selected_model_ids[0][1:])

    return decide


if __name__ == "__main__":
    answer(fit)
