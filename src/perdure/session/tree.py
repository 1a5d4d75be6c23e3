"""The entries of a session as a tree: the leaf is where the conversation goes on, the path leads there. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from perdure.formats.perdure import AnyEntry, Branch, CallEntry, Entry, Label, Message, Title


def find_nothing(entry_id: str) -> str | None:  # noqa: ARG001 - it stands for a search
    """Return None: no turn was forgotten."""
    return None


class SessionTree:
    """The entries of one session, in the order in which they were written, with their leaf.

    find_forgotten_turn: entry id -> id of the turn that stood for it until it was forgotten, or None.
    """

    def __init__(
        self, entries: Iterable[AnyEntry] = (), *, find_forgotten_turn: Callable[[str], str | None] = find_nothing
    ) -> None:
        self._entries: dict[str, AnyEntry] = {}
        self._parents: dict[str, str] = {}
        self._forgotten: dict[str, str] = {}  # id of a forgotten turn -> the entry before it
        self._find_forgotten_turn = find_forgotten_turn
        self.leaf = ""
        self.n_unreadable = 0  # lines and runs of the log
        for entry in entries:
            self.add(entry)

    def add(self, entry: AnyEntry) -> None:
        """Add the newest entry; one that is there already changes nothing. Labels and titles do not move the leaf.

        An entry whose parent is gone continues what the parent continued; if nobody knows that, the entry written last.
        """
        if entry.id in self._entries:
            return
        self._parents[entry.id] = self._find_parent(entry)
        self._entries[entry.id] = entry
        if not isinstance(entry, Label | Title):
            self.leaf = entry.id

    def add_all(self, items: Sequence[AnyEntry | str | None]) -> None:
        """Add the lines of a log: entries, ids of forgotten turns, and None for what nobody can read.

        Where homes merged, an entry may stand before its parent: then it is added after it.
        """
        ids = {item.id for item in items if isinstance(item, Entry)}
        waiting: dict[str, list[AnyEntry]] = {}  # by their parent
        for item in items:
            if item is None:
                self.n_unreadable += 1
            elif isinstance(item, str):
                self.add_forgotten(item)
            elif item.parent in ids and item.parent not in self._entries:
                waiting.setdefault(item.parent, []).append(item)
            else:
                ready = [item]
                while ready:
                    entry = ready.pop(0)
                    self.add(entry)
                    ready += waiting.pop(entry.id, [])
        for entries in waiting.values():  # a loop: somebody made it up
            for entry in entries:
                self.add(entry)

    def _find_parent(self, entry: AnyEntry) -> str:
        if entry.parent in self._entries or not self._entries:
            return entry.parent if entry.parent in self._entries else ""
        turn_id = self._find_forgotten_turn(entry.parent) if self._forgotten else None
        return self._forgotten.get(turn_id or "", self.leaf)

    def add_forgotten(self, turn_id: str) -> None:
        """Keep the place of a turn that was forgotten: what follows it stays where it was."""
        self._forgotten[turn_id] = self.leaf

    @property
    def n_forgotten(self) -> int:
        """How many turns were forgotten."""
        return len(self._forgotten)

    def __iter__(self) -> Iterator[AnyEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, entry_id: str) -> AnyEntry | None:
        """Return an entry, or None."""
        return self._entries.get(entry_id)

    def get_time(self, entry_id: str) -> datetime:
        """Return when an entry was written."""
        return self._entries[entry_id].timestamp

    def get_parent(self, entry_id: str) -> str:
        """Return the id of the entry before one; "" for the first."""
        return self._parents[entry_id]

    def find_path(self, leaf: str = "") -> list[AnyEntry]:
        """Return the entries from the first one to a leaf (default: the session's), oldest first.

        Of a leaf that was forgotten, the entries that led to it.
        """
        path: list[AnyEntry] = []
        entry_id = leaf or self.leaf
        if entry_id not in self._entries:
            entry_id = self._forgotten.get(self._find_forgotten_turn(entry_id) or "", "")
        while entry_id:
            path.append(self._entries[entry_id])
            entry_id = self._parents[entry_id]
        return path[::-1]

    def list_children(self) -> dict[str, list[str]]:
        """Return id -> ids of the entries after it; the first entry is under ""."""
        children: dict[str, list[str]] = {}
        for entry_id, parent in self._parents.items():
            children.setdefault(parent, []).append(entry_id)
        return children

    def list_labels(self) -> dict[str, str]:
        """Return id of an entry -> its label."""
        labels = {entry.target: entry.text for entry in self if isinstance(entry, Label)}
        return {entry_id: label for entry_id, label in labels.items() if label and entry_id in self._entries}

    def find_resume_point(self, entry_id: str) -> str:
        """Return the entry from which a conversation can go on: after a call all its results, as far as they are there.

        Between a call and its result nothing can be said, and what ran must not pass for interrupted.
        """
        children = self.list_children()
        while list_open_calls(self.find_path(entry_id)):
            results = [
                child
                for child in children.get(entry_id, ())
                if isinstance(entry := self._entries[child], Message) and entry.role == "tool"
            ]
            if not results:
                break
            entry_id = results[0]
        return entry_id

    def list_left(self, leaf: str, kept: str) -> list[AnyEntry]:
        """Return the entries that lead to a leaf and not to an entry that is kept, oldest first."""
        kept_ids = {entry.id for entry in self.find_path(kept)}
        return [entry for entry in self.find_path(leaf) if entry.id not in kept_ids]


def find_last(entries: Sequence[AnyEntry]) -> str:
    """Return the id of the last entry that can be a leaf; "" if there is none."""
    return next((entry.id for entry in reversed(entries) if not isinstance(entry, Label | Title)), "")


def list_open_calls(path: Sequence[AnyEntry]) -> list[CallEntry]:
    """Return the calls on a path that have no result, in call order."""
    open_calls: dict[str, CallEntry] = {}
    for entry in path:
        if isinstance(entry, Message):
            open_calls.update((call.id, call) for call in entry.calls)
            open_calls.pop(entry.call_id, None)
    return list(open_calls.values())


def list_branch_summaries(path: Sequence[AnyEntry]) -> dict[str, str]:
    """Return id of a message -> the summary of the branch that was left before it."""
    summaries: dict[str, str] = {}
    pending = ""
    for entry in path:
        if isinstance(entry, Branch):
            pending = entry.summary
        elif isinstance(entry, Message):
            if pending:
                summaries[entry.id] = pending
            pending = ""
    return summaries
