"""The log of a session: entries that are on disk before they are used, in the archive after each turn.

The truth is the archive: the log's bytes are the runs of the source (user, perdure, session), end to end. Entries of
the turn that goes on wait in `outbox/sessions/` (see `capture/session_file.py`). One process holds a session at a time;
readers need no lock. A session that may not be kept (incognito, an excluded folder, a pause) lives in memory alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.archive import ingest
from perdure.capture import session_file
from perdure.connections import utc_now
from perdure.errors import NewerFormat, SessionMissing, UsageError
from perdure.formats.parsing import is_forgotten_marker
from perdure.formats.perdure import FORMAT, AnyEntry, Start, decode_entry, encode_entry
from perdure.identity import to_base32
from perdure.session.tree import SessionTree
from perdure.types import OWN_RUNTIME, Origin, Source

if TYPE_CHECKING:
    from perdure.home import Home

_ID_CHARS = 10
_MIN_PREFIX_CHARS = 3


def make_id(first: str) -> str:
    """Return a new id: `s` for a session or `e` for an entry, and 10 random characters."""
    return first + to_base32(secrets.randbits(5 * _ID_CHARS), _ID_CHARS)


class SessionLog:
    """The log of one session, held by this process until it is closed."""

    def __init__(self, home: Home, session: str, *, cwd: str | None, is_kept: bool = True) -> None:
        """Use `create_log` or `open_log`. Raises SessionHeld."""
        self._home = home
        self.session = session
        self.cwd = cwd
        self.tree = SessionTree()
        self.origin: list[AnyEntry] = []  # of a fork: the path in the session that it continues
        self._file = session_file.SessionFile(home.path, session) if is_kept else None

    @property
    def is_kept(self) -> bool:
        """False for a session of which nothing may be kept."""
        return self._file is not None

    def load(self) -> None:
        """Read all entries again: a turn of this session may have been forgotten since."""
        if self._file is None:
            return
        if self._file.read()[0]:
            self._home.captures.archive_session(self._file)
        self.tree = read_tree(self._home, self.session)
        start = next(iter(self.tree))
        if isinstance(start, Start) and start.forked_from:
            self.origin = read_path(self._home, start.forked_from, start.parent)
        self._begin_file()

    def find_path(self) -> list[AnyEntry]:
        """Return the entries that lead to the leaf, those of a fork's origin before them."""
        return [*self.origin, *self.tree.find_path()]

    def _begin_file(self) -> None:
        """Empty the file, and say where the next entries belong."""
        if self._file is not None:
            source = _find_source(self._home, self.session)
            config = self._home.config
            header: dict[str, Any] = {
                "origin": msgspec.to_builtins(_make_origin(self.session, self.cwd)),
                "from_offset": self._home.archive.ledger.get_end(source),
                "user": self._home.user,
                "machine": config.machine,
                "agent": config.agent,
            }
            self._file.begin(header)

    def append(self, entry: AnyEntry) -> None:
        """Add an entry after the leaf; it is durable when this returns. Raises DiskFull, and then it is not added."""
        if self._file is not None:
            self._file.append(encode_entry(entry))
        self.tree.add(entry)

    def make_fields(self, now: datetime | None = None) -> dict[str, Any]:
        """Return the id, parent and time of the next entry on this path."""
        return {"id": make_id("e"), "parent": self.tree.leaf, "timestamp": now or utc_now()}

    def archive(self) -> None:
        """Move the entries of this turn into the archive, where search and recall find them."""
        if self._file is not None and self._file.read()[1]:
            self._home.captures.archive_session(self._file)
            self._begin_file()

    def close(self) -> None:
        """Archive what there is, and give the session up."""
        if self._file is not None:
            self.archive()
            self._file.delete()


def _make_origin(session: str, cwd: str | None) -> Origin:
    return ingest.clean_origin(Origin(OWN_RUNTIME, session, session, cwd=cwd))


def _find_source(home: Home, session: str) -> Source:
    generation = home.archive.ledger.get_generation(home.user, OWN_RUNTIME, session)
    return Source(home.user, OWN_RUNTIME, session, generation)


