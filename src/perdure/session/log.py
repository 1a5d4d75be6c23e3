"""The log of a session: entries that are on disk before they are used, in the archive after each turn.

The truth is the archive: the log's bytes are the runs of the source (user, perdure, session), end to end. Entries of
the turn that goes on wait in `outbox/sessions/` (see `capture/session_file.py`). One process holds a session at a time;
readers need no lock. Where homes merged that had both gone on with a session, both ways are branches of its tree. What
may not be kept (incognito, an excluded folder, a pause, a home that is only read) lives in memory alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import log
from perdure.archive import ingest, merge
from perdure.capture import session_file
from perdure.connections import utc_now
from perdure.errors import DamagedRun, NewerFormat, NotFound, PerdureError, SessionMissing, UsageError
from perdure.formats.parsing import UNREADABLE_ERRORS, is_forgotten_marker
from perdure.formats.perdure import (
    FORMAT,
    AnyEntry,
    Branch,
    Entry,
    Message,
    ModelChange,
    Start,
    decode_entry,
    encode_entry,
    replace_surrogates,
)
from perdure.identity import to_base32
from perdure.session.tree import SessionTree, find_last
from perdure.types import OWN_RUNTIME, Origin, Source

if TYPE_CHECKING:
    from perdure.archive.store import LedgerEntry
    from perdure.archive.tombstones import Tombstones
    from perdure.home import Home

_ID_CHARS = 10
_MIN_PREFIX_CHARS = 3
_HELD_WAIT_S = 1.0  # for a session: another process may be moving what a killed one left


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
        self._file = session_file.SessionFile(home.path, session, wait_s=_HELD_WAIT_S) if is_kept else None
        self._is_turn_kept = is_kept
        self._tombstones = self._read_tombstones()

    @property
    def is_kept(self) -> bool:
        """False for a session, or a turn of it, of which nothing may be kept."""
        return self._is_turn_kept

    def load(self) -> None:
        """Read all entries, those that a killed process left among them."""
        if self._file is not None:
            self._home.captures.archive_session(self._file)
        self.tree = read_tree(self._home, self.session)
        self.origin = _read_origin(self._home, next(iter(self.tree)))
        self._begin_file()

    def find_path(self) -> list[AnyEntry]:
        """Return the entries that lead to the leaf, those of a fork's origin before them."""
        return [*self.origin, *self.tree.find_path()]

    def _begin_file(self) -> None:
        """Empty the file, and say where the next entries belong."""
        if self._file is not None:
            config = self._home.config
            header: dict[str, Any] = {
                "origin": msgspec.to_builtins(_make_origin(self.session, self.cwd, self.tree)),
                "from_offset": self._home.archive.ledger.get_end(_find_source(self._home, self.session)),
                "user": self._home.user,
                "machine": config.machine,
                "agent": config.agent,
            }
            self._file.begin(header)

    def append(self, entry: AnyEntry) -> None:
        """Add an entry after the leaf; it is durable when this returns. Raises DiskFull, and then it is not added.

        A turn that begins during a pause of the capture stays in memory alone.
        """
        try:
            raw = encode_entry(entry)
        except UnicodeEncodeError:
            entry = replace_surrogates(entry)
            raw = encode_entry(entry)
        if self._file is not None:
            if isinstance(entry, Message) and entry.role == "user":
                self._is_turn_kept = may_keep(self._home, self.session, self.cwd)
                self._drop_forgotten()
            if self._is_turn_kept:
                self._file.append(raw)
        self.tree.add(entry)

    def _read_tombstones(self) -> Tombstones | None:
        return self._home.connections.tombstones().get(self._home.user)

    def _drop_forgotten(self) -> None:
        """Read the log again if anything was forgotten since: a turn of it may be gone. Turns of pauses go, too."""
        if (tombstones := self._read_tombstones()) is not self._tombstones:
            self._tombstones = tombstones
            self.load()

    def make_fields(self, now: datetime | None = None) -> dict[str, Any]:
        """Return the id, parent and time of the next entry on this path."""
        return {"id": make_id("e"), "parent": self.tree.leaf, "timestamp": now or utc_now()}

    def move_leaf(self, entry_id: str, *, summary: str = "") -> None:
        """Go on from an earlier entry; what was said after it stays as a branch. summary: of that branch."""
        entry_id = self.tree.find_resume_point(entry_id)
        if entry_id != self.tree.leaf:
            self.append(Branch(left=self.tree.leaf, **{**self.make_fields(), "parent": entry_id}))
        if summary:  # an entry of its own: forgetting it leaves the branch where it is
            self.append(Branch(summary=summary, **self.make_fields()))

    def archive(self) -> PerdureError | None:
        """Move the entries of this turn into the archive, where search and recall find them.

        If the home cannot take them now, they stay durable in the outbox, and the error is returned.
        """
        if self._file is None:
            return None
        try:
            if self._file.read()[1]:
                self._home.captures.archive_session(self._file)
                self._begin_file()
        except PerdureError as error:
            log.append_entry(self._home.path, "session-waits", session=self.session, code=error.code)
            return error
        return None

    def close(self) -> None:
        """Archive what there is, and give the session up; one in which nobody said anything is dropped."""
        if self._file is not None:
            is_empty = all(isinstance(entry, Start | ModelChange) for entry in self.tree)
            if is_empty or self.archive() is None:
                self._file.delete()
            self._file.close()


