"""The nouns: frozen values that every layer shares. Pure.

They describe a thing, never how it is stored. Instants are aware UTC datetimes and end in `_at`;
offsets are bytes of the source, counted from its first byte, whatever was captured before.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import force_setattr

from perdure.regex import lazy_re

Role = Literal["user", "assistant", "tool", "system"]
Author = Literal["person", "machine", "agent", "tool"]
PartKind = Literal["text", "pasted", "thinking", "call", "result", "image"]

PROMPTS_ONLY = "-prompts-only"  # ends the runtime of a client's prompt history
OTHER_LINES = "other-lines"  # the session of its lines that name neither a session nor a time
MCP_RUNTIME = "mcp"  # of documents that a server gave over the Model Context Protocol
STORE_RUNTIMES = ("claude-mem", "mem0", "basic-memory", "memory-server", "markdown")  # of records of other products
EXTERNAL_RUNTIMES = (*STORE_RUNTIMES, MCP_RUNTIME)  # not detected in files: an import makes their lines
OWN_RUNTIME = "perdure"  # of the sessions that Perdure holds itself
WORKFLOW_RUNTIME = "workflow"  # of the turns of workflows: `UnifiedMemory` writes them
RUNTIMES = (
    "claude-code", "codex", "pi", "gemini-cli", "copilot-cli", "opencode",
    "qwen-code", "kimi-code", "cline", "aider", "messages", "notes",
    "claude-code-prompts-only", "codex-prompts-only", OWN_RUNTIME, "host-memory", "instructions", *EXTERNAL_RUNTIMES,
)  # fmt: skip


GrantScope = Literal["run", "tag", "project", "agent", "memory"]
GRANT_SCOPES: tuple[GrantScope, ...] = ("run", "tag", "project", "agent", "memory")


class Grant(Struct, frozen=True):
    """A share: the runs that another user may read, masked; it covers runs that come into its scope later, too."""

    grant_id: str
    owner: str
    grantee: str
    scope: GrantScope
    value: str  # the run (with all runs below it), the tag, the project's path, the agent or the memory
    until_at: datetime | None = None  # exclusive; None: until it is revoked
    since_at: datetime | None = None  # covers only what began, or was stated, from then on; None: everything
    team: str = ""  # the team of whose members the grantee is one; "" for a grant to one user


class Principal(Struct, frozen=True):
    """The user who asks, and the grants of others in force now. Every filter is built from it alone."""

    user: str
    granted: tuple[Grant, ...] = ()  # other owners' grants that are in force now


class Identity(Struct, frozen=True):
    """The user and the machine of a credential.

    Everything captured with it gets this owner and machine, whatever a request claims.
    """

    user: str
    machine: str  # its name, as runs carry it
    machine_id: str
    is_admin: bool = False


class Source(Struct, frozen=True):
    """The origin of bytes: one append-only stream of one native session or sub-agent."""

    user: str  # its owner
    runtime: str  # the program that ran the agent, one of RUNTIMES or a name of the caller's
    session: str  # the native session id; a sub-agent's is "<session>/<agent>"
    generation: int = 0  # grows by one each time the source was rewritten

    @property
    def key(self) -> str:
        """The identity as one string: parts cannot contain NUL, so no two sources share a key."""
        return "\0".join((self.user, self.runtime, self.session, str(self.generation)))


class Origin(Struct, frozen=True):
    """The facts about a source before its bytes are copied; read from its first lines and its path."""

    runtime: str
    session: str  # as in Source
    conversation: str  # native id of the session that groups it: its own, or the spawning session's
    parent_session: str | None = None  # Source.session of the agent that spawned this one, or of the fork's origin
    cwd: str | None = None  # working directory as the client wrote it
    fork: bool = False  # parent_session is the session it was forked from, not the one that spawned it


class Part(NamedTuple):
    """One piece of a turn, in the order in which it was said or done. A tuple, because a transcript has very many."""

    kind: PartKind
    text: str  # the words; for a call its input as compact JSON, for a result its output in full
    name: str = ""  # the tool's name for a call (and a result when known); the media type of an image
    call_id: str = ""  # joins a call and its result
    is_error: bool = False  # a result that reports failure
    digest: str = ""  # of an image that its line carries: BLAKE2b of its base64, 32 hex digits


class Turn(NamedTuple):
    """One message of a run. It consists of whole lines, and each line belongs to one turn only. A tuple, like
    its parts.
    """

    role: Role
    author: Author  # who produced it: a person typing, a machine turn, the agent, or a tool
    lines: tuple[tuple[int, int], ...]  # [from, to) byte ranges in the source, to behind the newline; never empty
    parts: tuple[Part, ...]
    stated_at: datetime | None = None
    native_id: str | None = None  # unique for this runtime and user across sources; the same in a copy
    thread: str = ""  # "" is the main line; otherwise names an inline sidechain (a sub-agent in the same file)
    model: str = ""
    n_tokens: int = 0  # input + output + cache tokens that the client reported for it
    files: tuple[str, ...] = ()  # paths that its tool calls read or wrote, as written
    skills: tuple[str, ...] = ()
    is_summary: bool = False  # a compaction or branch summary written by the client
    link: tuple[str, str | None] | None = None  # (entry id, parent entry id) where the file is a tree

    @property
    def offset(self) -> int:
        """The byte offset of its first line; with the source it is the turn's identity."""
        return self.lines[0][0]

    def text(self, *kinds: PartKind) -> str:
        """Return the texts of these kinds of parts (default: all but images), joined by blank lines."""
        selected = kinds or ("text", "pasted", "thinking", "call", "result")
        return "\n\n".join(part.text for part in self.parts if part.kind in selected and part.text)


