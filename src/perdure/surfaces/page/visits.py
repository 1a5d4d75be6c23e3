"""One visit on its way to an answer, and the row that says which function answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from starlette.datastructures import QueryParams

from perdure.home import Home
from perdure.surfaces.http.calls import Server
from perdure.types import Identity

DeskName = Literal["read", "write", "slow"]
MOST_PAGES = 10  # of a list that one answer holds


def n_pages(query: QueryParams) -> int:
    """How many pages of a list one answer is to hold: as many as were shown when somebody left it.

    >>> n_pages(QueryParams("pages=3")), n_pages(QueryParams("")), n_pages(QueryParams("pages=-7"))
    (3, 1, 1)
    """
    said = query.get("pages", "")
    return min(max(1, int(said)), MOST_PAGES) if said.isascii() and said.isdecimal() and len(said) < 9 else 1


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of somebody who was let in."""

    server: Server
    identity: Identity  # who visits
    home: Home  # as they see it; to write in only where the row's desk is "write"
    path: Mapping[str, str]  # the names in the address, with what stands there
    query: QueryParams
    form: Mapping[str, str]  # of a POST: the last of each field, without the token
    now: datetime  # UTC
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of a POST: every value of each field


@dataclass(frozen=True, slots=True)
class Shown:
    """A page."""

    template: str
    values: Mapping[str, Any]  # "title" among them
    status: int = 200


@dataclass(frozen=True, slots=True)
class Moved:
    """After a change: go there, and be told this once."""

    to: str
    notice: str = ""


@dataclass(frozen=True, slots=True)
class Sent:
    """Bytes that are no page: an image, a download."""

    body: bytes
    kind: str
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Shown | Moved | Sent


@dataclass(frozen=True, slots=True)
class View:
    """One address: where it is, and what answers it."""

    method: Literal["GET", "POST"]
    path: str
    answer: Callable[[Visit], Answer]
    nav: str = ""  # the entry of the navigation that it belongs to
    desk: DeskName = "read"
    is_admin: bool = False  # only for who may see to the whole home