def may_keep(home: Home, session: str, cwd: str | None) -> bool:
    """Return True if entries of a session may be kept: no pause, not incognito, no excluded folder."""
    captures = home.captures
    origin = ingest.clean_origin(Origin(OWN_RUNTIME, session, session, cwd=cwd))
    return home.writable and not captures.current_pause() and not captures.refusal(origin)


def _make_origin(session: str, cwd: str | None, tree: SessionTree) -> Origin:
    start = next(iter(tree), None)
    parent_session = start.forked_from or start.spawned_by if isinstance(start, Start) else ""
    is_fork = isinstance(start, Start) and bool(start.forked_from)
    return ingest.clean_origin(Origin(OWN_RUNTIME, session, session, parent_session or None, cwd, fork=is_fork))


def _find_source(home: Home, session: str) -> Source:
    generation = home.archive.ledger.get_generation(home.user, OWN_RUNTIME, session)
    return Source(home.user, OWN_RUNTIME, session, generation)


def create_log(
    home: Home,
    *,
    cwd: str | None,
    forked_from: tuple[str, str] | None = None,
    spawned_by: tuple[str, str] | None = None,
    now: datetime | None = None,
) -> SessionLog:
    """Begin a session. Not kept where nothing may be copied.

    forked_from: (session, entry) that it continues. spawned_by: (session, entry) of whose agent it is a sub-agent.
    """
    session = make_id("s")
    parent_session, parent_entry = forked_from or spawned_by or ("", "")
    start = Start(
        id=make_id("e"),
        parent=parent_entry,
        timestamp=now or utc_now(),
        session=session,
        agent=home.config.agent,
        cwd=cwd or "",
        forked_from=parent_session if forked_from else "",
        spawned_by="" if forked_from else parent_session,
    )
    session_log = SessionLog(home, session, cwd=cwd, is_kept=may_keep(home, session, cwd))
    session_log.origin = _read_origin(home, start)
    session_log.tree.add(start)
    session_log._begin_file()
    if session_log._file is not None:
        session_log._file.append(encode_entry(start))
    return session_log


def open_log(home: Home, session: str) -> SessionLog:
    """Open a session to go on with it. Raises SessionMissing, SessionHeld, UsageError for a log that was imported."""
    start = read_start(home, session)
    if not session_file.is_session_id(session):
        raise UsageError(f"session {session} was imported; `perdure chat --resume {session} --fork` continues it")
    session_log = SessionLog(home, session, cwd=start.cwd or None, is_kept=may_keep(home, session, start.cwd or None))
    session_log.load()
    return session_log


# reading -------------------------------------------------------------------------------------------------------


def _list_rows(home: Home, session: str) -> list[list[LedgerEntry]]:
    """Return the runs of a session in order: those of its own name, then of each source that a merge set aside."""
    source = _find_source(home, session)
    runs_by_source = home.archive.ledger.list_session_runs(source, session)
    own_runs = runs_by_source.pop(source, [])
    return [own_runs, *(runs_by_source[aside] for aside in sorted(runs_by_source, key=lambda aside: aside.session))]


def _read_row(home: Home, session: str, runs: Sequence[LedgerEntry], *, is_own: bool) -> Iterator[bytes | None]:
    """Yield the lines of some runs, then those that are not archived yet; None for a run that is damaged or gone."""
    for run in runs:
        try:
            yield from [line.raw for line in home.archive.read_lines(run)]
        except (DamagedRun, NotFound):
            yield None
    if is_own:
        end = max((run.to_offset for run in runs), default=0)
        unarchived = session_file.read_unarchived(home.path, session, home.user)
        yield from (raw for offset, raw in unarchived if offset >= end)


def _decode_line(raw: bytes | None, session: str) -> AnyEntry | str | None:
    """Return the entry of a line, the id of the turn that was forgotten there, or None for a line that is neither."""
    if raw is None:
        return None
    if is_forgotten_marker(raw):
        return msgspec.json.decode(raw, type=dict[str, str])["forgotten"]
    try:
        entry = decode_entry(raw)
    except UNREADABLE_ERRORS:
        return None
    if isinstance(entry, Start) and entry.format > FORMAT:
        raise NewerFormat(f"session {session}")
    return entry