class ParsedLines(Struct, frozen=True):
    """The turns that a format read from some lines, and a record of every line left out: nothing is skipped
    silently.
    """

    turns: tuple[Turn, ...]  # in the order of their first lines
    links: tuple[tuple[str, str | None], ...] = ()  # (entry id, parent id) of every entry, for tree files
    title: str = ""  # the last title that the client gave the session
    skipped: Mapping[str, int] = {}  # line type -> lines left out on purpose
    malformed: tuple[int, ...] = ()  # offsets of lines that are not what their format allows
    n_forgotten: int = 0  # lines that a `forget` replaced


class Run(Struct, frozen=True):
    """The unit of capture: a byte range of a source, with what was known at capture (its metadata file)."""

    run_id: str  # 26 characters, sorts by time, deterministic in (source, from_offset)
    source: Source
    machine: str  # which device captured it
    agent: str  # whose mind it is
    project: str | None  # repository root or folder
    conversation: str
    from_offset: int
    to_offset: int
    sha256: str  # of the captured bytes, before any forgetting
    started_at: datetime | None  # first and last time stamp found in the bytes
    ended_at: datetime | None
    captured_at: datetime
    parent_run_id: str | None = None  # only when the caller named it; otherwise derived
    parent_session: str | None = None  # session that spawned this one (or that it was forked from)
    fork: bool = False
    path: str | None = None  # where the client keeps it
    cwd: str | None = None
    tags: tuple[str, ...] = ()
    readable_by: tuple[str, ...] = ()
    forgotten: tuple[tuple[int, int], ...] = ()  # byte ranges of the source that were forgotten
    stored_sha256: str | None = None  # of the bytes on disk, when they differ from those captured

    @property
    def n_bytes(self) -> int:
        """The length of the captured range in bytes."""
        return self.to_offset - self.from_offset


Json = dict[str, Any]


class Live(Struct, frozen=True):
    """A session in progress. A search need not return its content: the model reads it anyway."""

    conversation: str
    since_at: datetime | None = None  # time of the last compaction, which removed all before it; None: no compaction
    loaded_files: tuple[str, ...] = ()  # instructions that the client reads by itself


_IN_NO_NAME = lazy_re("[\0\ud800-\udfff]")


