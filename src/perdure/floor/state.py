"""What the floor's events say: the pages of every agent with their history, its cards, proposals and permissions,
and the files of its memory tool.

Pure but for `Watch`, which reads a journal once and then as it grows, and keeps what it knows in a file that may be
lost at any time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from perdure.archive.journal import Event, Journal, Read, ends, places, tails, was_rewritten
from perdure.capture.files import make_folder, replace
from perdure.errors import PerdureError
from perdure.floor import events, tree
from perdure.types import Span

_FORMAT = 4  # of the kept file
KEPT_VERSIONS = 100  # of a page that are at hand; the journal has all of them
_ALL = 1 << 60
_KEPT_AFTER_BYTES = 1_000_000  # of a journal in which nothing was of the floor, the kept file says that they were read


class Version(msgspec.Struct, frozen=True):
    """One state of a page."""

    event: str  # the key of the event that made it
    at: str  # hybrid time
    by: str
    sha: str  # name of its text; "" where the page was removed
    was: str = ""  # name of the text that the writer had read
    why: str = ""
    unseen: bool = False  # the writer had not read what this replaced: another edit came between
    cursor: Any = None  # how far the job had read that wrote this text, or the one that it was made of
    forgotten: bool = False  # its text rested on what was forgotten, and is gone


class Page(msgspec.Struct):
    """A page and how it came to be."""

    text: str
    versions: list[Version]  # oldest first, never empty, at most the last `KEPT_VERSIONS`
    sources: list[Span] = []  # of the last version that names any

    @property
    def now(self) -> Version:
        """The state that counts: the last one that was not forgotten; where all were, one without a text."""
        return next((one for one in reversed(self.versions) if not one.forgotten), self.versions[0])

    @property
    def is_removed(self) -> bool:
        """Whether its owner took it away, and it was not for something forgotten that its text went."""
        last = self.versions[-1]
        return not last.sha and not last.forgotten and last.by in events.OWNERS

    @property
    def cursor(self) -> Any:
        """How far the job had read on whose work the text rests."""
        return self.now.cursor


class Card(msgspec.Struct, frozen=True):
    """A short text that the agent is to have before it, first in, first out."""

    id: str
    text: str
    at: str  # hybrid time when it was made
    by: str
    project: str | None = None


class Proposal(msgspec.Struct, frozen=True):
    """An edit that waits for its owner, or waited."""

    id: str
    name: str
    text: str
    at: str
    by: str
    was: str
    why: str = ""
    outcome: str = ""  # "", approved, rejected


class File(msgspec.Struct, frozen=True):
    """A file of the memory tool."""

    text: str
    event: str  # the key of the event that made this text
    at: str  # hybrid time of that


class Known(msgspec.Struct):
    """What is known of one agent's floor."""

    pages: dict[str, Page] = {}
    cards: dict[str, Card] = {}  # in the order in which they were made
    proposals: dict[str, Proposal] = {}
    allowed: dict[str, str] = {}  # digest -> where
    files: dict[str, File] = {}  # by path
    folders: set[str] = set()  # those that files are in, or were


class State(msgspec.Struct):
    """What is known, and how far the journal was read."""

    format: int = _FORMAT
    read: dict[str, Read] = {}
    ends: dict[str, str] = {}  # of what was read
    last: tuple[str, str, int] = ("", "", 0)  # order of the last event applied
    agents: dict[str, Known] = {}


def apply(state: State, event: Event) -> None:
    """Take one event into the state; events come in their order, and one that was taken is not taken again."""
    if event.order <= state.last:
        return
    data = event.data
    known = state.agents.setdefault(data["agent"], Known())
    if data["op"] == "write":
        _write(known, event)
    elif data["op"] == "card":
        _card(known, event)
    elif data["op"] == "propose" and data["text"]:
        fields = {name: data[name] for name in ("id", "name", "text", "by", "was", "why")}
        known.proposals[data["id"]] = Proposal(at=event.at, **fields)
    elif data["op"] == "decide" and data["id"] in known.proposals:
        outcome = "approved" if data["approved"] else "rejected"
        known.proposals[data["id"]] = msgspec.structs.replace(known.proposals[data["id"]], outcome=outcome)
    elif data["op"] == "allow":
        known.allowed[data["digest"]] = data["where"]
    elif data["op"] == "file" and "forgotten" not in data:
        _file(known, event)
    state.last = event.order


