"""The floor's events in the journal, and the state that they add up to.

One event type holds everything: the full new text of a page, a card, a proposed edit and the decision on
it, a text that the owner allows although the scanner suspects it, and the files of the memory tool.
`FloorState` holds the pages of every agent with their history, the cards, the proposals, the permissions
and the files. Files lie in a tree: a path is relative to its root (""), never a path on a disk, and its
parts are joined by `/`. A folder stays when its last text goes, as on a disk. A text and a folder of one
name may exist together, as two homes may have made them.

Pure, except `FloorCache`: it reads a journal once, then only what was added, and saves its state in a
file that may be lost at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from perdure.archive.journal import (
    FilePosition,
    Journal,
    JournalEvent,
    measure_files,
    read_file_ends,
    read_new_events,
    was_rewritten,
)
from perdure.disk import make_folder, replace_file
from perdure.errors import PerdureError
from perdure.identity import make_memory_id
from perdure.types import Span

EVENT_TYPE = "floor"
OWNERS = ("owner", "hand")  # the owner, by a command or in the file; other writers: agent, rules, model


class AddedLine(NamedTuple):
    """A line that was added to a page, with its sources: when one is forgotten, the line can be found."""

    line: str
    memory: str = ""  # id of the memory that the line repeats
    sources: tuple[Span, ...] = ()  # the turns behind the line


def hash_text(text: str) -> str:
    """Return the name of a text: 32 hex digits of its sha256.

    >>> hash_text("a")
    'ca978112ca1bbdcafac231b39a23dc4d'
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def build_page_event(
    agent: str, name: str, text: str, *, by: str, read_hash: str, why: str = "", added_lines: Sequence[AddedLine] = (),
    sources: Sequence[Span] = (), cursor: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """Build the event that gives a page a new text; the text "" means that its owner removed the page.

    read_hash: hash of the text that the writer had read. added_lines: the new lines, if the edit only adds
    lines. sources: the turns behind the whole text. cursor: how far a job had read when it wrote this.
    """
    event: dict[str, Any] = {"op": "write", "agent": agent, "name": name, "text": text, "by": by, "was": read_hash}
    json_lines = [[added.line, added.memory, spans_to_json(added.sources)] for added in added_lines]
    optional = {"why": why, "pieces": json_lines, "sources": spans_to_json(sources), "cursor": cursor}
    return event | {key: value for key, value in optional.items() if value}


def build_approval_event(
    agent: str, identifier: str, name: str, text: str, *, read_hash: str, why: str, surface: str = ""
) -> dict[str, Any]:
    """Build the event of an approved proposal. surface: where the owner approved it.

    It holds the new text and the approval, so that no crash can separate them.
    """
    event = build_page_event(agent, name, text, by="owner", read_hash=read_hash, why=why) | {"approves": identifier}
    return event | ({"surface": surface} if surface else {})


def read_added_lines(data: Mapping[str, Any]) -> list[AddedLine]:
    """Return the lines that an event added."""
    return [
        AddedLine(line, memory, _spans_from_json(json_spans)) for line, memory, json_spans in data.get("pieces", ())
    ]


def read_sources(data: Mapping[str, Any]) -> tuple[Span, ...]:
    """Return the turns behind an event."""
    return _spans_from_json(data.get("sources", ()))


def spans_to_json(spans: Sequence[Span]) -> list[list[Any]]:
    """Return spans in their JSON form."""
    return [list(span) for span in spans]


def _spans_from_json(json_spans: Sequence[Sequence[Any]]) -> tuple[Span, ...]:
    return tuple(Span(str(run_id), int(start), int(end)) for run_id, start, end in json_spans)


def build_card_event(
    agent: str, identifier: str, text: str, *, by: str, project: str | None = None, sources: Sequence[Span] = ()
) -> dict[str, Any]:
    """Build the event that gives a card a new text; "" removes the card."""
    event: dict[str, Any] = {"op": "card", "agent": agent, "id": identifier, "text": text, "by": by}
    optional = {"project": project, "sources": spans_to_json(sources)}
    return event | {key: value for key, value in optional.items() if value}


def build_proposal_event(
    agent: str, identifier: str, name: str, text: str, *, by: str, read_hash: str, why: str, session: str = "",
    readings: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Build the event of a proposed edit, which waits for the owner. session, readings: see `EditProposal`."""
    optional = {"session": session, "readings": list(readings)}
    return {
        "op": "propose",
        "agent": agent,
        "id": identifier,
        "name": name,
        "text": text,
        "by": by,
        "was": read_hash,
        "why": why,
    } | {key: value for key, value in optional.items() if value}


def build_decision_event(agent: str, identifier: str, *, approved: bool, surface: str = "") -> dict[str, Any]:
    """Build the event of the owner's decision on a proposal. surface: where it was made."""
    event = {"op": "decide", "agent": agent, "id": identifier, "approved": approved}
    return event | ({"surface": surface} if surface else {})


def build_allow_event(agent: str, digest: str, *, location: str) -> dict[str, Any]:
    """Build the event by which the owner allows a suspected text. digest: the scanner's name for the text."""
    return {"op": "allow", "agent": agent, "digest": digest, "where": location}


def build_file_event(agent: str, path: str, text: str | None, *, previous_event: str = "") -> dict[str, Any]:
    """Build the event that gives a file of the memory tool a new text.

    None removes it, or a folder with everything in it.

    path: relative to the tool's root, never a path on a disk. previous_event: key of the event that made the
    text before.
    """
    event: dict[str, Any] = {"op": "file", "agent": agent, "path": path, "text": text}
    return event | ({"was": previous_event} if previous_event else {})


def build_move_event(agent: str, path: str, to: str, *, previous_event: str = "") -> dict[str, Any]:
    """Build the event that gives a file of the memory tool, or a folder with everything in it, another path."""
    event: dict[str, Any] = {"op": "file", "agent": agent, "path": path, "to": to}
    return event | ({"was": previous_event} if previous_event else {})


def build_forgotten_file_event(agent: str, *, previous_event: str = "") -> dict[str, Any]:
    """Build the event that replaces an event about a file that was forgotten."""
    event: dict[str, Any] = {"op": "file", "agent": agent, "forgotten": True}
    return event | ({"was": previous_event} if previous_event else {})


def derive_memory_id(event_key: str, hybrid_time: str) -> str:
    """Return the id of the memory made from a file's text after an event; the id is the same in every home.

    >>> derive_memory_id("0a1b2c3d", "2026-03-01T09:30:00.000Z#0000")
    'mem-20260301-093000-0a1b2c'
    """
    return make_memory_id(datetime.fromisoformat(hybrid_time.partition("#")[0]), bytes.fromhex(event_key[:6]))


def to_time(hybrid_time: str) -> datetime:
    """Return the instant of a hybrid time.

    >>> to_time("2026-03-01T09:30:00.000Z#0000").isoformat()
    '2026-03-01T09:30:00+00:00'
    """
    return datetime.fromisoformat(hybrid_time.partition("#")[0])


T = TypeVar("T")


def list_parents(path: str) -> Iterator[str]:
    """List the folders above a path, without the root.

    >>> list(list_parents("a/b/c.md"))
    ['a', 'a/b']
    """
    parts = path.split("/")[:-1]
    return ("/".join(parts[:n]) for n in range(1, len(parts) + 1))


def is_within(path: str, folder: str) -> bool:
    """Return True if a path is this folder or lies below it.

    >>> is_within("a/b", "a"), is_within("ab", "a"), is_within("a", "")
    (True, False, True)
    """
    return not folder or path == folder or path.startswith(f"{folder}/")


def select_within(paths: Iterable[str], folder: str) -> list[str]:
    """Return the paths that are this folder or lie below it."""
    return [path for path in paths if is_within(path, folder)]


def put_path(texts: dict[str, T], folders: set[str], path: str, value: T) -> None:
    """Put a value at a path, and create the folders above it."""
    texts[path] = value
    folders.update(list_parents(path))


def remove_path(texts: dict[str, T], folders: set[str], path: str) -> None:
    """Remove everything at a path and below it."""
    for inner_path in select_within(texts, path):
        del texts[inner_path]
    folders.difference_update(select_within(folders, path))


def move_path(texts: dict[str, T], folders: set[str], path: str, new_path: str) -> None:
    """Move everything at a path and below it to another path."""
    moved_texts = {inner_path: texts.pop(inner_path) for inner_path in select_within(texts, path)}
    inner_folders = select_within(folders, path)
    folders.difference_update(inner_folders)
    texts |= {new_path + inner_path[len(path) :]: value for inner_path, value in moved_texts.items()}
    folders.update(new_path + inner_path[len(path) :] for inner_path in inner_folders)
    if moved_texts or inner_folders:
        folders.update(list_parents(new_path))


def list_children(paths: Collection[str], folder: str) -> list[str]:
    """List the names directly below a folder.

    >>> list_children(["a", "a/b", "a/b/c", "ab"], "a")
    ['b']
    """
    prefix = f"{folder}/" if folder else ""
    return [path[len(prefix) :] for path in paths if path.startswith(prefix) and "/" not in path[len(prefix) :]]


_FORMAT = 5  # of the saved file
MAX_VERSIONS = 100  # of a page in memory; the journal has all of them
_NO_LIMIT = 1 << 60
_SAVE_AFTER_BYTES = 1_000_000  # after so many bytes without floor events, save that they were read


class PageVersion(msgspec.Struct, frozen=True):
    """One state of a page."""

    event: str  # the key of the event that made it
    at: str  # hybrid time
    by: str
    sha: str  # hash of its text; "" if the page was removed
    was: str = ""  # hash of the text that the writer had read
    why: str = ""
    unseen: bool = False  # the writer had not read the replaced text: another edit came between
    cursor: Any = None  # how far the job had read that wrote this text, or the text it was based on
    forgotten: bool = False  # its text rested on something forgotten and is gone


class FloorPage(msgspec.Struct):
    """A page and its history."""

    text: str
    versions: list[PageVersion]  # oldest first, never empty, at most the last `MAX_VERSIONS`
    sources: list[Span] = []  # of the last version with sources

    @property
    def current(self) -> PageVersion:
        """The version that counts: the last one that was not forgotten; if all were, the oldest one kept."""
        return next((version for version in reversed(self.versions) if not version.forgotten), self.versions[0])

    @property
    def is_removed(self) -> bool:
        """True if its owner removed the page; False if its text went because it was forgotten."""
        last = self.versions[-1]
        return not last.sha and not last.forgotten and last.by in OWNERS

    @property
    def cursor(self) -> Any:
        """How far the job had read that the current text rests on."""
        return self.current.cursor


class FloorCard(msgspec.Struct, frozen=True):
    """A short text that the agent sees in every session; first in, first out."""

    id: str
    text: str
    at: str  # hybrid time of its creation
    by: str
    project: str | None = None


class EditProposal(msgspec.Struct, frozen=True):
    """A proposed edit that waits for its owner, or was decided."""

    id: str
    name: str
    text: str
    at: str
    by: str
    was: str
    why: str = ""
    outcome: str = ""  # "", approved, rejected
    session: str = ""  # of Perdure's own agent, in which it was proposed
    readings: tuple[str, ...] = ()  # the tools by which that session had read text from outside; names, never texts
    decided_at: str = ""  # hybrid time
    surface: str = ""  # where the owner decided: terminal, chat, editor, page, telegram

    @property
    def origin(self) -> str:
        """Where it was proposed, for the owner who decides; "" if that is not known."""
        if not self.session:
            return ""
        readings = f"had read text from outside ({', '.join(self.readings)})" if self.readings else "had read nothing"
        return f"Proposed in session {self.session}, which {readings}: `perdure sessions show {self.session}`"


class MemoryToolFile(msgspec.Struct, frozen=True):
    """A file of the memory tool."""

    text: str
    event: str  # the key of the event that made this text
    at: str  # hybrid time of that event


class AgentFloor(msgspec.Struct):
    """Everything that the journal says about one agent's floor."""

    pages: dict[str, FloorPage] = {}
    cards: dict[str, FloorCard] = {}  # oldest first
    proposals: dict[str, EditProposal] = {}
    allowed: dict[str, str] = {}  # digest -> location
    files: dict[str, MemoryToolFile] = {}  # by path
    folders: set[str] = set()  # folders that hold files, or held some


class FloorState(msgspec.Struct):
    """The floors of all agents of one user, and how far the journal was read."""

    format: int = _FORMAT
    read: dict[str, FilePosition] = {}
    ends: dict[str, str] = {}  # last bytes of what was read, by journal file
    last: tuple[str, str, int] = ("", "", 0)  # order of the last event applied
    agents: dict[str, AgentFloor] = {}


def apply_event(state: FloorState, event: JournalEvent) -> None:
    """Apply one event to the state. Events come in their order; an event that was already applied is ignored."""
    if event.order <= state.last:
        return
    data = event.data
    floor = state.agents.setdefault(data["agent"], AgentFloor())
    if data["op"] == "write":
        _apply_write(floor, event)
    elif data["op"] == "card":
        _apply_card(floor, event)
    elif data["op"] == "propose" and data["text"]:
        fields = {name: data[name] for name in ("id", "name", "text", "by", "was", "why")}
        session, readings = data.get("session", ""), tuple(data.get("readings", ()))
        floor.proposals[data["id"]] = EditProposal(at=event.at, session=session, readings=readings, **fields)
    elif data["op"] == "decide":
        _decide_proposal(floor, data["id"], "approved" if data["approved"] else "rejected", event)
    elif data["op"] == "allow":
        floor.allowed[data["digest"]] = data["where"]
    elif data["op"] == "file" and "forgotten" not in data:
        _apply_file(floor, event)
    state.last = event.order


def _apply_write(floor: AgentFloor, event: JournalEvent, max_versions: int = MAX_VERSIONS) -> None:
    data = event.data
    page = floor.pages.get(data["name"]) or FloorPage("", [])
    replaced = page.current if page.versions else None
    base = next((version for version in reversed(page.versions) if version.sha == data["was"]), None)
    new_version = PageVersion(
        event=event.key,
        at=event.at,
        by=data["by"],
        sha=hash_text(data["text"]) if data["text"] else "",
        was=data["was"],
        why=data.get("why", ""),
        unseen=data["was"] != (replaced.sha if replaced else ""),
        cursor=data.get("cursor", base.cursor if base else None),
        forgotten=data.get("forgotten", False),
    )
    text, sources = data["text"], data.get("sources")
    if new_version.forgotten:
        text, sources = page.text, None
    spans = [Span(*span) for span in sources] if sources else page.sources
    floor.pages[data["name"]] = FloorPage(text, [*page.versions, new_version][-max_versions:], spans)
    _decide_proposal(floor, data.get("approves", ""), "approved", event)


def _decide_proposal(floor: AgentFloor, identifier: str, outcome: str, event: JournalEvent) -> None:
    if proposal := floor.proposals.get(identifier):
        floor.proposals[identifier] = msgspec.structs.replace(
            proposal, outcome=outcome, decided_at=event.at, surface=event.data.get("surface", "")
        )


def list_page_versions(page_events: Iterable[JournalEvent], agent: str, name: str) -> list[PageVersion]:
    """Return every version of a page, oldest first. page_events: in their order."""
    floor = AgentFloor()
    for event in page_events:
        data = event.data
        if data["op"] == "write" and (data["agent"], data["name"]) == (agent, name):
            _apply_write(floor, event, max_versions=_NO_LIMIT)
    return floor.pages[name].versions if name in floor.pages else []


def _apply_card(floor: AgentFloor, event: JournalEvent) -> None:
    data = event.data
    old_card = floor.cards.get(data["id"])
    if not data["text"]:
        floor.cards.pop(data["id"], None)
        return
    project = data.get("project", old_card.project if old_card else None)
    floor.cards[data["id"]] = FloorCard(
        data["id"], data["text"], old_card.at if old_card else event.at, data["by"], project
    )


def _apply_file(floor: AgentFloor, event: JournalEvent) -> None:
    data = event.data
    if "to" in data:
        move_path(floor.files, floor.folders, data["path"], data["to"])
    elif data["text"] is None:
        remove_path(floor.files, floor.folders, data["path"])
    else:
        put_path(floor.files, floor.folders, data["path"], MemoryToolFile(data["text"], event.key, event.at))


def replay(floor_events: Iterable[JournalEvent]) -> FloorState:
    """Build the state from events, which may come in any order."""
    state = FloorState()
    for event in sorted(floor_events, key=lambda event: event.order):
        apply_event(state, event)
    return state


class FloorCache:
    """The state of one user's floor, brought up to the journal at each request.

    path: a file that saves the next process the reading; only a cache.
    """

    def __init__(self, journal: Journal, path: Path, *, can_save: bool = True) -> None:
        """Read nothing yet. can_save: the file may be written."""
        self._journal = journal
        self._can_save = can_save
        self._path = path
        self._state: FloorState | None = None
        self._has_unsaved = False  # floor events were read that are not in the saved file
        self._n_unsaved_bytes = 0  # bytes read since the file was saved

    def read_state(self) -> FloorState:
        """Return what the journal says now."""
        state = self._state or self._load_file()
        positions = measure_files(self._journal.root)
        if positions != state.read:
            old_positions, state = state.read, self._apply_new_events(state, positions)
            if self._can_save and self._is_worth_saving(old_positions, state):
                self._save_file(state)
        self._state = state
        return state

    def drop(self) -> None:
        """Drop the state, here and in the file, because something in the journal was forgotten."""
        self._state = None
        self._path.unlink(missing_ok=True)

    def _apply_new_events(self, state: FloorState, positions: dict[str, FilePosition]) -> FloorState:
        old_positions = state.read
        if was_rewritten(old_positions, positions) or read_file_ends(self._journal.root, old_positions) != state.ends:
            old_positions = {}
        new_events, read_positions = read_new_events(self._journal.root, old_positions, positions, (EVENT_TYPE,))
        if old_positions and new_events and new_events[0].order < state.last:  # a merge brought older events
            old_positions = {}
            new_events, read_positions = read_new_events(self._journal.root, old_positions, positions, (EVENT_TYPE,))
        new_state = state if old_positions else FloorState()
        for event in new_events:
            apply_event(new_state, event)
        new_state.read, new_state.ends = read_positions, read_file_ends(self._journal.root, read_positions)
        self._has_unsaved = self._has_unsaved or bool(new_events) or not old_positions
        return new_state

    def _is_worth_saving(self, old_positions: dict[str, FilePosition], state: FloorState) -> bool:
        """Return True if the next process would need long to read again what was just read."""
        self._n_unsaved_bytes += sum(
            position.n_bytes - old_positions.get(name, (0, 0))[1] for name, position in state.read.items()
        )
        return self._has_unsaved or self._n_unsaved_bytes > _SAVE_AFTER_BYTES

    def _load_file(self) -> FloorState:
        try:
            state = msgspec.json.decode(self._path.read_bytes(), type=FloorState)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return FloorState()
        return state if state.format == _FORMAT else FloorState()

    def _save_file(self, state: FloorState) -> None:
        with contextlib.suppress(PerdureError, OSError):  # a read-only home reads it again next time
            make_folder(self._path.parent)
            replace_file(self._path, msgspec.json.encode(state), sync=False)
            self._has_unsaved, self._n_unsaved_bytes = False, 0
