"""Shapes of requests and answers: they parse parameters and bodies, and describe all of them in OpenAPI.

A field that is not named here is ignored, above all a claimed user or machine: both come from the
credential. Only in `filters` an unknown field is refused: a caller who believed that it limits a search
would read too much into the answer. Shapes of runs, memories and cards follow their own types, so a new
field appears in the answers by itself. No rule is checked here but type and size.
"""

from __future__ import annotations

import typing
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, field

from perdure.floor.state import FloorCard
from perdure.types import Memory, RunView

Limit = Annotated[int, Meta(ge=1, le=100, description="maximum number")]
ShortText = Annotated[str, Meta(max_length=400)]
LongText = Annotated[str, Meta(max_length=200_000)]
NameList = Annotated[tuple[ShortText, ...], Meta(max_length=100)]
Instant = Annotated[datetime, Meta(tz=True)]  # an instant: with its time zone
Offset = Annotated[int, Meta(ge=0, le=2**62)]

MemoryKind = Literal["fact", "preference", "decision", "procedure", "event", "insight"]


class PageQuery(Struct, frozen=True):
    """The part of a list."""

    limit: Limit = 20
    cursor: Annotated[str, Meta(max_length=200)] | None = None


# the semantic tier of workflows ---------------------------------------------------------------------------------

WorkflowName = Annotated[str, Meta(max_length=200)]
EventMetadata = Annotated[dict[ShortText, ShortText], Meta(max_length=50)]


class AthenaSessionBody(Struct, frozen=True):
    """Whose memory a session is about. The agent is `agent_id`, or else `user_id`."""

    user_id: Annotated[str, Meta(min_length=1, max_length=200)]
    agent_id: WorkflowName = ""
    memory_user: WorkflowName = field(default="", name="tenant_id")


class AthenaEventBody(Struct, frozen=True):
    """One event of an agent."""

    content: Annotated[str, Meta(min_length=1, max_length=200_000)]
    type: Literal["message", "thought", "action", "observation"] = "message"
    metadata: EventMetadata = {}
    timestamp: Instant | None = None


class AthenaContextQuery(Struct, frozen=True):
    """How many recent events are wanted."""

    limit: Annotated[int, Meta(ge=1, le=50)] = 10


class AthenaSearchBody(Struct, frozen=True):
    """A question."""

    query: Annotated[str, Meta(min_length=1, max_length=2_000)]
    limit: Annotated[int, Meta(ge=1, le=50)] = 5


# runs -----------------------------------------------------------------------------------------------------------


class CaptureQuery(Struct, frozen=True):
    """What a machine states about the bytes that it sends."""

    runtime: Annotated[str, Meta(min_length=1, max_length=400)]
    session: Annotated[str, Meta(min_length=1, max_length=400)]
    from_offset: Offset = 0
    generation: Offset | None = None
    conversation: ShortText | None = None
    parent_session: ShortText | None = None
    parent_run_id: ShortText | None = None
    fork: bool = False
    cwd: Annotated[str, Meta(max_length=4096)] | None = None
    project: Annotated[str, Meta(max_length=4096)] | None = None  # as the machine computed it
    path: Annotated[str, Meta(max_length=4096)] | None = None
    agent: ShortText = ""
    tag: NameList = ()
    emitted: bool = False  # lines made by an adapter from a source that is not append-only


class CaptureBody(CaptureQuery, frozen=True, kw_only=True):
    """The same, with the lines."""

    jsonl: str


class CaptureJson(Struct, frozen=True):
    """The archive's answer to a capture."""

    outcome: Literal["stored", "already", "accepted"]
    run_id: str | None
    accepted_up_to: int
    generation: int
    bytes: int


class TimeRange(Struct, frozen=True, forbid_unknown_fields=True):
    """A range of time; both ends belong to it."""

    gte: Instant | None = None
    lte: Instant | None = None


