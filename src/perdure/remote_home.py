"""Ask the remote home of a thin machine over HTTP; return the same types as a local home.

Each request carries this machine's credential, and the answer holds only what that credential may read. A
request that the API does not support is refused with an error; it is never answered as if it had been
made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from perdure.archive.memory_events import fold_path
from perdure.capture import credential, remote
from perdure.capture.policy import CaptureRules, RemoteSettings
from perdure.capture.remote import RemoteConnection, RemoteResponse, UrlQuery
from perdure.errors import (
    FloorMissing,
    MemoryMissing,
    NotFound,
    RecallMissing,
    RemoteAway,
    RemoteNonsense,
    ThinHome,
    UsageError,
)
from perdure.floor.state import FloorCard, PageVersion
from perdure.home_protocol import HomeProtocol
from perdure.identity import find_project
from perdure.sharing.grants import GrantRecord, Team
from perdure.text import printable
from perdure.types import (
    Filters,
    ForgetReport,
    ForgetRequest,
    Grant,
    GrantScope,
    Live,
    Memory,
    MemoryHit,
    MemoryKind,
    Node,
    Recalled,
    RunView,
    SearchResult,
    Span,
)

if TYPE_CHECKING:  # 30 ms; only a context and a floor need them
    from perdure.access.scan import Finding
    from perdure.context import Context, WindowMessage
    from perdure.floor.layers import KeptLayer, Layers
    from perdure.memories.host_answer import HostStatement
    from perdure.memories.host_mining import SettleResult
    from perdure.memories.host_question import HostCandidate
    from perdure.runs import Transcript
    from perdure.sharing.access_picture import AccessPicture
    from perdure.sharing.teams import Note

_PAGE_ITEMS = 100  # hits in one answer
_MAX_TREE_RUNS = 500  # runs in one answer
_TICK = timedelta(milliseconds=1)  # the resolution of the index
_API_FILTER_NAMES = {  # field of Filters -> what the API calls it
    "agents": "agent", "projects": "project", "runtimes": "agent_runtime", "machines": "machine_id", "roles": "role",
    "kinds": "kind", "tags": "tags", "conversations": "conversation_id", "files": "file", "tools": "tool",
    "skills": "skill", "entities": "entity",
}  # fmt: skip

Noun = TypeVar("Noun")


def open_remote_home(rules: CaptureRules) -> RemoteHome:
    """Open the home that this machine has joined. Raises CredentialMissing, CredentialFault."""
    connection = remote.open_connection(rules.home, rules.remote)
    stored_credential = credential.read_credential(rules.home)
    return RemoteHome(connection, stored_credential.user_id if stored_credential else "", rules.remote.url)


def connect(url: str, secret: str, *, ca: str = "", plain: bool = False) -> RemoteHome:
    """Open a home on another machine; close it, or use it in a `with` block.

    secret: of a machine, as `perdure machine register` printed it. ca: a file with your own certificate authority.
    plain: allow http:// to another machine, in a private network. Raises RemoteFault, UsageError.
    """
    settings = RemoteSettings(url.rstrip("/"), ca, plain)
    remote_home = RemoteHome(RemoteConnection(settings, secret), "", settings.url)
    try:
        remote_home.user = str(remote_home.read_identity().get("user") or "")
    except BaseException:
        remote_home.close()
        raise
    return remote_home


class RemoteHome(HomeProtocol):
    """A remote home, asked over one connection. It answers `HomeProtocol`, as a local home does."""

    def __init__(self, connection: RemoteConnection, user: str, url: str = "") -> None:
        """user: the owner of this machine. url: address of the home."""
        self.user = user
        self.url = url
        self._connection = connection

    def __enter__(self) -> RemoteHome:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def read_identity(self) -> dict[str, Any]:
        """Ask the home whose machine this is."""
        return self.request("GET", "me")

    @cached_property
    def memories(self) -> RemoteMemories:
        """The memories of this user."""
        return RemoteMemories(self)

    @cached_property
    def floor(self) -> RemoteFloor:
        """The floor that a session of this user gets."""
        return RemoteFloor(self)

    @cached_property
    def forgetting(self) -> RemoteForgetting:
        """What this user forgets."""
        return RemoteForgetting(self)

    @cached_property
    def sharing(self) -> RemoteSharing:
        """The grants of this user, and of others to this user."""
        return RemoteSharing(self)

    @cached_property
    def runs(self) -> RemoteRuns:
        """The runs that this user may read."""
        return RemoteRuns(self)

    def search(
        self,
        query: str,
        *,
        filters: Filters | None = None,
        limit: int = 20,
        mode: str | None = None,
        scan: bool = False,
    ) -> SearchResult:
        """Return the turns that match, best first, as `Home.search` does. Raises UsageError for `scan`."""
        if scan:
            raise UsageError("a remote home does not scan its archive; run the command on the machine of the home")
        body: dict[str, Any] = {"query": query, "filters": _to_api_filters(filters or Filters()), "full": True}
        body |= {"limit": min(limit, _PAGE_ITEMS)} | ({"mode": mode} if mode else {})
        pages: list[SearchResult] = []
        while True:
            response = self.request("POST", "runs/search", body=body)
            pages.append(to_noun(response.get("result"), SearchResult))
            if not response.get("next_cursor") or sum(len(page.hits) for page in pages) >= limit:
                break
            body["cursor"] = response["next_cursor"]
        hits = tuple(hit for page in pages for hit in page.hits)[:limit]
        return replace(pages[-1], hits=hits, took_ms=sum(page.took_ms for page in pages))

    def recall(
        self,
        message: str,
        *,
        now: datetime | None = None,
        cwd: str | None = None,
        all_projects: bool = False,
        mode: str | None = None,
        explain: bool = False,
        as_of: datetime | None = None,
    ) -> Recalled:
        """Return the few turns and memories that matter for a message, as `Home.recall` does."""
        fields = {"all_projects": all_projects, "explain": explain, "as_of": as_of}
        response = self.request("POST", "recall", body=_to_body(message, now=now, cwd=cwd, mode=mode, **fields))
        return to_noun(response.get("recalled"), Recalled)

    def explain_omission(self, message: str, name: str, **options: Any) -> str:
        """Return why a turn or a memory was left out of the recall for a message. options: those of `recall`.

        Raises NotFound.
        """
        options = {"now": None, "cwd": None, "mode": None, **options, "why_not": name}
        return str(self.request("POST", "recall", body=_to_body(message, **options)).get("omission") or "")

    def context(
        self,
        message: str,
        *,
        window: Sequence[WindowMessage] = (),
        cwd: str | None = None,
        platform: str = "api",
        session: Live | None = None,
        now: datetime | None = None,
        mode: str | None = None,
    ) -> Context:
        """Return the context of one message for any model, as `Home.context` does."""
        from perdure.context import Context

        fields = {"window": list(window), "platform": platform, "session": session.conversation if session else None}
        response = self.request("POST", "context", body=_to_body(message, now=now, cwd=cwd, mode=mode, **fields))
        self.floor.alerts = read_strings(response, "alerts")
        return to_noun(response.get("context"), Context)

    def why(self, session: str = "") -> dict[str, Any]:
        """Return the last recall that a session was given, with the reason for each text. Raises RecallMissing."""
        try:
            response = self.request("GET", "why", query=[("session", session)] if session else [])
        except NotFound as error:
            raise RecallMissing(
                f"no recall for session {session}" if session else "no session has had a recall yet"
            ) from error
        event = {name: value for name, value in response.items() if name not in ("_links", "next_actions")}
        cues = [
            {**cue, "stated_at": to_noun(cue["stated_at"], datetime | None)} if "stated_at" in cue else cue  # type: ignore[arg-type]
            for cue in get_items(event, "cues")
        ]
        return {**event, "at": to_noun(event.get("at"), datetime), "cues": cues}

    def resolve(self, prefix: str) -> tuple[str, str]:
        """Return ("turn" | "run" | "conversation" | "memory", full id) for the beginning of an id. Raises NotFound."""
        response = self.runs.resolve(prefix)
        return str(response.get("kind")), str(response.get("id"))

    writable = False  # its archive is not on this machine

    @property
    def upkeep(self) -> RemoteHome:
        """This object, for catching up."""
        return self

    def catch_up(self) -> None:
        """Do nothing: the home keeps itself up to date."""

    def remember(
        self, text: str, *, kind: MemoryKind = "fact", path: str = "", cwd: str | None = None, **more: Any
    ) -> Memory:
        """Store a memory, durably, as `Home.remember` does."""
        return self.memories.remember(text, kind=kind, path=path, cwd=cwd, **more)

    def preview(self, identifier: str) -> str:
        """Return the text of a source turn on one line."""
        return self.memories.preview(identifier)

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

    def download(self, path: str, *, query: UrlQuery = ()) -> bytes:
        """Return the bytes of an answer that is not JSON. Raises NotFound, RemoteFault."""
        return _check_response(self._connection.ask("GET", path, query=query)).raw

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


def read_strings(response: dict[str, Any], name: str) -> list[str]:
    """Return a list of strings from a response. Raises RemoteNonsense if there is none."""
    return to_noun(response.get(name), list[str])


def get_items(response: dict[str, Any], name: str) -> Sequence[dict[str, Any]]:
    """Return a list of objects from a response. Raises RemoteNonsense if there is none."""
    items = response.get(name)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise RemoteNonsense(f"no {name}")
    return items


def _to_body(message: str, *, now: datetime | None, cwd: str | None, **fields: Any) -> dict[str, Any]:
    """Build the body of a question about a message. The time and the project are those of this machine."""
    body = {"message": message, "now": now or datetime.now().astimezone(), "cwd": cwd, "project": find_project(cwd)}
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in {**body, **fields, "full": True}.items()
        if value is not None
    }


def _to_api_filters(filters: Filters) -> dict[str, Any]:
    """Translate filters into the API's names. Raises UsageError for filters that the API does not have."""
    if unknown := [name for name in ("runs", "held", "memories") if getattr(filters, name)]:
        raise UsageError(f"a remote home has no filter {unknown[0]!r}")
    api_filters: dict[str, Any] = {
        api_name: list(getattr(filters, name)) for name, api_name in _API_FILTER_NAMES.items() if getattr(filters, name)
    }
    ranges = {
        "stated_at": _to_time_range(filters.since_at, filters.until_at),
        "started_at": _to_time_range(filters.begun_since_at, filters.begun_until_at),
    }
    return api_filters | {name: time_range for name, time_range in ranges.items() if time_range}


