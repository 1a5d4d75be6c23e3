"""Cursors: where a list goes on, signed, and bound to who asked for what.

A cursor says nothing that its reader did not say before, and one that was changed, or is of another question or another
user, is refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable

import msgspec

from perdure.surfaces.http.faults import bad

_MARK_BYTES = 16
_REFUSED = "this cursor is not one of this question: ask for the first page again, without a cursor"


class Cursors:
    """Makes and reads them with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def make(self, offset: int, *question: object) -> str:
        """The cursor that goes on at an offset of the answer to a question."""
        said = str(offset).encode()
        return base64.urlsafe_b64encode(self._mark(said, question) + said).decode().rstrip("=")

    def read(self, cursor: str | None, *question: object) -> int:
        """The offset that a cursor names, 0 without one. Raises Refused (400)."""
        if not cursor:
            return 0
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except ValueError:
            raise bad(_REFUSED) from None
        mark, said = raw[:_MARK_BYTES], raw[_MARK_BYTES:]
        if not hmac.compare_digest(mark, self._mark(said, question)):
            raise bad(_REFUSED)
        return int(said)

    def at(self, *question: object) -> Callable[[int], str]:
        """What makes the cursors of one question."""
        return lambda offset: self.make(offset, *question)

    def _mark(self, said: bytes, question: tuple[object, ...]) -> bytes:
        bound = msgspec.json.encode(question, order="deterministic")
        return hashlib.blake2b(said + b"\0" + bound, key=self._key, digest_size=_MARK_BYTES).digest()
