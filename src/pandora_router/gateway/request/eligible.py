"""The JSON object in the body of a request; which specialists may answer it, and why the others may not.

Candidates are filtered before the decision, so that no request goes to a specialist that cannot serve it.
Each exclusion has a reason, which is recorded with the decision.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from pandora_router.errors import UsageError
from pandora_router.gateway.generation import Profile
from pandora_router.gateway.providers.backend import Backend, Circuit
from pandora_router.gateway.providers.cost_bound import refuse_other_models, refuse_other_spellings
from pandora_router.prices import BYTES_PER_TOKEN
from pandora_router.store.money import dollars, in_dollars, nanodollars
from pandora_router.text import money
from pandora_router.transport.asgi import Refused
from pandora_router.wires.events import parsed as parsed_object
from pandora_router.wires.json_text import mapping, unambiguous
from pandora_router.wires.wire import Turn

COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""How a body begins that gzip or zstd made."""
OURS = "x-pandora-"
SAID = ("allow", "deny", "kind", "max-fee", "router", "session")
"""Names that a request may use after the prefix `OURS`."""
MEDIUM = 2**14
"""Bytes counted for an image, a sound or a file. Providers make about a thousand tokens of an image; the most
that is known are 48,169 (gpt-4o-mini, in full detail), which the reservation of a request covers, because it
is for three calls. The seconds of a sound come on top (`Demand.sounds`), and the window for a file."""
INSTRUCTED = 2**10
"""Bytes counted for what providers add to a request with tools: instructions of some hundred tokens."""


@dataclass(frozen=True)
class Constraints:
    """Limits in one request: allowed specialists, denied specialists, highest fee in dollars."""

    allow: frozenset[str] | None = None
    deny: frozenset[str] = frozenset()
    max_fee: float | None = None

    @classmethod
    def read(cls, headers: Mapping[str, str], turn: Turn, known: Sequence[str]) -> Constraints:
        """Read them from the headers x-pandora-allow, -deny and -max-fee, else from `metadata`.

        Raises `UsageError` for an unknown specialist, for a fee that is not a number, and for an unknown
        header or member x-pandora-*, so that misspelt names are not ignored.
        """
        ours = [name for name in (*headers, *turn.metadata) if name.startswith(OURS)]
        if not ours:
            return cls()
        for name in ours:
            if name.removeprefix(OURS) not in SAID:
                raise UsageError(
                    name[:80],
                    expected=f"{OURS} followed by one of {', '.join(SAID)}",
                    came="an unknown name",
                    do="Check the spelling.",
                )
        allow, deny, fee = (_said(headers, turn, name) for name in ("allow", "deny", "max-fee"))
        for name in {*_names(allow), *_names(deny)} - set(known):
            raise UsageError(
                "x-pandora-allow or x-pandora-deny",
                expected=f"names among {', '.join(known)}",
                came=repr(name[:80]),
                do="See GET /v1/models.",
            )
        try:
            most = None if fee is None else dollars(nanodollars(float(fee)))
        except ValueError:
            raise UsageError(
                "x-pandora-max-fee", expected="dollars, zero or more", came=repr(fee), do="Say 0.01."
            ) from None
        return cls(None if allow is None else frozenset(_names(allow)), frozenset(_names(deny)), most)


def _said(headers: Mapping[str, str], turn: Turn, name: str) -> str | None:
    value = headers.get(f"{OURS}{name}", turn.metadata.get(f"{OURS}{name}"))
    if value is not None and not isinstance(value, str):
        raise UsageError(
            f"metadata: {OURS}{name}", expected="a text", came=type(value).__name__, do='Write it in "".'
        )
    return value


def _names(listed: str | None) -> list[str]:
    return [name.strip() for name in (listed or "").split(",") if name.strip()]


def exclusions(
    backends: Sequence[Backend],
    unreached: Callable[[Backend], str | None],
    turn: Turn,
    size: int,
    constraints: Constraints,
    circuits: Mapping[str, Circuit],
    now: float,
    profile: Profile | None = None,
    *,
    worst: Callable[[str], int],
    unpriced: Callable[[Backend], str | None],
    budget: bool = False,
) -> dict[str, str]:
    """Why each excluded specialist may not answer, by name; `size` is the length of the request in bytes.

    What a provider refused lately excludes it only if that leaves another one.

    `unreached` says why a specialist cannot be asked on any wire that it serves; None if it can. `worst` is
    the most that a call costs; `unpriced` says why that is not known, and is asked where money is limited:
    by a `budget`, or by a highest fee.
    """
    allowed = None if profile is None else profile.max_fee
    limited = budget or constraints.max_fee is not None or allowed is not None
    reasons: dict[str, str] = {}
    for backend in backends:
        reason = _reason(backend, unreached, turn, size, constraints, circuits[backend.name], now)
        reason = reason or (None if profile is None else _kept_out(backend, profile))
        if limited and reason is None:
            reason = unpriced(backend) or _too_dear(backend.name, worst, constraints.max_fee, allowed)
        if reason is not None:
            reasons[backend.name] = reason
    refused = {
        one.name: f"its provider refused this lately: {', '.join(sorted(lacks))} (pandora.yaml says "
        "otherwise with `supports`)"
        for one in backends
        if one.name not in reasons and one.learns and (lacks := turn.needs & circuits[one.name].lacking(now))
    }
    return reasons | (refused if len(reasons) + len(refused) < len(backends) else {})


