"""One request with its context, and the operation that answers it.

The function of an operation gets a call and nothing else. It runs in a thread of the pool that the
operation names, with a home of the identity whose credential came with the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from perdure import turn
from perdure.home import Home
from perdure.sharing.machines import Authority
from perdure.surfaces.http.events import ActivityFeed, Subscribers
from perdure.surfaces.http.pools import CaptureBatcher, HealthProbe
from perdure.surfaces.http.responses import CursorSigner, HttpResponse, Json, ListPage
from perdure.surfaces.http.shapes import NoQuery
from perdure.types import Identity

_NO_LIMIT_MS = 24 * 3600 * 1000

PoolName = Literal["capture", "read", "write", "slow", "chat", "sign-in"]


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The parts of the server that all calls share."""

    home: Path
    authority: Authority
    cursors: CursorSigner
    subscribers: Subscribers
    activity_feed: ActivityFeed
    capture_batcher: CaptureBatcher
    probe: HealthProbe
    wake: Callable[[], None]  # something was captured
    find_overload: Callable[
        [Home, str], int
    ]  # how many runs of a user wait for the index, if too many to take more; else 0
    is_warm: Callable[[], bool]  # True if the model is loaded
    read_health: Callable[[], Json]  # the resident home's own report
    count_waiting: Callable[[], dict[str, int]]  # pool -> requests that run or wait
    lend_home: Callable[[], AbstractContextManager[Home]]  # a home of the server's own user, for work after an answer
    start_job: Callable[[str, Callable[[], None]], None]  # start work of this name that goes on after the answer


@dataclass(frozen=True, slots=True)
class HttpCall:
    """One request whose credential was accepted."""

    server: ServerContext
    identity: Identity
    home: Home
    path_params: Mapping[str, str]  # the parameters in the path, with their values
    query: Any  # in the shape of the operation
    body: Any  # in the shape of the operation; for a raw body the `RequestBody`
    content_type: str = ""  # of a raw body
    deadline: turn.ReplyDeadline = field(
        default_factory=lambda: turn.ReplyDeadline(_NO_LIMIT_MS)
    )  # the time limit of its answer

    def read_list_page(self, *question: object) -> ListPage:
        """Return the part of a list that the query or the body asks for.

        question: all values that decide which items are listed.
        """
        params = self.query if hasattr(self.query, "cursor") else self.body
        bound_question = (self.identity.user, *question)
        cursors = self.server.cursors
        return ListPage(
            cursors.read_cursor(params.cursor, *bound_question), params.limit, cursors.bind_question(*bound_question)
        )

    def choose_mode(self) -> str | None:
        """Return the mode of recall: keyword until the model is loaded, so that nobody waits for it."""
        return None if self.server.is_warm() else "keyword"

    def with_home(self, home: Home) -> HttpCall:
        """Return the same call with a home."""
        return replace(self, home=home)


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """One operation: its method and path, its shapes, and the function that answers it."""

    method: str
    path: str
    answer: Callable[[HttpCall], HttpResponse]
    summary: str  # in one line
    query_shape: type[Struct] = NoQuery
    body_shape: type[Struct] | None = None
    response_shape: Any = None  # the shape of its answer
    status: int = 200
    pool: PoolName = "read"
    is_raw: bool = False  # the body is bytes
    is_admin: bool = False  # only for admins; it runs with the server's own home
    is_public: bool = False  # needs no credential; an address may fail as often as it may send wrong ones
    repeat: Callable[[HttpCall, str], HttpResponse] | None = (
        None  # answers a repetition; takes the id of what was created
    )
    extra_statuses: tuple[int, ...] = ()  # besides those that follow from its other fields
    uses_caller_home: bool = True  # runs with a home of the caller's identity; else with the server's own
    content_type: str = "application/json"  # of its answer
    late_body: Json | None = None  # the answer when the `limit_ms` of the body is over
