"""The bodies and parameters of requests, and the bodies of answers: read with these, and described by them in OpenAPI.

What is not named here is ignored, above all who somebody claims to be: user and machine are those of the credential.
Only within `filters` it is refused: whoever believed that it limits a search would read too much into the answer.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

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


class Span(Struct, frozen=True, forbid_unknown_fields=True):
    """A stretch of time; both its ends belong to it."""

    gte: At | None = None
    lte: At | None = None


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    """What a search is limited to. Several tags: all of them; several values of another field: any of them."""

    tags: Names = ()
    agent_runtime: Names = ()
    machine_id: Names = ()  # ids or names
    conversation_id: Short | None = None
    root_run_id: Short | None = None
    started_at: Span = Span()  # of the run
    stated_at: Span = Span()  # of the turn
    project: Names = ()
    role: Names = ()
    kind: Names = ()
    agent: Names = ()


class Search(Struct, frozen=True):
    """What is looked for among what was said."""

    query: Annotated[str, Meta(max_length=10_000, description="may be empty where there are filters")] = ""
    mode: Literal["hybrid", "semantic", "keyword"] | None = None
    limit: Limit = 20
    cursor: Annotated[str, Meta(max_length=200)] | None = None
    filters: Wanted = Wanted()


class Conversation(Paging, frozen=True, kw_only=True):
    """Which conversation, and which part of it."""

    conversation_id: Annotated[str, Meta(max_length=400)]


class Forest(Struct, frozen=True):
    """Which trees of runs."""

    since: Short | None = None  # 30m, 12h, 7d, 4w ago, or a date
    runtime: Short | None = None
    root_run_id: Short | None = None
    limit: Annotated[int, Meta(ge=1, le=500, description="the trees of so many of the newest runs")] = 500
    cursor: Annotated[str, Meta(max_length=200)] | None = None
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
    shared: bool = False  # what others let the caller read, instead of the caller's own
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


class Over(Paging, frozen=True):
    """The caller's own."""

    every: bool = False  # also what is over


class Whose(Over, frozen=True):
    """The caller's own; all for an admin who asks so."""

    everybody: bool = False


class Share(Struct, frozen=True):
    """What another user may read of the caller's, and until when."""

    grantee: Annotated[str, Meta(min_length=1, max_length=64)]
    scope: Literal["run", "tag", "project", "agent"]
    value: Annotated[str, Meta(min_length=1, max_length=4096)]
    until_at: At | None = None


# answers --------------------------------------------------------------------------------------------------------


class Action(Struct, frozen=True):
    """Something that a program may do next."""

    do: str
    method: str
    href: str
    body: dict[str, Any] | UnsetType = UNSET


class Envelope(Struct, frozen=True, rename={"links": "_links"}):
    """What every answer has."""

    links: dict[str, str]
    next_actions: list[Action]


class Listed(Envelope, frozen=True):
    """What every list has."""

    next_cursor: str | None


class MachineSaid(Envelope, frozen=True):
    """A machine; registered_by: the id of the one that asked for it, "" at the home itself."""

    machine_id: str
    user: str
    name: str
    registered_at: datetime
    revoked_at: datetime | None
    registered_by: str


class MachineMade(MachineSaid, frozen=True):
    """A new machine, with its secret; null when the same request comes again."""

    secret: str | None


class MachinesSaid(Listed, frozen=True):
    """Machines."""

    items: list[MachineSaid]


class GrantSaid(Envelope, frozen=True):
    """What an owner lets another user read."""

    grant_id: str
    owner: str
    grantee: str
    scope: str
    value: str
    until_at: datetime | None
    given_at: datetime
    revoked_at: datetime | None
    declined_at: datetime | None


class GrantsSaid(Listed, frozen=True):
    """What the caller lets others read, and what others let the caller read."""

    items: list[GrantSaid]
    to_me: list[GrantSaid]


class HitSaid(Struct, frozen=True, rename={"links": "_links"}):
    """A turn that a search found."""

    run_id: str
    turn_id: str
    chunk_idx: int
    conversation: str
    role: str
    kind: str
    text: str
    machine: str
    runtime: str
    tags: list[str]
    stated_at: datetime | None
    started_at: datetime | None
    score: dict[str, float | None]
    links: dict[str, str]


class FoundSaid(Listed, frozen=True):
    """The hits of a search, and what it cost."""

    hits: list[HitSaid]
    facets: dict[str, Any]
    timing: dict[str, Any]
    mode: str
    degraded: list[str]
    behind: int


class CueSaid(Struct, frozen=True, rename={"links": "_links"}):
    """A turn or a memory that matters for a message."""

    turn_id: str
    run_id: str
    chunk: int | None
    memory_id: str | None
    role: str
    text: str
    why: list[str]
    score: float
    n_tokens: int
    stated_at: datetime | None
    links: dict[str, str]


class RecalledSaid(Envelope, frozen=True):
    """What matters for a message, as a block to put beside it."""

    block: str
    cues: list[CueSaid]
    silent: str
    n_tokens: int
    degraded: list[str]
    timings_ms: dict[str, float]


class JobsSaid(Listed, frozen=True):
    """The jobs."""

    items: list[dict[str, Any]]


class Health(Envelope, frozen=True):
    """Whether it works, and what is wrong."""

    healthy: bool
    problems: list[str]
    checked_at: datetime
    probe_ms: float