def create_log(
    home: Home, *, cwd: str | None, forked_from: tuple[str, str] | None = None, now: datetime | None = None
) -> SessionLog:
    """Begin a session. forked_from: (session, entry) that it continues. Not kept where nothing may be copied."""
    session = make_id("s")
    is_kept = (
        home.writable and not home.captures.current_pause() and not home.captures.refusal(_make_origin(session, cwd))
    )
    log = SessionLog(home, session, cwd=cwd, is_kept=is_kept)
    log._begin_file()
    origin_session, origin_entry = forked_from or ("", "")
    if forked_from:
        log.origin = read_path(home, origin_session, origin_entry)
    log.append(
        Start(
            id=make_id("e"),
            parent=origin_entry,
            timestamp=now or utc_now(),
            session=session,
            agent=home.config.agent,
            cwd=cwd or "",
            forked_from=origin_session,
        )
    )
    return log


def open_log(home: Home, session: str) -> SessionLog:
    """Open a session to go on with it. Raises SessionMissing, SessionHeld."""
    start = read_start(home, session)
    log = SessionLog(home, session, cwd=start.cwd or None)
    log.load()
    return log


# reading -------------------------------------------------------------------------------------------------------


def read_entries(home: Home, session: str) -> Iterator[AnyEntry]:
    """Yield the entries of a session, oldest first, as far as they are durable; those that were forgotten are gone."""
    end = 0
    runs = home.archive.ledger.list_source_runs(_find_source(home, session))
    for run in sorted(runs, key=lambda run: run.from_offset):
        for line in home.archive.read_lines(run):
            yield from _decode_line(line.raw, session)
        end = max(end, run.to_offset)
    for offset, raw in session_file.read_unarchived(home.path, session):
        if offset >= end:
            yield from _decode_line(raw, session)


def _decode_line(raw: bytes, session: str) -> Iterator[AnyEntry]:
    if is_forgotten_marker(raw):
        return
    try:
        entry = decode_entry(raw)
    except msgspec.MsgspecError:
        return  # `perdure verify` and the format's counts tell about damaged lines
    if isinstance(entry, Start) and entry.format > FORMAT:
        raise NewerFormat(f"session {session}")
    yield entry


def read_tree(home: Home, session: str) -> SessionTree:
    """Return the entries of a session. Raises SessionMissing."""
    tree = SessionTree(read_entries(home, session))
    if not len(tree):
        raise SessionMissing(session)
    return tree


def read_start(home: Home, session: str) -> Start:
    """Return the first entry of a session. Raises SessionMissing."""
    start = next(read_entries(home, session), None)
    if not isinstance(start, Start):
        raise SessionMissing(session)
    return start


def list_session_ids(home: Home) -> list[str]:
    """Return the ids of all sessions of the principal."""
    archived = home.archive.ledger.list_sessions(home.user, OWN_RUNTIME)
    return list(dict.fromkeys([*archived, *session_file.list_sessions(home.path)]))


def resolve_session(home: Home, prefix: str) -> str:
    """Return the id of the session that begins with a prefix. Raises SessionMissing, UsageError if several do."""
    matches = [session for session in list_session_ids(home) if session.startswith(prefix)]
    if prefix in matches:
        return prefix
    if len(matches) > 1 and len(prefix) >= _MIN_PREFIX_CHARS:
        raise UsageError(f"{prefix!r} begins {len(matches)} sessions: {', '.join(matches[:5])}")
    if len(matches) != 1:
        raise SessionMissing(prefix)
    return matches[0]


def resolve_entry(home: Home, prefix: str) -> tuple[str, str]:
    """Return (session, entry) for the beginning of an id: of a session, and then the entry is "", or of an entry.

    Raises SessionMissing, UsageError if several begin so.
    """
    if not prefix.startswith("e"):
        return resolve_session(home, prefix), ""
    matches = [
        (session, entry.id)
        for session in list_session_ids(home)
        for entry in read_entries(home, session)
        if entry.id.startswith(prefix)
    ]
    if len(matches) > 1 and len(prefix) >= _MIN_PREFIX_CHARS:
        raise UsageError(f"{prefix!r} begins {len(matches)} entries: {', '.join(entry for _, entry in matches[:5])}")
    if len(matches) != 1:
        raise SessionMissing(prefix)
    return matches[0]


def read_path(home: Home, session: str, leaf: str = "") -> list[AnyEntry]:
    """Return the entries that lead to a leaf (default: where the session goes on), those of its origin first."""
    path = read_tree(home, session).find_path(leaf)
    start = path[0]
    if isinstance(start, Start) and start.forked_from:
        return [*read_path(home, start.forked_from, start.parent), *path]
    return path
