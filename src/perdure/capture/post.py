"""Post what a transcript gained into the outbox: the one way of every live capture. Standard library only.

Whether anything may be copied is asked before a byte is read; what is posted is durable when the call returns, and
only then does the cursor move. A long backlog goes in pieces, so that a hook that is stopped leaves progress behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISREG

from perdure.capture import credential, cursor, outbox, privacy
from perdure.capture.origin import Fields, clean, escaped, plain
from perdure.capture.rules import Rules
from perdure.capture.whole import complete
from perdure.errors import UsageError

_PIECE_BYTES = 1 << 23  # posted at a time: about 50 ms of writing on a slow disk


def refusal(rules: Rules, origin: Fields) -> str | None:
    """Why nothing of this session may be copied, or None."""
    related = {origin["session"], origin["conversation"], origin["parent_session"] or origin["session"]}
    if any(privacy.off_record(rules.home, rules.user, origin["runtime"], session) for session in related):
        return "incognito session"
    if not rules.exclude:
        return None
    from perdure.identity import project_of  # who excludes nothing pays nothing for it

    pattern = privacy.excluded(origin["cwd"], project_of(origin["cwd"]), rules.exclude, rules.user_home)
    return f"excluded project ({pattern})" if pattern else None


def check(rules: Rules, origin: Fields) -> None:
    """Raise UsageError when nothing of this session may be copied now."""
    if privacy.paused(rules.home, datetime.now(UTC)):
        raise UsageError("capture is paused (`perdure resume` ends that); nothing was copied")
    why = refusal(rules, origin)
    if why:
        raise UsageError(f"{why}; nothing was copied")


def post(
    rules: Rules, origin: Fields, data: bytes, *, from_offset: int | None, path: str | None, tags: Sequence[str] = ()
) -> int:
    """Put bytes of a session into the outbox; returns how many were taken, durable by then.

    from_offset: None for lines without a place of their own: those that the archive lacks go behind what it has.
    An unfinished last line is not taken and belongs to the next call. Raises UsageError when capture is refused.
    """
    origin, n_bytes = clean(origin), complete(data)
    check(rules, origin)
    head: Fields = {"origin": origin, "from_offset": from_offset, "tags": [plain(tag) for tag in tags]}
    head |= {"path": None if path is None else escaped(path), "user": rules.user, "machine": rules.machine}
    if rules.remote.url:
        head["whose"] = credential.owner(rules.home)
    if n_bytes:
        outbox.put(rules.home / "outbox", head, data[:n_bytes], now=datetime.now(UTC))
    return n_bytes


def post_file(
    rules: Rules, origin: Fields, path: Path, *, from_offset: int | None = None, tags: Sequence[str] = ()
) -> tuple[int, int]:
    """Post the complete lines that a transcript gained since its last capture; returns (offset, bytes posted).

    Raises UsageError when capture is refused, OSError for what cannot be read.
    """
    check(rules, clean(origin))
    cursors = rules.home / "outbox" / "cursors"
    start = at = cursor.read(cursors, path) if from_offset is None else from_offset
    size = _PIECE_BYTES
    with path.open("rb") as file:
        while True:
            file.seek(at)
            data = file.read(size)
            n_bytes = post(rules, origin, data, from_offset=at, path=str(path.absolute()), tags=tags)
            if n_bytes:
                at += n_bytes
                cursor.write(cursors, path, at)
            elif len(data) == size:  # one line longer than a piece
                size *= 2
                continue
            if len(data) < size:
                return start, at - start


def post_lines(rules: Rules, origin: Fields, lines: Sequence[bytes], *, path: str) -> int:
    """Post the lines of a session that were not posted yet; returns how many.

    They are what an adapter makes of a source that is rewritten in place. Raises UsageError when capture is refused.
    """
    from perdure.capture import emitted

    check(rules, clean(origin))
    cursors, source = rules.home / "outbox" / "cursors", f"{origin['runtime']}\0{origin['session']}"
    emitted.keep(cursors, source, lines)
    rest = emitted.fresh(cursors, source, lines)
    n_posted = len(rest)
    while rest:
        size, n_taken = 0, 0
        while n_taken < len(rest) and (not n_taken or size + len(rest[n_taken]) < _PIECE_BYTES):
            size, n_taken = size + len(rest[n_taken]) + 1, n_taken + 1
        piece, rest = rest[:n_taken], rest[n_taken:]
        post(rules, origin, b"".join(line + b"\n" for line in piece), from_offset=None, path=path)
        emitted.note(cursors, source, piece)
    return n_posted


def grown(rules: Rules, path: Path) -> bool:
    """Whether a transcript may hold what was not posted yet. False for what is no file."""
    try:
        found = path.stat()
    except OSError:
        return False
    return S_ISREG(found.st_mode) and found.st_size != cursor.read(rules.home / "outbox" / "cursors", path)
