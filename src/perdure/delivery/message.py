"""A message on its way to a target, and when it is tried again. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

import msgspec

from perdure.text import one_line

DeliveryState = Literal["waiting", "sent", "dead"]

MAX_TEXT_BYTES = 1_000_000  # of one message
MAX_FILES = 10
MAX_FILE_BYTES = 20_000_000  # of all files of a message together; most mail servers take no more
MAX_TITLE_CHARS = 200
_FIRST_WAIT_S = 60.0  # after the first failed try; three times as long after each further one
_MAX_WAIT_S = 6 * 3600.0


class Attachment(msgspec.Struct, frozen=True):
    """A file that goes with a message. Its bytes lie beside the record, under its number."""

    name: str
    media_type: str
    n_bytes: int


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One message and how far it is. The whole record; it is replaced in one step."""

    id: str
    target: str  # name of its table in the settings
    title: str = ""
    text: str = ""  # Markdown; gone once it is sent
    file: str = ""  # of a target of kind file: the name in its folder, instead of the one in the settings
    attachments: tuple[Attachment, ...] = ()
    created_at: datetime
    state: DeliveryState = "waiting"
    n_tries: int = 0
    is_trying: bool = False  # a try began and has no outcome: it goes on, or its process was killed
    next_at: datetime  # not tried before
    done_steps: tuple[str, ...] = ()  # parts that the target has taken, of a message that needs several requests
    error: str = ""  # of the last try
    ended_at: datetime | None = None  # when it was sent or became a dead letter

    @property
    def n_bytes(self) -> int:
        """The size of text and files."""
        return len(self.text.encode()) + sum(attachment.n_bytes for attachment in self.attachments)


class DeliveryFile(NamedTuple):
    """An attachment with its bytes."""

    name: str
    media_type: str
    data: bytes


MarkStep = Callable[[str], None]  # records, durably, that the target has taken a part


def make_id(key: str) -> str:
    """Return the id of a message: the same for the same key.

    >>> make_id("digest/2026-11-26")
    'e518876ce8b830d7'
    """
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def compute_next_at(now: datetime, n_tries: int, *, after_s: float = 0.0) -> datetime:
    """Return when to try again after so many failed tries: after 1, 3, 9, 27, 81 minutes, then every 4 to 6 hours.

    after_s: how long the target asks us to wait; at most six hours of it count.
    """
    wait_s = min(_MAX_WAIT_S, _FIRST_WAIT_S * 3 ** min(n_tries - 1, 10))
    return now + timedelta(seconds=max(wait_s, min(after_s, _MAX_WAIT_S)))


def is_due(delivery: Delivery, now: datetime) -> bool:
    """Return True if a message may be tried now. A time too far ahead is of a clock that was set back since."""
    left_s = (delivery.next_at - now).total_seconds()
    return delivery.state == "waiting" and (left_s <= 0 or left_s > _MAX_WAIT_S)


def clean_title(title: str) -> str:
    """Return a title as one line of printable characters."""
    return one_line("".join(char if char.isprintable() else " " for char in title), MAX_TITLE_CHARS)


def clean_name(name: str) -> str:
    """Return the name of a file without folders and without characters that mean something elsewhere.

    >>> clean_name("../a b\\n.txt"), clean_name("..")
    ('a b_.txt', 'file')
    """
    last = name.replace("\\", "/").rpartition("/")[2]
    cleaned = "".join(char if char.isprintable() and char not in '"<>:|?*;' else "_" for char in last).strip(" .")
    return cleaned[-120:].lstrip(".") or "file"
