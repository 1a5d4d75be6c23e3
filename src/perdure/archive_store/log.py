"""The logs in an archive's store: what stands in for listing it. Pure, except for `read_registry` and `read_entries`.

Each writer has a log of numbered entries, chained by hash. An entry is the commit of the objects that it names, so it
is put after them. A reader asks for the next number until there is none. The registry, a chain of the same kind, names
the writers. Names hold no names of people: a user is a key, and the object `users/<key>` says whose it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Annotated, TypeVar

import msgspec

from perdure.archive import run_files
from perdure.archive.journal import JournalEvent, decode_event
from perdure.errors import DamagedStore
from perdure.identity import check_user
from perdure.objects import Objects
from perdure.types import Run

FORMAT = b"1\n"
FORMAT_NAME = "FORMAT"
_HASH_CHARS = 32
_NAME_HASH_CHARS = 16
_T = TypeVar("_T")

# What an entry may name: nothing outside its store, where the store is a folder.
WriterId = Annotated[str, msgspec.Meta(pattern=r"\Aw[0-9a-f]{16}\Z")]
UserKey = Annotated[str, msgspec.Meta(pattern=r"\Au[0-9a-f]{16}\Z")]
ObjectName = Annotated[
    str, msgspec.Meta(pattern=r"\A(packs|journal)/w[0-9a-f]{16}/[0-9]{8,}-[0-9]+-[0-9a-f]{16}\.jsonl(\.zst)?\Z")
]


class PackRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pack: an object with runs of one user."""

    name: ObjectName
    user: UserKey
    sha256: str  # of the object
    n_bytes: int
    runs: tuple[tuple[str, str], ...]  # (run id, state)


class LinesRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object with lines of the journals of one user."""

    name: ObjectName
    user: UserKey
    sha256: str
    n_bytes: int
    lines: tuple[tuple[str, str], ...]  # (id, key) of each event


class LogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a writer's log: everything that it names counts from now on, or no longer."""

    writer: WriterId
    number: int  # from 1, without gaps
    prev: str  # sha256 of the entry before it; "" for the first
    at: str
    packs: tuple[PackRecord, ...] = ()
    journals: tuple[LinesRecord, ...] = ()
    gone: tuple[ObjectName, ...] = ()  # objects that this entry replaces: they are deleted next
    erased: tuple[UserKey, ...] = ()  # keys of users of whom nothing may be here from before this entry


class WriterRecord(msgspec.Struct, frozen=True):
    """One entry of the registry."""

    number: int
    prev: str
    writer: WriterId


def encode(record: LogEntry | WriterRecord) -> bytes:
    """Encode an entry: one line of JSON."""
    return msgspec.json.encode(record) + b"\n"


def compute_hash(data: bytes) -> str:
    """Return the sha256 of some bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def make_user_key(user: str) -> str:
    """Return the key that stands for a user.

    >>> make_user_key("ada")
    'u20a4479c1273ee4e'
    """
    return "u" + compute_hash(b"user\0" + check_user(user).encode())[:_NAME_HASH_CHARS]


def make_state(run: Run) -> str:
    """Return what tells one state of a run from all others: a hash of its metadata, which holds that of its bytes."""
    return compute_hash(run_files.encode_run(run))[:_HASH_CHARS]


def name_user(key: str) -> str:
    """Return the name of the object that says whose key this is."""
    return f"users/{key}"


def name_entry(writer: str, number: int) -> str:
    """Return the name of an entry of a log."""
    return f"log/{writer}/{number:08d}"


def name_writer(number: int) -> str:
    """Return the name of an entry of the registry."""
    return f"writers/{number:08d}"


def name_pack(writer: str, number: int, place: int, data: bytes) -> str:
    """Return the name of a pack that an entry brings. Other bytes have another name."""
    return f"packs/{writer}/{number:08d}-{place}-{compute_hash(data)[:_NAME_HASH_CHARS]}.jsonl.zst"


def name_lines(writer: str, number: int, place: int, data: bytes) -> str:
    """Return the name of an object with lines of journals."""
    return f"journal/{writer}/{number:08d}-{place}-{compute_hash(data)[:_NAME_HASH_CHARS]}.jsonl"


def decode_lines(lines: Iterable[bytes]) -> Iterator[tuple[JournalEvent, bytes]]:
    """Yield the event of each line, with the line; skip damaged ones."""
    for line in lines:
        event = decode_event(line)
        if isinstance(event, JournalEvent):
            yield event, line


def read_entries(objects: Objects, writer: str, number: int, prev: str) -> Iterator[tuple[LogEntry, str]]:
    """Yield (entry, its hash) of a log behind an entry, in order. Raises DamagedStore for a broken chain."""
    while (raw := objects.get(name_entry(writer, number + 1))) is not None:
        entry = _decode(raw, LogEntry, name_entry(writer, number + 1))
        if (entry.writer, entry.number, entry.prev) != (writer, number + 1, prev):
            raise DamagedStore(f"{name_entry(writer, number + 1)} (it does not follow from the entry before it)")
        number, prev = entry.number, compute_hash(raw)
        yield entry, prev


def read_registry(objects: Objects, number: int = 0, prev: str = "") -> Iterator[tuple[WriterRecord, str]]:
    """Yield (record, its hash) of each writer behind a number. Raises DamagedStore for a broken chain."""
    while (raw := objects.get(name_writer(number + 1))) is not None:
        record = _decode(raw, WriterRecord, name_writer(number + 1))
        if (record.number, record.prev) != (number + 1, prev):
            raise DamagedStore(f"{name_writer(number + 1)} (it does not follow from the entry before it)")
        number, prev = record.number, compute_hash(raw)
        yield record, prev


def _decode(raw: bytes, kind: type[_T], name: str) -> _T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DamagedStore(f"{name} ({error})") from error
