"""The journal: every event that is not captured bytes, one line each, in append-only files a person can read.

Order is (hybrid time, writer, sequence). A line's id is the hash of the rest of the line, so a damaged line shows.
Appends hold a file lock and take the next sequence under it. The hybrid clock never goes back: it follows the wall
clock while that runs ahead, and counts on from the last event while it does not.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from perdure.capture.files import append_line, locked, make_folder, replace, write

_ID_CHARS = 32
_HEAD = b'{"id":"'
_REST = len(_HEAD) + _ID_CHARS + 2  # where the hashed rest of a line begins
_AT = _REST + len('"at":"')  # where its hybrid time stands
_AT_CHARS = len("2026-01-01T12:00:00.000Z#0000")
_NEAR_BYTES = 1 << 16  # so much of a file is read to find the events of a moment in it
_STAMP = "%Y-%m-%dT%H:%M:%S"
_TAIL_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20
_OTHERS_TAIL_BYTES = 1 << 14
_WRITERS = "writers"  # in a home: every writer that it has been, one a line; a copy and a backup take it along
_END_BYTES = 64  # of what was read, by which it is known again: they are the end of some event's text


class Event(msgspec.Struct, frozen=True, omit_defaults=False):
    """One line of the journal."""

    id: str  # first 32 hex digits of the sha256 of the rest of the line
    at: str  # hybrid time: UTC to the millisecond, `#`, a counter of 4 digits; sorts as text
    writer: str  # random per home
    seq: int  # counts from 1 for each writer
    type: str
    data: dict[str, Any]
    was: str = ""  # the id that the event had before something in it was forgotten

    @property
    def key(self) -> str:
        """What tells it from every other event, also after something in it was forgotten."""
        return self.was or self.id

    @property
    def order(self) -> tuple[str, str, int]:
        """The place of this event among all."""
        return (self.at, self.writer, self.seq)

    @property
    def happened_at(self) -> datetime:
        """When it was written, by the clock of its writer."""
        return datetime.fromisoformat(self.at.partition("#")[0])


@dataclass(frozen=True)
class Damage:
    """A line of the journal that is not what was written."""

    path: Path
    line: int  # counted from 1
    why: str


_decoder = msgspec.json.Decoder(Event)


def tick(now: datetime, last: str) -> str:
    """The next hybrid time: the wall clock, or one count past `last` when that is not behind it.

    >>> tick(datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00.000Z#0007")
    '2026-01-01T00:00:00.000Z#0008'
    """
    wall = now.astimezone(UTC)
    stamp = f"{wall.strftime(_STAMP)}.{wall.microsecond // 1000:03d}Z"
    if f"{stamp}#0000" > last:
        return f"{stamp}#0000"
    counted, count = last.split("#")
    if int(count) < 9999:
        return f"{counted}#{int(count) + 1:04d}"
    later = datetime.fromisoformat(counted).timestamp() + 0.001
    return tick(datetime.fromtimestamp(round(later, 3), UTC), last)


def encode(event_at: str, writer: str, seq: int, type_: str, data: dict[str, Any], *, was: str = "") -> bytes:
    """A line of the journal without its newline; its id is computed."""
    fields = {"at": event_at, "writer": writer, "seq": seq, "type": type_, "data": data}
    rest = msgspec.json.encode(fields | ({"was": was} if was else {}))[1:]
    return _HEAD + hashlib.sha256(rest).hexdigest()[:_ID_CHARS].encode() + b'",' + rest


def decode(line: bytes) -> Event | str:
    """The event of a line, or in words what is wrong with it."""
    if not line.startswith(_HEAD):
        return "not an event"
    if hashlib.sha256(line[_REST:]).hexdigest()[:_ID_CHARS].encode() != line[len(_HEAD) : len(_HEAD) + _ID_CHARS]:
        return "its hash does not match: the line was changed or damaged"
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return str(error)


def writer_id(home: Path) -> str:
    """This home's writer. A copied home (other machine, other file) is noticed and gets a new one."""
    path = home / "writer.json"
    return _known_writer(path) or _new_writer(path)


def own_writers(home: Path) -> frozenset[str]:
    """Every writer that this home has been, and what it was copied or restored from had been."""
    with contextlib.suppress(FileNotFoundError):
        return frozenset((home / _WRITERS).read_text("ascii", "replace").split()) | _stated_writers(home)
    return _stated_writers(home)  # a home of an earlier version, which kept no list


def keep_writers(home: Path, *more: str) -> None:
    """Have every writer that this home has been in its list, and these."""
    path = home / _WRITERS
    found = sorted({*own_writers(home), *more})
    if not path.exists() or not set(path.read_text("ascii", "replace").split()).issuperset(found):
        replace(path, "".join(f"{name}\n" for name in found).encode())


def keep_all_writers(home: Path) -> None:
    """Take every writer in the journals for the home's own where there is no list: a backup of an earlier version."""
    if not (home / _WRITERS).exists():
        keep_writers(home, *(path.name for path in (home / "archive" / "journal").glob("*/*") if path.is_dir()))


def _stated_writers(home: Path) -> frozenset[str]:
    """The writer that writer.json names, also where that was copied."""
    try:
        return frozenset([str(msgspec.json.decode((home / "writer.json").read_bytes(), type=dict[str, Any])["writer"])])
    except (FileNotFoundError, msgspec.MsgspecError, KeyError):
        return frozenset()


def _known_writer(path: Path) -> str | None:
    try:
        known = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        if known["host"] == os.uname().nodename and known["inode"] == path.stat().st_ino:
            return str(known["writer"])
    except (FileNotFoundError, msgspec.MsgspecError, KeyError):
        pass
    return None


def _new_writer(path: Path) -> str:
    """Claim a new writer id; of two processes that claim at once, the later takes the earlier's."""
    with locked(path.with_name(".writer.lock")):
        claimed = _known_writer(path)
        if claimed:
            return claimed
        writer = "w" + secrets.token_hex(8)
        keep_writers(path.parent, writer)  # first: what it writes counts from the beginning
        path.unlink(missing_ok=True)
        write(path, b"")
        body = {"writer": writer, "host": os.uname().nodename, "inode": path.stat().st_ino}
        write(path, msgspec.json.encode(body) + b"\n")
        return writer


class Journal:
    """The journal of one user in one home."""

    def __init__(self, root: Path, *, home: Path) -> None:
        """`root` is archive/journal/<user>; nothing is created before the first append."""
        self.root = root
        self._home = home

    def writer(self) -> str:
        """This home's writer."""
        return writer_id(self._home)

    def append(self, type_: str, data: dict[str, Any], *, now: datetime) -> Event:
        """Write one event, durable when this returns. It comes after all that is there, also what a merge brought."""
        writer = self.writer()
        folder = self.root / writer
        make_folder(folder)
        with locked(folder / ".lock"):
            last = self._last(folder)
            at = tick(now, max((self._newest_of_others(folder), last.at if last else "")) or "0#0000")
            line = encode(at, writer, last.seq + 1 if last else 1, type_, data)
            append_line(folder / f"{at[:7]}.jsonl", line)
        return _decoder.decode(line)

    def _last(self, folder: Path) -> Event | None:
        """The writer's last event. A torn line behind it is set aside first; the caller holds the lock."""
        for path in sorted(folder.glob("*.jsonl"), reverse=True):
            set_aside_torn_tail(path)
            if event := _last_event(path, _TAIL_BYTES):
                return event
        return None

    def _newest_of_others(self, folder: Path) -> str:
        """The latest hybrid time of the other writers, whose events only a merge brings; "" when there are none."""
        found = [""]
        for path in self.root.glob("*"):
            if path != folder and (files := sorted(path.glob("*.jsonl"))):
                event = _last_event(files[-1], _OTHERS_TAIL_BYTES)
                found.append(event.at if event else "")
        return max(found)

    def files(self) -> list[Path]:
        """The journal's files, by writer and month."""
        return sorted(self.root.glob("*/*.jsonl"))

    def read(self, *, type_: str | None = None) -> list[Event]:
        """All events (of one type), in order. Damaged and torn lines are left out; `damage` lists them."""
        found: dict[str, Event] = {}
        needle = f'"type":"{type_}"'.encode() if type_ else _HEAD
        for path in self.files():
            for line in lines_with(path, needle):
                event = decode(line)
                if isinstance(event, Event) and type_ in (None, event.type):
                    found[event.key] = _later(event, found.get(event.key))
        return sorted(found.values(), key=lambda e: e.order)

    def one(self, key: str, at: str) -> Event | None:
        """The event of this key and hybrid time. Of the files of its month little is read: they are in order."""
        found: Event | None = None
        for path in self.root.glob(f"*/{at[:7]}.jsonl"):
            for line in _lines_at(path, at):
                event = decode(line)
                if isinstance(event, Event) and event.key == key:
                    found = _later(event, found)
        return found

    def damage(self) -> Iterator[Damage]:
        """Everything in the journal that is not as it was written."""
        for _, paths in itertools.groupby(self.files(), key=lambda path: path.parent):
            yield from _damage(list(paths))

    def rewrite(self, type_: str, changed: Callable[[Event], dict[str, Any] | None]) -> int:
        """Put other data into events of a type; returns how many. changed: the new data, or None to leave it.

        The event stays what it was, at its place and under its key. Interrupted between files, it is done again.
        """
        n = 0
        for path in self.files():
            with locked(path.parent / ".lock"):
                set_aside_torn_tail(path)
                lines = path.read_bytes().split(b"\n")[:-1]
                new = [_rewritten(line, type_, changed) for line in lines]
                n_here = sum(line is not old for line, old in zip(new, lines, strict=True))
                if n_here:
                    _count_rewriting(path.parent)
                    replace(path, b"".join(line + b"\n" for line in new))
                n += n_here
        return n

    def take(self, other: Path) -> int:
        """Union with another home's journal of the same user; returns how many lines were new."""
        n_new = 0
        for path in sorted(other.glob("*/*.jsonl")):
            folder = self.root / path.parent.name
            make_folder(folder)
            with locked(folder / ".lock"):
                if (folder / path.name).exists():
                    set_aside_torn_tail(folder / path.name)
                n_new += _union(folder / path.name, path.read_bytes())
        return n_new


def _lines_at(path: Path, at: str) -> Iterator[bytes]:
    """The lines of a file that have this hybrid time, without their newlines. Their place is found by halving."""
    wanted, low, high = at.encode(), 0, path.stat().st_size
    with path.open("rb") as file:
        while high - low > _NEAR_BYTES:
            middle = (low + high) // 2
            file.seek(middle)
            file.readline()
            if b"" < _time_of(_next_line(file)) < wanted:
                low = middle
            else:
                high = middle
        file.seek(low)
        for line in file:
            if _time_of(line) > wanted:
                return
            if _time_of(line) == wanted and line.endswith(b"\n"):
                yield line[:-1]


def _next_line(file: IO[bytes]) -> bytes:
    """The next line that begins as one does; b"" where there is none."""
    return next((line for line in file if line.startswith(_HEAD)), b"")


def _time_of(line: bytes) -> bytes:
    """The hybrid time that stands in a line; b"" for the end of another line, and for what is none."""
    return line[_AT : _AT + _AT_CHARS] if line.startswith(_HEAD) else b""


def lines_with(path: Path, needle: bytes) -> Iterator[bytes]:
    """The complete lines of a file that hold some bytes. In blocks: a year of events need not fit into memory, and a
    map of a file that another process shortens would end this one.
    """
    rest = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            cut = block.rfind(b"\n") + 1
            if cut:
                yield from _lines_with(rest + block[:cut], needle)
            rest = block[cut:] if cut else rest + block


def _lines_with(raw: bytes, needle: bytes) -> Iterator[bytes]:
    """The complete lines that hold some bytes."""
    at = raw.find(needle)
    while at >= 0:
        end = raw.find(b"\n", at)
        if end < 0:
            return
        yield raw[raw.rfind(b"\n", 0, at) + 1 : end]
        at = raw.find(needle, end)


def _last_event(path: Path, tail_bytes: int) -> Event | None:
    """The last event of a file that can be read; its last so many bytes are read first."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - tail_bytes))
        tail = file.read()
    if size > tail_bytes and tail.count(b"\n") < 2:
        tail = path.read_bytes()
    found = (decode(line) for line in reversed(tail.splitlines()))
    return next((event for event in found if isinstance(event, Event)), None)


def _later(event: Event, other: Event | None) -> Event:
    """Of two states of one event the one in which something was forgotten; of two such, always the same."""
    return event if other is None else max(event, other, key=lambda e: (bool(e.was), e.id))


def _rewritten(line: bytes, type_: str, changed: Callable[[Event], dict[str, Any] | None]) -> bytes:
    """A line with what `changed` makes of its event; the very line where that is nothing."""
    event = decode(line) if f'"type":"{type_}"'.encode() in line else None
    data = changed(event) if isinstance(event, Event) and event.type == type_ else None
    if not isinstance(event, Event) or data is None or data == event.data:
        return line
    return encode(event.at, event.writer, event.seq, event.type, data, was=event.key)


class Read(NamedTuple):
    """How far a file of a journal was read."""

    inode: int  # which file it was: its inode, told from a later file that got the same number
    n_bytes: int


_REWRITINGS = ".rewritten"  # in a writer's folder: as many bytes as its files were put anew
_WHICH_BITS = 62  # a whole number of SQLite


def _count_rewriting(folder: Path) -> None:
    """Note that a file is about to be put anew: a file system gives the number of one that is gone to the next."""
    append_line(folder / _REWRITINGS, b"")


def _which(inode: int, n_rewritings: int) -> int:
    """What tells one state of a file from all others that had its name."""
    if not n_rewritings:
        return inode
    digest = hashlib.sha256(f"{inode}:{n_rewritings}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _WHICH_BITS)


def _n_rewritings(folder: Path) -> int:
    try:
        return (folder / _REWRITINGS).stat().st_size
    except FileNotFoundError:
        return 0


def places(folder: Path) -> dict[str, Read]:
    """The files of one user's journal, each with what tells it from another and its length."""
    found = {}
    for writer, paths in itertools.groupby(sorted(folder.glob("*/*.jsonl")), key=lambda path: path.parent):
        n_rewritings = _n_rewritings(writer)
        for path in paths:
            place = path.stat()
            found[f"{writer.name}/{path.name}"] = Read(_which(place.st_ino, n_rewritings), place.st_size)
    return found


def was_rewritten(known: Mapping[str, Read], now: Mapping[str, Read]) -> bool:
    """Whether a file is no longer the one that was read, or longer."""
    return any(
        name not in now or now[name].inode != read.inode or now[name].n_bytes < read.n_bytes
        for name, read in known.items()
    )


def ends(folder: Path, read: Mapping[str, Read]) -> dict[str, str]:
    """The last bytes of what was read of each file, as hex: other ones show that it was rewritten, also where the new
    file happens to have the number of an old one.
    """
    found = {}
    for name, (_, n_bytes) in read.items():
        with contextlib.suppress(FileNotFoundError), (folder / name).open("rb") as file:
            file.seek(max(0, n_bytes - _END_BYTES))
            found[name] = file.read(min(n_bytes, _END_BYTES)).hex()
    return found


def tails(
    folder: Path, known: Mapping[str, Read], now: Mapping[str, Read], types: Sequence[str]
) -> tuple[list[Event], dict[str, Read]]:
    """(the events of these types behind what is known, in order; how far each file was read: to its last whole line).

    A line that is being written at this moment is left for the next time.
    """
    needles = [f'"type":"{type_}"'.encode() for type_ in types]
    found: dict[str, Event] = {}
    read: dict[str, Read] = {}
    for name in sorted(now):
        start = known[name].n_bytes if name in known else 0
        whole = b""
        if now[name].n_bytes > start:
            with (folder / name).open("rb") as file:
                file.seek(start)
                raw = file.read(now[name].n_bytes - start)
            whole = raw[: raw.rfind(b"\n") + 1]
        read[name] = Read(now[name].inode, start + len(whole))
        for line in whole.split(b"\n"):
            event = decode(line) if any(needle in line for needle in needles) else None
            if isinstance(event, Event) and event.type in types:
                found[event.key] = _later(event, found.get(event.key))
    return sorted(found.values(), key=lambda event: event.order), read


def set_aside_torn_tail(path: Path) -> Path | None:
    """Move a torn last line into a file of its own, and return that; None when the file ends as it should."""
    data = path.read_bytes() if path.stat().st_size < _TAIL_BYTES else _tail_of(path)
    if not data or data.endswith(b"\n"):
        return None
    torn = data[data.rfind(b"\n") + 1 :]
    aside = path.with_name(f"{path.name}.torn-{secrets.token_hex(4)}")
    write(aside, torn)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - len(torn))
        os.fsync(file.fileno())
    return aside


