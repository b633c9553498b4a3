"""Build specialists from their settings, each once."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pandora_router.errors import UsageError
from pandora_router.specialists.specialist import Specialist
from pandora_router.transport.endpoint import Endpoint
from pandora_router.transport.rate_limit import RateLimit

if TYPE_CHECKING:
    from pandora_router.config.file import Config


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
