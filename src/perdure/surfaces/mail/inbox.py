"""What came by mail and how far its answer is: durable, in the home.

    mail/state.json       how far IMAP is read, and which mails the server could not give; which message id is of which
                          thread; a session for each thread
    mail/items/ID.json    a mail and its state, replaced in one step; without words once its answer is sent
    mail/items/ID.body    what it says, until then

A mail is stored, then the position behind it, then the work begins: a mail that comes again is already there. The id is
made of sender and Message-ID, so the same mail in two folders, or on a server that numbered anew, is one. The
record of an answered mail stays for a month.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from perdure import disk
from perdure.errors import DeliveryMissing, UsageError
from perdure.surfaces.mail.body import MailBody

DONE_DAYS = 30  # the record of an answered mail stays so long
MAX_TRIES = 20  # to send an answer, or to read a mail: about four days
MAX_UNREAD = 100  # mails that the server could not give: with more of them, it is the server that is away
MAX_THREAD_IDS = 5_000  # message ids whose thread is known: the newest
MAX_STRANGERS = 50  # addresses that are kept; of the others only the count
ItemState = Literal["new", "asked", "answered", "sending", "sent", "unsure", "refused"]


class MailItem(msgspec.Struct, frozen=True, kw_only=True):
    """One mail of an allowed person."""

    id: str
    taken_at: datetime
    place: str  # in its source: "UIDVALIDITY:UID", or the name of a file
    address: str  # of its sender, from the allow list; the answer goes there and nowhere else
    is_owner: bool  # its words are the owner's: address, authentication and secret say so
    subject: str = ""
    message_id: str = ""
    references: tuple[str, ...] = ()  # of the answer
    thread: str
    state: ItemState = "new"
    session: str = ""  # into which it goes, from "asked" on
    leaf: str = ""  # the last entry of that session before it
    asked_at: datetime | None = None
    answer: str = ""  # Markdown, from "answered" on
    answered_at: datetime | None = None
    n_tries: int = 0  # to send
    next_at: datetime | None = None  # not tried before
    is_marked: bool = False  # its source knows that it is answered
    error: str = ""  # of the last try


class ImapPosition(msgspec.Struct, frozen=True):
    """How far a mail folder is read (RFC 3501, 2.3.1.1)."""

    uid_validity: int
    uid: int  # of the last mail that is stored or left out


class UnreadMail(msgspec.Struct, frozen=True):
    """A mail that its server could not give, while it gave others."""

    n_tries: int
    next_at: datetime  # not tried before
    error: str  # of the last try

    @property
    def is_given_up(self) -> bool:
        """It is not tried again."""
        return self.n_tries >= MAX_TRIES


class MailState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part that outlives every mail."""

    position: ImapPosition | None = None
    unread: Mapping[str, UnreadMail] = {}  # place → a mail before the position that could not be read
    threads: Mapping[str, str] = {}  # key of sender and message id → thread
    sessions: Mapping[str, str] = {}  # thread → session
    ignored: Mapping[str, int] = {}  # reason → mails
    strangers: Mapping[str, int] = {}  # address that is not on the list → mails


def make_key(address: str, message_id: str) -> str:
    """Return the key of a message of one person. Nobody enters the thread of somebody else by its ids."""
    return hashlib.sha256(f"{address}\0{message_id}".encode()).hexdigest()[:16]


