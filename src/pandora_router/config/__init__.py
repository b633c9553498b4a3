"""One YAML file -> settings -> objects: the only place where a string becomes an object.

A key that does not exist is an error that names the nearest one, with file and line; so is a key said twice.
"""

from __future__ import annotations

from pathlib import Path

from pandora_router.config.document import read_document
from pandora_router.config.mistakes import validated
from pandora_router.config.settings import Config, JudgeSettings, RemoteSettings
from pandora_router.router import Router
from pandora_router.router.artifact import settings_of

__all__ = ["Config", "open_router", "read_config"]


def read_config(path: Path) -> Config:
    """Read a config file; every mistake in it is named with its line."""
    return validated(Config, read_document(path))


def open_router(path: Path) -> Router:
    """Load an artifact, building again what is not kept in it: a judge, a remote embedder."""
    told = settings_of(path).get("config")
    if told is None:
        return Router.load(path)
    config = Config.model_validate(told)
    remote = config.cheap.embedder
    return Router.load(
        path,
        costly=config.costly.scorer() if isinstance(config.costly, JudgeSettings) else None,
        embedder=remote.build() if isinstance(remote, RemoteSettings) else None,
    )
