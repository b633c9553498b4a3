"""The router that is served and the candidate that is tried, as the store of a gateway says.

What was promoted or put on trial is read from its folder. A folder that is gone or holds another router is
reported, and harms nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pandora_router.errors import PandoraError
from pandora_router.estimators.neighbours import Neighbours
from pandora_router.estimators.pooled import Blended
from pandora_router.gateway.generation import Challenger
from pandora_router.router import Router
from pandora_router.store.versions import Lineup

logger = logging.getLogger("pandora_router.gateway")


def lined_up(
    router: Router, lineup: Lineup, read: Callable[[Path], Router]
) -> tuple[Router, Challenger | None]:
    """The router that the store has in place of `router`, and the candidate on trial, as `read` reads them.

    A promoted router is served as long as `router` is the one that it was promoted over. One that cannot be
    read is reported, and `router` is served.
    """
    served, candidate = router, None
    version, trial = lineup.version, lineup.trial
    if version is not None and version.basis == router.id and version.artifact != router.id:
        served = _artifact(version.path, version.artifact, read) or router
    elif version is not None and version.basis != router.id:
        logger.warning("serve.router names another router than before: the promoted one is not used")
    if trial is not None and (trial.basis, trial.against) == (router.id, served.id):
        other = _artifact(trial.path, trial.artifact, read)
        if other is not None and set(other.specialists) == set(served.specialists):
            candidate = Challenger(trial.id, sharing(other, served), trial.share)
        elif other is not None:
            logger.error("the candidate %s is not tried: it has other specialists", trial.path)
    return served, candidate


def sharing(candidate: Router, served: Router) -> Router:
    """The candidate, with what it has in common with the serving router held once and computed once."""
    cheap, other = candidate.cheap, served.cheap
    if isinstance(cheap, Blended) and isinstance(other, Blended | Neighbours):
        return replace(candidate, cheap=cheap.sharing(other))
    return candidate


def _artifact(path: str, artifact: str, read: Callable[[Path], Router]) -> Router | None:
    """The router in the folder `path`; None, with a message, if it cannot be read or is another one."""
    try:
        router = read(Path(path))
    except PandoraError as error:
        logger.error("the router %s is not used: %s", path, error)
        return None
    if router.id != artifact:
        logger.error("the router %s is not used: it was replaced by another", path)
        return None
    return router
