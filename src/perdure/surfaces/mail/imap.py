"""Mails on an IMAP server (RFC 3501), as they come where it knows IDLE (RFC 2177). Standard library.

Nothing is deleted or moved. UIDVALIDITY and UID of the last mail that was taken are kept in the home; where there is no
such position, or the server numbered its mails anew, the mails of the last days are looked at. A mail that the server
cannot give is passed over, and tried again later.
"""

from __future__ import annotations

import base64
import imaplib
import re
import select
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

from perdure.config import MailConfig
from perdure.delivery.http_request import make_context
from perdure.delivery.mail import check_tls
from perdure.delivery.message import compute_next_at
from perdure.delivery.webhook import read_secret
from perdure.errors import ConfigFault, DeliveryFault
from perdure.surfaces.mail.inbox import MAX_UNREAD, ImapPosition, MailInbox, MailItem, UnreadMail, utc_now
from perdure.surfaces.mail.incoming import MAX_MAIL_BYTES, ReceivedMail
from perdure.surfaces.mail.sender import MAX_HEADER_BYTES

FIRST_DAYS = 3  # without a position, mails of so many days count
_IDLE_S = 60.0  # then it is asked again: a change that came together with the answer to IDLE shows only then
_TAG = b"perdure"  # of the one command that imaplib does not know before Python 3.14
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_NOT_ASCII = re.compile(r"[^\x20-\x7e]+")
_SIZE = re.compile(rb"RFC822\.SIZE (\d+)")


def check_imap(config: MailConfig) -> None:
    """Raise ConfigFault for settings that make no sense, or would send the password in the clear."""
    check_tls("mail.imap_tls", config.imap_tls, config.imap_host, is_plain=config.plain, what="the password")
    if not config.user:
        raise ConfigFault("mail.user and mail.password_env must be set for a mail folder")


