"""Cheap estimates of prompts, and which prompts cannot be judged: each is declined alone, with its reason."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pandora_router.errors import UpstreamError, UsageError
from pandora_router.estimators.estimator import Predictor
from pandora_router.router.deciding import Cheap

LONGEST_PROMPT = 1_000_000
"""Characters; a longer prompt is declined, since nobody would wait for its estimates."""
GIVE_UP = 3  # prompts in a row whose cheap estimate fails when asked alone, before the others are not tried
FAILURES = (UpstreamError, TimeoutError, OSError)


def judged(cheap: Predictor, prompts: Sequence[str]) -> list[Cheap]:
    """The cheap estimates of each prompt, or why there are none.

    A prompt that is empty, too long or no valid text is declined and the others are not affected. If the
    estimator fails on all of them together (a remote embedder), they are tried one by one. Raises
    `UsageError` if a prompt is not a str.
    """
    begun = time.perf_counter()
    found = [Cheap(None, refusal(prompt)) for prompt in prompts]
    good = [i for i, one in enumerate(found) if one.because is None]
    for i, one in zip(good, _predicted(cheap, [prompts[i] for i in good]), strict=True):
        found[i] = one
    seconds = (time.perf_counter() - begun) / max(len(prompts), 1)
    return [replace(one, seconds=seconds) for one in found]


def refusal(prompt: str) -> str | None:
    """Why a prompt cannot be judged, whatever the estimator; None if it can."""
    if not isinstance(prompt, str):
        raise UsageError("a prompt", expected="a text", came=type(prompt).__name__, do="Pass a str.")
    if len(prompt) > LONGEST_PROMPT:
        return f"the prompt has {len(prompt):,} characters, more than {LONGEST_PROMPT:,}"
    if not prompt.strip():
        return "the prompt is empty"
    if not prompt.isascii():
        try:
            prompt.encode("utf-8")
        except UnicodeEncodeError as error:
            return f"the prompt is not valid text: half of a surrogate pair at character {error.start}"
    return None


def _predicted(cheap: Predictor, prompts: list[str]) -> list[Cheap]:
    if not prompts:
        return []
    try:
        return [_finite(row) for row in cheap.predict(prompts)]
    except FAILURES as error:
        if len(prompts) == 1:
            return [Cheap(None, f"the cheap estimate could not be had: {error}")]
    found: list[Cheap] = []
    failed = 0
    for prompt in prompts:
        one = _predicted(cheap, [prompt])[0] if failed < GIVE_UP else found[-1]
        failed = failed + 1 if one.row is None else 0
        found.append(one)
    return found


def _finite(row: np.ndarray) -> Cheap:
    return Cheap(row) if np.isfinite(row).all() else Cheap(None, "the cheap estimate is not a finite number")
