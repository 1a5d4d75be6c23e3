"""Who visits: sessions that outlive a restart, and links that let somebody in once.

A session is a secret in a cookie, of which `run/http.db` keeps the hash, whose it is and from which machine; it stands
for no more than that machine does at this moment. A link is made for who may speak to the resident home's own socket,
so it needs no secret of a machine; it lives in memory, for minutes, and lets one visitor in.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from perdure.authority.socket import Authority
from perdure.surfaces.http.store import Requests, Session
from perdure.types import Identity

LINK_S = 600.0  # so long does a link wait for its visitor
SESSION_S = 30 * 24 * 3600  # so long does a session last, however much it is used
_SECRET_BYTES = 32
_MOST_LINKS = 100
_MOST_CHARS = 128  # of what may be a secret of a session


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who was let in."""

    identity: Identity
    secret: str  # of the session

    @property
    def token(self) -> str:
        """What every form of theirs carries, so that no other site can send one."""
        return hmac.new(self.secret.encode(), b"form", hashlib.sha256).hexdigest()


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class Links:
    """Links that let one visitor in each. Any thread may ask."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._ends_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def make(self) -> str:
        """The secret of a new one."""
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        with self._lock:
            self._drop_old()
            self._ends_s[_hash(secret)] = self._now_s() + LINK_S
            while len(self._ends_s) > _MOST_LINKS:
                del self._ends_s[next(iter(self._ends_s))]
        return secret

    def take(self, secret: str) -> bool:
        """Whether it lets somebody in; from now on it does not."""
        with self._lock:
            self._drop_old()
            return self._ends_s.pop(_hash(secret), None) is not None

    def _drop_old(self) -> None:
        now_s = self._now_s()
        self._ends_s = {name: ends_s for name, ends_s in self._ends_s.items() if ends_s > now_s}


class Sessions:
    """The sessions of a home."""

    def __init__(self, store: Requests, authority: Authority, owner: Identity, links: Links) -> None:
        """owner: for whom a link stands; of no machine (its id is empty), because it needs no secret of one."""
        self._store = store
        self._authority = authority
        self._owner = owner
        self._links = links

    def begin(self, identity: Identity) -> Visitor:
        """Let somebody in."""
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        now_s = time.time()
        self._store.keep_session(_hash(secret), Session(identity.user, identity.machine_id, now_s + SESSION_S), now_s)
        return Visitor(identity, secret)

    def by_link(self, secret: str) -> Visitor | None:
        """Let the owner in who followed a link; None where it is used up, or none."""
        return self.begin(self._owner) if self._links.take(secret) else None

    def by_credential(self, secret: str) -> Visitor | None:
        """Let in who has the secret of a machine; None for one that stands for nobody."""
        identity = self._authority.identify(secret)
        return self.begin(identity) if identity is not None else None

    def visitor(self, secret: str) -> Visitor | None:
        """Whom the secret of a session stands for now; None where it ended, or its machine was revoked."""
        if not 0 < len(secret) <= _MOST_CHARS:
            return None
        found = self._store.session(_hash(secret), time.time())
        if found is None:
            return None
        identity = self._identity(found)
        return Visitor(identity, secret) if identity is not None else None

    def _identity(self, session: Session) -> Identity | None:
        if not session.machine_id:
            return self._owner if session.user == self._owner.user else None
        return self._authority.standing(session.user, session.machine_id)

    def end(self, visitor: Visitor) -> None:
        """Let this session in no more."""
        self._store.drop_session(_hash(visitor.secret))

    def end_all(self, visitor: Visitor) -> None:
        """Let no session of this user in any more, wherever it is."""
        self._store.drop_sessions(visitor.identity.user)