class Filters(Struct, frozen=True):
    """The limits of a search. Empty means no limit. Several values of one field mean any of them; of tags, all."""

    agents: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()  # the project's path, or its last components; "" is what has no project
    runtimes: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    conversations: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()  # text, thinking, call, result, picture (text that was read in an image)
    tags: tuple[str, ...] = ()  # the run has every one of them
    runs: tuple[str, ...] = ()  # run ids, in full
    files: tuple[str, ...] = ()  # a path or its last components
    tools: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    workflow_agents: tuple[str, ...] = ()  # agents of workflows, as `identity.find_workflow_agent` names them
    since_at: datetime | None = None
    until_at: datetime | None = None  # exclusive
    begun_since_at: datetime | None = None  # of the run
    begun_until_at: datetime | None = None  # exclusive
    held: tuple[Live, ...] = ()  # sessions in progress: their own content is left out
    memories: bool = False  # True: find memories as well as turns

    def __post_init__(self) -> None:
        """Replace NUL and lone surrogates: no name has one, and an index refuses to compare with it."""
        for name in self.__struct_fields__:
            values = getattr(self, name)
            if isinstance(values, tuple) and name != "held" and _IN_NO_NAME.search("".join(values)):
                force_setattr(self, name, tuple(_IN_NO_NAME.sub("\ufffd", value) for value in values))


class ForgetRequest(Struct, frozen=True):
    """What a person wants to forget: ids, or everything that a query finds."""

    ids: tuple[str, ...] = ()  # of turns, runs, conversations and memories, or their beginnings; paths of memories
    query: str = ""  # every turn and memory that holds all these words; with filters only turns
    filters: Filters = Filters()  # of the query
    cascade: bool = True  # with a run also the runs below it
    with_floor: bool = False  # with the query: also lines, cards and proposals of the floor, from every version


class ForgetItem(Struct, frozen=True):
    """One turn, or the other lines of a run, that is forgotten."""

    turn_id: str
    run_id: str
    role: Role | None  # None for lines that are not a turn
    stated_at: datetime | None
    preview: str  # one line, masked
    path: str  # of the client's own transcript, which is not deleted


class ForgetReport(Struct, frozen=True):
    """What a request would delete, or has deleted."""

    items: tuple[ForgetItem, ...]
    memories: tuple[Memory, ...]
    lines: tuple[tuple[str, str], ...]  # (page or id, line) of the floor
    digest: str  # names the items, memories and lines: what was shown is what is deleted
    left_lines: tuple[tuple[str, str, str], ...] = ()  # (page or id, line, write, card, propose, file or ""): they stay
    left_files: tuple[str, ...] = ()  # paths below the home, that may hold the same words; they stay
    output_files: tuple[str, ...] = ()  # messages that wait for a target, and records of commands: paths; they go too
    rewritten_runs: tuple[str, ...] = ()  # empty in a preview


class Hit(Struct, frozen=True):
    """One turn in a search result."""

    turn_id: str
    run_id: str
    conversation: str
    title: str  # the client's title of the session, or what was asked first in it
    runtime: str
    machine: str
    agent: str
    project: str | None
    role: Role
    author: Author
    kind: str  # of the piece that matched: text, thinking, call, result, picture (text that was read in an image)
    stated_at: datetime | None
    text: str  # the piece that matched, masked
    score: float  # higher is better; 0.0 when only filters were given
    abandoned: bool = False  # on a branch that the session abandoned
    is_summary: bool = False
    keyword_score: float | None = None  # BM25, if the words matched
    vector_score: float | None = None  # cosine of its nearest piece, if it has a vector
    legs_score: float | None = None  # the weighted sum of both, which its neighbours, text and place then change
    user: str = ""  # its owner
    chunk: int = 0  # which piece of the turn matched, from 0


class Facets(Struct, frozen=True):
    """The number of matching turns for each runtime, machine, project, tag, agent, role and kind of text."""

    counts: Mapping[str, Mapping[str, int]]  # facet -> its value ("" for no project) -> turns, most first
    is_partial: bool = False  # more may match than were counted


class SearchResult(Struct, frozen=True):
    """The result of a search, and how it was made."""

    hits: tuple[Hit, ...]  # best first
    terms: tuple[str, ...] = ()  # the terms of the search
    dropped: tuple[str, ...] = ()  # words too frequent to rank by
    degraded: tuple[str, ...] = ()  # steps that failed, e.g. "index" if the archive itself was scanned
    n_behind: int = 0  # runs that the index has not projected yet
    took_ms: float = 0.0
    mode: str = "keyword"  # how it was searched: keyword, hybrid or semantic
    n_unembedded: int = 0  # chunks without a vector yet, if vectors were used
    timings_ms: Mapping[str, float] = {}  # of the query's vector: queued, compute
    depth: Mapping[str, int] = {}  # lane -> texts that waited to be embedded before it