class SearchFilters(Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of a search. Several tags: all of them; several values of another field: any of them."""

    tags: NameList = ()
    agent_runtime: NameList = ()
    machine_id: NameList = ()  # ids or names
    conversation_id: ShortText | NameList | None = None
    root_run_id: ShortText | None = None
    started_at: TimeRange = TimeRange()  # of the run
    stated_at: TimeRange = TimeRange()  # of the turn
    project: NameList = ()
    role: NameList = ()
    kind: NameList = ()
    agent: NameList = ()
    file: NameList = ()
    tool: NameList = ()
    skill: NameList = ()
    entity: NameList = ()


class SearchBody(Struct, frozen=True):
    """A search in the turns of runs."""

    query: Annotated[str, Meta(max_length=10_000, description="can be empty if there are filters")] = ""
    mode: Literal["hybrid", "semantic", "keyword"] | None = None
    limit: Limit = 20
    cursor: Annotated[str, Meta(max_length=200)] | None = None
    filters: SearchFilters = SearchFilters()
    full: bool = False  # also the page as Python has it, in `result`


class ForgetBody(Struct, frozen=True):
    """What to forget: ids, or a query. Without a digest nothing is deleted, and the answer has the digest."""

    ids: Annotated[NameList, Meta(description="of turns, runs, conversations, memories; paths of memories")] = ()
    query: Annotated[str, Meta(max_length=10_000, description="all words must match; with filters only turns")] = ""
    filters: SearchFilters = SearchFilters()
    cascade: bool = True  # with a run also the runs below it
    with_floor: bool = False  # with a query: also lines, cards and proposals of the floor
    digest: ShortText = ""  # of the preview: delete what it showed


class ConversationQuery(PageQuery, frozen=True, kw_only=True):
    """A conversation, and the part of its list of runs."""

    conversation_id: Annotated[str, Meta(max_length=400)]


class JsonlQuery(Struct, frozen=True):
    """The lines of a run: all, or those that begin at these offsets of its source."""

    offset: Annotated[tuple[Offset, ...], Meta(max_length=1000)] = ()


class RunForestQuery(Struct, frozen=True):
    """The filters of the newest trees of runs."""

    since: ShortText | None = None  # 30m, 12h, 7d, 4w ago, or a date
    runtime: ShortText | None = None
    root_run_id: ShortText | None = None
    limit: Annotated[int, Meta(ge=1, le=500, description="number of newest runs, shown with their trees")] = 500
    cursor: Annotated[str, Meta(max_length=200)] | None = None
    flat: bool = False  # a list of runs with their depth, instead of trees


class ForgetQuery(Struct, frozen=True):
    """The options of forgetting a run. dry: delete nothing, only list what would be deleted."""

    cascade: bool = True  # the runs below it, too
    dry: bool = False


# recall ---------------------------------------------------------------------------------------------------------


class RecallBody(Struct, frozen=True):
    """A message for recall, with its folder, project and session."""

    message: LongText
    cwd: Annotated[str, Meta(max_length=4096)] | None = None
    project: Annotated[str, Meta(max_length=4096)] | None = None
    all_projects: bool = False
    session: ShortText = ""  # a running session: it is not told twice, and each injection is recorded
    runtime: ShortText = "messages"  # of that session
    mode: Literal["hybrid", "keyword"] | None = None
    now: Instant | None = None  # "yesterday" is counted from here
    as_of: Instant | None = None
    limit_ms: Annotated[int, Meta(ge=1, le=60_000)] = 10_000
    explain: bool = False  # with `full`: why other turns were passed over
    full: bool = False  # also the recall as Python has it, in `recalled`
    why_not: ShortText = ""  # id of a turn or a memory: also why it was left out, in `omission`


class HookEventBody(Struct, frozen=True):
    """One event of a client, as its hook reports it."""

    client: ShortText
    kind: Literal[
        "prompt",
        "start",
        "turn-end",
        "session-end",
        "subagent-start",
        "subagent-end",
        "before-compact",
        "after-compact",
    ]
    session: ShortText
    cwd: Annotated[str, Meta(max_length=4096)] = ""
    transcript: Annotated[str, Meta(max_length=4096)] = ""
    prompt: LongText = ""
    is_human: bool = True
    agent: ShortText = ""
    cause: ShortText = ""


class HookBody(Struct, frozen=True):
    """An event, its project, and how long its client waits."""

    event: HookEventBody
    project: Annotated[str, Meta(max_length=4096)] | None = None
    limit_ms: Annotated[int, Meta(ge=1, le=60_000)] = 10_000


class HookReplyJson(Struct, frozen=True):
    """The reply to a hook: a block to put beside the message, and a line for the person."""

    text: str = ""
    notice: str = ""


class ContextBody(Struct, frozen=True):
    """A message, and the messages of its session before it."""

    message: LongText
    window: Annotated[tuple[dict[str, Any], ...], Meta(max_length=1000)] = ()
    cwd: Annotated[str, Meta(max_length=4096)] | None = None
    project: Annotated[str, Meta(max_length=4096)] | None = None
    platform: ShortText = "api"
    session: ShortText = ""  # a running session, whose own turns are left out
    mode: Literal["hybrid", "keyword"] | None = None
    now: Instant | None = None
    format: Literal["anthropic", "openai"] = "anthropic"
    full: bool = False  # also the context as Python has it, in `context`


# identity ------------------------------------------------------------------------------------------------------------


class IdentityJson(Struct, frozen=True):
    """The user and the machine of a credential."""

    user: str
    machine: str
    machine_id: str
    is_admin: bool
    version: str


class AliveJson(Struct, frozen=True):
    """The server answers; /api/health says if it works."""

    alive: bool = True


class NoQuery(Struct, frozen=True):
    """No parameters."""


# memories and the floor -----------------------------------------------------------------------------------------


class MemoryListQuery(PageQuery, frozen=True):
    """The filters of a list of memories."""

    every: bool = False  # also superseded and retired ones
    shared: bool = False  # memories that others share with the caller, instead of the caller's own
    prefix: ShortText = ""  # of the path
    kind: ShortText = ""
    project: Annotated[str, Meta(max_length=4096)] | None = None


class RememberBody(Struct, frozen=True):
    """One short statement to store. trust: agent, for a conclusion of an agent."""

    text: Annotated[str, Meta(min_length=1, max_length=20_000)]
    kind: MemoryKind | None = None
    path: ShortText = ""
    project: Annotated[str, Meta(max_length=4096)] | None = None
    trust: Literal["owner", "agent"] = "owner"


class MemoryChangeBody(Struct, frozen=True):
    """The changes to a memory; a field that is not given stays as it is."""

    text: Annotated[str, Meta(min_length=1, max_length=20_000)] | None = None
    pinned: bool | None = None
    retired: bool | None = None
    path: ShortText | None = None
    kind: MemoryKind | None = None


class MemorySearchBody(Struct, frozen=True):
    """A search in memories."""

    query: Annotated[str, Meta(min_length=1, max_length=10_000)]
    limit: Limit = 20


class SettleStatement(Struct, frozen=True):
    """One statement that is worth keeping, and the short ids of the lines that it rests on."""

    ids: NameList
    text: Annotated[str, Meta(min_length=1, max_length=20_000)]
    kind: MemoryKind | None = None
    path: ShortText = ""


class SettleBody(Struct, frozen=True):
    """An answer about lines of a session. Without statements and without `none`, the lines are asked for."""

    project: Annotated[str, Meta(max_length=4096)] | None = None
    session: ShortText = ""  # asks about this session alone
    statements: Annotated[tuple[SettleStatement, ...], Meta(max_length=100)] = ()
    none: NameList | None = None  # lines that hold nothing worth keeping; empty: all that are left


class CardBody(Struct, frozen=True):
    """The text of a card."""

    text: Annotated[str, Meta(min_length=1, max_length=20_000)]
    project: Annotated[str, Meta(max_length=4096)] | None = None
    by: Literal["owner", "agent"] = "owner"


class CardRemovalQuery(Struct, frozen=True):
    """The author of a removal."""

    by: Literal["owner", "agent"] = "owner"


class FloorQuery(Struct, frozen=True):
    """The session that the floor is for."""

    project: Annotated[str, Meta(max_length=4096)] | None = None
    platform: ShortText = "api"
    full: bool = False  # also the floor as Python has it, in `floor`, and all that is kept


class WhyQuery(Struct, frozen=True):
    """The session whose last recall is shown."""

    session: ShortText = ""  # the beginning of its id; "" for all sessions


class FloorPageBody(Struct, frozen=True):
    """The new text of a page. base: the text that its writer had read, in case the page has changed since."""

    text: Annotated[str, Meta(max_length=400_000)]
    base: Annotated[str, Meta(max_length=400_000)] | None = None
    why: Annotated[str, Meta(max_length=2000)] = ""
    by: Literal["owner", "agent"] = "owner"  # an agent may not write every page


# machines, grants, jobs -----------------------------------------------------------------------------------------


class MachineBody(Struct, frozen=True):
    """A machine to register for a user: the caller, unless an admin names another user."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    user: ShortText | None = None


class JoinBody(Struct, frozen=True):
    """The proof of a person of the AT Protocol, and the machine that joins by it."""

    did: Annotated[str, Meta(min_length=1, max_length=300)]
    app_password: Annotated[str, Meta(min_length=1, max_length=200)]
    password_name: Annotated[str, Meta(min_length=1, max_length=100)]  # under which their server lists the password
    machine: Annotated[str, Meta(min_length=1, max_length=100)]


class GrantListQuery(PageQuery, frozen=True):
    """The filters of a list of the caller's own grants."""

    every: bool = False  # also revoked and ended ones


class MachineListQuery(GrantListQuery, frozen=True):
    """The filters of a list of machines: the caller's own, or all for an admin who asks for them."""

    everybody: bool = False


class GrantBody(Struct, frozen=True):
    """A grant to make: the content that another user, or "@" and a team, may read, since when and until when.

    A memory is proposed to a team as a note. Without `since_at` a team reads what begins from now on.
    """

    grantee: Annotated[str, Meta(min_length=1, max_length=65)]
    scope: Literal["run", "tag", "project", "agent", "memory"]
    value: Annotated[str, Meta(min_length=1, max_length=4096)]
    until_at: Instant | None = None
    since_at: Instant | None = None


class TeamBody(Struct, frozen=True):
    """A team. keeps: what a person shared with it stays when they leave the home; null: unchanged, or true."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    keeps: bool | None = None


class MemberBody(Struct, frozen=True):
    """A member to add. is_reviewer: they accept and reject the notes of others."""

    user: Annotated[str, Meta(min_length=1, max_length=64)]
    is_reviewer: bool = False


class NoteListQuery(PageQuery, frozen=True):
    """The filter of a list of notes; without a team, of all teams."""

    team: ShortText | None = None


class ReviewBody(Struct, frozen=True):
    """The word of a reviewer about a note."""

    is_accepted: bool


class JobBody(Struct, frozen=True):
    """The definition of a job: the keys of its page, as docs/jobs.md lists them."""

    job: dict[str, Any]


class NewJobBody(JobBody, frozen=True, kw_only=True):
    """A job to add."""

    name: Annotated[str, Meta(min_length=1, max_length=40)]


# answers --------------------------------------------------------------------------------------------------------


class NextAction(Struct, frozen=True):
    """A request that a program may make next."""

    do: str
    method: str
    href: str
    body: dict[str, Any] | UnsetType = UNSET


class AnswerEnvelope(Struct, frozen=True, rename={"links": "_links"}):
    """The fields of every answer."""

    links: dict[str, str]
    next_actions: list[NextAction]


class ListEnvelope(AnswerEnvelope, frozen=True):
    """The fields of every list."""

    next_cursor: str | None


class MachineJson(AnswerEnvelope, frozen=True):
    """A machine. registered_by: the id of the machine that registered it, "" for the home itself."""

    machine_id: str
    user: str
    name: str
    registered_at: datetime
    revoked_at: datetime | None
    registered_by: str


class NewMachineJson(MachineJson, frozen=True):
    """A new machine with its secret; the secret is null when the same request comes again."""

    secret: str | None


class RevokedMachineJson(MachineJson, frozen=True):
    """A revoked machine, and what came of its app password at the server of its person."""

    app_password: Literal["revoked", "waiting", "none"]


class MachineListJson(ListEnvelope, frozen=True):
    """A list of machines."""

    items: list[MachineJson]


class ForgetReportJson(AnswerEnvelope, frozen=True):
    """What a request would delete, or has deleted."""

    items: list[dict[str, Any]]
    memories: list[dict[str, Any]]
    lines: list[tuple[str, str]]
    left_lines: list[tuple[str, str, str]]
    left_files: list[str]
    output_files: list[str]
    digest: str
    rewritten_runs: list[str]


class TeamMemberJson(Struct, frozen=True):
    """A member of a team."""

    user: str
    is_reviewer: bool
    joined_at: datetime
    added_by: str


class TeamJson(AnswerEnvelope, frozen=True):
    """A team, with its members by name."""

    name: str
    keeps: bool
    members: list[TeamMemberJson]


class TeamListJson(ListEnvelope, frozen=True):
    """The teams of the caller; all teams for an admin."""

    items: list[TeamJson]


class NoteJson(AnswerEnvelope, frozen=True):
    """A note: a memory that was proposed to a team. record: its grant, with the review; memory: null if it is gone."""

    note_id: str
    state: Literal["proposed", "accepted", "rejected", "retracted"]
    record: dict[str, Any]
    memory: dict[str, Any] | None


class NoteListJson(ListEnvelope, frozen=True):
    """The notes that the caller may know of."""

    items: list[NoteJson]


class AccessColumnJson(Struct, frozen=True):
    """Something that is shared."""

    key: str
    scope: str
    title: str


class AccessRightJson(Struct, frozen=True):
    """One reason for which a person reads something, or shares it. team: "" for a grant to one person."""

    kind: Literal["shares", "reads"]
    other: str
    grant_id: str
    team: str
    value: str
    since_at: datetime | None
    until_at: datetime | None


class AccessRowJson(Struct, frozen=True):
    """A person, with their rights by the key of the column."""

    user: str
    is_admin: bool
    teams: list[str]
    rights: dict[str, list[AccessRightJson]]


class AccessJson(AnswerEnvelope, frozen=True):
    """Who may read what. All that no column names is read by its owner alone."""

    columns: list[AccessColumnJson]
    rows: list[AccessRowJson]


class GrantJson(AnswerEnvelope, frozen=True):
    """A grant: the content that an owner lets another user read."""

    grant_id: str
    owner: str
    grantee: str
    scope: str
    value: str
    until_at: datetime | None
    given_at: datetime
    revoked_at: datetime | None
    declined_at: datetime | None
    since_at: datetime | None = None  # what began earlier is not covered
    team: str = ""  # the team that it was given to
    runs_now: int | None = None  # how many runs a grant of the caller covers now


class GrantListJson(ListEnvelope, frozen=True):
    """The grants of the caller to others, and of others to the caller."""

    items: list[GrantJson]
    to_me: list[GrantJson]


class HitJson(Struct, frozen=True, rename={"links": "_links"}):
    """A turn that a search found: the fields of `Hit`, and those of its run."""

    turn_id: str
    run_id: str
    conversation: str
    title: str
    runtime: str
    machine: str
    agent: str
    project: str | None
    role: str
    author: str
    kind: str
    stated_at: datetime | None
    text: str
    score: dict[str, float | None]
    abandoned: bool
    is_summary: bool
    keyword_score: float | None
    vector_score: float | None
    legs_score: float | None
    user: str
    chunk: int
    chunk_idx: int
    tags: list[str]
    started_at: datetime | None
    links: dict[str, str]


class SearchResultJson(ListEnvelope, frozen=True):
    """The hits of a search, and its cost."""

    hits: list[HitJson]
    facets: dict[str, Any]
    timing: dict[str, Any]
    mode: str
    degraded: list[str]
    behind: int


class CueJson(Struct, frozen=True, rename={"links": "_links"}):
    """A turn or a memory that matters for a message: the fields of `Cue`, and the id of its memory."""

    turn_id: str
    run_id: str
    conversation: str
    role: str
    stated_at: datetime | None
    machine: str
    runtime: str
    text: str
    score: float
    legs: dict[str, float]
    why: list[str]
    before: str
    n_tokens: int
    memory: dict[str, Any] | None
    is_history: bool
    note: str
    user: str
    is_shared: bool
    chunk: int | None
    project: str | None
    age: str
    is_from_web: bool
    is_in_picture: bool
    memory_id: str | None
    links: dict[str, str]


class RecallJson(AnswerEnvelope, frozen=True):
    """The turns and memories that matter for a message, as a block to put beside it."""

    block: str
    cues: list[CueJson]
    silent: str
    n_tokens: int
    degraded: list[str]
    timings_ms: dict[str, float]
    omission: str | None = None


class ProjectListJson(ListEnvelope, frozen=True):
    """The projects of the runs that the caller may read."""

    items: list[dict[str, Any]]


class InjectionJson(AnswerEnvelope, frozen=True):
    """A recall that a session was given, as the journal recorded it."""

    at: datetime
    runtime: str
    session: str
    n_tokens: int
    cues: list[dict[str, Any]]


class JobListJson(ListEnvelope, frozen=True):
    """The list of jobs."""

    items: list[dict[str, Any]]


class JobJson(AnswerEnvelope, frozen=True):
    """A job: when it runs, what it does, its page if it is the owner's."""

    job: str
    does: str
    when: str
    paused: bool
    is_own: bool
    fault: str
    page: str
    next_at: datetime | None
    last: dict[str, Any] | None


class JobRunListJson(ListEnvelope, frozen=True):
    """The runs of a job, and the times at which there was none, with the reason."""

    items: list[dict[str, Any]]


class HealthJson(AnswerEnvelope, frozen=True):
    """The result of a health check, with the problems found."""

    healthy: bool
    problems: list[str]
    checked_at: datetime
    probe_ms: float


# answers that follow our own types ----------------------------------------------------------------------------


def _define_list_item(noun: type, name: str, doc: str) -> type[Struct]:
    """Define the shape of a type inside a list: its fields and its links."""
    fields: list[tuple[str, Any]] = [*typing.get_type_hints(noun).items(), ("links", dict[str, str])]
    return defstruct(name, fields, frozen=True, rename={"links": "_links"}, namespace={"__doc__": doc})


RunJson = _define_list_item(RunView, "RunJson", "A run with everything that is derived from it.")
MemoryJson = _define_list_item(Memory, "MemoryJson", "A memory.")
CardJson = _define_list_item(FloorCard, "CardJson", "A rolling context card.")


def _define_item(item: type[Struct], name: str, doc: str, **extra_fields: Any) -> type[Struct]:
    """Define the shape of one item that is returned alone."""
    fields = [*extra_fields.items(), ("next_actions", list[NextAction])]
    return defstruct(name, fields, bases=(item,), frozen=True, kw_only=True, namespace={"__doc__": doc})


def _define_list(item: Any, name: str, doc: str) -> type[Struct]:
    """Define the shape of a page of a list."""
    return defstruct(name, [("items", list[item])], bases=(ListEnvelope,), frozen=True, namespace={"__doc__": doc})


class SourceTurnJson(Struct, frozen=True, rename={"links": "_links"}):
    """A source turn of a memory."""

    run_id: str
    from_offset: int
    to_offset: int
    turn_id: str | None
    text: str | None
    links: dict[str, str]


class TranscriptJson(AnswerEnvelope, frozen=True):
    """The turns of a run, as Python has them, and the offsets of those that are the run's own."""

    transcript: dict[str, Any]
    turn_offsets: list[int]


class RunBranchJson(Struct, frozen=True):
    """A run in its tree: with its children, or, in a flat list, with its depth."""

    run: RunJson  # type: ignore[valid-type]
    children: list[RunBranchJson] | UnsetType = UNSET
    depth: int | UnsetType = UNSET


RunDetailJson = _define_item(RunJson, "RunDetailJson", "One run.")
RunListJson = _define_list(RunJson, "RunListJson", "A list of runs.")
RunForestJson = _define_list(RunBranchJson, "RunForestJson", "The newest runs as trees.")
MemoryDetailJson = _define_item(
    MemoryJson, "MemoryDetailJson", "One memory, with its history and its source turns.",
    history=list[MemoryJson], turns=list[SourceTurnJson],  # type: ignore[valid-type]
)  # fmt: skip
MemoryListJson = _define_list(MemoryJson, "MemoryListJson", "A list of memories.")
CardDetailJson = _define_item(CardJson, "CardDetailJson", "One card.")
CardListJson = _define_list(CardJson, "CardListJson", "A list of cards.")


class FloorLayerJson(Struct, frozen=True):
    """A layer of the floor."""

    name: str
    source: str
    text: str
    n_tokens: int
    n_rows: int
    n_left: int
    alerts: list[str]


class FloorJson(AnswerEnvelope, frozen=True):
    """The floor that a session gets if it begins now."""

    layers: list[FloorLayerJson]
    pages: list[dict[str, Any]]
    alerts: list[str]  # what is wrong with the working copies of the pages


class PageVersionJson(Struct, frozen=True):
    """One version of a page."""

    event: str
    at: str  # hybrid time
    by: str
    why: str
    unseen: bool


class FloorPageJson(AnswerEnvelope, frozen=True):
    """The current text of a floor page, with its versions: who changed it and when."""

    name: str
    text: str
    versions: list[PageVersionJson]


class ContextJson(AnswerEnvelope, frozen=True):
    """The text that a model is to read for a message, in its provider's format, with the cost of each part."""

    format: str
    messages: list[dict[str, Any]]
    parts: list[dict[str, Any]]
    n_tokens: int