def _to_time_range(since_at: datetime | None, until_at: datetime | None) -> dict[str, str]:
    """Build a range of the API, to which its end belongs."""
    times = {"gte": since_at, "lte": until_at - _TICK if until_at else None}
    return {name: instant.isoformat() for name, instant in times.items() if instant is not None}


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


class RemoteRuns:
    """The runs of a remote home, with the methods of the room of a local one."""

    def __init__(self, remote_home: RemoteHome) -> None:
        self._remote_home = remote_home

    def resolve(self, prefix: str) -> dict[str, Any]:
        """Ask what an id, or the beginning of one, means. Raises NotFound, UsageError."""
        try:
            return self._remote_home.request("GET", f"resolve/{quote(prefix, safe='')}")
        except NotFound as error:
            raise NotFound(prefix) from error

    def projects(self) -> list[str]:
        """Return the projects of which this user may read anything, by their paths."""
        items = self._remote_home.iterate_items("projects", (), _PAGE_ITEMS)
        return [str(item.get("project") or "") for item in items]

    def get(self, run_id: str) -> RunView:
        """Return a run with everything that is derived about it. Raises NotFound."""
        return to_noun(self._remote_home.request("GET", _to_run_path(run_id)), RunView)

    def conversation(self, conversation: str) -> list[RunView]:
        """Return the captured runs of a conversation in the order in which they were said. Raises NotFound."""
        query = [("conversation_id", conversation)]
        return [to_noun(item, RunView) for item in self._remote_home.iterate_items("runs", query, _PAGE_ITEMS)]

    def locate_turn(self, turn_id: str) -> tuple[str, int]:
        """Return (captured run, offset) of a turn. Raises NotFound."""
        response = self.resolve(turn_id)
        return to_noun((response.get("run"), response.get("offset")), tuple[str, int])

    def transcript(self, run_id: str) -> Transcript:
        """Return a captured run and its turns. Raises NotFound."""
        from perdure.runs import Transcript

        response = self._remote_home.request("GET", f"{_to_run_path(run_id)}/transcript")
        return to_noun(response.get("transcript"), Transcript)

    def turn_offsets(self, run_id: str) -> set[int]:
        """Return the offsets of a run's turns in the bytes that hold them. Raises NotFound."""
        response = self._remote_home.request("GET", f"{_to_run_path(run_id)}/transcript")
        return to_noun(response.get("turn_offsets"), set[int])

    def raw(self, run_id: str) -> bytes:
        """Return the bytes of a captured run, as this user may read them. Raises NotFound."""
        return self._remote_home.download(f"{_to_run_path(run_id)}/jsonl")

    def raw_lines(self, run_id: str, offsets: Collection[int]) -> list[bytes]:
        """Return the lines of a captured run that begin at these offsets of its source."""
        query = [("offset", str(offset)) for offset in offsets]
        return self._remote_home.download(f"{_to_run_path(run_id)}/jsonl", query=query).splitlines()

    def forest(self, filters: Filters | None = None, *, root: str | None = None, limit: int = 500) -> list[Node]:
        """Return the trees of the newest runs, newest first. filters: a runtime, and since when a run was active."""
        filters = filters or Filters()
        fields = {
            "since": filters.since_at.isoformat() if filters.since_at else None,
            "runtime": next(iter(filters.runtimes), None),
            "root_run_id": root,
        }
        query = [(name, value) for name, value in fields.items() if value]
        query += [("limit", str(min(limit, _MAX_TREE_RUNS))), ("flat", "true")]
        items: list[dict[str, Any]] = []
        cursor = ""
        while not items or (cursor and len(items) < limit):
            page_query = [*query, ("cursor", cursor)] if cursor else query
            response = self._remote_home.request("GET", "runs/forest", query=page_query)
            items += get_items(response, "items")
            cursor = str(response.get("next_cursor") or "")
            if not items:
                break
        return _build_trees([(int(item["depth"]), to_noun(item["run"], RunView)) for item in items])