MemoryKind = Literal["fact", "preference", "decision", "procedure", "event", "insight"]
Trust = Literal["owner", "agent", "tool", "web"]
MEMORY_KINDS: tuple[MemoryKind, ...] = ("fact", "preference", "decision", "procedure", "event", "insight")
TRUSTS: tuple[Trust, ...] = ("owner", "agent", "tool", "web")  # most trusted first


class Span(NamedTuple):
    """The place of a statement: bytes of a run's source, which hold one turn or several."""

    run_id: str
    from_offset: int
    to_offset: int  # exclusive


class Memory(Struct, frozen=True):
    """A short statement worth keeping. Memories of one agent, project and path form a chain; one of them is
    current.
    """

    memory_id: str  # mem-YYYYMMDD-HHMMSS-xxxxxx
    text: str
    kind: MemoryKind
    path: str  # its subject and attribute, as in user/preferences/editor
    agent: str
    project: str | None
    stated_at: datetime  # when it was said; decides which memory is current
    recorded_at: datetime  # when Perdure noted it
    trust: Trust  # the lowest of its lineage
    how: str  # stated (by rules, from what a person typed), remembered, mined, consolidated, imported, file, stored
    sources: tuple[Span, ...] = ()  # the turns behind it
    made_from: tuple[str, ...] = ()  # memories that it was made from
    entities: tuple[str, ...] = ()
    runtime: str = ""  # runtime of its first source
    conversation: str = ""
    valid_from: datetime | None = None  # validity in the world, if the text says it
    valid_until: datetime | None = None
    pinned: bool = False
    confidence: float = 1.0
    retired: bool = False  # set aside: kept, never recalled
    in_review: bool = False  # retired until its owner accepts it
    n_stated: int = 1  # how often it was said
    n_injected: int = 0
    n_used: int = 0
    renewed_at: datetime | None = None  # when it was last said again or used; decay counts from here
    used_at: datetime | None = None  # when it was last used
    stability: float = 1.0  # grows with use (memories.decay)
    order: str = ""  # order of the event that made it, as text: breaks ties between equal times
    superseded_by: str | None = None  # projected: the next of its chain
    ended_at: datetime | None = None  # projected: when the next one was stated, or its own validity ended
    shared_by: str = ""  # its owner, if another user reads it; never stored

    @property
    def is_current(self) -> bool:
        """Is True for the memory that is valid now in its chain."""
        return self.superseded_by is None and not self.retired


class MemoryHit(Struct, frozen=True):
    """One memory in the result of a search of memories."""

    memory: Memory
    score: float  # higher is better; 1 / rank where memories of others could be found
    keyword_score: float | None = None  # BM25, if the words matched
    vector_score: float | None = None  # cosine, if it has a vector; both None where `score` is 1 / rank


Intent = Literal["fact", "latest", "history", "overview", "task"]


class Window(Struct, frozen=True):
    """A time range that a message names."""

    since_at: datetime
    until_at: datetime  # exclusive
    words: str  # the words of the message


class Plan(Struct, frozen=True):
    """The queries and conditions of the recall for one message."""

    message: str
    asked_at: datetime
    queries: tuple[str, ...]  # 1 to 4, each 2 to 6 words where the message has that many; empty: nothing to look for
    names: tuple[str, ...] = ()  # people, projects, places, identifiers that the message mentions
    windows: tuple[Window, ...] = ()
    events: tuple[str, ...] = ()  # "since the release": an event to be dated before it gives a window
    intent: Intent = "fact"
    speakers: tuple[str, ...] = ()  # the speakers that the message asks about: "user", "assistant"
    by_model: bool = False  # a helper model chose the queries

    @property
    def question(self) -> str:
        """The question that is searched for: the message, or the queries that a model made of it."""
        return ", ".join(self.queries) if self.by_model else self.message


