"""The path prompt -> estimates -> boxes -> search -> Decision, and the artifact of a fitted router.

    recipes         settings by which f and g are fitted; estimators that need no fitting
    table_fit       table -> f, g, signal model, policy, evidence; finished stages are kept on disk
    out_of_fold     estimates for fitting that no prompt influenced itself; external ones are kept on disk
    inspection      inspection costs
    set_stage       estimates from everything opened, if they pay
    fit_report      results on held-out prompts: errors, coverage, what routing earns
    curve           quality against cost over the worth of a right answer; the worth that meets a goal
    curve_picture   the curve as a drawing
    latency         how long requests take over the price of a second; the price that meets a goal
    router          Router: fit, route, aroute, route_batch, save, load, add_specialist
    deciding        the generator from a prompt to a decision: yields requests for estimates, is sent results
    purchases       Ask and Paid: what that generator yields and is sent
    driver          buys what decisions ask for: cheap estimates, time limits, failures
    prompt_batch    many prompts at once, with purchases in rounds
    decision        Decision: the result and everything it was based on; as JSON and back
    explanation     a decision step by step, in words and numbers
    picture         a decision as a drawing
    revalue         the same router at other values of a right answer and of a second
    conversation    the price of leaving a specialist in the middle of a conversation
    add_specialist  one more specialist from a few dozen scored prompts
    artifact        a router on disk, without pickle

This package does not read other files, does not turn strings into objects (`config` does) and does not depend
on who asks. Recipes load on first use, so that routing imports nothing that only fitting needs.
"""

from typing import TYPE_CHECKING, Any

from pandora_router.router.deciding import Cheap, Looks, deciding
from pandora_router.router.decision import (
    BoxStatus,
    Decision,
    Estimates,
    Prices,
    Purchase,
    PurchaseStatus,
)
from pandora_router.router.explanation import Explanation, explain
from pandora_router.router.purchases import Ask, Paid
from pandora_router.router.router import Router

if TYPE_CHECKING:
    from pandora_router.router.recipes import (
        External,
        LinearRecipe,
        NeighbourRecipe,
        SetRecipe,
        StackRecipe,
        TransformerRecipe,
    )

__all__ = [
    "Ask",
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
