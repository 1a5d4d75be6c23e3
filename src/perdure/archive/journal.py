"""The journal: every event that is not captured bytes, one line each, in append-only files that a person can read.

Events are ordered by (hybrid time, writer, sequence). A line's id is the hash of the rest of the line, so
a damaged line is noticed. An append holds a file lock and takes the next sequence number under it. The
hybrid clock never goes back: it follows the wall clock while that runs ahead, and otherwise counts on from
the last event.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from perdure.archive import manifest
from perdure.disk import append_line, lock_file, make_folder, replace_file, write_file

_ID_CHARS = 32
_HEAD = b'{"id":"'
_HASHED_FROM = len(_HEAD) + _ID_CHARS + 2  # where the hashed rest of a line begins
_TIME_FROM = _HASHED_FROM + len('"at":"')  # where its hybrid time begins
_TIME_CHARS = len("2026-01-01T12:00:00.000Z#0000")
_NEAR_BYTES = 1 << 16  # bytes read from a file to find the events of one moment
_STAMP = "%Y-%m-%dT%H:%M:%S"
_TAIL_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20
_OTHERS_TAIL_BYTES = 1 << 14
_WRITERS_FILE = "writers"  # in a home: every writer id that it has had, one a line; copies and backups include it
_END_BYTES = 64  # the end of what was read, to recognise it later: the last bytes of an event's text


class JournalEvent(msgspec.Struct, frozen=True, omit_defaults=False):
    """One event: a line of the journal."""

    id: str  # first 32 hex digits of the sha256 of the rest of the line
    at: str  # hybrid time: UTC to the millisecond, `#`, a counter of 4 digits; sorts as text
    writer: str  # random per home
    seq: int  # counts from 1 for each writer
    type: str
    data: dict[str, Any]
    was: str = ""  # the id that the event had before something in it was forgotten

    @property
    def key(self) -> str:
        """The id that identifies this event, also after something in it was forgotten."""
        return self.was or self.id

    @property
    def order(self) -> tuple[str, str, int]:
        """The sort key of this event among all events."""
        return (self.at, self.writer, self.seq)

    @property
    def happened_at(self) -> datetime:
        """The time at which it was written, by the clock of its writer."""
        return datetime.fromisoformat(self.at.partition("#")[0])


class JournalDamage(msgspec.Struct, frozen=True):
    """A line of the journal that differs from what was written."""

    path: Path
    line_number: int  # counted from 1
    reason: str


_decoder = msgspec.json.Decoder(JournalEvent)


def tick(now: datetime, last_time: str) -> str:
    """Return the next hybrid time: the wall clock, or one count past `last_time` if the clock is not past it.

    >>> tick(datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00.000Z#0007")
    '2026-01-01T00:00:00.000Z#0008'
    """
    utc_now = now.astimezone(UTC)
    stamp = f"{utc_now.strftime(_STAMP)}.{utc_now.microsecond // 1000:03d}Z"
    if f"{stamp}#0000" > last_time:
        return f"{stamp}#0000"
    last_stamp, count = last_time.split("#")
    if int(count) < 9999:
        return f"{last_stamp}#{int(count) + 1:04d}"
    next_s = datetime.fromisoformat(last_stamp).timestamp() + 0.001
    return tick(datetime.fromtimestamp(round(next_s, 3), UTC), last_time)


def encode_event(event_at: str, writer: str, seq: int, type_: str, data: dict[str, Any], *, was: str = "") -> bytes:
    """Encode an event as a line of the journal without its newline; compute its id."""
    fields = {"at": event_at, "writer": writer, "seq": seq, "type": type_, "data": data}
    hashed_part = msgspec.json.encode(fields | ({"was": was} if was else {}))[1:]
    return _HEAD + hashlib.sha256(hashed_part).hexdigest()[:_ID_CHARS].encode() + b'",' + hashed_part


def decode_event(line: bytes) -> JournalEvent | str:
    """Decode a line; return the event, or a text that says what is wrong with the line."""
    if not line.startswith(_HEAD):
        return "not an event"
    if (
        hashlib.sha256(line[_HASHED_FROM:]).hexdigest()[:_ID_CHARS].encode()
        != line[len(_HEAD) : len(_HEAD) + _ID_CHARS]
    ):
        return "its hash does not match: the line was changed or damaged"
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return str(error)


def get_writer_id(home: Path) -> str:
    """Return the id of this home's writer. A copied home (other machine, other file) is noticed and gets a new one."""
    path = home / "writer.json"
    return _read_valid_writer(path) or _claim_writer(path)


def list_own_writers(home: Path) -> frozenset[str]:
    """Return every writer id that this home has had, and those of the home that it was copied or restored from."""
    with contextlib.suppress(FileNotFoundError):
        return frozenset((home / _WRITERS_FILE).read_text("ascii", "replace").split()) | _read_writer_file(home)
    return _read_writer_file(home)  # a home of an earlier version, which has no list


def record_writers(home: Path, *new_writers: str) -> None:
    """Record every writer that this home has had, and these, in its list of writers."""
    path = home / _WRITERS_FILE
    writers = sorted({*list_own_writers(home), *new_writers})
    if not path.exists() or not set(path.read_text("ascii", "replace").split()).issuperset(writers):
        replace_file(path, "".join(f"{writer}\n" for writer in writers).encode())


def record_all_writers(home: Path) -> None:
    """Record every writer in the journals as the home's own if it has no list: a backup of an earlier version."""
    if not (home / _WRITERS_FILE).exists():
        record_writers(home, *(path.name for path in (home / "archive" / "journal").glob("*/*") if path.is_dir()))


def _read_writer_file(home: Path) -> frozenset[str]:
    """Return the writer that writer.json names, also when that file was copied."""
    try:
        return frozenset([str(msgspec.json.decode((home / "writer.json").read_bytes(), type=dict[str, Any])["writer"])])
    except (FileNotFoundError, msgspec.MsgspecError, KeyError):
        return frozenset()


def _read_valid_writer(path: Path) -> str | None:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        if record["host"] == os.uname().nodename and record["inode"] == path.stat().st_ino:
            return str(record["writer"])
    except (FileNotFoundError, msgspec.MsgspecError, KeyError):
        pass
    return None


def _claim_writer(path: Path) -> str:
    """Claim a new writer id; of two processes that claim at once, the later one takes the id of the earlier one."""
    with lock_file(path.with_name(".writer.lock")):
        known_writer = _read_valid_writer(path)
        if known_writer:
            return known_writer
        writer = "w" + secrets.token_hex(8)
        record_writers(path.parent, writer)  # first, so that its first event already counts
        path.unlink(missing_ok=True)
        write_file(path, b"")
        record = {"writer": writer, "host": os.uname().nodename, "inode": path.stat().st_ino}
        write_file(path, msgspec.json.encode(record) + b"\n")
        return writer


class Journal:
    """The journal of one user in one home."""

    def __init__(self, root: Path, *, home: Path) -> None:
        """Use `root`, which is archive/journal/<user>. Creates nothing before the first append."""
        self.root = root
        self._home = home

    def get_writer(self) -> str:
        """Return the id of this home's writer."""
        return get_writer_id(self._home)

    def append(self, type_: str, data: dict[str, Any], *, now: datetime) -> JournalEvent:
        """Write one event, durable when this returns. It sorts after all others, also after those from a merge."""
        writer = self.get_writer()
        folder = self.root / writer
        make_folder(folder)
        with lock_file(folder / ".lock"):
            last_event = self._repair_and_find_last(folder)
            hybrid_time = tick(
                now, max((self._find_newest_time_of_others(folder), last_event.at if last_event else "")) or "0#0000"
            )
            line = encode_event(hybrid_time, writer, last_event.seq + 1 if last_event else 1, type_, data)
            append_line(folder / f"{hybrid_time[:7]}.jsonl", line)
        event = _decoder.decode(line)
        self.record_events([event])
        return event

    def record_events(self, events: Iterable[JournalEvent]) -> None:
        """Record in the manifest that the journal holds these events."""
        self.record(manifest.EventRecord(event.key, f"{event.writer}/{event.at[:7]}.jsonl") for event in events)

    def record(self, records: Iterable[manifest.EventRecord]) -> None:
        """Add lines to the manifest, each to the month of its event."""
        folder = self.root.parents[1] / manifest.FOLDER / self.root.name / self.get_writer()
        for name, group in itertools.groupby(records, key=lambda record: record.file.rpartition("/")[2]):
            manifest.append(folder / name, group)

    def _repair_and_find_last(self, folder: Path) -> JournalEvent | None:
        """Return the writer's last event, after setting aside a torn line behind it. The caller holds the lock."""
        for path in sorted(folder.glob("*.jsonl"), reverse=True):
            set_aside_torn_tail(path)
            if event := _read_last_event(path, _TAIL_BYTES):
                return event
        return None

    def _find_newest_time_of_others(self, folder: Path) -> str:
        """Return the latest hybrid time of the other writers, or "". Only a merge brings their events."""
        times = [""]
        for path in self.root.glob("*"):
            if path != folder and (files := sorted(path.glob("*.jsonl"))):
                event = _read_last_event(files[-1], _OTHERS_TAIL_BYTES)
                times.append(event.at if event else "")
        return max(times)

    def list_files(self) -> list[Path]:
        """Return the journal's files, sorted by writer and month."""
        return sorted(self.root.glob("*/*.jsonl"))

    def read(self, *, type_: str | None = None) -> list[JournalEvent]:
        """Return all events (of one type), in order. Skips damaged and torn lines; `find_damage` lists them."""
        events_by_key: dict[str, JournalEvent] = {}
        needle = f'"type":"{type_}"'.encode() if type_ else _HEAD
        for path in self.list_files():
            for line in find_lines(path, needle):
                event = decode_event(line)
                if isinstance(event, JournalEvent) and type_ in (None, event.type):
                    events_by_key[event.key] = _choose_later(event, events_by_key.get(event.key))
        return sorted(events_by_key.values(), key=lambda e: e.order)

    def read_since(self, since_at: datetime, type_: str) -> list[JournalEvent]:
        """Return the events of one type since a moment, in order. Reads only the files of those months."""
        month, needle = f"{since_at.astimezone(UTC):%Y-%m}", f'"type":"{type_}"'.encode()
        events_by_key: dict[str, JournalEvent] = {}
        for path in (path for path in self.list_files() if path.stem >= month):
            for line in find_lines(path, needle):
                event = decode_event(line)
                if isinstance(event, JournalEvent) and event.type == type_ and event.happened_at >= since_at:
                    events_by_key[event.key] = _choose_later(event, events_by_key.get(event.key))
        return sorted(events_by_key.values(), key=lambda event: event.order)

    def find_event(self, key: str, hybrid_time: str) -> JournalEvent | None:
        """Return the event with this key and hybrid time. Reads little of each file: lines are in order."""
        newest: JournalEvent | None = None
        for path in self.root.glob(f"*/{hybrid_time[:7]}.jsonl"):
            for line in _find_lines_at_time(path, hybrid_time):
                event = decode_event(line)
                if isinstance(event, JournalEvent) and event.key == key:
                    newest = _choose_later(event, newest)
        return newest

    def find_damage(self) -> Iterator[JournalDamage]:
        """Yield everything in the journal that differs from what was written."""
        for _, paths in itertools.groupby(self.list_files(), key=lambda path: path.parent):
            yield from _find_damage_in(list(paths))

    def rewrite(self, type_: str, change_data: Callable[[JournalEvent], dict[str, Any] | None]) -> int:
        """Change the data of events of one type; return how many changed.

        change_data: returns the new data of an event, or None to leave it. The event keeps its place and its key.
        If this is interrupted between files, it can be repeated.
        """
        n_changed = 0
        for path in self.list_files():
            with lock_file(path.parent / ".lock"):
                set_aside_torn_tail(path)
                lines = path.read_bytes().split(b"\n")[:-1]
                new_lines = [_rewrite_line(line, type_, change_data) for line in lines]
                n_changed_here = sum(line is not old_line for line, old_line in zip(new_lines, lines, strict=True))
                if n_changed_here:
                    _record_rewrite(path.parent)
                    replace_file(path, b"".join(line + b"\n" for line in new_lines))
                n_changed += n_changed_here
        return n_changed

    def merge_from(self, other_root: Path) -> int:
        """Merge another home's journal of the same user into this one; return how many lines were new."""
        n_new = 0
        for path in sorted(other_root.glob("*/*.jsonl")):
            folder = self.root / path.parent.name
            make_folder(folder)
            with lock_file(folder / ".lock"):
                if (folder / path.name).exists():
                    set_aside_torn_tail(folder / path.name)
                new_events = _merge_lines(folder / path.name, path.read_bytes())
            self.record_events(new_events)
            n_new += len(new_events)
        return n_new


def _find_lines_at_time(path: Path, hybrid_time: str) -> Iterator[bytes]:
    """Yield the lines of a file with this hybrid time, without their newlines. Finds them by binary search."""
    time_bytes, low, high = hybrid_time.encode(), 0, path.stat().st_size
    with path.open("rb") as file:
        while high - low > _NEAR_BYTES:
            middle = (low + high) // 2
            file.seek(middle)
            file.readline()
            if b"" < _read_time(_skip_to_event_line(file)) < time_bytes:
                low = middle
            else:
                high = middle
        file.seek(low)
        for line in file:
            if _read_time(line) > time_bytes:
                return
            if _read_time(line) == time_bytes and line.endswith(b"\n"):
                yield line[:-1]


def _skip_to_event_line(file: IO[bytes]) -> bytes:
    """Return the next line that begins like an event; b"" if there is none."""
    return next((line for line in file if line.startswith(_HEAD)), b"")


def _read_time(line: bytes) -> bytes:
    """Return the hybrid time in a line; b"" for a part of a line and for a line that is no event."""
    return line[_TIME_FROM : _TIME_FROM + _TIME_CHARS] if line.startswith(_HEAD) else b""


def find_lines(path: Path, needle: bytes) -> Iterator[bytes]:
    """Yield the complete lines of a file that contain some bytes.

    Reads in blocks: a year of events need not fit into memory, and a memory map of a file that another process
    shortens would crash this one.
    """
    remainder = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            cut = block.rfind(b"\n") + 1
            if cut:
                yield from _find_lines_in_block(remainder + block[:cut], needle)
            remainder = block[cut:] if cut else remainder + block


def _find_lines_in_block(raw: bytes, needle: bytes) -> Iterator[bytes]:
    """Yield the complete lines that contain some bytes."""
    position = raw.find(needle)
    while position >= 0:
        end = raw.find(b"\n", position)
        if end < 0:
            return
        yield raw[raw.rfind(b"\n", 0, position) + 1 : end]
        position = raw.find(needle, end)


def _read_last_event(path: Path, tail_bytes: int) -> JournalEvent | None:
    """Return the last readable event of a file; read its last `tail_bytes` bytes first."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - tail_bytes))
        tail = file.read()
    if size > tail_bytes and tail.count(b"\n") < 2:
        tail = path.read_bytes()
    events = (decode_event(line) for line in reversed(tail.splitlines()))
    return next((event for event in events if isinstance(event, JournalEvent)), None)


def _choose_later(event: JournalEvent, other_event: JournalEvent | None) -> JournalEvent:
    """Of two states of one event, return the one in which something was forgotten; of two such, always the same one."""
    return event if other_event is None else max(event, other_event, key=lambda e: (bool(e.was), e.id))


def _rewrite_line(line: bytes, type_: str, change_data: Callable[[JournalEvent], dict[str, Any] | None]) -> bytes:
    """Return a line with the data from `change_data`; the same line if there is no new data."""
    event = decode_event(line) if f'"type":"{type_}"'.encode() in line else None
    data = change_data(event) if isinstance(event, JournalEvent) and event.type == type_ else None
    if not isinstance(event, JournalEvent) or data is None or data == event.data:
        return line
    return encode_event(event.at, event.writer, event.seq, event.type, data, was=event.key)


class FilePosition(NamedTuple):
    """The position up to which a file of a journal was read."""

    inode: int  # identity of the file: its inode, distinguished from a later file with the same number
    n_bytes: int


_REWRITES_FILE = ".rewritten"  # in a writer's folder: one byte for each time that one of its files was rewritten
_IDENTITY_BITS = 62  # fits into an integer of SQLite


def _record_rewrite(folder: Path) -> None:
    """Record that a file is about to be rewritten: a file system may give the inode number of a deleted file to
    a new one.
    """
    append_line(folder / _REWRITES_FILE, b"")


def _to_file_identity(inode: int, n_rewritings: int) -> int:
    """Return a number that tells one state of a file from all others with its name."""
    if not n_rewritings:
        return inode
    digest = hashlib.sha256(f"{inode}:{n_rewritings}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - _IDENTITY_BITS)


def _count_rewrites(folder: Path) -> int:
    try:
        return (folder / _REWRITES_FILE).stat().st_size
    except FileNotFoundError:
        return 0


def measure_files(folder: Path) -> dict[str, FilePosition]:
    """Return the files of one user's journal, each with its identity and its length."""
    positions = {}
    for writer_folder, paths in itertools.groupby(sorted(folder.glob("*/*.jsonl")), key=lambda path: path.parent):
        n_rewritings = _count_rewrites(writer_folder)
        for path in paths:
            status = path.stat()
            positions[f"{writer_folder.name}/{path.name}"] = FilePosition(
                _to_file_identity(status.st_ino, n_rewritings), status.st_size
            )
    return positions


def was_rewritten(old_positions: Mapping[str, FilePosition], positions: Mapping[str, FilePosition]) -> bool:
    """Return True if a file is no longer the one that was read, or is shorter."""
    return any(
        name not in positions
        or positions[name].inode != old_position.inode
        or positions[name].n_bytes < old_position.n_bytes
        for name, old_position in old_positions.items()
    )


def read_file_ends(folder: Path, positions: Mapping[str, FilePosition]) -> dict[str, str]:
    """Return the last bytes that were read of each file, as hex.

    Different bytes show that a file was rewritten, also where the new file has the number of an old one by
    chance.
    """
    ends_by_name = {}
    for name, (_, n_bytes) in positions.items():
        with contextlib.suppress(FileNotFoundError), (folder / name).open("rb") as file:
            file.seek(max(0, n_bytes - _END_BYTES))
            ends_by_name[name] = file.read(min(n_bytes, _END_BYTES)).hex()
    return ends_by_name


def read_new_events(
    folder: Path, old_positions: Mapping[str, FilePosition], positions: Mapping[str, FilePosition], types: Sequence[str]
) -> tuple[list[JournalEvent], dict[str, FilePosition]]:
    """Return (the new events of these types, in order; how far each file was read: to its last whole line).

    Leaves a line that is being written at this moment for the next call.
    """
    needles = [f'"type":"{type_}"'.encode() for type_ in types]
    events_by_key: dict[str, JournalEvent] = {}
    new_positions: dict[str, FilePosition] = {}
    for line in read_new_lines(folder, old_positions, positions, new_positions):
        event = decode_event(line) if any(needle in line for needle in needles) else None
        if isinstance(event, JournalEvent) and event.type in types:
            events_by_key[event.key] = _choose_later(event, events_by_key.get(event.key))
    return sorted(events_by_key.values(), key=lambda event: event.order), new_positions


def read_new_lines(
    folder: Path,
    old_positions: Mapping[str, FilePosition],
    positions: Mapping[str, FilePosition],
    new_positions: dict[str, FilePosition],
) -> Iterator[bytes]:
    """Yield the whole lines between two positions of a journal's files, without their ends.

    new_positions: gets how far each file was read, before its lines are yielded: to its last whole line.
    """
    for name in sorted(positions):
        start = old_positions[name].n_bytes if name in old_positions else 0
        whole_lines = b""
        if positions[name].n_bytes > start:
            with (folder / name).open("rb") as file:
                file.seek(start)
                raw = file.read(positions[name].n_bytes - start)
            whole_lines = raw[: raw.rfind(b"\n") + 1]
        new_positions[name] = FilePosition(positions[name].inode, start + len(whole_lines))
        yield from whole_lines.split(b"\n")[:-1]


def set_aside_torn_tail(path: Path) -> Path | None:
    """Move a torn last line into a file of its own; return that file's path, or None when no line is torn."""
    data = path.read_bytes() if path.stat().st_size < _TAIL_BYTES else _read_tail(path)
    if not data or data.endswith(b"\n"):
        return None
    torn_line = data[data.rfind(b"\n") + 1 :]
    aside_path = path.with_name(f"{path.name}.torn-{secrets.token_hex(4)}")
    write_file(aside_path, torn_line)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - len(torn_line))
        os.fsync(file.fileno())
    return aside_path


