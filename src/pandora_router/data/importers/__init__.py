"""Readers of files with scores.

    formats    bytes to columns: CSV, JSON lines, Parquet
    sheet      the columns of one file, and complaints that name row and column
    grid       scores of prompts and specialists to a Table
    layouts    a row per answer (long), or a row per prompt (wide)
    folder     a folder of files with `prompts` and `scores`
    published  RouteLLM, RouterBench, EmbedLLM

Each returns a `Table` or raises a `UsageError` with file, row and column.
"""

from pandora_router.data.importers.folder import read_folder
from pandora_router.data.importers.formats import Dialect
from pandora_router.data.importers.layouts import LongColumns, WideColumns, read_long, read_wide
from pandora_router.data.importers.published import read_embedllm, read_routellm, read_routerbench

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