def size_of(body: bytes, turn: Turn) -> int:
    """The length of a request in bytes that can become tokens; an image, sound or file counts `MEDIUM` bytes.

    The data of a medium is many times longer than its tokens, and its address is shorter; all other text
    counts. Where there are tools, providers add instructions of their own, which count `INSTRUCTED` bytes.
    """
    instructed = INSTRUCTED if "tools" in turn.needs else 0
    return len(body) - min(turn.carried, len(body)) + turn.media * MEDIUM + instructed


def unaffordable(costs: Mapping[str, int], left: int) -> dict[str, str]:
    """The specialists that may cost more than the `left` nanodollars of a key's budget, with the reason.

    `costs` are worst cases. If no specialist fits the budget none is excluded, and the reservation fails.
    """
    dear = {name: cost for name, cost in costs.items() if cost > left}
    if len(dear) == len(costs):
        return {}
    return {
        name: f"may cost {in_dollars(cost)}, more than the {in_dollars(max(left, 0))} left of the budget"
        for name, cost in dear.items()
    }


def _too_dear(
    name: str, worst: Callable[[str], int], asked: float | None, allowed: float | None
) -> str | None:
    for most, who in ((asked, "request"), (allowed, "profile")):
        if most is not None and worst(name) > nanodollars(most):
            return f"may cost more than the {money(most, significant=6)} the {who} allows"
    return None


def _kept_out(backend: Backend, profile: Profile) -> str | None:
    if profile.only is not None and backend.name not in profile.only:
        return "not among those of the profile"
    if backend.name in profile.exclude:
        return "excluded by the profile"
    return None


def _reason(
    backend: Backend,
    unreached: Callable[[Backend], str | None],
    turn: Turn,
    size: int,
    asked: Constraints,
    circuit: Circuit,
    now: float,
) -> str | None:
    missing = turn.needs - backend.abilities
    refused = turn.parameters & backend.refuses
    most = turn.max_output or 0
    tokens = size // BYTES_PER_TOKEN + min(most, backend.longest or most)
    if asked.allow is not None and backend.name not in asked.allow:
        return "not among those the request allows"
    if backend.name in asked.deny:
        return "denied by the request"
    if missing and backend.tool is not None:
        return f"cannot: {', '.join(sorted(missing))}"
    if missing:
        add = f"supports: [{', '.join(sorted(backend.abilities | missing))}]"
        return f"cannot: {', '.join(sorted(missing))} (pandora.yaml says otherwise with {add})"
    if refused:
        return f"refuses the parameter {', '.join(sorted(refused))}"
    if backend.tool is not None and turn.continues:
        return "answers single questions, and the request is a conversation"
    if backend.context is not None and tokens > backend.context:
        return f"reads {backend.context:,} tokens, and the request may have {tokens:,}"
    if not circuit.lets_through(now):
        return "is failing and is left alone for a while"
    return unreached(backend)


_REFUSED = r"not support|unsupported|not available|not enabled|not implemented|no endpoints|requires? --"
_SENT = r"(?!.*(format|media.type|mime)).*(not support|only supported|multimodal model|no endpoints|variant)"
_SAYS = {
    "tools": rf"(?=.*(tool|function call)).*({_REFUSED})",
    "json_schema": rf"(?=.*(json.schema|response_format|structured output|output_config)).*({_REFUSED})",
    "logprobs": rf"(?=.*logprob).*({_REFUSED})",
    "images": rf"(?=.*(image|vision|multimodal)){_SENT}",
    "audio": rf"(?=.*audio){_SENT}",
    "files": rf"(?=.*(file|document|pdf)){_SENT}",
}
"""How providers word that a model lacks an ability, in small letters."""
UNSUPPORTED = frozenset({400, 404, 415, 422})


def unsupported(needs: frozenset[str], status: int, reply: bytes) -> frozenset[str]:
    """Which of the abilities that a request needs a provider refuses with this reply, by what it says.

    >>> unsupported(frozenset({"tools"}), 400, b'{"error": {"message": "tiny does not support tools"}}')
    frozenset({'tools'})
    """
    answer = parsed_object(reply) if status in UNSUPPORTED and needs else None
    if answer is None:
        return frozenset()
    error = answer.get("error") or answer.get("message") or answer.get("detail")
    said = mapping(error).get("message", error)
    text = " ".join(str(said)[:1000].lower().split())
    return frozenset(name for name in needs if name in _SAYS and re.match(_SAYS[name], text))


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a body; raises `Refused` with status 400, or 415 for a body that is compressed."""
    if body.startswith(COMPRESSED):
        raise Refused(415, "The body is compressed: send it without Content-Encoding.", "compressed_body")
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refused(400, f"The body is not JSON: {error}", "invalid_json") from None
    if not isinstance(parsed, dict):
        raise Refused(400, "The body is not a JSON object.", "invalid_json")
    return parsed


def read_request(body: bytes) -> tuple[bytes, dict[str, Any]]:
    """A request, `unambiguous`, and the JSON object in it.

    Raises `Refused` (400) if there is none, if the name of a member is ambiguous, or if a member names other
    models.
    """
    parsed = read_object(body)
    refuse_other_spellings(parsed)
    refuse_other_models(parsed)
    try:
        return unambiguous(body, parsed), parsed
    except UsageError as error:
        raise Refused(400, str(error), "invalid_request") from None


def nobody(
    excluded: Mapping[str, str], asked: Sequence[str], circuits: Mapping[str, Circuit], now: float
) -> Refused:
    """The refusal of a request that none of the specialists `asked` for can answer, with the reason of each.

    Status 503 if the circuits of all of them are open, else 400.
    """
    why = "; ".join(f"{name}: {excluded[name]}" for name in asked)
    failing = all(not circuits[name].lets_through(now) for name in asked)
    return Refused(503 if failing else 400, f"No specialist can answer: {why}.", "no_specialist")
