"""Configuration: one strict YAML file is read into settings, and settings are turned into objects.

    document         the YAML reader: strict, with limits; errors in plain words, with line and nearest name
    file             Config: all of pandora.yaml
    specialists      endpoints and specialists
    price_parts      the prices of a specialist
    shorthand        one entry for several efforts of a model; prices from the catalogue
    callables        keys of every specialist; specialists that are a function or a tool
    shared           what sections share: types of values, and the builder of specialists
    collect_section  prompts, grading, collect; what collecting will still cost
    fit_section      estimates, signal model, policy
    inspection       the price of a look
    services         the gateway, the market over a network and its bidders
    worth            what a right answer is worth by the file, and routers at that worth
    gateway          builds the gateway: backends, settings and the fitted router
    market_objects   builds a platform, and one bidder
    experiments      files of experiments

`read_config`, `open_router` and `served_router` load the modules that they need when they are called.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pandora_router.errors import UsageError

if TYPE_CHECKING:
    from pandora_router.config.file import Config
    from pandora_router.router import Router

__all__ = ["CONFIG", "open_router", "read_config", "served_router"]

CONFIG = "pandora.yaml"
"""The usual name of the file."""
logger = logging.getLogger(__name__)


def read_config(path: Path) -> Config:
    """Read `pandora.yaml`; raises `UsageError` for the first mistake, with its line and how to correct it."""
    from pandora_router.config.document import read_document, validated
    from pandora_router.config.file import Config
    from pandora_router.config.shorthand import expanded

    if not path.is_file():
        came = "a folder" if path.is_dir() else "no regular file" if path.exists() else "no such path"
        raise UsageError(str(path), expected="a config file", came=came, do="Write one: pandora init")
    document = read_document(path)
    config = validated(Config, expanded(document))
    config.check()
    return config


def open_router(path: Path, config: Config | None = None) -> Router:
    """Load the artifact in the folder `path`; a judge and a remote embedder are built from its settings.

    With `config`, these are built from that file instead, and an artifact that was fitted for other
    specialists is refused (`UsageError`). The settings of the whole file take half a second to import; an
    artifact that computes all its estimates itself is loaded without them.
    """
    from pandora_router.router import Router
    from pandora_router.router.artifact import settings_of

    settings = settings_of(path)
    if config is not None:
        router = _with_outside(path, config)
        if config.specialists:
            config.check_artifact(router.specialists, settings)
        return router
    match settings.get("config"):
        case {"fit": {"costly": {"kind": "judge"}}} | {"fit": {"cheap": {"embedder": {"kind": "remote"}}}}:
            return _with_outside(path, _kept(path, settings["config"]))
    return Router.load(path)


def served_router(path: Path) -> Router:
    """The router in the folder `path` as `pandora serve` decides by it, for the commands that read no file.

    If the file pandora.yaml beside that folder names it as `serve.router`, a right answer is worth what the
    file says now (`config.worth.stated_worth`), whatever it was worth in the fit. Raises `UsageError` if that
    file is wrong, or has a goal that the router cannot be priced for.
    """
    router, file = open_router(path), path.resolve().parent / CONFIG
    if not file.is_file():
        return router
    from pandora_router.config.worth import revalued, stated_worth

    config = read_config(file)
    named = config.serve.router
    if named is None or (file.parent / named).resolve() != path.resolve():
        return router
    if config.goal is not None and config.goal.budget is not None:
        logger.warning(
            "goal: a running gateway follows the budget (pandora log status); without it, a right answer is "
            "worth what it was in the fit"
        )
    return revalued(router, stated_worth(config, router))


def _with_outside(path: Path, config: Config) -> Router:
    """Load an artifact; its judge or remote embedder, if it has one, is the one that `config` describes."""
    from pandora_router.config.fit_section import JudgeSettings, RemoteSettings
    from pandora_router.router import Router

    remote, judge = config.fit.cheap.embedder, config.fit.costly
    return Router.load(
        path,
        costly=judge.estimator(config) if isinstance(judge, JudgeSettings) else None,
        embedder=remote.build(config) if isinstance(remote, RemoteSettings) else None,
    )


def _kept(path: Path, content: object) -> Config:
    """Return the configuration that is kept in an artifact; `UsageError` if this version cannot read it."""
    from pydantic import ValidationError

    from pandora_router.config.file import Config

    try:
        return Config.model_validate(content)
    except ValidationError as error:
        raise UsageError(
            str(path),
            expected="a router fitted by this version",
            came="settings of an earlier one",
            do="Fit it again: pandora fit pandora.yaml -o router --replace",
        ) from error