class MailInbox:
    """The inbox of one home. One thread uses it."""

    def __init__(self, home: Path) -> None:
        """Read the state; make nothing before the first mail."""
        self._folder = home / "mail"
        try:
            self.state = msgspec.json.decode((self._folder / "state.json").read_bytes(), type=MailState)
        except (OSError, msgspec.MsgspecError):
            self.state = MailState()

    # coming in --------------------------------------------------------------------------------------------

    def find_thread(self, address: str, ids: Sequence[str], default: str) -> str:
        """Return the thread of a mail: that of the nearest earlier message which is known."""
        known = (self.state.threads.get(make_key(address, message_id)) for message_id in reversed(ids))
        return next(filter(None, known), default)

    def store(self, item: MailItem, body: MailBody, own_id: str) -> MailItem:
        """Store a mail, durably, and return it; one that came before is left as it is. own_id: of the answer to it."""
        disk.make_folder(self._folder / "items")
        if earlier := self._read(item.id):
            item = earlier
        else:
            disk.replace_file(self._get_path(item.id, "body"), msgspec.json.encode(body))
            self.save(item)
        ids = {make_key(item.address, message_id): item.thread for message_id in (item.message_id, own_id)}
        threads = {key: thread for key, thread in self.state.threads.items() if key not in ids} | ids
        self.write(threads=dict(list(threads.items())[-MAX_THREAD_IDS:]))
        return item

    def count_ignored(self, reason: str, address: str) -> None:
        """Count a mail that gets no answer. Written with the next position."""
        ignored = {**self.state.ignored, reason: self.state.ignored.get(reason, 0) + 1}
        strangers = dict(self.state.strangers)
        if reason == "not on the list" and (address in strangers or len(strangers) < MAX_STRANGERS):
            strangers[address] = strangers.get(address, 0) + 1
        self.state = msgspec.structs.replace(self.state, ignored=ignored, strangers=strangers)

    def write(self, **fields: Any) -> None:
        """Change the state, durably."""
        disk.make_folder(self._folder)
        state = msgspec.structs.replace(self.state, **fields)
        disk.replace_file(self._folder / "state.json", msgspec.json.encode(state))
        self.state = state

    # going on ---------------------------------------------------------------------------------------------

    def save(self, item: MailItem) -> MailItem:
        """Store how far an item is, and return it."""
        disk.replace_file(self._get_path(item.id, "json"), msgspec.json.encode(item))
        return item

    def change(self, item: MailItem, **fields: Any) -> MailItem:
        """Store an item with other values, and return it."""
        return self.save(msgspec.structs.replace(item, **fields))

    def finish(self, item: MailItem) -> MailItem:
        """Delete the words of a mail whose answer was sent."""
        item = self.change(item, state="sent", answer="", subject="", next_at=None, error="")
        self._get_path(item.id, "body").unlink(missing_ok=True)
        return item

    def read_body(self, item: MailItem) -> MailBody:
        """Return what a mail says. A damaged file gives a body that says so."""
        try:
            return msgspec.json.decode(self._get_path(item.id, "body").read_bytes(), type=MailBody)
        except (OSError, msgspec.MsgspecError):
            return MailBody(problem="The file of this mail is damaged.")

    def list_items(self) -> list[MailItem]:
        """List all records, in the order in which they came. A damaged one is left out."""
        items = [item for path in (self._folder / "items").glob("*.json") if (item := self._read(path.stem))]
        return sorted(items, key=lambda item: (item.taken_at, item.id))

    def resend(self, prefix: str) -> MailItem:
        """Let an answer be sent again. Raises DeliveryMissing, and UsageError unless it is unsure or refused."""
        items = [item for item in self.list_items() if item.id.startswith(prefix)]
        if len(items) != 1:
            raise DeliveryMissing(prefix)
        if items[0].state not in ("unsure", "refused"):
            raise UsageError(f"the answer to {prefix} is not one that failed; it is {items[0].state}")
        return self.change(items[0], state="answered", n_tries=0, next_at=None)

    def clean_up(self, now: datetime) -> None:
        """Delete the records of mails that were answered long ago, and what a killed process left of them."""
        for item in self.list_items():
            if item.state != "sent":
                continue
            if (body_path := self._get_path(item.id, "body")).exists():
                body_path.unlink()
            if item.taken_at < now - timedelta(days=DONE_DAYS):
                self._get_path(item.id, "json").unlink(missing_ok=True)

    def _read(self, item_id: str) -> MailItem | None:
        try:
            return msgspec.json.decode(self._get_path(item_id, "json").read_bytes(), type=MailItem)
        except (OSError, msgspec.MsgspecError):
            return None

    def _get_path(self, item_id: str, ending: str) -> Path:
        return self._folder / "items" / f"{item_id}.{ending}"


def utc_now() -> datetime:
    """Return the time now."""
    return datetime.now(UTC)
