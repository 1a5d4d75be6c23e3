"""Response bodies, errors and cursors, in the one form that all operations share.

A body has `_links` and `next_actions`, a list has a cursor, and an error has its code. Links are relative,
because a server does not know by which name it was reached. `to_refusal` is the only place that chooses
the status of an error; no error names a path of this machine. An unknown id and an id of another user give
the same bytes, so that nobody learns which of the two it was. A cursor is signed and bound to its question
and its user; one that was changed, or belongs to another question or user, is refused.

Pure.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from perdure import errors

Json = dict[str, Any]
Links = Mapping[str, str]
API_PATH = "/api"
OPENAPI_PATH = f"{API_PATH}/openapi.json"


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One response before it becomes bytes."""

    body: Json | bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    created_id: str = ""  # the id of what a POST created; a repetition of the request is answered with it
    content_type: str = "application/json"


def build_action(do: str, method: str, href: str) -> Json:
    """Build one entry of `next_actions`: a request that a program may make next.

    >>> build_action("read it", "GET", "/api/runs/r/jsonl")
    {'do': 'read it', 'method': 'GET', 'href': '/api/runs/r/jsonl'}
    """
    return {"do": do, "method": method, "href": href}


def encode_noun(noun: Any) -> Any:
    """Encode a noun with the names of its Python fields; `remote_home` decodes it to an equal one."""
    return msgspec.to_builtins(noun, str_keys=True)


def build_item(item: Any, links: Links, *, actions: Sequence[Json] = (), **extra_fields: Any) -> Json:
    """Build the body of one item."""
    fields = msgspec.to_builtins(item, str_keys=True) if not isinstance(item, dict) else item
    return {**fields, "_links": dict(links), "next_actions": list(actions), **extra_fields}


def build_list_item(item: Any, links: Links) -> Json:
    """Build one item of a list, with its links."""
    return {**msgspec.to_builtins(item, str_keys=True), "_links": dict(links)}


@dataclass(frozen=True, slots=True)
class ListPage:
    """The part of a list that a request asks for."""

    offset: int
    limit: int
    cursor_at: Callable[[int], str]  # returns the cursor that continues at an offset

    def cut_items(self, items: Sequence[Any]) -> tuple[Sequence[Any], str | None]:
        """Return (the items of this page, the cursor of the next page or None).

        items: the whole list, or its beginning with at least one item more than this page needs.
        """
        end = self.offset + self.limit
        return items[self.offset : end], self.cursor_at(end) if len(items) > end else None


def build_list(
    items: Sequence[Json | msgspec.Raw], next_cursor: str | None, links: Links, *, actions: Sequence[Json] = ()
) -> Json:
    """Build the body of a list."""
    return {"items": list(items), "next_cursor": next_cursor, "_links": dict(links), "next_actions": list(actions)}


RETRY_S = 1  # seconds until a client asks a busy server again

_STATUS_BY_ERROR: tuple[tuple[type[errors.PerdureError], int, str], ...] = (  # the first match counts
    (errors.NotFound, 404, "not-found"),
    (errors.EditRefused, 400, "edit-refused"),
    (errors.UsageError, 400, "usage-error"),
    (errors.SessionHeld, 409, "session-held"),
    (errors.ModelMissing, 503, "model-missing"),
    (errors.Busy, 503, "busy"),
    (errors.DiskFull, 503, "disk-full"),
    (errors.IndexFault, 503, "index-fault"),
    (errors.ModelFault, 503, "model-fault"),
    (errors.ArchiveFault, 503, "archive-fault"),
    (errors.HomeFault, 503, "home-fault"),
    (errors.FormatFault, 400, "format-fault"),
    (errors.IdentityServerAway, 503, "identity-server-away"),
    (errors.IdentityFault, 403, "not-let-in"),
)
_MESSAGES = {  # used where the error's own text may name a path of this machine
    "not-found": "Not found, or not visible to you.",
    "session-held": "Another program holds this session. Close it there, for example the chat in a terminal.",
    "model-missing": "No model is set that talks. `perdure models set resident` sets one (docs/models.md).",
    "busy": "The home is busy. Try again in a moment.",
    "disk-full": "The disk of the home is full. Nothing was stored; try again later.",
    "index-fault": "The index cannot be used. Captured data is safe; try again later.",
    "model-fault": "The model gave no answer. Try again later, or without it.",
    "archive-fault": "The archive refused the write. Nothing was changed; the owner of the home must check it.",
    "home-fault": "The home cannot be used. The owner of the home must check it.",
    "internal": "The server failed. It is not known whether anything was stored; try again.",
}
_NEXT_ACTIONS = {
    "not-found": [build_action("search for it", "POST", "/api/runs/search")],
    "unauthorized": [build_action("see who you are, with a credential", "GET", "/api/me")],
}