def _to_run_path(run_id: str) -> str:
    return f"runs/{quote(run_id, safe='')}"


class RemoteFloor:
    """The floor of a remote home, with the methods of the room of a local one."""

    folder = None  # no working copies on this machine
    writable = True

    def __init__(self, remote_home: RemoteHome) -> None:
        self._remote_home = remote_home
        self.alerts: list[str] = []  # what is wrong with the working copies there, as of the last answer

    def layers(self, *, cwd: str | None = None, platform: str = "api") -> Layers:
        """Return C₀ for a session that begins now, as a local floor does."""
        from perdure.floor.layers import Layers

        return to_noun(self._fetch(cwd, platform).get("floor"), Layers)

    def list_kept(self) -> list[KeptLayer]:
        """Return what the home keeps in each of its layers."""
        from perdure.floor.layers import KeptLayer

        return to_noun(self._fetch(None, "api").get("kept"), list[KeptLayer])

    def read(self, name: str) -> str:
        """Return the text of a page; "" if there is none."""
        try:
            return str(self._fetch_page(name).get("text") or "")
        except NotFound:
            return ""

    def list_versions(self, name: str) -> list[PageVersion]:
        """Return every state of a page, oldest first. Raises NotFound."""
        return to_noun(self._fetch_page(name).get("versions"), list[PageVersion])

    def write(
        self, name: str, text: str, *, by: str = "owner", base_text: str | None = None, why: str = ""
    ) -> PageVersion:
        """Give a page a new text; the old text stays in its history. Raises UsageError."""
        body = {"text": text, "base": base_text, "why": why, "by": by}
        response = self._remote_home.request("PUT", f"floor/{quote(name)}", body=body)
        return to_noun(response.get("versions"), list[PageVersion])[-1]

    def find_injections(self, text: str) -> tuple[Finding, ...]:  # noqa: ARG002
        """Return nothing: the home scans each text before a model gets it, and `alerts` there shows it."""
        return ()

    def list_cards(self) -> list[FloorCard]:
        """Return every card, oldest first."""
        return [to_noun(item, FloorCard) for item in self._remote_home.iterate_items("cards", (), _PAGE_ITEMS)]

    def get_card(self, identifier: str) -> FloorCard:
        """Return the card of this id, or the only one whose id begins so. Raises FloorMissing."""
        matches = [card for card in self.list_cards() if card.id.startswith(identifier)]
        if len(matches) != 1 or not identifier:
            raise FloorMissing(f"no card {printable(identifier)!r}: `perdure floor cards` lists them")
        return matches[0]

    def add_card(self, text: str, *, by: str = "owner", project: str | None = None) -> FloorCard:
        """Add a card; return an existing card that says the same instead. Raises UsageError."""
        body = {"text": text, "project": project, "by": by}
        return to_noun(self._remote_home.request("POST", "cards", body=body), FloorCard)

    def remove_card(self, identifier: str, *, by: str = "owner") -> FloorCard:
        """Remove a card; the journal of the home keeps it. Raises FloorMissing."""
        card = self.get_card(identifier)
        self._remote_home.request("DELETE", f"cards/{quote(card.id, safe='')}", query=[("by", by)])
        return card

    def _fetch_page(self, name: str) -> dict[str, Any]:
        return self._remote_home.request("GET", f"floor/{quote(name)}")

    def _fetch(self, cwd: str | None, platform: str) -> dict[str, Any]:
        project = find_project(cwd)
        query = [("platform", platform), ("full", "true"), *([("project", project)] if project else [])]
        response = self._remote_home.request("GET", "floor", query=query)
        self.alerts = read_strings(response, "alerts")
        return response


