"""A router on disk: a manifest and beside it estimators, signal model and arrays; no pickle.

    manifest.json     format, version, id, specialists, policy, data fingerprint, package versions, settings,
                      evidence, report, the hash of every file, and a seal over all of that
    cheap/ costly/    the estimators, each with its own manifest (no costly/ if g was handed over ready made)
    signal.json       the signal model; its arrays, the costs and the fees are in arrays.npz

Written under a temporary name and renamed. A file that is missing, changed or truncated, a manifest that was
edited, a newer version and parts that speak of other specialists are refused.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pandora_router import folders
from pandora_router.boxes import Costs
from pandora_router.calibrate.persistence import pack, unpack
from pandora_router.errors import UsageError
from pandora_router.estimators.embedders import Embedder
from pandora_router.estimators.estimator import Estimator, Predictor
from pandora_router.estimators.opened import load_estimator
from pandora_router.estimators.persistence import write as write_estimator
from pandora_router.search import (
    Always,
    Committing,
    KnowledgeGradient,
    Never,
    Obligatory,
    Policy,
    Relative,
    Rollout,
)

if TYPE_CHECKING:
    from pandora_router.router.router import Router

KIND = folders.Kind(
    format="pandora-router artifact",
    version=2,
    noun="a fitted router",
    make="Fit one: pandora fit pandora.yaml -o router",
    mend="restore it or fit the router anew.",
)
SIGNAL, ARRAYS = "signal.json", "arrays.npz"
POLICIES = {
    kind.__name__: kind
    for kind in (KnowledgeGradient, Rollout, Relative, Committing, Obligatory, Never, Always)
}
OURS = ("id", "specialists", "default", "policy", "fee_weight", "timeout", "ready", "record")


def save(router: Router, path: Path, *, replace: bool = False) -> None:
    """Write the artifact; an existing one is only replaced on request, and only by a whole one."""
    if type(router.policy) not in POLICIES.values():
        raise UsageError(
            "the policy to keep",
            expected=f"one of {', '.join(POLICIES)}",
            came=repr(router.policy),
            do="A policy of your own has no form on disk: save with `with_policy` and set it after loading.",
        )
    folders.write(path, KIND, lambda folder: _fill(router, folder), replace=replace)


def _fill(router: Router, folder: Path) -> dict[str, Any]:
    write_estimator(folder / "cheap", router.cheap.state())
    ready = isinstance(router.costly, Estimator)
    if not isinstance(router.costly, Estimator):
        write_estimator(folder / "costly", router.costly.state())
    facts, arrays = pack(router.signal)
    (folder / SIGNAL).write_text(json.dumps(facts, allow_nan=False) + "\n", encoding="utf-8")
    costs = {"own": router.costs.own, "shared": router.costs.shared, "group": router.costs.group}
    named: dict[str, Any] = {f"signal.{name}": array for name, array in arrays.items()}
    named |= {f"costs.{name}": array for name, array in costs.items()}
    np.savez(folder / ARRAYS, allow_pickle=False, fees=router.fees, **named)
    told = {
        "id": router.id,
        "specialists": list(router.specialists),
        "default": router.default,
        "policy": {"kind": type(router.policy).__name__, "settings": asdict(router.policy)},  # type: ignore[call-overload]
        "fee_weight": router.fee_weight,
        "timeout": router.timeout,
        "ready": ready,
        "record": _plain(router.record),
    }
    hashes = {f.relative_to(folder).as_posix(): folders.sha256(f) for f in folder.rglob("*") if f.is_file()}
    return {**told, "seal": _seal(told, hashes)}


def load(path: Path, *, costly: Estimator | None = None, embedder: Embedder | None = None) -> Router:
    """Read an artifact back."""
    from pandora_router.router.router import Router

    manifest = folders.read(path, KIND, frozenset({SIGNAL, ARRAYS, "cheap/manifest.json"}))
    hashes = {name: entry["sha256"] for name, entry in manifest["files"].items()}
    told: dict[str, Any] = {name: manifest.get(name) for name in OURS}
    if manifest.get("seal") != _seal(told, hashes):
        raise KIND.refusal(path / folders.MANIFEST, "the manifest as it was written", "an edited one")
    try:
        facts = json.loads((path / SIGNAL).read_text(encoding="utf-8"))
        with np.load(path / ARRAYS, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        parts = {n.removeprefix("signal."): a for n, a in arrays.items() if n.startswith("signal.")}
        router = Router(
            specialists=tuple(told["specialists"] or ()),
            cheap=load_estimator(path / "cheap", embedder=embedder),
            costly=_costly(path, told, costly, embedder),
            signal=unpack(facts, parts),
            policy=_policy(told["policy"]),
            costs=Costs(arrays["costs.own"], arrays["costs.shared"], arrays["costs.group"]),
            default=str(told["default"]),
            fees=arrays["fees"],
            fee_weight=float(told["fee_weight"]),
            id=str(told["id"]),
            record=dict(told["record"]),
            timeout=told["timeout"],
        )
    except (KeyError, TypeError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        if isinstance(error, UsageError):
            raise
        raise KIND.refusal(path, "the parts of a router", f"{type(error).__name__}: {error}") from error
    _agree(path, router, int(facts["specialists"]))
    return router


def settings_of(path: Path) -> dict[str, Any]:
    """The settings an artifact was fitted with; its files are not read."""
    settings: dict[str, Any] = folders.manifest(path, KIND).get("record", {}).get("settings", {})
    return settings


def _costly(
    path: Path, told: Mapping[str, Any], costly: Estimator | None, embedder: Embedder | None
) -> Predictor | Estimator:
    if not told["ready"]:
        return load_estimator(path / "costly", embedder=embedder)
    if costly is None:
        raise UsageError(
            str(path),
            expected="the costly estimator it was fitted with, which is not kept on disk",
            came="none",
            do="Pass it again: Router.load(path, costly=...).",
        )
    return costly


def _policy(told: Mapping[str, Any]) -> Policy:
    if told["kind"] not in POLICIES:
        raise KeyError(f"no policy is called {told['kind']!r}")
    policy: Policy = POLICIES[told["kind"]](**told["settings"])
    return policy


def _agree(path: Path, router: Router, boxes: int) -> None:
    """Refuse parts that speak of other specialists than the manifest."""
    named = {"the cheap estimate": router.cheap.specialists}
    if not isinstance(router.costly, Estimator):
        named["the costly estimate"] = router.costly.specialists
    for what, names in named.items():
        if tuple(names) != router.specialists:
            odd = sorted(set(names) ^ set(router.specialists)) or ["another order"]
            raise KIND.refusal(
                path, f"{what} of {', '.join(router.specialists)}", f"a difference in {odd[0]}"
            )
    counts = {len(router.costs), len(router.fees), boxes, len(router.specialists)}
    if len(counts) != 1:
        raise KIND.refusal(path, f"{len(router.specialists)} specialists in every part", f"{sorted(counts)}")


def _seal(told: Mapping[str, Any], hashes: Mapping[str, str]) -> str:
    """A hash over what the manifest says and the hashes of all files."""
    text = json.dumps([told, dict(sorted(hashes.items()))], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """The same in JSON's own types; None for numbers JSON cannot hold."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(value) if np.isfinite(value) else None
    return value
