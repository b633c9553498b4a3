"""The measured part of docs/market-network.md, from results/bidding.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write(report: dict[str, list[dict[str, Any]]], page: Path) -> None:
    """Replace what stands between the two marks of the page."""
