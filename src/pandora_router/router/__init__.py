"""The one path prompt -> estimates -> boxes -> search -> Decision, and the artifact it lives in.

    recipes      how f and g are to be fitted, as small values; an estimator that is ready made
    fitting      table -> f, g, signal model, policy, evidence; stages kept on disk for a second start
    bought       costly estimates from outside, each kept before it counts
    report       what was found on held-out prompts: errors, coverage, what routing earns
    router       Router: fit, route, aroute, route_batch, save, load, add_specialist
    opening      buying costly estimates: who may be inspected, what failed, what it showed
    batch        many prompts at once, purchases in rounds
    decision     what was decided, with what was known
    explanation  a decision step by step, in words and numbers
    newcomer     one more specialist from a few dozen scored prompts
    artifact     to disk and back, never with pickle

It refuses to know files other than its own, strings that stand for objects (`config`) and who asks (`cli`).
"""

from pandora_router.router.decision import Decision, Estimates, Prices
from pandora_router.router.explanation import Explanation, explain
from pandora_router.router.recipes import External, NeighbourRecipe, StackRecipe, TransformerRecipe
from pandora_router.router.router import Router

__all__ = [
    "Decision",
    "Estimates",
    "Explanation",
    "External",
    "NeighbourRecipe",
    "Prices",
    "Router",
    "StackRecipe",
    "TransformerRecipe",
    "explain",
]
