"""Ask the remote home of a thin machine over HTTP; return the same types as a local home.

Each request carries this machine's credential, and the answer holds only what that credential may read. A
request that the API does not support is refused with an error; it is never answered as if it had been
made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from perdure import formats
from perdure.archive.memory_events import fold_path
from perdure.capture import credential, lines, remote
from perdure.capture.policy import CaptureRules
from perdure.capture.remote import RemoteConnection, RemoteResponse, UrlQuery
from perdure.errors import MemoryMissing, NotFound, RemoteAway, RemoteNonsense, ThinHome, UsageError
from perdure.identity import find_project, is_run_id
from perdure.placed_turns import PlacedTurn, get_turn_id
from perdure.sharing.grants import GrantRecord
from perdure.types import (
    RUNTIMES,
    Cue,
    Filters,
    GrantScope,
    Hit,
    Live,
    Memory,
    MemoryKind,
    Node,
    Plan,
    Recalled,
    RunView,
    SearchResult,
    Span,
)

_PAGE_ITEMS = 100  # hits in one answer
_MAX_TREE_RUNS = 500  # runs in one answer
_API_FILTER_NAMES = {  # field of Filters -> what the API calls it
    "agents": "agent", "projects": "project", "runtimes": "agent_runtime", "machines": "machine_id", "roles": "role",
    "kinds": "kind", "tags": "tags",
}  # fmt: skip

Noun = TypeVar("Noun")


@contextlib.contextmanager
def open_remote_home(rules: CaptureRules) -> Iterator[RemoteHome]:
    """Open the remote home of this machine for the block. Raises CredentialMissing, CredentialFault."""
    connection, stored_credential = (
        remote.open_connection(rules.home, rules.remote),
        credential.read_credential(rules.home),
    )
    try:
        yield RemoteHome(connection, stored_credential.user_id if stored_credential else "", rules.remote.url)
    finally:
        connection.close()


class ResolvedId(NamedTuple):
    """The meaning of an id. runs: the runs that hold its turns, in order; empty for a memory."""

    kind: str  # turn, run, conversation, memory
    id: str
    runs: tuple[str, ...]


class RemoteHome:
    """A remote home, asked over one connection."""

    def __init__(self, connection: RemoteConnection, user: str, url: str = "") -> None:
        """connection: closed by the caller who opened it. user: the owner of this machine. url: address of the home."""
        self.user = user
        self.url = url
        self._connection = connection

    def read_identity(self) -> dict[str, Any]:
        """Ask the home whose machine this is."""
        return self.request("GET", "me")

    def search(self, query: str, filters: Filters, *, limit: int, mode: str | None) -> SearchResult:
        """Search the turns of the remote home; return the matches, best first."""
        if not query.strip():
            raise UsageError("a remote home cannot search with filters only: add words")
        body: dict[str, Any] = {"query": query, "filters": _to_api_filters(filters), "limit": min(limit, _PAGE_ITEMS)}
        body |= {"mode": mode} if mode else {}
        hits: list[Hit] = []
        took_ms = 0.0
        while True:
            response = self.request("POST", "runs/search", body=body)
            hits += [_to_hit(item) for item in get_items(response, "hits")]
            took_ms += float(response.get("timing", {}).get("total_ms", 0))
            if not response.get("next_cursor") or len(hits) >= limit:
                break
            body["cursor"] = response["next_cursor"]
        return SearchResult(
            hits=tuple(hits[:limit]),
            terms=tuple(query.split()),
            degraded=tuple(response.get("degraded", ())),
            n_behind=int(response.get("behind") or 0),
            took_ms=took_ms,
            mode=str(response.get("mode") or mode or "hybrid"),
        )

    def recall(
        self, message: str, *, cwd: str | None, all_projects: bool, mode: str | None, as_of: datetime | None
    ) -> Recalled:
        """Return what a model would be given for a message."""
        fields = {
            "message": message,
            "cwd": cwd,
            "project": find_project(cwd),
            "all_projects": all_projects,
            "mode": mode,
            "as_of": as_of.isoformat() if as_of else None,
        }
        response = self.request(
            "POST", "recall", body={name: value for name, value in fields.items() if value is not None}
        )
        plan = Plan(message, datetime.now(UTC), tuple(message.split()[:1]))
        return Recalled(
            cues=tuple(_to_cue(item) for item in get_items(response, "cues")),
            plan=plan,
            silent=str(response.get("silent") or ""),
            degraded=tuple(response.get("degraded", ())),
            timings_ms=response.get("timings_ms") or {},
            n_tokens=int(response.get("n_tokens") or 0),
        )

    def load_forest(self, *, since: str | None, runtime: str | None, root: str | None, limit: int) -> list[Node]:
        """Return the newest runs as trees."""
        parameters = {"since": since, "runtime": runtime, "root_run_id": root}
        query = [(name, value) for name, value in parameters.items() if value]
        query += [("limit", str(min(limit, _MAX_TREE_RUNS))), ("flat", "true")]
        response = self.request("GET", "runs/forest", query=query)
        return _build_trees([(int(item["depth"]), _to_run_view(item["run"])) for item in get_items(response, "items")])

    def resolve(self, prefix: str) -> ResolvedId:
        """Ask the home what an id, or the beginning of one, means. Raises NotFound, UsageError."""
        if is_run_id(prefix):
            return ResolvedId("run", prefix, (prefix,))
        try:
            response = self.request("GET", f"resolve/{quote(prefix, safe='')}")
        except NotFound as error:
            raise NotFound(prefix) from error
        return to_noun([response.get(name) for name in ResolvedId._fields], ResolvedId)

    def find_run_id(self, prefix: str) -> str:
        """Return the id of a run. Raises NotFound; UsageError if the id names something else."""
        resolved_id = self.resolve(prefix)
        if resolved_id.kind != "run":
            raise UsageError(f"{prefix!r} is a {resolved_id.kind}, not a run")
        return resolved_id.id

    def get_run(self, run_id: str) -> RunView:
        """Return a run with everything that is derived about it. Raises NotFound."""
        return _to_run_view(self.request("GET", f"runs/{quote(run_id, safe='')}"))

    def read_jsonl(self, run_id: str) -> bytes:
        """Return the bytes of a run, as this user may read them. Raises NotFound."""
        return _check_response(self._connection.ask("GET", f"runs/{quote(run_id, safe='')}/jsonl")).raw

    def load_turns(self, resolved_id: ResolvedId) -> list[PlacedTurn]:
        """Return the turns of all the runs of an id, in order; a message that is in several runs comes once."""
        turns_by_id: dict[str, PlacedTurn] = {}
        for run_id in resolved_id.runs:
            for item in self._load_run_turns(self.get_run(run_id)):
                turns_by_id[item[1].native_id or get_turn_id(item)] = item
        return list(turns_by_id.values())

    def _load_run_turns(self, view: RunView) -> list[PlacedTurn]:
        runtime = view.runtime if view.runtime in RUNTIMES else "messages"
        is_spawned = view.session != view.conversation and not view.fork
        raw_lines = lines.split_lines(self.read_jsonl(view.run_id), from_offset=view.from_offset)
        return [(view, turn, False) for turn in formats.parse(runtime, raw_lines, spawned=is_spawned).turns]

    # what is shared -----------------------------------------------------------------------------------------------

    def share(self, grantee: str, scope: GrantScope, value: str, *, until_at: datetime | None) -> GrantRecord:
        """Let another user read a scope. Raises NotFound, UsageError."""
        until_text = until_at.isoformat() if until_at else None
        body = {"grantee": grantee, "scope": scope, "value": value, "until_at": until_text}
        return _to_grant(self.request("POST", "grants", body=body))

    def list_grants(self, *, include_ended: bool) -> tuple[list[GrantRecord], list[GrantRecord]]:
        """Return (the grants that this user gave, the grants that others gave to this user)."""
        query = [("every", "true")] if include_ended else []
        given_grants = [_to_grant(item) for item in self.iterate_items("grants", query, _PAGE_ITEMS)]
        response = self.request("GET", "grants", query=[*query, ("limit", "1")])
        return given_grants, [_to_grant(item) for item in get_items(response, "to_me")]

    def revoke_grant(self, grant_id: str) -> GrantRecord:
        """Revoke a grant. Raises NotFound."""
        return _to_grant(self.request("DELETE", f"grants/{quote(grant_id, safe='')}"))

    # what is forgotten --------------------------------------------------------------------------------------------

    def forget(self, run_id: str, *, cascade: bool, dry_run: bool) -> dict[str, Any]:
        """Forget a run; return the list of what goes with it. `dry_run`: delete nothing. Raises NotFound."""
        query = [("cascade", str(cascade).lower()), ("dry", str(dry_run).lower())]
        return self.request("DELETE", f"runs/{quote(run_id, safe='')}", query=query)

    # how it is asked ----------------------------------------------------------------------------------------------

    def iterate_items(self, path: str, query: UrlQuery, limit: int) -> Iterator[dict[str, Any]]:
        """Yield every item of a list, page by page."""
        cursor = ""
        while True:
            page_query = [("limit", str(limit)), *([("cursor", cursor)] if cursor else [])]
            response = self.request("GET", path, query=[*query, *page_query])
            yield from get_items(response, "items")
            cursor = str(response.get("next_cursor") or "")
            if not cursor:
                return

    def request(self, method: str, path: str, *, query: UrlQuery = (), body: object = None) -> dict[str, Any]:
        """Send a request; return the body of the answer. Raises NotFound, UsageError, RemoteFault."""
        return _check_response(self._connection.ask(method, path, query=query, body=body)).body


def _check_response(response: RemoteResponse) -> RemoteResponse:
    """Return the response if the request succeeded. Raises NotFound, UsageError, RemoteAway, RemoteNonsense."""
    if response.status in (200, 201):
        return response
    if not response.code:
        raise RemoteNonsense(f"status {response.status}")
    message = str(response.body["error"].get("message") or response.code)
    if response.status == 404:
        raise NotFound(message)
    if response.status == 409:
        raise RemoteAway(message)
    raise UsageError(message)


def get_items(response: dict[str, Any], name: str) -> Sequence[dict[str, Any]]:
    """Return a list of objects from a response. Raises RemoteNonsense if there is none."""
    items = response.get(name)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise RemoteNonsense(f"no {name}")
    return items


def _to_api_filters(filters: Filters) -> dict[str, Any]:
    """Translate filters into the API's names. Raises UsageError for filters that the API does not have."""
    for name in ("files", "tools", "skills", "entities"):
        if getattr(filters, name):
            raise UsageError(f"{name} does not work on a remote home; run the command on the machine of the home")
    if len(filters.conversations) > 1:
        raise UsageError("a remote home accepts only one conversation in a search")
    api_filters: dict[str, Any] = {
        api_name: list(getattr(filters, name)) for name, api_name in _API_FILTER_NAMES.items() if getattr(filters, name)
    }
    if filters.conversations:
        api_filters["conversation_id"] = filters.conversations[0]
    times = {"gte": filters.since_at, "lte": filters.until_at}
    time_range = {name: instant.isoformat() for name, instant in times.items() if instant is not None}
    return {**api_filters, "stated_at": time_range} if time_range else api_filters


