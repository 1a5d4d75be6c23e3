"""What every answer looks like: a body with `_links` and `next_actions`, a list with a cursor, an error with its code.

Pure. Links are relative, because a server does not know by which name it was reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

Json = dict[str, Any]
Links = Mapping[str, str]
API = "/api"
DOCUMENT = f"{API}/openapi.json"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer before it becomes bytes."""

    body: Json | bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    made: str = ""  # the id of what a POST made, for a repetition of the same request
    kind: str = "application/json"


def action(do: str, method: str, href: str) -> Json:
    """Something that a program may do next.

    >>> action("read it", "GET", "/api/runs/r/jsonl")
    {'do': 'read it', 'method': 'GET', 'href': '/api/runs/r/jsonl'}
    """
    return {"do": do, "method": method, "href": href}


def one(item: Any, links: Links, *, actions: Sequence[Json] = (), **more: Any) -> Json:
    """The body of one thing."""
    said = msgspec.to_builtins(item, str_keys=True) if not isinstance(item, dict) else item
    return {**said, "_links": dict(links), "next_actions": list(actions), **more}


def linked(item: Any, links: Links) -> Json:
    """One thing inside of a list."""
    return {**msgspec.to_builtins(item, str_keys=True), "_links": dict(links)}


@dataclass(frozen=True, slots=True)
class Page:
    """The part of a list that was asked for."""

    offset: int
    limit: int
    cursor_at: Callable[[int], str]  # the cursor that goes on at an offset

    def of(self, items: Sequence[Any]) -> tuple[Sequence[Any], str | None]:
        """(the items of this page, the cursor of the next). items: the whole list, or its beginning and one more."""
        end = self.offset + self.limit
        return items[self.offset : end], self.cursor_at(end) if len(items) > end else None


def listed(
    items: Sequence[Json | msgspec.Raw], following: str | None, links: Links, *, actions: Sequence[Json] = ()
) -> Json:
    """The body of a list."""
    return {"items": list(items), "next_cursor": following, "_links": dict(links), "next_actions": list(actions)}
