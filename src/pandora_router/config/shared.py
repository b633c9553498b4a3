"""Types of values and the builder of specialists, which the sections of a configuration share.

Types of values that the sections of a configuration share.

Build specialists from their settings, each once.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from pandora_router.errors import UsageError
from pandora_router.specialists.specialist import Specialist
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.failures import RateLimit

if TYPE_CHECKING:
    from pandora_router.config.file import Config


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


def _share(value: float) -> float:
    if value > MOST_SHARE:
        raise ValueError("a share like 0.95, not a percentage")
    return value


MOST_SHARE = 2.0
"""Most of a specialist's score that can be asked for: above it a percentage is meant, as in 95."""
Share = Annotated[Above, AfterValidator(_share)]
"""A share of a score, above zero; 1.05 asks for a little more than all of it."""


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


@dataclass(frozen=True)
class Imported:
    """A function of the user, named module:name, which is imported on first use."""

    name: str

    def resolve(self) -> Callable[..., Any]:
        """Import the module and return the function; raises `UsageError` if it does not exist."""
        module, _, name = self.name.partition(":")
        try:
            imported = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"the function {self.name}",
                expected="a function in a module that Python can import",
                came=str(error),
                do="Check the name, or set PYTHONPATH to the folder of the module.",
            ) from error
        if not callable(imported):
            came = type(imported).__name__
            raise UsageError(f"the function {self.name}", expected="a function", came=came, do="Name one.")
        function: Callable[..., Any] = imported
        return function

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self.resolve()(*arguments)


@dataclass
class Builder:
    """Builds the specialists of `config`; paths are relative to `folder`.

    With `dry_run` nothing is imported and no key is needed: the specialists can only be asked what they cost.
    """

    config: Config
    folder: Path
    dry_run: bool = False
    built: dict[str, Specialist] = field(default_factory=dict)
    endpoints: dict[str, tuple[Endpoint, RateLimit]] = field(default_factory=dict)

    def specialist(self, name: str) -> Specialist:
        """The specialist called `name`."""
        if name not in self.built:
            self.built[name] = self.config.specialists[name].build(name, self)
        return self.built[name]

    def imported(self, name: str) -> Callable[..., Any]:
        """The function called module:name; not imported in a dry run."""
        return Imported(name) if self.dry_run else Imported(name).resolve()

    def endpoint(self, name: str) -> tuple[Endpoint, RateLimit]:
        """The endpoint called `name` and its rate limiter, shared by all specialists behind it."""
        if name not in self.endpoints:
            settings = self.config.endpoints[name]
            if settings.key_from is not None and not os.environ.get(settings.key_from) and not self.dry_run:
                raise UsageError(
                    f"endpoints.{name}.key_from",
                    expected="the name of an environment variable that holds the key",
                    came="an environment without it (or a key in place of its name)",
                    do="Export it, or leave key_from out if no key is needed.",
                )
            endpoint = Endpoint(
                settings.base_url, settings.key_from, settings.timeout, settings.retries, settings.pause
            )
            self.endpoints[name] = endpoint, RateLimit(settings.at_once, settings.per_minute)
        return self.endpoints[name]
