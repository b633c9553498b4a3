"""Types of values that the sections of a configuration share."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""A finite number, zero or more."""
Above = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A finite number above zero."""
Count = Annotated[int, Field(ge=1)]
"""A whole number, one or more."""
Natural = Annotated[int, Field(ge=0)]
"""A whole number, zero or more."""
Text = Annotated[str, Field(min_length=1)]
"""A text that is not empty."""


def _name(value: object) -> object:
    if isinstance(value, str) and (not value.isprintable() or not value.strip() or len(value) > 100):
        raise ValueError("a name of visible characters, 100 at most")
    return value


Name = Annotated[str, BeforeValidator(_name)]
"""The name of a specialist or an endpoint: visible characters only."""


def _function(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value):
        raise ValueError("a function as module:name")
    return value


FunctionName = Annotated[str, BeforeValidator(_function)]
"""A Python function, as module:name."""


def _refund(value: object) -> object:
    if isinstance(value, str):
        if value not in ("full", "none"):
            raise ValueError("full, none, or a share from 0 to 1")
        return 1.0 if value == "full" else 0.0
    return value


Refund = Annotated[float, Field(ge=0, le=1), BeforeValidator(_refund)]
"""Fraction of the price of a look that is refunded if the specialist is chosen: full, none or a number."""


class Closed(BaseModel):
    """Base of settings: unknown keys are errors, and text and numbers are not converted into each other."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


def usual_kind(kind: str) -> Any:
    """Validator for a union with the key `kind`: a mapping without that key gets this kind."""

    def add(value: Any) -> Any:
        return {"kind": kind, **value} if isinstance(value, dict) and "kind" not in value else value

    return BeforeValidator(add)


def shape(value: Any) -> str:
    """For a union of a mapping, a list and a plain value: which of them `value` is."""
    return "parts" if isinstance(value, dict | BaseModel) else "list" if isinstance(value, list) else "plain"
