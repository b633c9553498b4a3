"""What a request would have cost without routing: at the specialist that is best on its own."""

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

    With `answered`, the call that did answer, its own cost if it is the same specialist; otherwise its input
    tokens at the prices of the other, which writes as much as it usually does (as was written here, where
    nothing was measured of it).
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