def _tail_of(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-_TAIL_BYTES, os.SEEK_END)
        tail = file.read()
    return tail if b"\n" in tail else path.read_bytes()


def _damage(paths: Sequence[Path]) -> Iterator[Damage]:
    """What is wrong with the files of one writer, given in the order of their months."""
    last_order, last_seq = ("", "", 0), 0
    for path in paths:
        lines = path.read_bytes().split(b"\n")
        for number, line in enumerate(lines[:-1], start=1):
            event = decode(line)
            if isinstance(event, str):
                yield Damage(path, number, event)
                continue
            if event.order <= last_order or event.seq <= last_seq:
                yield Damage(path, number, "out of order: its time or sequence is not past the line before it")
            elif event.seq != last_seq + 1:
                yield Damage(path, number, f"events {last_seq + 1} to {event.seq - 1} of this writer are missing")
            last_order, last_seq = event.order, event.seq
        if lines[-1]:
            yield Damage(path, len(lines), "torn: the line was never finished; it was not acknowledged")


def _union(path: Path, theirs: bytes) -> int:
    """Take the lines of `theirs` that `path` lacks; the caller holds the writer's lock.

    A line of ours that cannot be read is set aside: theirs may have it whole, and nothing goes without a trace.
    """
    ours = b""
    with contextlib.suppress(FileNotFoundError):
        ours = path.read_bytes()
    if theirs == ours or ours.startswith(theirs):
        return 0
    found: dict[str, tuple[Event, bytes]] = {}
    n_ours = 0
    for is_ours, data in ((True, ours), (False, theirs)):
        for line in data.split(b"\n")[:-1]:
            event = decode(line)
            if isinstance(event, Event):
                known = found.get(event.key)
                if known is None or _later(event, known[0]) is event:
                    found[event.key] = (event, line)
            elif is_ours:
                aside = hashlib.sha256(line).hexdigest()[:8]
                write(path.with_name(f"{path.name}.damaged-{aside}"), line + b"\n")
        n_ours = len(found) if is_ours else n_ours
    ordered = sorted(found.values(), key=lambda item: (item[0].seq, item[0].id))
    joined = b"".join(line + b"\n" for _, line in ordered)
    if joined != ours:
        _count_rewriting(path.parent)
        replace(path, joined)
    return len(found) - n_ours