def _write(known: Known, event: Event, most: int = KEPT_VERSIONS) -> None:
    data = event.data
    page = known.pages.get(data["name"]) or Page("", [])
    replaced = page.now if page.versions else None
    base = next((one for one in reversed(page.versions) if one.sha == data["was"]), None)
    made = Version(
        event=event.key, at=event.at, by=data["by"], sha=events.sha(data["text"]) if data["text"] else "",
        was=data["was"], why=data.get("why", ""), unseen=data["was"] != (replaced.sha if replaced else ""),
        cursor=data.get("cursor", base.cursor if base else None), forgotten=data.get("forgotten", False),
    )  # fmt: skip
    said, sources = data["text"], data.get("sources")
    if made.forgotten:
        said, sources = page.text, None
    spans = [Span(*span) for span in sources] if sources else page.sources
    known.pages[data["name"]] = Page(said, [*page.versions, made][-most:], spans)
    approved = known.proposals.get(data.get("approves", ""))
    if approved:
        known.proposals[approved.id] = msgspec.structs.replace(approved, outcome="approved")


def versions(found: Iterable[Event], agent: str, name: str) -> list[Version]:
    """Every state of a page, oldest first; of the events in their order."""
    known = Known()
    for event in found:
        data = event.data
        if data["op"] == "write" and (data["agent"], data["name"]) == (agent, name):
            _write(known, event, most=_ALL)
    return known.pages[name].versions if name in known.pages else []


def _card(known: Known, event: Event) -> None:
    data = event.data
    old = known.cards.get(data["id"])
    if not data["text"]:
        known.cards.pop(data["id"], None)
        return
    project = data.get("project", old.project if old else None)
    known.cards[data["id"]] = Card(data["id"], data["text"], old.at if old else event.at, data["by"], project)


def _file(known: Known, event: Event) -> None:
    data = event.data
    if "to" in data:
        tree.move(known.files, known.folders, data["path"], data["to"])
    elif data["text"] is None:
        tree.remove(known.files, known.folders, data["path"])
    else:
        tree.put(known.files, known.folders, data["path"], File(data["text"], event.key, event.at))


def replayed(found: Iterable[Event]) -> State:
    """The state that events make, in whichever order they are given."""
    state = State()
    for event in sorted(found, key=lambda event: event.order):
        apply(state, event)
    return state


class Watch:
    """The state of one user's floor, brought up to its journal whenever it is asked for.

    kept: a file that spares the next process the reading; it is a cache and nothing more.
    """

    def __init__(self, journal: Journal, kept: Path, *, is_kept: bool = True) -> None:
        """Nothing is read yet. is_kept: whether the file may be written."""
        self._journal = journal
        self._is_kept = is_kept
        self._kept = kept
        self._state: State | None = None
        self._is_new = False  # something of the floor was read that is not in the kept file
        self._n_unkept = 0  # bytes read since that was written

    def state(self) -> State:
        """What the journal says now."""
        state = self._state or self._loaded()
        now = places(self._journal.root)
        if now != state.read:
            before, state = state.read, self._grown(state, now)
            if self._is_kept and self._is_worth_keeping(before, state):
                self._keep(state)
        self._state = state
        return state

    def drop(self) -> None:
        """Know nothing more, here and in the file: something in the journal was forgotten."""
        self._state = None
        self._kept.unlink(missing_ok=True)

    def _grown(self, state: State, now: dict[str, Read]) -> State:
        known = state.read
        if was_rewritten(known, now) or ends(self._journal.root, known) != state.ends:
            known = {}
        fresh, read = tails(self._journal.root, known, now, (events.TYPE,))
        if known and fresh and fresh[0].order < state.last:  # a merge brought what was said before
            known = {}
            fresh, read = tails(self._journal.root, known, now, (events.TYPE,))
        grown = state if known else State()
        for event in fresh:
            apply(grown, event)
        grown.read, grown.ends = read, ends(self._journal.root, read)
        self._is_new = self._is_new or bool(fresh) or not known
        return grown

    def _is_worth_keeping(self, before: dict[str, Read], state: State) -> bool:
        """Whether it would cost the next process much to read again what was just read."""
        self._n_unkept += sum(read.n_bytes - before.get(name, (0, 0))[1] for name, read in state.read.items())
        return self._is_new or self._n_unkept > _KEPT_AFTER_BYTES

    def _loaded(self) -> State:
        try:
            state = msgspec.json.decode(self._kept.read_bytes(), type=State)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return State()
        return state if state.format == _FORMAT else State()

    def _keep(self, state: State) -> None:
        with contextlib.suppress(PerdureError, OSError):  # a home that cannot be written reads it again next time
            make_folder(self._kept.parent)
            replace(self._kept, msgspec.json.encode(state), sync=False)
            self._is_new, self._n_unkept = False, 0
