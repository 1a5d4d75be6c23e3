"""The outbox: captured deltas that are not yet in an archive, and the only way of every live capture into it.

A file in the outbox after fsync is the acknowledgement to a hook. Each file is one delta: a line of JSON
that describes it, then the bytes as they were read. Its name sorts by time of capture. Whoever moves a
delta into an archive deletes it after that archive acknowledged it, never before.

Permission to copy is checked before a byte is read. Bytes are durable when the call returns, and only
then does the cursor move. A long backlog goes in pieces, so that a hook that is stopped leaves progress
behind.

A cursor is where the last capture of a transcript ended, so that a client sends only what is new. It is a
convenience, never the truth: the archive knows what it holds. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple

from perdure.capture import credential, policy
from perdure.capture.policy import CaptureRules
from perdure.capture.transcripts import OriginFields, clean_origin, count_complete_bytes, escape_text, to_plain_name
from perdure.disk import make_folder, replace_file
from perdure.errors import UsageError

_DELTA_SUFFIX, _ASIDE_SUFFIX = ".delta", ".unreadable"
_MAX_HEADER_BYTES = 1 << 20  # the first line of a delta is not longer


class OutboxDelta(NamedTuple):
    """One delta in the outbox."""

    path: Path
    header: dict[str, Any]  # what capture knew about it
    data: bytes


class OutboxBacklog(NamedTuple):
    """How much waits in the outbox, and for how long."""

    n_files: int
    n_bytes: int
    oldest_at: datetime | None


def write_delta(outbox: Path, header: dict[str, Any], data: bytes, *, now: datetime) -> Path:
    """Write a delta to the outbox; it is durable when this returns."""
    make_folder(outbox)
    name = f"{int(now.timestamp() * 1_000_000):020d}-{os.urandom(4).hex()}{_DELTA_SUFFIX}"
    replace_file(outbox / name, json.dumps(header).encode() + b"\n" + data)
    return outbox / name


def read_deltas(outbox: Path, *, newest_first: bool = False) -> Iterator[OutboxDelta]:
    """Yield the deltas, oldest first. One that cannot be read is renamed to `*.unreadable`, never deleted.

    newest_first: begin with the session that was captured last; the deltas of one session stay in order.
    """
    for path in _sort_newest_session_first(list_deltas(outbox)) if newest_first else list_deltas(outbox):
        try:
            header_line, _, data = path.read_bytes().partition(b"\n")
            yield OutboxDelta(path, dict(json.loads(header_line)), data)
        except FileNotFoundError:
            continue  # another process moved it meanwhile
        except (ValueError, TypeError):
            set_aside(path)


def _sort_newest_session_first(paths: Sequence[Path]) -> list[Path]:
    """Return the paths of deltas by session, the one with the newest delta first. paths: oldest first."""
    by_session: dict[str, list[Path]] = {}
    for path in paths:
        session = _read_session(path)
        by_session[session] = [*by_session.pop(session, ()), path]  # moved to the end: the newest so far
    return [path for session_paths in reversed(by_session.values()) for path in session_paths]


def _read_session(path: Path) -> str:
    """Return a name for the session of a delta; the file's own name if its header cannot be read."""
    try:
        with path.open("rb") as file:
            origin = json.loads(file.readline(_MAX_HEADER_BYTES))["origin"]
        return f"{origin['runtime']}\0{origin['session']}"
    except (OSError, ValueError, KeyError, TypeError):
        return path.name


def set_aside(path: Path) -> None:
    """Rename a delta that has no meaning, so that it does not block others; it is never deleted."""
    path.rename(path.with_suffix(_ASIDE_SUFFIX))


def list_set_aside(outbox: Path) -> list[Path]:
    """Return the deltas that were set aside."""
    return sorted(outbox.glob(f"*{_ASIDE_SUFFIX}"))


def restore_set_aside(outbox: Path) -> None:
    """Let the deltas that were set aside wait again."""
    for path in list_set_aside(outbox):
        path.rename(path.with_suffix(_DELTA_SUFFIX))


def measure_backlog(outbox: Path) -> OutboxBacklog:
    """Return how full the outbox is."""
    sizes, times = [], []
    for path in list_deltas(outbox):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue
        stamp = path.name.split("-")[0]
        times += [int(stamp)] if stamp.isdigit() else []
    oldest_at = datetime.fromtimestamp(min(times) / 1_000_000, UTC) if times else None
    return OutboxBacklog(len(sizes), sum(sizes), oldest_at)


def list_deltas(outbox: Path) -> list[Path]:
    """Return the paths of the deltas that wait, oldest first."""
    return sorted(outbox.glob(f"*{_DELTA_SUFFIX}"))


