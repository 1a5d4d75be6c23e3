"""Find out who visits: sessions that outlive a restart, and links that let one visitor in once.

A session is a secret in a cookie; `run/http.db` keeps its hash, its user and its machine. A session may
do no more than that machine may do at this moment. A link is made for anybody who may use the resident
home's own socket, so it needs no secret of a machine; it lives in memory for minutes and lets one
visitor in.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from perdure.sharing.machines import Authority
from perdure.surfaces.http.store import BrowserSession, RequestStore
from perdure.types import Identity

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

    def begin_session(self, identity: Identity) -> Visitor:
        """Begin a session for a user."""
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        now_s = time.time()
        self._store.save_session(
            _hash_secret(secret), BrowserSession(identity.user, identity.machine_id, now_s + SESSION_S), now_s
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