def _to_grant(item: dict[str, Any]) -> GrantRecord:
    return to_noun({**item, "grant": item}, GrantRecord)


def _to_hit(item: dict[str, Any]) -> Hit:
    score = item.get("score") or {}
    distance = score.get("vector_distance")
    fields = {
        **item,
        "user": item.get("user") or "",
        "score": float(score.get("fused") or 0.0),
        "keyword_score": score.get("text_match"),
        "vector_score": None if distance is None else 1 - distance,
    }
    return to_noun(fields, Hit)


def _to_cue(item: dict[str, Any]) -> Cue:
    fields = {"conversation": "", "legs": {}, **item}
    return to_noun({name: value for name, value in fields.items() if name != "memory"}, Cue)


def _to_run_view(item: Any) -> RunView:
    return to_noun(item, RunView)


def to_noun(item: Any, shape: type[Noun]) -> Noun:
    """Convert an item of a response to one of our types. Raises RemoteNonsense if it does not fit."""
    try:
        return msgspec.convert(item, shape)
    except msgspec.ValidationError as error:
        raise RemoteNonsense(f"an answer that is not a valid {shape.__name__}: {error}") from error


def _build_trees(rows: Sequence[tuple[int, RunView]]) -> list[Node]:
    """Build trees from a list in which parents come before their children, each run with its depth.

    Built from the end, so that a chain of thousands needs no recursion.
    """
    children_by_depth: dict[int, list[Node]] = {}
    for depth, view in reversed(rows):
        node = Node(view, tuple(reversed(children_by_depth.pop(depth + 1, []))))
        children_by_depth.setdefault(depth, []).append(node)
    return list(reversed(children_by_depth.get(0, [])))


