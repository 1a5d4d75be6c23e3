"""Persons: which user of this home somebody is whom an identity server knows.

A link of a user to a subject (a DID, or the `sub` of an OpenID provider) is an event of the user's journal, and counts
only in the home that made it. It alone lets a person in: what a server says proves who somebody is, and nothing more.
The name (a handle, a mail address) is for people to read, and may change.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from perdure.errors import UsageError, UserMissing
from perdure.identity import check_user
from perdure.sharing.grants import PERSON, GrantCache, SharingEvents, lock_changes, read_event_data, record_event

ATPROTO = "atproto"  # stands for the servers of all DIDs: a DID names its own
PERSON_PREFIX = "p-"  # of the id of a linked person; that of a machine begins with m-
_MAX_NAME_CHARS = 253
_MAX_SUBJECT_CHARS = 2048


@dataclass(frozen=True, slots=True)
class LinkedPerson:
    """A person whom an identity server knows, linked to a user of this home."""

    person_id: str
    user: str
    server: str  # ATPROTO, or the issuer of an OpenID provider
    subject: str  # the DID, or the `sub` at the provider: it never changes
    name: str  # a handle or a mail address, as it was last seen; may be empty
    linked_at: datetime
    unlinked_at: datetime | None = None


class _LinkOp(msgspec.Struct, tag_field="op", tag="link"):
    person_id: str
    server: str
    subject: str
    name: str = ""


class _RenameOp(msgspec.Struct, tag_field="op", tag="rename"):
    person_id: str
    name: str


class _UnlinkOp(msgspec.Struct, tag_field="op", tag="unlink"):
    person_id: str


def replay_persons(events: SharingEvents) -> dict[tuple[str, str], LinkedPerson]:
    """Return every linked person by user and id. The end of a link counts in every home."""
    unlinked_at_by_key: dict[tuple[str, str], datetime] = {}
    for user, event in events.list_by_type(PERSON):
        if unlink_op := read_event_data(event, _UnlinkOp):
            unlinked_at_by_key.setdefault((user, unlink_op.person_id), event.happened_at)
    persons: dict[tuple[str, str], LinkedPerson] = {}
    for user, event in events.list_local(PERSON):
        if link_op := read_event_data(event, _LinkOp):
            key = user, link_op.person_id
            person = LinkedPerson(
                link_op.person_id, user, link_op.server, link_op.subject, link_op.name, event.happened_at,
                unlinked_at_by_key.get(key),
            )  # fmt: skip
            persons.setdefault(key, person)
        elif (rename_op := read_event_data(event, _RenameOp)) and (key := (user, rename_op.person_id)) in persons:
            persons[key] = replace(persons[key], name=rename_op.name)
    return persons


def index_subjects(events: SharingEvents) -> dict[tuple[str, str], LinkedPerson]:
    """Return the persons who are linked now, by server and subject."""
    linked = [person for person in events.derive(replay_persons).values() if person.unlinked_at is None]
    return {(person.server, person.subject): person for person in linked}


class Persons:
    """The linked persons of a home."""

    def __init__(
        self, home: Path, cache: GrantCache, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Use the home's cache of grants and machines; it may be shared."""
        self._home = home
        self._cache = cache
        self._now = now

    def list_persons(self, user: str | None = None) -> list[LinkedPerson]:
        """Return the persons who are linked now (of all users if none is named), by user and server."""
        persons = self._cache.get_events().derive(index_subjects).values()
        selected = [person for person in persons if user in (None, person.user)]
        return sorted(selected, key=lambda person: (person.user, person.server, person.subject))

    def find_person(self, server: str, subject: str) -> LinkedPerson | None:
        """Return the person with this subject; None if no user is linked to it."""
        return self._cache.get_events().derive(index_subjects).get((server, subject))

    def link(self, user: str, server: str, subject: str, name: str = "") -> LinkedPerson:
        """Link a user to a person. Raises UsageError if either is linked already at this server."""
        check_user(user)
        if not 0 < len(subject) <= _MAX_SUBJECT_CHARS or not subject.isprintable():
            raise UsageError(f"{subject[:100]!r} is not the subject of a person")
        with lock_changes(self._home):
            for person in self.list_persons():
                if (person.server, person.subject) == (server, subject):
                    raise UsageError(f"{subject} is already {person.user}: `perdure user unlink {person.user}` ends it")
                if (person.user, person.server) == (user, server):
                    raise UsageError(f"{user} is already {person.subject}: `perdure user unlink {user}` ends it")
            person_id = f"{PERSON_PREFIX}{secrets.token_hex(8)}"
            data = {"op": "link", "person_id": person_id, "server": server, "subject": subject}
            event = record_event(self._home, user, PERSON, {**data, "name": name[:_MAX_NAME_CHARS]}, now=self._now())
        return LinkedPerson(person_id, user, server, subject, name[:_MAX_NAME_CHARS], event.happened_at)

    def rename(self, person: LinkedPerson, name: str) -> LinkedPerson:
        """Keep the new name of a person."""
        name = name[:_MAX_NAME_CHARS]
        with lock_changes(self._home):
            data = {"op": "rename", "person_id": person.person_id, "name": name}
            record_event(self._home, person.user, PERSON, data, now=self._now())
        return replace(person, name=name)

    def unlink(self, user: str) -> list[LinkedPerson]:
        """End every link of a user, from the next request on; return them. Raises UserMissing if there is none."""
        with lock_changes(self._home):
            persons = self.list_persons(user)
            if not persons:
                raise UserMissing(f"{user} is linked to nobody")
            for person in persons:
                data = {"op": "unlink", "person_id": person.person_id}
                record_event(self._home, user, PERSON, data, now=self._now())
        return persons
