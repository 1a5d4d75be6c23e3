"""An owner's memories as a person leafs through them: page by page, by what they are about. Reads only.

Nothing here decodes more rows than it shows, so a page of many thousands costs what the page costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from perdure.index.memories import decoded
from perdure.index.store import Connection
from perdure.types import Memory

Order = Literal["subject", "newest"]
_ORDERS: dict[Order, str] = {  # as the indexes of the table have them
    "subject": "pinned DESC, place, stated_ms DESC, memory_id",
    "newest": "stated_ms DESC, memory_id",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which memories. What is left out narrows nothing."""

    prefix: str = ""  # of the folded path, by whole parts
    kind: str = ""
    project: str | None = None  # "" for what belongs to none
    trust: str = ""
    every: bool = False  # also what was superseded or retired


class Stretch(NamedTuple):
    """A part of a list."""

    offset: int
    limit: int


def page(index: Connection, user: str, wanted: Wanted, *, order: Order, stretch: Stretch) -> list[Memory]:
    """The memories of one stretch of the list, in order."""
    test, values = _test(index, user, wanted)
    table = "memory INDEXED BY memory_newest" if order == "newest" else _table(wanted)
    inner = f"SELECT id FROM {table} WHERE {test} ORDER BY {_ORDERS[order]} LIMIT ? OFFSET ?"
    query = f"SELECT body FROM memory WHERE id IN ({inner}) ORDER BY {_ORDERS[order]}"
    return [decoded(body) for (body,) in index.rows(query, *values, stretch.limit, stretch.offset)]


def count(index: Connection, user: str, wanted: Wanted) -> int:
    """How many there are."""
    test, values = _test(index, user, wanted)
    return int(index.rows(f"SELECT count(*) FROM {_table(wanted)} WHERE {test}", *values)[0][0])


def subjects(index: Connection, user: str, wanted: Wanted) -> dict[str, int]:
    """Part of a path -> how many lie at it or below: the parts that follow the prefix, or the first ones."""
    test, values = _test(index, user, wanted)
    at = len(wanted.prefix) + 2 if wanted.prefix else 1
    query = f"""SELECT substr(place, ?, instr(substr(place, ?) || '/', '/') - 1) AS part, count(*)
        FROM {_table(wanted)} WHERE {test} GROUP BY part HAVING part <> '' ORDER BY part"""
    return dict(index.rows(query, at, at, *values))


def projects(index: Connection, user: str) -> list[str]:
    """The projects that memories belong to."""
    query = "SELECT DISTINCT project FROM memory WHERE user = ? AND project <> '' ORDER BY project"
    return [project for (project,) in index.rows(query, index.known("user", user))]


def _table(wanted: Wanted) -> str:
    """The table; of what is believed by the index that holds nothing else, which SQLite does not choose by itself."""
    return "memory" if wanted.every else "memory INDEXED BY memory_current"


def _test(index: Connection, user: str, wanted: Wanted) -> tuple[str, list[Any]]:
    """A test of a row of `memory`, with its values."""
    tests, values = ["user = ?"], list[Any]([index.known("user", user)])
    if not wanted.every:
        tests.append("superseded_by IS NULL AND NOT retired")
    if wanted.prefix:
        tests.append("(place = ? OR substr(place, 1, ?) = ?)")
        values += [wanted.prefix, len(wanted.prefix) + 1, f"{wanted.prefix}/"]
    for column, value in (("kind", wanted.kind or None), ("trust", wanted.trust or None), ("project", wanted.project)):
        if value is not None:
            tests.append(f"{column} = ?")
            values.append(value)
    return " AND ".join(tests), values