def read_tree(home: Home, session: str) -> SessionTree:
    """Return the entries of a session, as far as they are durable. Raises SessionMissing, NewerFormat."""

    def find_forgotten_turn(entry_id: str) -> str | None:
        tombstones = home.connections.tombstones().get(home.user)
        return tombstones.find_forgotten_turn(OWN_RUNTIME, entry_id) if tombstones else None

    rows = [
        [_decode_line(raw, session) for raw in _read_row(home, session, runs, is_own=n == 0) if raw != b""]
        for n, runs in enumerate(_list_rows(home, session))
    ]
    tree = SessionTree(find_forgotten_turn=find_forgotten_turn)
    tree.add_all([item for row in rows for item in row])
    if not len(tree):
        raise SessionMissing(session)
    last_ids = [find_last([item for item in row if isinstance(item, Entry)]) for row in rows]
    tree.leaf = max(filter(tree.get, last_ids), key=tree.get_time, default=tree.leaf)
    return tree


def read_start(home: Home, session: str) -> Start:
    """Return what a session is. Raises SessionMissing.

    If its first line was forgotten, what its runs still know of it.
    """
    rows = _list_rows(home, session)
    first = next(iter(read_tree(home, session)))
    if isinstance(first, Start):
        return first
    run = home.archive.read_run(rows[0][0]) if rows[0] else None
    return Start(
        id="",
        timestamp=first.timestamp,
        session=session,
        agent=run.agent if run else home.config.agent,
        cwd=(run.cwd if run else None) or "",
    )


def list_session_ids(home: Home) -> list[str]:
    """Return the ids of all sessions of the principal."""
    archived = map(merge.to_base_session, home.archive.ledger.list_sessions(home.user, OWN_RUNTIME))
    unarchived = [
        session
        for session in session_file.list_sessions(home.path)
        if session_file.read_owner(session_file.to_path(home.path, session)) == home.user
    ]
    return list(dict.fromkeys([*archived, *unarchived]))


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

    The id of a turn, as search shows it, stands for its entry. Raises SessionMissing, UsageError if several begin so.
    """
    if prefix.startswith("t"):
        return _find_turn(home, prefix)
    if not prefix.startswith("e"):
        return resolve_session(home, prefix), ""
    if len(prefix) < _MIN_PREFIX_CHARS:
        raise UsageError(f"{prefix!r} is too short: give at least {_MIN_PREFIX_CHARS} characters of the id")
    needle = f'"id":"{prefix}'.encode()
    matches = {
        (session, entry.id)
        for session in list_session_ids(home)
        if needle in b"".join(_read_raw(home, session))
        for entry in read_tree(home, session)
        if entry.id.startswith(prefix)
    }
    if len(matches) > 1:
        raise UsageError(f"{prefix!r} begins {len(matches)} entries: {', '.join(sorted(e for _, e in matches)[:5])}")
    if not matches:
        raise SessionMissing(prefix)
    return matches.pop()


def _read_raw(home: Home, session: str) -> Iterator[bytes]:
    """Yield all bytes of a session."""
    for run in (run for row in _list_rows(home, session) for run in row):
        try:
            yield home.archive.read(run)
        except (DamagedRun, NotFound):
            continue
    yield from (line for _, line in session_file.read_unarchived(home.path, session, home.user))


def _find_turn(home: Home, prefix: str) -> tuple[str, str]:
    """Return (session, entry) of a turn."""
    try:
        home.upkeep.catch_up()
        run_id, offset = home.runs.locate_turn(home.runs.resolve(prefix)[1])
        view = home.runs.get(run_id)
        entry = decode_entry(home.runs.raw_lines(run_id, [offset])[0])
    except (NotFound, IndexError, *UNREADABLE_ERRORS) as error:
        raise SessionMissing(prefix) from error
    return merge.to_base_session(view.session), entry.id


def read_path(home: Home, session: str, leaf: str = "") -> list[AnyEntry]:
    """Return the entries that lead to a leaf (default: where the session goes on), those of its origin first."""
    tree = read_tree(home, session)
    return [*_read_origin(home, next(iter(tree))), *tree.find_path(leaf)]


def _read_origin(home: Home, start: AnyEntry) -> list[AnyEntry]:
    """Return the path that a fork continues; nothing of an origin that is not in this home, or was forgotten."""
    if not isinstance(start, Start) or not start.forked_from:
        return []
    try:
        return read_path(home, start.forked_from, start.parent)
    except SessionMissing:
        return []
