"""What goes wrong, as a status and an envelope. The one place that decides it; nothing of this machine stands in one.

An id that is unknown and one that is another's give the same bytes, so that nobody learns which of them it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from perdure import errors
from perdure.surfaces.http.answers import DOCUMENT, Answer, Json, action

RETRY_S = 1  # after which a busy server is asked again

_STATUS: tuple[tuple[type[errors.PerdureError], int, str], ...] = (  # the first that fits counts
    (errors.NotFound, 404, "not-found"),
    (errors.EditRefused, 400, "edit-refused"),
    (errors.UsageError, 400, "usage-error"),
    (errors.Busy, 503, "busy"),
    (errors.DiskFull, 503, "disk-full"),
    (errors.IndexFault, 503, "index-fault"),
    (errors.ModelFault, 503, "model-fault"),
    (errors.ArchiveFault, 503, "archive-fault"),
    (errors.HomeFault, 503, "home-fault"),
    (errors.FormatFault, 400, "format-fault"),
)
_SAID = {  # where the error's own words may name a place of this machine
    "not-found": "There is nothing by that id that you may see.",
    "busy": "The home is busy. Try again in a moment.",
    "disk-full": "The disk of the home is full. Nothing was kept; try again later.",
    "index-fault": "The index cannot be used. What is captured is kept; try again later.",
    "model-fault": "The model gave no answer. Try again later, or without it.",
    "archive-fault": "The archive did not take this. Nothing was changed; its owner must look at it.",
    "home-fault": "The home cannot be used as it is. Its owner must look at it.",
    "internal": "Something went wrong in the server. Nothing is known to be kept; try again.",
}
_NEXT = {
    "not-found": [action("search for it", "POST", "/api/runs/search")],
    "unauthorized": [action("see who you are, with a credential", "GET", "/api/me")],
}


@dataclass
class Refused(Exception):
    """A request that is answered with an error."""

    status: int
    code: str
    message: str
    headers: dict[str, str] = field(default_factory=dict)
    more: Json = field(default_factory=dict)


def bad(message: str) -> Refused:
    """What was sent means nothing."""
    return Refused(400, "usage-error", message)


def retry(code: str, message: str, *, after_s: float = RETRY_S, status: int = 503) -> Refused:
    """Not now."""
    return Refused(status, code, message, {"Retry-After": str(max(1, round(after_s)))})


def refused(error: Exception) -> Refused:
    """The refusal that an error becomes."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, OverflowError):
        return bad("a number or a time in it is out of range")
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            said = _SAID.get(code) or error.detail or str(error)
            headers = {"Retry-After": str(RETRY_S)} if status == 503 else {}
            return Refused(status, code, said, headers)
    return Refused(500, "internal", _SAID["internal"])


def answer(fault: Refused) -> Answer:
    """The answer that says so."""
    body: dict[str, Any] = {
        "error": {"code": fault.code, "message": fault.message},
        "_links": {"openapi": DOCUMENT},
        "next_actions": _NEXT.get(fault.code, [action("read what this server takes", "GET", DOCUMENT)]),
    }
    return Answer({**body, **fault.more}, fault.status, fault.headers)