class RemoteForgetting:
    """Forgetting in a remote home, with the methods of the room of a local one."""

    def __init__(self, remote_home: RemoteHome) -> None:
        self._remote_home = remote_home

    def preview(self, request: ForgetRequest) -> ForgetReport:
        """Return what a request would delete. Raises NotFound, UsageError."""
        return self.delete(request, digest="")

    def delete(self, request: ForgetRequest, *, digest: str) -> ForgetReport:
        """Delete what the preview with this digest showed. Raises NotFound, UsageError."""
        body = {
            "ids": list(request.ids), "query": request.query, "filters": _to_api_filters(request.filters),
            "cascade": request.cascade, "with_floor": request.with_floor, "digest": digest,
        }  # fmt: skip
        return to_noun(self._remote_home.request("POST", "forget", body=body), ForgetReport)


class RemoteSharing:
    """The grants of a remote home, with the methods of the room of a local one."""

    def __init__(self, remote_home: RemoteHome) -> None:
        self._remote_home = remote_home
        self._n_runs: dict[str, int | None] = {}  # grant id -> how many runs it covers, as of the last answer

    @property
    def grants(self) -> RemoteSharing:
        """This object."""
        return self

    def share(
        self,
        grantee: str,
        scope: GrantScope,
        value: str,
        *,
        until_at: datetime | None = None,
        since_at: datetime | None = None,
    ) -> GrantRecord:
        """Let another user, or a team, read a scope. Raises NotFound, UsageError."""
        times = {"until_at": until_at, "since_at": since_at}
        body = {"grantee": grantee, "scope": scope, "value": value}
        body |= {name: at.isoformat() for name, at in times.items() if at is not None}
        return self._to_grant(self._remote_home.request("POST", "grants", body=body))

    def list_given(self, *, include_ended: bool = False) -> list[GrantRecord]:
        """Return the grants that this user gave."""
        query = _to_grant_query(include_ended)
        return [self._to_grant(item) for item in self._remote_home.iterate_items("grants", query, _PAGE_ITEMS)]

    def list_received(self, *, include_ended: bool = False) -> list[GrantRecord]:
        """Return the grants that others gave to this user."""
        query = [*_to_grant_query(include_ended), ("limit", "1")]
        response = self._remote_home.request("GET", "grants", query=query)
        return [self._to_grant(item) for item in get_items(response, "to_me")]

    def revoke(self, grant_id: str) -> GrantRecord:
        """Revoke a grant of this user. Raises NotFound."""
        return self._to_grant(self._remote_home.request("DELETE", f"grants/{quote(grant_id, safe='')}"))

    decline = revoke  # the home knows whose grant it is

    def list_teams(self) -> list[Team]:
        """Return the teams of this user, by name; all teams for an admin."""
        return [to_noun(item, Team) for item in self._remote_home.iterate_items("teams", [], _PAGE_ITEMS)]

    def list_notes(self, team: str) -> list[Note]:
        """Return the notes of a team that this user may know of, oldest first. Raises NotFound."""
        from perdure.sharing.teams import Note

        query = [("team", team.removeprefix("@"))]
        return [to_noun(item, Note) for item in self._remote_home.iterate_items("notes", query, _PAGE_ITEMS)]

    def review_note(self, note_id: str, *, is_accepted: bool) -> GrantRecord:
        """Accept or reject a note of somebody else. Raises NotFound, UsageError."""
        from perdure.sharing.teams import Note

        body = {"is_accepted": is_accepted}
        item = self._remote_home.request("POST", f"notes/{quote(note_id, safe='')}/review", body=body)
        return to_noun(item, Note).record

    def draw_access(self, *, is_admin: bool) -> AccessPicture:  # noqa: ARG002 - the home knows who is an admin
        """Return who may read what, as far as this user may know it."""
        from perdure.sharing.access_picture import AccessPicture

        return to_noun(self._remote_home.request("GET", "access"), AccessPicture)

    def count_granted_runs(self, grant: Grant) -> int | None:
        """Return how many runs a grant of this user covered when the home last answered about it."""
        return self._n_runs.get(grant.grant_id)

    def is_known(self, user: str) -> bool:  # noqa: ARG002
        """Return True: a home tells nobody over HTTP who else uses it."""
        return True

    def _to_grant(self, item: dict[str, Any]) -> GrantRecord:
        grant_record = to_noun({**item, "grant": item}, GrantRecord)
        self._n_runs[grant_record.grant.grant_id] = to_noun(item.get("runs_now"), int | None)  # type: ignore[arg-type]
        return grant_record