def count_foreign_deltas(outbox: Path, user: str) -> int:
    """Count the waiting deltas that were captured for another person at a remote home."""
    return sum(is_foreign_delta(path, user) for path in list_deltas(outbox))


def is_foreign_delta(path: Path, user: str) -> bool:
    """Return True if a delta was captured for another person; False if it does not say for whom."""
    try:
        with path.open("rb") as file:
            owner = dict(json.loads(file.readline(_MAX_HEADER_BYTES))).get("whose")
    except (OSError, ValueError, TypeError):
        return False
    return bool(owner) and owner != user


def raise_alarm(outbox: Path, *, max_bytes: int, max_age_s: int, now: datetime) -> str | None:
    """Return a message about an outbox that does not drain, or None.

    Once an incident: the file `alarm` marks it, and the incident ends when the outbox has drained.
    """
    text, alarm_path = describe_problem(outbox, max_bytes=max_bytes, max_age_s=max_age_s, now=now), outbox / "alarm"
    if text is None:
        alarm_path.unlink(missing_ok=True)
        return None
    if alarm_path.exists():
        return None
    replace_file(alarm_path, text.encode())
    return text


def describe_problem(outbox: Path, *, max_bytes: int, max_age_s: int, now: datetime) -> str | None:
    """Return what is wrong with an outbox that does not drain, or None."""
    state = measure_backlog(outbox)
    age_s = (now - state.oldest_at).total_seconds() if state.oldest_at else 0
    if state.n_bytes <= max_bytes and age_s <= max_age_s:
        return None
    minutes = int(age_s // 60)
    return f"{state.n_files} captures ({state.n_bytes} bytes) wait in {outbox}, the oldest for {minutes} minutes"


_WITNESS_BYTES = 4096  # the hash of so many bytes before the cursor is stored


class TranscriptCursor(NamedTuple):
    """The end of the bytes that were sent."""

    offset: int  # bytes from the start of the transcript
    witness: str  # hash of the bytes just before it


def read_cursor(folder: Path, path: Path) -> int:
    """Return the offset from which to send this transcript: 0 without a cursor that can be trusted.

    A cursor is trusted only while the bytes before it are those that were sent. A transcript that was
    rewritten or cut short starts again at 0, and the archive takes what it lacks.
    """
    try:
        fields = json.loads(_to_cursor_path(folder, path).read_bytes())
        stored_cursor = TranscriptCursor(int(fields["offset"]), str(fields["witness"]))
        witness = _read_witness(path, stored_cursor.offset)
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return stored_cursor.offset if witness == stored_cursor.witness else 0


def write_cursor(folder: Path, path: Path, offset: int) -> None:
    """Note that everything before `offset` was sent. Call it after the bytes are durable, never before.

    Not synced itself: a power cut leaves an older cursor or none, and bytes that are sent twice are kept
    once.
    """
    make_folder(folder)
    fields = {"offset": offset, "witness": _read_witness(path, offset), "path": str(path)}
    replace_file(_to_cursor_path(folder, path), json.dumps(fields).encode(), sync=False)


def note_subagent_transcript(folder: Path, session: str, path: Path) -> None:
    """Note that a sub-agent of this session writes that transcript, for clients whose files do not say so."""
    make_folder(folder)
    if path not in list_subagent_transcripts(folder, session):
        with _to_subagents_path(folder, session).open("ab") as file:
            file.write(os.fsencode(path) + b"\n")


def list_subagent_transcripts(folder: Path, session: str) -> list[Path]:
    """Return the transcripts of the session's sub-agents that were noted."""
    try:
        rows = _to_subagents_path(folder, session).read_bytes().splitlines()
    except OSError:
        return []
    return [Path(os.fsdecode(row)) for row in dict.fromkeys(rows)]


def _to_subagents_path(folder: Path, session: str) -> Path:
    name = hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:32]
    return folder / f"{name}.agents"


def _to_cursor_path(folder: Path, path: Path) -> Path:
    return folder / (hashlib.sha256(str(path.absolute()).encode("utf-8", "surrogateescape")).hexdigest()[:32] + ".json")


def _read_witness(path: Path, offset: int) -> str:
    with path.open("rb") as file:
        file.seek(max(0, offset - _WITNESS_BYTES))
        data = file.read(min(offset, _WITNESS_BYTES))
    return hashlib.sha256(data + str(offset).encode()).hexdigest()[:32]


_PIECE_BYTES = 1 << 23  # enqueued at a time: about 50 ms of writing on a slow disk


_PROMPTS_ONLY = "-prompts-only"  # as in `types`, which a hook does not load


