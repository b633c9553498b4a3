"""The one path prompt -> estimates -> boxes -> search -> Decision, and the artifact it lives in.

    recipes      how f and g are to be fitted, as small values; an estimator that is ready made
    fitting      table -> f, g, signal model, policy, evidence; stages kept on disk for a second start
    bought       costly estimates from outside, each kept before it counts
    report       what was found on held-out prompts: errors, coverage, what routing earns
    router       Router: fit, route, aroute, route_batch, save, load, add_specialist
    prompts      cheap estimates, and which prompts are declined
    deciding     the generator from a prompt to a decision: asks for estimates, is told what came of it
    opening      paying for what decisions ask: time limits, failures
    worker       where computing is done: here, or in threads beside an event loop
    batch        many prompts at once, purchases in rounds
    decision     what was decided, with what was known; as JSON and back
    explanation  a decision step by step, in words and numbers
    newcomer     one more specialist from a few dozen scored prompts
    artifact     to disk and back, never with pickle

It refuses to know files other than its own, strings that stand for objects (`config`) and who asks (`cli`).
Recipes load on first use, so that routing imports nothing that only fitting needs.
"""

from typing import TYPE_CHECKING, Any

from pandora_router.router.deciding import Ask, Cheap, Looks, Paid, deciding
from pandora_router.router.decision import (
    BoxStatus,
    Decision,
    Estimates,
    Prices,
    Purchase,
    PurchaseStatus,
)
from pandora_router.router.explanation import Explanation, explain
from pandora_router.router.router import Router

if TYPE_CHECKING:
    from pandora_router.router.recipes import (
        BlendRecipe,
        External,
        LinearRecipe,
        NeighbourRecipe,
        SetRecipe,
        StackRecipe,
        TransformerRecipe,
    )

__all__ = [
    "Ask",
    "BlendRecipe",
    "BoxStatus",
    "Cheap",
    "Decision",
    "Estimates",
    "Explanation",
    "External",
    "LinearRecipe",
    "Looks",
    "NeighbourRecipe",
    "Paid",
    "Prices",
    "Purchase",
    "PurchaseStatus",
    "Router",
    "SetRecipe",
    "StackRecipe",
    "TransformerRecipe",
    "deciding",
    "explain",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from pandora_router.router import recipes

        return getattr(recipes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