def _to_grant_query(include_ended: bool) -> list[tuple[str, str]]:
    return [("every", "true")] if include_ended else []


_PAGE_MEMORIES = 100  # memories in one answer
_MEMORY_ID_PREFIX = "mem-"
_CHANGEABLE_FIELDS = ("pinned", "retired", "path", "kind")  # what a change can name
_DEFAULT_OPTIONS = {"trust": "owner", "pinned": False}


class RemoteMemories:
    """The memories of a remote home, with the methods of the room of a local one."""

    def __init__(self, remote_home: RemoteHome) -> None:
        self._remote_home = remote_home
        self._responses: dict[str, dict[str, Any]] = {}  # id or its beginning -> the answer about it
        self._turn_texts: dict[str, str] = {}  # id of a turn -> its words on one line

    def holder_of(self, identifier: str) -> RemoteMemories:  # noqa: ARG002 - the home there finds out whose it is
        """Return this object: the remote home finds out whose memory it is."""
        return self

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

    def search(self, query: str, *, limit: int = 20, every: bool = False, touch: bool = False) -> list[MemoryHit]:
        """Search memories by words and meaning; return the matches, best first, with their scores."""
        self._refuse_if(every or touch)
        response = self._remote_home.request(
            "POST", "memories/search", body={"query": query, "limit": min(limit, _PAGE_MEMORIES)}
        )
        return [to_noun({**item, "memory": item}, MemoryHit) for item in get_items(response, "items")]

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

    def request_candidates(self, *, cwd: str | None, session: str = "") -> list[HostCandidate]:
        """Return the lines of the newest session of a folder's project, or of this session, that may be worth a
        memory.
        """
        from perdure.memories.host_question import HostCandidate

        response = self._settle({"session": session}, cwd)
        return [to_noun(item, HostCandidate) for item in get_items(response, "candidates")]

    def settle(
        self, statements: Sequence[HostStatement], none_codes: Sequence[str] | None = None, *, cwd: str | None = None
    ) -> SettleResult:
        """Keep what the host's own model answered about its candidates."""
        from perdure.memories.host_mining import SettleResult

        rows = [
            {"ids": list(item.codes), "text": item.text, "kind": item.kind or None, "path": item.path}
            for item in statements
        ]
        response = self._settle({"statements": rows, "none": None if none_codes is None else list(none_codes)}, cwd)
        refusals = [[row.get("code"), row.get("why")] for row in get_items(response, "refused")]
        return to_noun({**response, "refusals": refusals}, SettleResult)

    def _settle(self, fields: dict[str, Any], cwd: str | None) -> dict[str, Any]:
        body = {**fields, "project": find_project(cwd)}
        return self._remote_home.request("POST", "memories/settle", body=body)

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
