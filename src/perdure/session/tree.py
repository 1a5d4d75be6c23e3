"""The entries of a session as a tree: the leaf is where the conversation goes on, the path leads there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from perdure.formats.perdure import AnyEntry, CallEntry, Label, Message, Title


class SessionTree:
    """The entries of one session, in the order in which they were written, with their leaf."""

    def __init__(self, entries: Iterable[AnyEntry] = ()) -> None:
        self._entries: dict[str, AnyEntry] = {}
        self._parents: dict[str, str] = {}
        self.leaf = ""
        for entry in entries:
            self.add(entry)

    def add(self, entry: AnyEntry) -> None:
        """Add the newest entry. Labels and titles do not move the leaf.

        An entry whose parent was forgotten continues the entry that was written before it.
        """
        parent = entry.parent if entry.parent in self._entries or not self._entries else next(reversed(self._entries))
        self._entries[entry.id] = entry
        self._parents[entry.id] = parent if parent in self._entries else ""
        if not isinstance(entry, Label | Title):
            self.leaf = entry.id

    def __iter__(self) -> Iterator[AnyEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, entry_id: str) -> AnyEntry | None:
        """Return an entry, or None."""
        return self._entries.get(entry_id)

    def get_parent(self, entry_id: str) -> str:
        """Return the id of the entry before one; "" for the first."""
        return self._parents[entry_id]

    def find_path(self, leaf: str = "") -> list[AnyEntry]:
        """Return the entries from the first one to a leaf (default: the session's), oldest first."""
        path: list[AnyEntry] = []
        entry_id = leaf or self.leaf
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


def list_open_calls(path: Sequence[AnyEntry]) -> list[CallEntry]:
    """Return the calls on a path that have no result, in call order."""
    answered = {entry.call_id for entry in path if isinstance(entry, Message) and entry.role == "tool"}
    return [call for entry in path if isinstance(entry, Message) for call in entry.calls if call.id not in answered]
