"""The routing table (prompts x specialists: score, fee, context, task, split) and how to get one.

    table       Table: the rows, checked when made
    fees        what an answer costs: a column, a number per specialist, tokens, parameters
    splits      train, calibration and test: drawn, kept or drawn anew
    joins       tables beside, below and into each other
    storage     tables in folders; `Limits` on what comes from outside
    check       what `pandora data check` finds in a table
    importers/  readers of files

Only the importers read files that somebody else wrote.
"""

from pandora_router.data.fees import FirstOf, Free, FromColumn, PerParameter, PerSpecialist, PerToken
from pandora_router.data.joins import beside, merge, stack
from pandora_router.data.splits import Fractions, carve, resplit
from pandora_router.data.storage import Limits, load, save
from pandora_router.data.table import Table

__all__ = [
    "FirstOf",
    "Fractions",
    "Free",
    "FromColumn",
    "Limits",
    "PerParameter",
    "PerSpecialist",
    "PerToken",
    "Table",
    "beside",
    "carve",
    "load",
    "merge",
    "resplit",
    "save",
    "stack",
]
