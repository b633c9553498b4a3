"""One importer per public format.

Each returns a `Table` or raises a `UsageError` with file, row and column.
"""

from pandora_router.data.importers.embedllm import read_embedllm
from pandora_router.data.importers.folder import read_folder
from pandora_router.data.importers.formats import Dialect
from pandora_router.data.importers.long import LongColumns, read_long
from pandora_router.data.importers.routellm import read_routellm
from pandora_router.data.importers.routerbench import read_routerbench
from pandora_router.data.importers.wide import WideColumns, read_wide

__all__ = [
    "Dialect",
    "LongColumns",
    "WideColumns",
    "read_embedllm",
    "read_folder",
    "read_long",
    "read_routellm",
    "read_routerbench",
    "read_wide",
]