def _read_tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-_TAIL_BYTES, os.SEEK_END)
        tail = file.read()
    return tail if b"\n" in tail else path.read_bytes()


def _find_damage_in(paths: Sequence[Path]) -> Iterator[JournalDamage]:
    """Yield the damage in the files of one writer; the files come in the order of their months."""
    last_order, last_seq = ("", "", 0), 0
    for path in paths:
        lines = path.read_bytes().split(b"\n")
        for line_number, line in enumerate(lines[:-1], start=1):
            event = decode_event(line)
            if isinstance(event, str):
                yield JournalDamage(path, line_number, event)
                continue
            if event.order <= last_order or event.seq <= last_seq:
                yield JournalDamage(
                    path, line_number, "out of order: its time or sequence number is not higher than in the line before"
                )
            elif event.seq != last_seq + 1:
                yield JournalDamage(
                    path, line_number, f"events {last_seq + 1} to {event.seq - 1} of this writer are missing"
                )
            last_order, last_seq = event.order, event.seq
        if lines[-1]:
            yield JournalDamage(path, len(lines), "torn: the line is incomplete; it was not acknowledged")


def _merge_lines(path: Path, theirs: bytes) -> list[JournalEvent]:
    """Add the lines of `theirs` that `path` lacks; return their events. The caller holds the writer's lock.

    A line of ours that cannot be read is set aside: theirs may have it whole, and nothing disappears without a
    trace.
    """
    ours = b""
    with contextlib.suppress(FileNotFoundError):
        ours = path.read_bytes()
    if theirs == ours or ours.startswith(theirs):
        return []
    lines_by_key: dict[str, tuple[JournalEvent, bytes]] = {}
    our_keys: set[str] = set()
    for is_ours, data in ((True, ours), (False, theirs)):
        for line in data.split(b"\n")[:-1]:
            event = decode_event(line)
            if isinstance(event, JournalEvent):
                known_pair = lines_by_key.get(event.key)
                if known_pair is None or _choose_later(event, known_pair[0]) is event:
                    lines_by_key[event.key] = (event, line)
            elif is_ours:
                line_hash = hashlib.sha256(line).hexdigest()[:8]
                write_file(path.with_name(f"{path.name}.damaged-{line_hash}"), line + b"\n")
        our_keys = set(lines_by_key) if is_ours else our_keys
    ordered = sorted(lines_by_key.values(), key=lambda pair: (pair[0].seq, pair[0].id))
    merged = b"".join(line + b"\n" for _, line in ordered)
    if merged != ours:
        _record_rewrite(path.parent)
        replace_file(path, merged)
    return [event for event, _ in ordered if event.key not in our_keys]