class ImapFolder:
    """One folder of an account. It connects when it is needed, and again after a failure."""

    def __init__(self, config: MailConfig, inbox: MailInbox) -> None:
        check_imap(config)
        self._config, self._inbox = config, inbox
        self._connection: imaplib.IMAP4 | None = None
        self._uid_validity = 0
        self._has_idle = False

    def list_new(self) -> Iterator[ReceivedMail]:
        """Yield what is new, oldest first. Raises DeliveryFault when the server is away or refuses."""
        with self._map_errors():
            connection = self._connect()
            connection.noop()
            unread_uids = self._find_unread_uids(connection)
            uids = [*self._find_uids(connection), *unread_uids]
            uid_validity = self._uid_validity
        for uid in uids:
            with self._map_errors():
                self._connect()  # what fails here is no fault of a mail
            if self._uid_validity != uid_validity:
                return  # its mails were numbered anew meanwhile
            yield self._read_head(uid)

    def accept(self, mail: ReceivedMail) -> None:
        """Remember that a mail is stored, or left out."""
        unread = {place: earlier for place, earlier in self._inbox.state.unread.items() if place != mail.place}
        self._inbox.write(position=self._compute_position(mail), unread=unread)

    def put_off(self, mail: ReceivedMail, fault: DeliveryFault) -> None:
        """Remember that a mail could not be read, and go on behind it. Raises DeliveryFault if the server is away."""
        with self._map_errors():
            self._connect()
        unread = self._inbox.state.unread
        if mail.place not in unread and len(unread) >= MAX_UNREAD:
            raise fault
        n_tries = unread[mail.place].n_tries + 1 if mail.place in unread else 1
        failed = UnreadMail(n_tries, compute_next_at(utc_now(), n_tries), fault.detail)
        self._inbox.write(position=self._compute_position(mail), unread={**unread, mail.place: failed})

    def mark_answered(self, item: MailItem) -> None:
        """Set the flags of an answered mail, unless the server numbered its mails anew. Raises DeliveryFault."""
        uid_validity, _, uid = item.place.partition(":")
        with self._map_errors():
            connection = self._connect()
            if uid_validity == str(self._uid_validity):
                connection.uid("STORE", uid, "+FLAGS.SILENT", r"(\Answered \Seen)")

    def wait(self, stop_event: threading.Event, limit_s: float) -> None:
        """Wait until something changes in the mail folder, or so many seconds."""
        if self._connection is None or not self._has_idle:
            stop_event.wait(limit_s)
            return
        with self._map_errors():
            self._idle(self._connection, stop_event, min(limit_s, _IDLE_S))

    def close(self) -> None:
        """End the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError, imaplib.IMAP4.error):
                connection.logout()

    def check(self) -> str:
        """Connect, and return how many mails there are. Raises DeliveryFault."""
        with self._map_errors():
            _, answer = self._connect().select(_quote(self._config.imap_folder), readonly=True)
            idle = "it tells of new mail" if self._has_idle else f"it is asked every {self._config.poll_s} s"
            return f"{int(answer[0] or 0)} mails in {self._config.imap_folder}; {idle}"

    # the server -------------------------------------------------------------------------------------------

    @contextmanager
    def _map_errors(self) -> Iterator[None]:
        host = self._config.imap_host
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            self._drop()
            raise DeliveryFault(f"{host}: its certificate is not trusted ({error.verify_message})") from error
        except (OSError, imaplib.IMAP4.error, ValueError, EOFError) as error:
            self._drop()
            words = "".join(char if char.isprintable() else " " for char in str(error))[:200]
            raise DeliveryFault(f"{host}: {type(error).__name__} {words}".strip()) from error

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.shutdown()

    def _connect(self) -> imaplib.IMAP4:
        if self._connection is not None:
            return self._connection
        config = self._config
        password = read_secret(config.password_env, "mail.password_env")
        context = make_context(config.ca, setting="mail")
        connection: imaplib.IMAP4 = (
            imaplib.IMAP4_SSL(config.imap_host, config.imap_port, ssl_context=context, timeout=config.timeout_s)
            if config.imap_tls == "tls"
            else imaplib.IMAP4(config.imap_host, config.imap_port, timeout=config.timeout_s)
        )
        self._connection = connection
        if config.imap_tls == "starttls":
            connection.starttls(context)
        try:
            connection.login(config.user, password)
        except imaplib.IMAP4.error:
            raise imaplib.IMAP4.error("it refuses the login") from None  # its words may repeat what was sent
        _, capabilities = connection.capability()
        self._has_idle = b"IDLE" in capabilities[-1].upper().split()
        status, _ = connection.select(_quote(config.imap_folder))
        if status != "OK":
            raise imaplib.IMAP4.error(f"there is no folder {config.imap_folder}")
        self._uid_validity = _read_number(connection, "UIDVALIDITY")
        return connection

    def _compute_position(self, mail: ReceivedMail) -> ImapPosition:
        """Return the position behind a mail: one that was tried again lies before it already."""
        uid_validity, uid = map(int, mail.place.split(":"))
        position = self._inbox.state.position
        is_same = position is not None and position.uid_validity == uid_validity
        return ImapPosition(uid_validity, max(uid, position.uid) if position and is_same else uid)

    def _find_unread_uids(self, connection: imaplib.IMAP4) -> list[int]:
        """Return the numbers of the mails to be tried again now; forget those that are not in the folder any more."""
        unread = self._inbox.state.unread
        places = {place: int(place.partition(":")[2]) for place in unread if place.startswith(f"{self._uid_validity}:")}
        words = ",".join(map(str, places.values()))
        uids = set(_read_uids(_ask(connection, "SEARCH", "UID", words))) if words else set()
        left = {place: unread[place] for place, uid in places.items() if uid in uids}
        if left != unread:
            self._inbox.write(unread=left)
        now = utc_now()
        return [places[place] for place, mail in left.items() if mail.next_at <= now and not mail.is_given_up]

    def _find_uids(self, connection: imaplib.IMAP4) -> list[int]:
        """Return the numbers of the mails that were not taken yet."""
        position = self._inbox.state.position
        if position is not None and position.uid_validity == self._uid_validity:
            answer = _ask(connection, "SEARCH", "UID", f"{position.uid + 1}:*")
            return sorted(uid for uid in _read_uids(answer) if uid > position.uid)  # `*` is the last, however small
        day = (utc_now() - timedelta(days=FIRST_DAYS)).date()
        answer = _ask(connection, "SEARCH", "SINCE", f"{day.day}-{_MONTHS[day.month - 1]}-{day.year}")
        uids = sorted(_read_uids(answer))
        if not uids:
            answer = _ask(connection, "SEARCH", "ALL")
            self._inbox.write(position=ImapPosition(self._uid_validity, max(_read_uids(answer), default=0)))
        return uids

    def _read_head(self, uid: int) -> ReceivedMail:
        """Return a mail with its headers, or with the fault that kept them from being read."""
        place = f"{self._uid_validity}:{uid}"
        try:
            with self._map_errors():
                words, head = self._fetch(uid, f"(RFC822.SIZE BODY.PEEK[HEADER]<0.{MAX_HEADER_BYTES}>)")
                size = _SIZE.search(words)
        except DeliveryFault as error:
            return ReceivedMail(place, b"", 0, partial(self._read, uid), error)
        return ReceivedMail(place, head, int(size[1]) if size else len(head), partial(self._read, uid))

    def _fetch(self, uid: int, items: str) -> tuple[bytes, bytes]:
        """Return (the words of the answer, its literal). Raises IMAP4.error for a mail of which there is none."""
        answer = _ask(self._connect(), "FETCH", str(uid), items)
        words = b" ".join(part[0] if isinstance(part, tuple) else part or b"" for part in answer)
        literal = next((part[1] for part in answer if isinstance(part, tuple)), b"")
        if not literal:
            raise imaplib.IMAP4.error("FETCH gave nothing of this mail")
        return words, literal

    def _read(self, uid: int) -> bytes:
        with self._map_errors():
            return self._fetch(uid, f"(BODY.PEEK[]<0.{MAX_MAIL_BYTES}>)")[1]

    def _idle(self, connection: imaplib.IMAP4, stop_event: threading.Event, limit_s: float) -> None:
        connection.send(_TAG + b" IDLE\r\n")
        line = connection.readline()
        if line.startswith(_TAG):  # it knows no IDLE after all
            self._has_idle = False
            return
        waited_s = 0.0
        while line.startswith(b"+") and waited_s < limit_s and not stop_event.is_set():
            if select.select([connection.sock], [], [], 0.5)[0]:
                break
            waited_s += 0.5
        connection.send(b"DONE\r\n")
        while line and not line.startswith(_TAG):
            line = connection.readline()
        if not line:
            raise EOFError("the server ended the connection")


def _quote(folder: str) -> str:
    r"""Return the name of a folder as it stands in a command (RFC 3501, 5.1.3: a form of UTF-7).

    >>> _quote("Q&A"), _quote("Entwürfe")
    ('"Q&-A"', '"Entw&APw-rfe"')
    """
    name = _NOT_ASCII.sub(lambda match: f"&{_to_base64(match[0])}-", folder.replace("&", "&-"))
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _to_base64(text: str) -> str:
    return base64.b64encode(text.encode("utf-16-be")).decode().rstrip("=").replace("/", ",")


def _ask(connection: imaplib.IMAP4, command: str, *words: str) -> list[Any]:
    """Return the answer to a command. Raises IMAP4.error where the server refuses it: that mail is not read yet."""
    status, answer = connection.uid(command, *words)
    if status != "OK":
        raise imaplib.IMAP4.error(f"{command} was refused: {(answer[-1] or b'').decode('utf-8', 'replace')}")
    return answer


def _read_number(connection: imaplib.IMAP4, name: str) -> int:
    _, answer = connection.response(name)
    return int(answer[-1] or 0) if answer and answer[-1] else 0


def _read_uids(answer: list[bytes]) -> list[int]:
    return [int(word) for part in answer if part for word in part.split()]