@dataclass
class HttpRefusal(Exception):
    """A request that is answered with an error."""

    status: int
    code: str
    message: str
    headers: dict[str, str] = field(default_factory=dict)
    extra_fields: Json = field(default_factory=dict)


def refuse_usage(message: str) -> HttpRefusal:
    """Build the refusal of a request that is not valid (400)."""
    return HttpRefusal(400, "usage-error", message)


def refuse_for_now(code: str, message: str, *, after_s: float = RETRY_S, status: int = 503) -> HttpRefusal:
    """Build the refusal of a request that may be sent again after `after_s` seconds."""
    return HttpRefusal(status, code, message, {"Retry-After": str(max(1, round(after_s)))})


def to_refusal(error: Exception) -> HttpRefusal:
    """Return the refusal that an error becomes."""
    if isinstance(error, HttpRefusal):
        return error
    if isinstance(error, OverflowError):
        return refuse_usage("a number or a time in it is out of range")
    for error_type, status, code in _STATUS_BY_ERROR:
        if isinstance(error, error_type):
            message = _MESSAGES.get(code) or error.detail or str(error)
            headers = {"Retry-After": str(RETRY_S)} if status == 503 else {}
            return HttpRefusal(status, code, message, headers)
    return HttpRefusal(500, "internal", _MESSAGES["internal"])


def render_refusal(refusal: HttpRefusal) -> HttpResponse:
    """Return the response of a refusal."""
    body: dict[str, Any] = {
        "error": {"code": refusal.code, "message": refusal.message},
        "_links": {"openapi": OPENAPI_PATH},
        "next_actions": _NEXT_ACTIONS.get(
            refusal.code, [build_action("read what this server takes", "GET", OPENAPI_PATH)]
        ),
    }
    return HttpResponse({**body, **refusal.extra_fields}, refusal.status, refusal.headers)


_SIGNATURE_BYTES = 16
_WRONG_CURSOR = "this cursor is of another request: ask for the first page again, without a cursor"


class CursorSigner:
    """Makes and reads cursors with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def make_cursor(self, offset: int, *question: object) -> str:
        """Return the cursor that continues the answer to a question at an offset."""
        offset_bytes = str(offset).encode()
        return base64.urlsafe_b64encode(self._sign(offset_bytes, question) + offset_bytes).decode().rstrip("=")

    def read_cursor(self, cursor: str | None, *question: object) -> int:
        """Return the offset that a cursor names, 0 without a cursor. Raises HttpRefusal (400)."""
        if not cursor:
            return 0
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except ValueError:
            raise refuse_usage(_WRONG_CURSOR) from None
        signature, offset_bytes = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._sign(offset_bytes, question)):
            raise refuse_usage(_WRONG_CURSOR)
        return int(offset_bytes)

    def bind_question(self, *question: object) -> Callable[[int], str]:
        """Return the function that makes the cursors of one question."""
        return lambda offset: self.make_cursor(offset, *question)

    def _sign(self, offset_bytes: bytes, question: tuple[object, ...]) -> bytes:
        question_bytes = msgspec.json.encode(question, order="deterministic")
        return hashlib.blake2b(
            offset_bytes + b"\0" + question_bytes, key=self._key, digest_size=_SIGNATURE_BYTES
        ).digest()
