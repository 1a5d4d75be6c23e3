"""What recall met and kept from a model: the words behind the names that were noted, as they are now.

Reads the index. Words that were forgotten, changed or allowed since are no longer among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.access.scan import digest
from perdure.floor.layers import Suspect, Suspicious
from perdure.index import exchanges, memories
from perdure.index.store import Connection


def suspects(index: Connection, user: str, places: Mapping[str, str], suspicious: Suspicious) -> list[Suspect]:
    """The texts of these names that are still left out. places: name of a text -> the turn or memory that holds it."""
    return [
        Suspect(where, text, found)
        for name, where in places.items()
        if where
        for text in _texts(index, user, where)
        if digest(text) == name
        for found in suspicious(text)[:1]
    ]


def _texts(index: Connection, user: str, where: str) -> Sequence[str]:
    if where.startswith("mem-"):
        return [memory.text for memory in memories.of_ids(index, user, [where])]
    return exchanges.pieces(index, user, where)
