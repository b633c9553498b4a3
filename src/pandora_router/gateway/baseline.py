"""What a request would have cost without routing: with the best single specialist."""

from __future__ import annotations

from dataclasses import replace

from pandora_router.gateway.attempts import RunningAttempt
from pandora_router.gateway.site import Profile


def best_single(profile: Profile | None) -> str | None:
    """The specialist of the highest mean reward in training; None if the request was not routed."""
    if profile is None or profile.router is None:
        return None
    router = profile.router
    standing = router.record.get("report", {}).get("standing", {})
    single = standing.get("single", router.default)
    return single if single in router.specialists else router.default


def single_cost(compared: RunningAttempt, answered: RunningAttempt | None) -> int:
    """What the call `compared`, which is not made, would have cost, in nanodollars.

    `answered` is the call that answered. If it is the same specialist, its own cost; otherwise its input
    tokens at the prices of the other, with the other's usual output (or the same output, if not measured
    yet).
    """
    lengths, usual = compared.lengths, compared.backend.max_output / 8
    if answered is None:
        output = min(lengths.output.given(usual), compared.most)
        return compared.backend.prices.cost(
            lengths.expected(compared.size, compared.prefix, output, compared.begun)
        )
    if answered.backend.name == compared.backend.name:
        return answered.cost
    if answered.usage is None:
        return single_cost(compared, None)
    output = min(lengths.output.given(answered.usage.output), compared.most)
    return compared.backend.prices.cost(replace(answered.usage, output=round(output)))