def get_refusal(rules: CaptureRules, origin: OriginFields) -> str | None:
    """Return why nothing of this session may be copied, or None."""
    related_sessions = {origin["session"], origin["conversation"], origin["parent_session"] or origin["session"]}
    client = origin["runtime"].removesuffix(_PROMPTS_ONLY)
    if any(policy.is_incognito(rules.home, rules.user, client, session) for session in related_sessions):
        return "incognito session"
    if not rules.exclude:
        return None
    if client != origin["runtime"] and origin["cwd"] is None:
        return "excluded: its folder is not known, and the settings exclude some folders"
    from perdure.identity import find_project  # only needed where something is excluded

    pattern = policy.find_excluding_pattern(origin["cwd"], find_project(origin["cwd"]), rules.exclude, rules.user_home)
    return f"excluded project ({pattern})" if pattern else None


def check_allowed(rules: CaptureRules, origin: OriginFields) -> None:
    """Raise UsageError if nothing of this session may be copied now."""
    if policy.read_pause(rules.home, datetime.now(UTC)):
        raise UsageError("capture is paused, so nothing was copied; `perdure resume` ends the pause")
    reason = get_refusal(rules, origin)
    if reason:
        raise UsageError(f"{reason}; nothing was copied")


def enqueue_bytes(
    rules: CaptureRules,
    origin: OriginFields,
    data: bytes,
    *,
    from_offset: int | None,
    path: str | None,
    tags: Sequence[str] = (),
) -> int:
    """Put bytes of a session into the outbox; return how many were taken, durable by then.

    from_offset: None for lines without a place of their own: the archive appends those that it lacks.
    An unfinished last line is not taken and belongs to the next call. Raises UsageError when capture is
    refused.
    """
    origin, n_bytes = clean_origin(origin), count_complete_bytes(data)
    check_allowed(rules, origin)
    header: OriginFields = {"origin": origin, "from_offset": from_offset, "tags": [to_plain_name(tag) for tag in tags]}
    header |= {"path": None if path is None else escape_text(path), "user": rules.user, "machine": rules.machine}
    if rules.remote.url:
        header["whose"] = credential.read_owner(rules.home)
    if n_bytes:
        write_delta(rules.home / "outbox", header, data[:n_bytes], now=datetime.now(UTC))
    return n_bytes


def enqueue_file(
    rules: CaptureRules, origin: OriginFields, path: Path, *, from_offset: int | None = None, tags: Sequence[str] = ()
) -> tuple[int, int]:
    """Enqueue the complete lines that a transcript gained since its last capture; return (offset, bytes taken).

    Raises UsageError when capture is refused, OSError if the file cannot be read.
    """
    check_allowed(rules, clean_origin(origin))
    cursors = rules.home / "outbox" / "cursors"
    start = offset = read_cursor(cursors, path) if from_offset is None else from_offset
    piece_bytes = _PIECE_BYTES
    with path.open("rb") as file:
        while True:
            file.seek(offset)
            data = file.read(piece_bytes)
            n_bytes = enqueue_bytes(rules, origin, data, from_offset=offset, path=str(path.absolute()), tags=tags)
            if n_bytes:
                offset += n_bytes
                write_cursor(cursors, path, offset)
            elif len(data) == piece_bytes:  # one line longer than a piece
                piece_bytes *= 2
                continue
            if len(data) < piece_bytes:
                return start, offset - start


def enqueue_lines(rules: CaptureRules, origin: OriginFields, emitted_lines: Sequence[bytes], *, path: str) -> int:
    """Enqueue the lines of a session that were not posted yet; return how many.

    An adapter makes these lines of a source that is rewritten in place. Raises UsageError when capture is
    refused.
    """
    from perdure.capture import lines

    check_allowed(rules, clean_origin(origin))
    cursors, source = rules.home / "outbox" / "cursors", f"{origin['runtime']}\0{origin['session']}"
    lines.forget_removed_lines(cursors, source, emitted_lines)
    unposted = lines.select_unposted_lines(cursors, source, emitted_lines)
    n_posted = len(unposted)
    while unposted:
        n_bytes, n_taken = 0, 0
        while n_taken < len(unposted) and (not n_taken or n_bytes + len(unposted[n_taken]) < _PIECE_BYTES):
            n_bytes, n_taken = n_bytes + len(unposted[n_taken]) + 1, n_taken + 1
        piece_lines, unposted = unposted[:n_taken], unposted[n_taken:]
        enqueue_bytes(rules, origin, b"".join(line + b"\n" for line in piece_lines), from_offset=None, path=path)
        lines.mark_lines_posted(cursors, source, piece_lines)
    return n_posted


def has_grown(rules: CaptureRules, path: Path) -> bool:
    """Return True if a transcript may hold bytes that were not enqueued yet; False if the path is not a file."""
    try:
        file_stat = path.stat()
    except OSError:
        return False
    return S_ISREG(file_stat.st_mode) and file_stat.st_size != read_cursor(rules.home / "outbox" / "cursors", path)
