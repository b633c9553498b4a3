"""A fitted router on disk (an artifact): a folder of plain files with one manifest; no pickle.

    manifest.json               id, specialists, default, policy, and the record of the fit (settings,
                                evidence, report, data fingerprint); size and hash of every file
    data-*/state.json           estimators, signal model and costs as a tree of plain values
    data-*/arrays.safetensors   their arrays

Files are read once: the bytes that were verified are the bytes that are parsed. If there is a key in the
environment (`PANDORA_ARTIFACT_KEY`, or the path of a file in `PANDORA_ARTIFACT_KEY_FILE`), artifacts are
signed when written, and refused on reading unless they are signed with that key.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pandora_router import folders
from pandora_router.boxes import Costs
from pandora_router.calibrate.signal_states import signal_of
from pandora_router.calibrate.signal_states import state as signal_state
from pandora_router.errors import UsageError
from pandora_router.estimators.embedders.embedder import Embedder
from pandora_router.estimators.estimator import Estimator, Predictor, fitted
from pandora_router.estimators.states import Saved, estimator_of, once
from pandora_router.folders.saved import NEEDS, fill, saved_from
from pandora_router.search import (
    Always,
    Committing,
    KnowledgeGradient,
    Never,
    Obligatory,
    Policy,
    Rollout,
)
from pandora_router.text import json_values

if TYPE_CHECKING:
    from pandora_router.router.router import Router

KIND = folders.Kind(
    format="pandora-router artifact",
    version=5,
    noun="a fitted router",
    make="Fit one: pandora fit pandora.yaml -o router",
    mend="restore it or fit the router anew.",
)
POLICIES = {
    kind.__name__: kind for kind in (KnowledgeGradient, Rollout, Committing, Obligatory, Never, Always)
}
KEY, KEY_FILE = "PANDORA_ARTIFACT_KEY", "PANDORA_ARTIFACT_KEY_FILE"
SHORTEST_KEY = 16  # bytes
LARGEST = 8 * 2**30  # bytes of one file


@dataclass(frozen=True)
class FitRecord:
    """Facts about a fit, as the manifest of its artifact holds them.

    fingerprint: of the routing table. prompts: how many of each part. versions: of libraries. settings: how
    the router was fitted; `config` in them is the configuration file. evidence: why this policy was chosen.
    lengths: mean tokens and seconds of each specialist in training. report: what was measured on prompts that
    nothing was fitted on. added: a note for each specialist that was added later. goal: what was
    reached of the goal that it was fitted for. learnt: which requests it learnt from, and its parent.
    """

    fingerprint: str = ""
    prompts: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    lengths: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    fit_cpu_seconds: float = 0.0
    added: tuple[Mapping[str, Any], ...] = ()
    goal: Mapping[str, Any] = field(default_factory=dict)
    learnt: Mapping[str, Any] = field(default_factory=dict)

    @property
    def currency(self) -> str:
        """The sign of the currency of the configuration file, "$" if the router was fitted without one."""
        return str(self.settings.get("config", {}).get("value", {}).get("currency", "$"))

    @property
    def standing(self) -> Mapping[str, Any]:
        """What is known of each specialist without a search, such as the best `single` one."""
        standing: Mapping[str, Any] = self.report.get("standing", {})
        return standing

    @property
    def peek(self) -> int | None:
        """How many characters of a beginning a look shows; None if that was not stated."""
        peek: int | None = self.settings.get("inspection", {}).get("peek")
        return peek

    def to_dict(self) -> dict[str, Any]:
        """The facts for JSON, without those that most fits do not have (`added`, `goal`, `learnt`)."""
        seldom = ("added", "goal", "learnt")
        return {name: value for name, value in vars(self).items() if value or name not in seldom}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> FitRecord:
        """What `to_dict` gave; raises `TypeError` for facts of other names."""
        return cls(**{**facts, "added": tuple(facts.get("added", ()))})


def save(router: Router, path: Path, *, replace: bool = False, inputs: Iterable[Path] = ()) -> None:
    """Write the router to the folder `path`, atomically, signed if a key is set.

    Raises `UsageError` if `path` exists, unless it is an artifact and `replace` is true; if `path` is,
    contains or lies within one of the `inputs`; and for a policy that cannot be saved.
    """
    if type(router.policy) not in POLICIES.values():
        raise UsageError(
            "the policy to keep",
            expected=f"one of {', '.join(POLICIES)}",
            came=repr(router.policy),
            do="Policies of your own cannot be saved: pass yours to `with_policy` after loading.",
        )

    def files(folder: Path) -> dict[str, Any]:
        fill(folder, _state(router))
        return {
            "id": router.id,
            "specialists": list(router.specialists),
            "default": router.default,
            "policy": {"kind": type(router.policy).__name__, "settings": asdict(router.policy)},  # type: ignore[call-overload]
            "fee_weight": router.fee_weight,
            "timeout": router.timeout,
            "ready": fitted(router.costly) is None,
            "record": json_values(router.record.to_dict()),
        }

    folders.write(path, KIND, files, replace=replace, inputs=inputs, key=signing_key())


def load(path: Path, *, costly: Estimator | None = None, embedder: Embedder | None = None) -> Router:
    """Read an artifact.

    `costly` and `embedder` must be passed again if the router was fitted with ones that cannot be saved.
    Raises `UsageError` if the folder is not an artifact, of another version, damaged, edited, inconsistent
    or, with a key set, not signed with it.
    """
    from pandora_router.router.router import Router

    stored = folders.read(path, KIND, NEEDS, weigh=_weigh, key=signing_key())
    facts, saved = stored.manifest, saved_from(stored, KIND)
    try:
        specialists = tuple(str(name) for name in facts["specialists"])
        router = Router(
            specialists=specialists,
            cheap=estimator_of(saved.parts["cheap"], embedder=embedder),
            costly=_costly(path, facts, saved, costly, embedder),
            signal=signal_of(saved.parts["signal"]),
            policy=_policy(facts["policy"]),
            costs=Costs(**saved.parts["costs"].arrays),
            default=str(facts["default"]),
            fees=saved.array("fees", len(specialists)),
            fee_weight=float(facts["fee_weight"]),
            id=str(facts["id"]),
            record=FitRecord.from_dict(facts["record"]),
            timeout=facts["timeout"],
        )
        _agree(path, router, int(saved.parts["signal"].settings["specialists"]))
    except UsageError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        came = f"{type(error).__name__}: {error}"
        raise KIND.refusal(path, "parts that fit together", came) from error
    return router


def settings_of(path: Path) -> dict[str, Any]:
    """The settings with which an artifact was fitted; reads only its manifest."""
    settings: dict[str, Any] = folders.manifest(path, KIND, key=signing_key())["record"].get("settings", {})
    return settings


def signing_key() -> bytes | None:
    """The key that signs artifacts, from the environment or the file named there; None if none is set.

    Raises `UsageError` if the file cannot be read or the key is shorter than `SHORTEST_KEY` bytes. The key is
    never printed.
    """
    name = KEY_FILE if os.environ.get(KEY_FILE) else KEY
    given = os.environ.get(name)
    if not given:
        return None
    try:
        key = Path(given).read_bytes().strip() if name == KEY_FILE else given.encode()
    except OSError as error:
        do = "Name a file that holds the key."
        raise UsageError(name, expected="a file", came=error.strerror or "none", do=do) from error
    if len(key) < SHORTEST_KEY:
        raise UsageError(
            name,
            expected=f"a key of at least {SHORTEST_KEY} bytes",
            came=f"{len(key)} bytes",
            do="Make one: python -c 'import secrets; print(secrets.token_hex(32))'",
        )
    return key


def _weigh(file: Path, size: int) -> None:
    if size > LARGEST:
        raise KIND.refusal(file, f"at most {LARGEST:,} bytes", f"{size:,}")


def _state(router: Router) -> Saved:
    parts = {"cheap": router.cheap.state(), "signal": signal_state(router.signal)}
    costly = fitted(router.costly)
    if costly is not None:
        embedder = parts["cheap"].parts.get("embedder")
        name = frozenset[str]() if embedder is None else frozenset([str(embedder.settings["name"])])
        parts["costly"] = once(costly.state(), name)
    parts["costs"] = Saved("costs", arrays=asdict(router.costs))
    return Saved("router", arrays={"fees": router.fees}, parts=parts)


def _costly(
    path: Path, facts: Mapping[str, Any], saved: Saved, costly: Estimator | None, embedder: Embedder | None
) -> Predictor | Estimator:
    if not facts["ready"]:
        return estimator_of(saved.parts["costly"], embedder=embedder)
    if costly is None:
        raise UsageError(
            str(path),
            expected="the costly estimator it was fitted with, which is not kept on disk",
            came="none",
            do="Pass it again: Router.load(path, costly=...).",
        )
    return costly


def _policy(facts: Mapping[str, Any]) -> Policy:
    if facts["kind"] not in POLICIES:
        raise KeyError(f"no policy is called {facts['kind']!r}")
    policy: Policy = POLICIES[facts["kind"]](**facts["settings"])
    return policy


def _agree(path: Path, router: Router, boxes: int) -> None:
    """Raise `UsageError` if parts have other specialists than the manifest."""
    named = {"the cheap estimate": router.cheap.specialists}
    costly = fitted(router.costly)
    if costly is not None:
        named["the costly estimate"] = costly.specialists
    for what, names in named.items():
        if tuple(names) != router.specialists:
            odd = sorted(set(names) ^ set(router.specialists)) or ["another order"]
            raise KIND.refusal(
                path, f"{what} of {', '.join(router.specialists)}", f"a difference in {odd[0]}"
            )
    counts = {len(router.costs), len(router.fees), boxes, len(router.specialists)}
    if len(counts) != 1:
        raise KIND.refusal(path, f"{len(router.specialists)} specialists in every part", f"{sorted(counts)}")