_PAGE_MEMORIES = 100  # memories in one answer
_MEMORY_ID_PREFIX = "mem-"
_CHANGEABLE_FIELDS = ("pinned", "retired", "path", "kind")  # what a change can name
_DEFAULT_OPTIONS = {"trust": "owner", "pinned": False}


class RemoteMemories:
    """The memories of a remote home; takes the place of a local home in commands about memories."""

    def __init__(self, remote_home: RemoteHome) -> None:
        self._remote_home = remote_home
        self._responses: dict[str, dict[str, Any]] = {}  # id or its beginning -> the answer about it
        self._turn_texts: dict[str, str] = {}  # id of a turn -> its words on one line

    @property
    def memories(self) -> RemoteMemories:
        """This object: a local home has rooms, and the memories are the only room needed of a remote one."""
        return self

    @property
    def runs(self) -> RemoteMemories:
        """This object, for the names of projects."""
        return self

    @property
    def upkeep(self) -> RemoteMemories:
        """This object, for catching up."""
        return self

    def holder_of(self, identifier: str) -> RemoteMemories:  # noqa: ARG002 - the home there finds out whose it is
        """Return this object: the remote home finds out whose memory it is."""
        return self

    def catch_up(self) -> None:
        """Do nothing: the remote home keeps itself up to date."""

    def projects(self) -> list[str]:
        """Return nothing: this machine knows no projects of the remote home. A folder still names one."""
        return []

    def get(self, identifier: str) -> Memory:
        """Return the memory with this id, or with the one id that begins so. Raises MemoryMissing."""
        return to_noun(self._fetch_memory(identifier), Memory)

    def history(self, identifier: str) -> list[Memory]:
        """Return the history of a memory, oldest first. identifier: an id or a path. Raises MemoryMissing."""
        if identifier.startswith(_MEMORY_ID_PREFIX):
            return [to_noun(item, Memory) for item in get_items(self._fetch_memory(identifier), "history")]
        path = fold_path(identifier)
        memories = [
            memory for memory in self.list_memories(prefix=identifier, every=True) if fold_path(memory.path) == path
        ]
        if not memories:
            raise MemoryMissing(f"no memory has the path {identifier!r}")
        return sorted(memories, key=lambda memory: (memory.agent, memory.project or "", memory.stated_at, memory.order))

    def sources(self, identifier: str) -> list[tuple[Span, str | None]]:
        """Return (span, turn id) of the source turns; the turn id is None if the turn cannot be found any more."""
        sources = []
        for item in get_items(self._fetch_memory(identifier), "turns"):
            turn = item.get("turn_id")
            self._turn_texts[str(turn)] = str(item.get("text") or "")
            span_values = item["run_id"], item.get("from_offset", 0), item.get("to_offset", 0)
            sources.append((to_noun(span_values, Span), turn if isinstance(turn, str) else None))
        return sources

    def preview(self, turn_id: str) -> str:
        """Return the text of a source turn on one line."""
        return self._turn_texts.get(turn_id, "")

    def list_memories(
        self,
        *,
        prefix: str = "",
        kind: str = "",
        project: str | None = None,
        every: bool = False,
        as_of: datetime | None = None,
        recorded_as_of: datetime | None = None,
    ) -> list[Memory]:
        """List the current memories, newest first; with `every`, also superseded and retired ones."""
        self._refuse_if(as_of is not None or recorded_as_of is not None)
        parameters = [("prefix", prefix), ("kind", kind), ("every", "true" if every else "")]
        query = [(name, value) for name, value in parameters if value]
        query += [("project", project)] if project is not None else []
        return [to_noun(item, Memory) for item in self._remote_home.iterate_items("memories", query, _PAGE_MEMORIES)]

    def search(
        self, query: str, *, limit: int = 20, every: bool = False, touch: bool = False
    ) -> list[tuple[Memory, float]]:
        """Search memories by words and meaning; return the matches, best first, with their scores."""
        self._refuse_if(every or touch)
        response = self._remote_home.request(
            "POST", "memories/search", body={"query": query, "limit": min(limit, _PAGE_MEMORIES)}
        )
        return [(to_noun(item, Memory), float(item.get("score") or 0.0)) for item in get_items(response, "items")]

    def remember(
        self,
        text: str,
        *,
        kind: MemoryKind = "fact",
        path: str = "",
        cwd: str | None = None,
        session: Live | None = None,
        **options: Any,
    ) -> Memory:
        """Store a memory durably; if the current one says the same, count it once more."""
        unsupported_options = {name for name, value in options.items() if value and name not in _DEFAULT_OPTIONS}
        self._refuse_if(session is not None or bool(unsupported_options))
        body = {"text": text, "kind": kind, "path": path, "project": cwd, "trust": options.get("trust", "owner")}
        memory = self._store_response(self._remote_home.request("POST", "memories", body=body))
        return self.change([memory.memory_id], pinned=True)[0] if options.get("pinned") else memory

    def edit(self, identifier: str, new_text: str, **fields: Any) -> Memory:
        """Replace the text of a memory; the old text stays in its history."""
        return self._patch_memory(identifier, {"text": new_text, **fields})

    def change(self, ids: Collection[str], **fields: Any) -> list[Memory]:
        """Set fields of memories."""
        return [self._patch_memory(identifier, fields) for identifier in ids]

    def _patch_memory(self, identifier: str, fields: dict[str, Any]) -> Memory:
        self._refuse_if(bool(fields.keys() - {"text", *_CHANGEABLE_FIELDS}))
        return self._store_response(
            self._call_memory_route(identifier, lambda path: self._remote_home.request("PATCH", path, body=fields))
        )

    def _fetch_memory(self, identifier: str) -> dict[str, Any]:
        if identifier not in self._responses:
            self._responses[identifier] = self._call_memory_route(
                identifier, lambda path: self._remote_home.request("GET", path)
            )
        return self._responses[identifier]

    def _call_memory_route(self, identifier: str, send: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
        try:
            return send(f"memories/{quote(identifier, safe='')}")
        except NotFound as error:
            raise MemoryMissing(f"no memory {identifier!r}") from error

    def _store_response(self, response: dict[str, Any]) -> Memory:
        """Convert a response to a memory, and keep only this response: it is the newest state."""
        memory = to_noun(response, Memory)
        self._responses = {memory.memory_id: response}
        return memory

    def _refuse_if(self, is_unsupported: bool) -> None:
        """Raise ThinHome if a request is one that the API does not support."""
        if is_unsupported:
            raise ThinHome(self._remote_home.url)
