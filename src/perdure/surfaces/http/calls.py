"""One request on its way to an answer, and the table's row that says which function answers it.

A function of a row is given a call and nothing else. It runs in a thread of the desk that its row names, with a home of
the identity whose credential came with the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from perdure import live
from perdure.authority.socket import Authority
from perdure.home import Home
from perdure.surfaces.http.answers import Answer, Json, Page
from perdure.surfaces.http.cursors import Cursors
from perdure.surfaces.http.events import Hub
from perdure.surfaces.http.news import News
from perdure.surfaces.http.probe import Probe
from perdure.surfaces.http.shapes import Unread
from perdure.surfaces.http.together import Together
from perdure.types import Identity

_NO_LIMIT_MS = 24 * 3600 * 1000

DeskName = Literal["capture", "read", "write", "slow"]


@dataclass(frozen=True, slots=True)
class Server:
    """What all calls share."""

    home: Path
    authority: Authority
    cursors: Cursors
    hub: Hub
    news: News
    together: Together
    probe: Probe
    wake: Callable[[], None]  # something was captured
    is_warm: Callable[[], bool]  # whether the model is loaded
    health: Callable[[], Json]  # what the resident home says of itself
    depth: Callable[[], dict[str, int]]  # desk -> requests that are there
    lent: Callable[[], AbstractContextManager[Home]]  # a home of the server's own user, for work behind an answer
    begin: Callable[[str, Callable[[], None]], None]  # do something of this name behind an answer


@dataclass(frozen=True, slots=True)
class Call:
    """One request that was let in."""

    server: Server
    identity: Identity
    home: Home
    path: Mapping[str, str]  # the names in the path, with what stands there
    query: Any  # in the shape of the row
    body: Any  # in the shape of the row; of a raw one, the `bodies.Body`
    kind: str = ""  # of a raw body
    slot: live.Slot = field(default_factory=lambda: live.Slot(_NO_LIMIT_MS))  # the time that its answer has

    def page(self, *question: object) -> Page:
        """The part of a list that the query, or the body, asks for. question: all that decides what is listed."""
        asked = self.query if hasattr(self.query, "cursor") else self.body
        bound = (self.identity.user, *question)
        cursors = self.server.cursors
        return Page(cursors.read(asked.cursor, *bound), asked.limit, cursors.at(*bound))

    def mode(self) -> str | None:
        """How to recall: by words alone until the model is loaded, so that nobody waits for it."""
        return None if self.server.is_warm() else "keyword"

    def with_home(self, home: Home) -> Call:
        """The same call with a home."""
        return replace(self, home=home)


@dataclass(frozen=True, slots=True)
class Row:
    """One operation: where it is, what it takes and gives, and what answers it."""

    method: str
    path: str
    answer: Callable[[Call], Answer]
    says: str  # in one line
    query: type[Struct] = Unread
    body: type[Struct] | None = None
    gives: Any = None  # the shape of its answer
    status: int = 200
    desk: DeskName = "read"
    is_raw: bool = False  # the body is bytes
    is_admin: bool = False
    again: Callable[[Call, str], Answer] | None = None  # the answer to a repetition: takes the id of what was made
    more: tuple[int, ...] = ()  # other statuses than those that every row has
    is_own: bool = True  # with a home of the caller's identity; else with the server's own
    kind: str = "application/json"  # of what it gives
    late: Json | None = None  # what is said when the `limit_ms` of the body is over
