"""The section `serve`: how the gateway listens, whom it lets in and what it keeps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pandora_router.config.values import Above, Amount, Closed, Count, Name, Text


class ProfileSettings(Closed):
    """A way to route that clients choose by name (`auto@name`): other values, or fewer specialists.

    right_answer, second: as under `value`, in its money; left out, those of the file. only, exclude: names of
    specialists. max_fee: the most that one answer may cost.
    """

    right_answer: Above | None = None
    second: Amount | None = None
    only: list[Name] | None = None
    exclude: list[Name] | None = None
    max_fee: Amount | None = None


class ServeSettings(Closed):
    """The gateway. `store` is where decisions are kept: a SQLite file or a postgresql:// address.

    `router` is the folder of the fitted router; without it every `auto` request goes to the `default`.
    `keys`: whether clients need a key. A decision takes at most `deadline_ms` (left out: 200, or 2000 where
    estimates wait for specialists or a judge); what is not known by then stays sealed. With `observe` the
    default answers and the router's choice is only recorded; `explore` is the share of requests that are
    routed at random, for feedback. `bodies`: whether texts of requests and answers are stored.
    A silent stream gets a keep-alive every `ping_seconds` (0: never). Decisions are deleted after
    `retention_days`. With `log: json` every request is a line of the log; with `log_bodies` that line has the
    request in it, redacted. `traces` exports OpenTelemetry spans to where the OTEL_* variables say.
    """

    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    store: Text = "pandora.sqlite"
    router: Text | None = None
    default: Name | None = None
    profiles: dict[Name, ProfileSettings] = Field(default_factory=dict)
    keys: Literal["required", "none"] = "required"
    deadline_ms: Count | None = None
    observe: bool = False
    explore: Annotated[float, Field(ge=0, le=1)] = 0.0
    bodies: bool = False
    ping_seconds: Amount = 15.0
    retention_days: Above | None = None
    log: Literal["text", "json"] = "text"
    log_bodies: bool = False
    traces: bool = False
