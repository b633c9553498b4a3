"""What calls cost: tariffs, measured lengths and speeds, expected costs of looks, worst cases of calls.

    tariff     prices of a specialist; what a bill comes to, the worst case of a call, what has no price
    lengths    measured lengths and speeds; the expected cost of a look
    catalogue  prices from the package genai-prices (extra [prices])

The ONE place for these numbers. `fit`, `evaluate` and `explain` price the looks of a table here; the gateway
prices those of a request here, from the same measurements: `collect` takes them, `fit` writes them into the
artifact, the gateway starts from them and goes on measuring.

A decision uses the expected cost (`look_fare`), a reservation the worst case (`Tariff.most`). All amounts are
in the currency of the prices, as floats; `store.money` rounds them up where they are charged.
"""

from pandora_router.prices.lengths import (
    BYTES_PER_TOKEN,
    CHARACTERS_PER_TOKEN,
    FASTEST,
    MEASURED,
    NEW,
    PREFIXES,
    USUAL_ANSWER,
    USUAL_SECONDS,
    WINDOW,
    Cancelling,
    Fare,
    Lengths,
    RecentMean,
    RecentMedian,
    answer_seconds,
    beginning_seconds,
    expect_waits,
    look_fare,
    prefix_of,
)
from pandora_router.prices.tariff import CACHEABLE, CACHED, FREE, MARKERS, Tariff, as_asked, expected_bill

__all__ = [
    "BYTES_PER_TOKEN",
    "CACHEABLE",
    "CACHED",
    "CHARACTERS_PER_TOKEN",
    "FASTEST",
    "FREE",
    "MARKERS",
    "MEASURED",
    "NEW",
    "PREFIXES",
    "USUAL_ANSWER",
    "USUAL_SECONDS",
    "WINDOW",
    "Cancelling",
    "Fare",
    "Lengths",
    "RecentMean",
    "RecentMedian",
    "Tariff",
    "answer_seconds",
    "as_asked",
    "beginning_seconds",
    "expect_waits",
    "expected_bill",
    "look_fare",
    "prefix_of",
]