class Cue(Struct, frozen=True):
    """One recalled turn or memory, with its provenance and the reason why it was chosen."""

    turn_id: str  # or the memory's id
    run_id: str  # "" for a memory
    conversation: str
    role: Role
    stated_at: datetime | None
    machine: str
    runtime: str
    text: str  # the piece that matched, shortened to the budget
    score: float  # after fusion; higher is better
    legs: Mapping[str, float]  # leg -> its share of the score, before neighbours: keyword, vector, entity, time, …
    why: tuple[str, ...]  # in words
    before: str = ""  # the turn before, if the piece is unclear without it
    n_tokens: int = 0  # of the cue as it is packed
    memory: Memory | None = None  # if the cue is a memory
    is_history: bool = False  # it was true, and is superseded
    note: str = ""  # a remark for the reader: since when it is true, or that it is superseded
    user: str = ""  # its owner
    is_shared: bool = False  # the owner is not the user who asks
    chunk: int | None = None  # which piece of the turn matched, from 0; None for a memory
    project: str | None = None  # of the turn or the memory
    age: str = ""  # how long before the message it was said, in words
    is_from_web: bool = False  # an agent said it after it read something from the web for the same message
    is_in_picture: bool = False  # the text was read in an image of the turn


class WithheldText(NamedTuple):
    """The reason why a text is not given to a model."""

    rule: str  # the scanner's rule
    digest: str  # name of the text, by which its owner can allow it


class Recalled(Struct, frozen=True):
    """The cues of the recall for one message, and the steps that failed."""

    cues: tuple[Cue, ...]  # best first; empty is an answer
    plan: Plan
    silent: str = ""  # why there is no cue, in words; empty when there is one
    degraded: tuple[str, ...] = ()  # steps that failed, e.g. "vector"
    timings_ms: Mapping[str, float] = {}  # step -> time
    n_tokens: int = 0
    n_behind: int = 0  # captures that could not be found yet
    without_room: tuple[str, ...] = ()  # turn ids that did not fit into the budget
    passed_over: Mapping[str, str] = {}  # turn id -> why it was rejected, if requested
    held_back: Mapping[str, WithheldText] = {}  # turn or memory id -> a text that reads like an order to a model
    depth: Mapping[str, int] = {}  # lane -> texts that waited to be embedded before this
    relevance: float | None = None  # of the best match, as the judge measures it; None if nothing was looked for
    threshold: float | None = None  # below which recall is silent
    coverage: float | None = None  # share of the message's words in the best match, if enough words to count
    spoke_by: str = ""  # why recall spoke: "relevance", "coverage" or "time"
    judged_for: str = ""  # the model whose threshold counted, or "words"


class RunView(Struct, frozen=True):
    """A run with everything that is derived about it."""

    run_id: str
    user: str
    machine: str
    runtime: str
    agent: str
    project: str | None
    conversation: str
    session: str  # native id of the session or sub-agent
    generation: int
    parent_run_id: str | None  # the previous run of its session, or of the agent that spawned it
    root_run_id: str  # the run at the top of its tree
    sidechain: bool  # lies inside its parent's bytes
    fork: bool
    tags: tuple[str, ...]
    readable_by: tuple[str, ...]
    models: tuple[str, ...]  # models that answered in it
    title: str
    intent: str  # beginning of the first user message, at most 500 characters
    started_at: datetime | None
    ended_at: datetime | None
    captured_at: datetime
    duration_ms: int | None
    n_turns: int
    n_user: int
    n_assistant: int
    n_tool: int
    n_calls: int
    n_tokens: int
    n_forgotten: int
    n_malformed: int
    skipped: Mapping[str, int]  # line type -> lines left out on purpose
    path: str | None
    cwd: str | None
    from_offset: int
    to_offset: int
    jsonl_bytes: int
    jsonl_sha256: str  # of the stored bytes
    n_abandoned: int = 0  # turns on branches that the session abandoned


class Columns(Struct, frozen=True):
    """The six columns of a run beside its transcript, as they are in the index."""

    user_messages: tuple[str, ...]
    agent_messages: tuple[str, ...]
    tool_calls: tuple[str, ...]  # "tool input", in order
    files_touched: tuple[str, ...]
    entities: tuple[str, ...]
    skills: tuple[str, ...]


class Node(Struct, frozen=True):
    """A run in its tree."""

    run: RunView
    children: tuple[Node, ...]  # oldest first
