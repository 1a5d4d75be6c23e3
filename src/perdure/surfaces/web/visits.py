"""Visits: the request and its limits, the answers of views, and the links and sessions that let a visitor in.

An address may ask for no more than a page can cost, and contains no name that may not be shown: a name of
a project, a tag or a machine appears in addresses and forms unchanged if all of it may be shown, and
otherwise as a key that reveals nothing of it. A link lets one visitor in, once. Secrets of sessions are
kept as hashes only. Pages are rendered elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from starlette.datastructures import QueryParams

from perdure.errors import UsageError
from perdure.home import Home
from perdure.sharing.machines import Authority
from perdure.surfaces.http import captures
from perdure.surfaces.http.calls import PoolName, ServerContext
from perdure.surfaces.http.store import BrowserSession, RequestStore
from perdure.surfaces.live_sessions import LiveSessions
from perdure.surfaces.web.render import KEY_PREFIX, clean, mask_name, to_key
from perdure.types import Identity

# one visit ----------------------------------------------------------------------------------------------------

MAX_PAGES = 10  # of a list in one answer


def parse_page_count(query: QueryParams) -> int:
    """Return how many pages of a list one answer should hold: as many as were shown when the visitor left it.

    >>> [parse_page_count(QueryParams(query)) for query in ("pages=3", "", "pages=-7")]
    [3, 1, 1]
    """
    value = query.get("pages", "")
    return min(max(1, int(value)), MAX_PAGES) if value.isascii() and value.isdecimal() and len(value) < 9 else 1


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file that came with a form."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of a visitor who was let in."""

    server: ServerContext
    identity: Identity  # who visits
    home: Home  # as the visitor sees it; writable only if the view's pool is "write"
    path_params: Mapping[str, str]  # the parameters of the path, by name
    query: QueryParams
    form: Mapping[str, str]  # of a POST: the last value of each field, without the token
    now: datetime  # UTC
    live: LiveSessions  # of the home's own user
    form_lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of a POST: every value of each field
    files: tuple[UploadedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """A page: a template and its values."""

    template: str
    values: Mapping[str, Any]  # must contain "title"
    status: int = 200


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirect after a change, with a notice that is shown once."""

    target: str
    notice: str = ""


@dataclass(frozen=True, slots=True)
class RawContent:
    """Bytes that are not a page: an image, a download."""

    body: bytes
    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


ViewResult = HtmlPage | Redirect | RawContent


@dataclass(frozen=True, slots=True)
class View:
    """One address, and the function that answers it."""

    method: Literal["GET", "POST"]
    path: str
    respond: Callable[[Visit], ViewResult]
    nav: str = ""  # name of its entry in the navigation
    pool: PoolName = "read"
    is_admin: bool = False  # only for admins
    is_own: bool = False  # only for the home's own user: the agent acts with their rights
    max_bytes: int = captures.MAX_JSON_BYTES  # of a form


# limits of an address -----------------------------------------------------------------------------------------

MAX_VALUE_CHARS = 1_000  # of one value of a query
MAX_VALUES = 20  # values with one name
MAX_OFFSET = 100_000_000  # of a list that is shown page by page
MAX_QUERY_CHARS = 12_000  # of the whole query string: every link of a page repeats it


def find_query_faults(query: QueryParams) -> dict[str, str]:
    """Return the faults of a query: name -> fault; the name "" stands for all values together.

    >>> find_query_faults(QueryParams([("tag", "x")] * 21))
    {'tag': 'at most 20 at once'}
    >>> find_query_faults(QueryParams([("tag", "x")] * 20))
    {}
    """
    counts = Counter(name for name, _ in query.multi_items())
    faults = {name: f"at most {MAX_VALUES} at once" for name, n in counts.items() if n > MAX_VALUES}
    long_names = [name for name, value in query.multi_items() if len(value) > MAX_VALUE_CHARS]
    faults |= dict.fromkeys(long_names, f"at most {MAX_VALUE_CHARS:,} characters")
    if len(str(query)) > MAX_QUERY_CHARS:
        faults[""] = f"at most {MAX_QUERY_CHARS:,} characters together"
    return faults


def check_query(query: QueryParams) -> None:
    """Raise UsageError if a query asks for more than a page may cost."""
    for name, reason in find_query_faults(query).items():
        raise UsageError(f"{clean(name[:20]) or 'this address'}: {reason}")


def parse_offset(value: str, limit: int = MAX_OFFSET) -> int:
    """Return the offset from which an address asks for more of a list; "" is 0. Raises UsageError.

    >>> parse_offset(""), parse_offset("40")
    (0, 40)
    """
    if value and not (
        value.isascii() and value.isdecimal() and len(value) < len(str(MAX_OFFSET)) and int(value) < limit
    ):
        raise UsageError(f"the list has no offset {value[:9]!r}: open its first page again")
    return int(value or 0)


def resolve_key(value: str, list_names: Callable[[], Iterable[str]]) -> str:
    """Return the name that an address means: the one with this key, or the value itself.

    list_names: called for a key only.
    """
    return (
        next((name for name in list_names() if to_key(name) == value), value) if value.startswith(KEY_PREFIX) else value
    )


def to_options(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return (value, label) of each name, for a form."""
    return [(to_key(name), mask_name(name)) for name in names]


def make_distinct_labels(names: Iterable[str], describe: Callable[[str], str]) -> dict[str, str]:
    """Return name -> label: of names that would get the same label, the whole name.

    >>> make_distinct_labels(["/a/cli", "/b/cli", "/a/tide"], lambda path: path.rpartition("/")[2])
    {'/a/cli': '/a/cli', '/b/cli': '/b/cli', '/a/tide': 'tide'}
    """
    labels = {name: describe(name) for name in names}
    counts = Counter(labels.values())
    return {name: label if counts[label] == 1 else mask_name(name) for name, label in labels.items()}


# links and sessions -------------------------------------------------------------------------------------------

LINK_S = 600.0  # a link is valid this long
SESSION_S = 30 * 24 * 3600  # a session lasts this long, whether it is used or not
_SECRET_BYTES = 32
_MAX_LINKS = 100
_MAX_SECRET_CHARS = 128  # of a secret; anything longer is none


@dataclass(frozen=True, slots=True)
class Visitor:
    """A user who was let in."""

    identity: Identity
    secret: str  # of the session

    @property
    def token(self) -> str:
        """The token in every form of this visitor, so that no other site can send one."""
        return hmac.new(self.secret.encode(), b"form", hashlib.sha256).hexdigest()


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class EntryLinks:
    """Links that let one visitor in each. Safe to use from any thread."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._ends_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def create(self) -> str:
        """Create a link and return its secret."""
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        with self._lock:
            self._drop_old()
            self._ends_s[_hash_secret(secret)] = self._now_s() + LINK_S
            while len(self._ends_s) > _MAX_LINKS:
                del self._ends_s[next(iter(self._ends_s))]
        return secret

    def redeem(self, secret: str) -> bool:
        """Use a link up; return True if it was valid."""
        with self._lock:
            self._drop_old()
            return self._ends_s.pop(_hash_secret(secret), None) is not None

    def _drop_old(self) -> None:
        now_s = self._now_s()
        self._ends_s = {name: ends_s for name, ends_s in self._ends_s.items() if ends_s > now_s}


class BrowserSessions:
    """The browser sessions of a home."""

    def __init__(self, store: RequestStore, authority: Authority, owner: Identity, links: EntryLinks) -> None:
        """owner: the user that a link lets in. It has no machine (an empty id): a link needs no secret of one."""
        self._store = store
        self._authority = authority
        self._owner = owner
        self._links = links

    def begin_session(self, identity: Identity, *, lasts_s: float = SESSION_S) -> Visitor:
        """Begin a session for a user."""
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        now_s = time.time()
        self._store.save_session(
            _hash_secret(secret), BrowserSession(identity.user, identity.machine_id, now_s + lasts_s), now_s
        )
        return Visitor(identity, secret)

    def enter_by_link(self, secret: str) -> Visitor | None:
        """Let the owner in by the secret of a link; return None if it is used up or unknown."""
        return self.begin_session(self._owner) if self._links.redeem(secret) else None

    def enter_by_credential(self, secret: str) -> Visitor | None:
        """Let a user in by the secret of a machine; return None if it belongs to nobody."""
        identity = self._authority.identify(secret)
        return self.begin_session(identity) if identity is not None else None

    def find_visitor(self, secret: str) -> Visitor | None:
        """Return the visitor that a session's secret stands for now; None if it ended or its machine was revoked."""
        if not 0 < len(secret) <= _MAX_SECRET_CHARS:
            return None
        session = self._store.read_session(_hash_secret(secret), time.time())
        if session is None:
            return None
        identity = self._find_identity(session)
        return Visitor(identity, secret) if identity is not None else None

    def _find_identity(self, session: BrowserSession) -> Identity | None:
        if not session.machine_id:
            return self._owner if session.user == self._owner.user else None
        return self._authority.identify_machine(session.user, session.machine_id)

    def end_session(self, visitor: Visitor) -> None:
        """End this session."""
        self._store.drop_session(_hash_secret(visitor.secret))

    def end_all_sessions(self, visitor: Visitor) -> None:
        """End every session of this user, in every browser."""
        self._store.drop_sessions(visitor.identity.user)
