"""Limits on the size of files from outside."""

from __future__ import annotations

from dataclasses import dataclass

from pandora_router.errors import UsageError


@dataclass(frozen=True)
class Limits:
    """Limits on data from outside; pass larger numbers to allow more."""

    file_bytes: int = 4 * 2**30
    """Size of one file, and its decompressed size."""
    cells: int = 50_000_000
    """Prompts x specialists."""
    text_characters: int = 1_000_000
    """Length of one prompt or context."""

    def hold(self, what: str, bound: str, came: int) -> None:
        """Raise `UsageError` if the count `came` exceeds the named limit."""
        most: int = getattr(self, bound)
        if came > most:
            unit = bound.rsplit("_", 1)[-1]
            raise UsageError(
                what,
                expected=f"at most {most:,} {unit}",
                came=f"{came:,}",
                do=f"To allow it: Limits({bound}={came}) or --max-{bound.replace('_', '-')} {came}.",
            )
