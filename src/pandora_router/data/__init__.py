"""The routing table (prompts x specialists: score, fee, context, task, split) and how to get one."""

from pandora_router.data.fees import FirstOf, Free, FromColumn, PerParameter, PerSpecialist, PerToken
from pandora_router.data.joins import beside, merge, stack
from pandora_router.data.limits import Limits
from pandora_router.data.splits import Fractions, carve, resplit
from pandora_router.data.storage import load, save
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
