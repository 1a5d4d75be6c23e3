"""The bodies and parameters of requests, and the bodies of answers: read with these, and described by them in OpenAPI.

What is not named here is ignored, above all who somebody claims to be: user and machine are those of the credential.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Limit = Annotated[int, Meta(ge=1, le=100, description="how many at most")]
Short = Annotated[str, Meta(max_length=400)]
Words = Annotated[str, Meta(max_length=200_000)]
Names = Annotated[tuple[Short, ...], Meta(max_length=100)]
At = Annotated[datetime, Meta(tz=True)]  # an instant: with its time zone
Offset = Annotated[int, Meta(ge=0, le=2**62)]

Kind = Literal["fact", "preference", "decision", "procedure", "event", "insight"]


class Paging(Struct, frozen=True):
    """Which part of a list."""

    limit: Limit = 20
    cursor: Annotated[str, Meta(max_length=200)] | None = None


# runs -----------------------------------------------------------------------------------------------------------


class Captured(Struct, frozen=True):
    """What a machine knows of the bytes that it sends."""

    runtime: Annotated[str, Meta(min_length=1, max_length=400)]
    session: Annotated[str, Meta(min_length=1, max_length=400)]
    from_offset: Offset = 0
    generation: Offset | None = None
    conversation: Short | None = None
    parent_session: Short | None = None
    parent_run_id: Short | None = None
    fork: bool = False
    cwd: Annotated[str, Meta(max_length=4096)] | None = None
    project: Annotated[str, Meta(max_length=4096)] | None = None  # as the machine computed it
    path: Annotated[str, Meta(max_length=4096)] | None = None
    agent: Short = ""
    tag: Names = ()
    emitted: bool = False  # lines that an adapter made of a source which is not append-only


class CapturedJson(Captured, frozen=True, kw_only=True):
    """The same, and the lines."""

    jsonl: str


class Stored(Struct, frozen=True):
    """What the archive says to them."""

    outcome: Literal["stored", "already", "accepted"]
    run_id: str | None
    accepted_up_to: int
    generation: int
    bytes: int


class Span(Struct, frozen=True):
    """A stretch of time; its end does not belong to it."""

    gte: At | None = None
    lte: At | None = None


class Wanted(Struct, frozen=True):
    """What a search is limited to. Several tags: all of them; several values of another field: any of them."""

    tags: Names = ()
    agent_runtime: Names = ()
    machine_id: Names = ()
    conversation_id: Short | None = None
    root_run_id: Short | None = None
    started_at: Span = Span()
    project: Names = ()
    role: Names = ()
    kind: Names = ()
    agent: Names = ()


class Search(Struct, frozen=True):
    """What is looked for among what was said."""

    query: Annotated[str, Meta(min_length=1, max_length=10_000)]
    mode: Literal["hybrid", "semantic", "keyword"] | None = None
    limit: Limit = 20
    cursor: Annotated[str, Meta(max_length=200)] | None = None
    filters: Wanted = Wanted()


class Forest(Struct, frozen=True):
    """Which trees of runs."""

    since: Short | None = None  # 30m, 12h, 7d, 4w ago, or a date
    runtime: Short | None = None
    root_run_id: Short | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 500
    flat: bool = False  # a list of runs with their depth, instead of trees


class Forgetting(Struct, frozen=True):
    """What goes with a run. dry: nothing yet, only what would."""

    cascade: bool = True  # the runs below it, too
    dry: bool = False


# recall ---------------------------------------------------------------------------------------------------------


class Recall(Struct, frozen=True):
    """A message, and where it is said."""

    message: Words
    cwd: Annotated[str, Meta(max_length=4096)] | None = None
    project: Annotated[str, Meta(max_length=4096)] | None = None
    all_projects: bool = False
    session: Short = ""  # one that is going on: it is not told twice, and what it is told is noted
    runtime: Short = "messages"  # of that session
    mode: Literal["hybrid", "keyword"] | None = None
    as_of: At | None = None
    limit_ms: Annotated[int, Meta(ge=1, le=60_000)] = 10_000


class Happened(Struct, frozen=True):
    """One thing that happened in a client, as its hook says it."""

    client: Short
    kind: Literal[
        "prompt", "start", "turn-end", "session-end", "subagent-start", "subagent-end", "before-compact",
        "after-compact",
    ]  # fmt: skip
    session: Short
    cwd: Annotated[str, Meta(max_length=4096)] = ""
    transcript: Annotated[str, Meta(max_length=4096)] = ""
    prompt: Words = ""
    is_human: bool = True
    agent: Short = ""
    cause: Short = ""


class Hook(Struct, frozen=True):
    """An event, where it happened, and how long its client waits."""

    event: Happened
    project: Annotated[str, Meta(max_length=4096)] | None = None
    limit_ms: Annotated[int, Meta(ge=1, le=60_000)] = 10_000


class Said(Struct, frozen=True):
    """What a client is told: a block to put beside the message, and a line for the person."""

    text: str = ""
    notice: str = ""


class ForContext(Struct, frozen=True):
    """A message, and the session before it."""

    message: Words
    window: Annotated[tuple[dict[str, Any], ...], Meta(max_length=1000)] = ()
    cwd: Annotated[str, Meta(max_length=4096)] | None = None
    project: Annotated[str, Meta(max_length=4096)] | None = None
    format: Literal["anthropic", "openai"] = "anthropic"


# who ------------------------------------------------------------------------------------------------------------


class Me(Struct, frozen=True):
    """Who a credential stands for."""

    user: str
    machine: str
    machine_id: str
    is_admin: bool
    version: str


class Alive(Struct, frozen=True):
    """That the server answers; whether it works, /api/health says."""

    alive: bool = True


class Unread(Struct, frozen=True):
    """No parameters."""


# memories and the floor -----------------------------------------------------------------------------------------


class Listing(Paging, frozen=True):
    """Which memories."""

    every: bool = False  # also what was superseded or retired
    prefix: Short = ""  # of the path
    kind: Short = ""
    project: Annotated[str, Meta(max_length=4096)] | None = None


class Remember(Struct, frozen=True):
    """One short statement. trust: agent, for what an agent concluded."""

    text: Annotated[str, Meta(min_length=1, max_length=20_000)]
    kind: Kind | None = None
    path: Short = ""
    project: Annotated[str, Meta(max_length=4096)] | None = None
    trust: Literal["owner", "agent"] = "owner"


class Reword(Struct, frozen=True):
    """What is changed of a memory; what is not named stays."""

    text: Annotated[str, Meta(min_length=1, max_length=20_000)] | None = None
    pinned: bool | None = None
    retired: bool | None = None
    path: Short | None = None
    kind: Kind | None = None


class Find(Struct, frozen=True):
    """What is looked for among the memories."""

    query: Annotated[str, Meta(min_length=1, max_length=10_000)]
    limit: Limit = 20


class CardText(Struct, frozen=True):
    """The words of a card."""

    text: Annotated[str, Meta(min_length=1, max_length=20_000)]
    project: Annotated[str, Meta(max_length=4096)] | None = None


class FloorOf(Struct, frozen=True):
    """Of which project."""

    project: Annotated[str, Meta(max_length=4096)] | None = None


class PageText(Struct, frozen=True):
    """A page's new text. base: what its writer had read, where that may be something else by now."""

    text: Annotated[str, Meta(max_length=400_000)]
    base: Annotated[str, Meta(max_length=400_000)] | None = None
    why: Annotated[str, Meta(max_length=2000)] = ""


# machines, grants, jobs -----------------------------------------------------------------------------------------


class Register(Struct, frozen=True):
    """A machine that is to speak for a user: for the caller's own, unless an admin names another."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    user: Short | None = None


class Whose(Paging, frozen=True):
    """The caller's own; all for an admin who asks so."""

    everybody: bool = False
    every: bool = False  # also what is over


class Share(Struct, frozen=True):
    """What another user may read of the caller's, and until when."""

    grantee: Annotated[str, Meta(min_length=1, max_length=64)]
    scope: Literal["run", "tag", "project", "agent"]
    value: Annotated[str, Meta(min_length=1, max_length=4096)]
    until_at: At | None = None
