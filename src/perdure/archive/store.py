"""The ledger: which runs the archive holds, and in which order they came. Derived from the metadata files.

With it a capture finds the end of its source, and an index finds what is new, without walking a million
files. It is a cache in `cache/ledger.db`: delete it, and it is rebuilt from the archive. A row is written
before the metadata file that commits its run and numbered after it, so the ledger never misses a committed
run. `change` counts commits and rewrites; an index that has seen change n asks for greater ones.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote

from perdure.archive.manifest import RunRecord
from perdure.disk import make_folder
from perdure.errors import ArchiveFault, Busy, DiskFull, ReadOnlyHome
from perdure.sqlite import apsw, is_disk_full, transaction, use_wal
from perdure.types import Run, Source

_SCHEMA = 3
_TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE source(
  id INTEGER PRIMARY KEY, user TEXT NOT NULL, runtime TEXT NOT NULL, session TEXT NOT NULL, generation INTEGER NOT NULL,
  end_offset INTEGER NOT NULL DEFAULT 0, UNIQUE(user, runtime, session, generation));
CREATE TABLE run(
  run_id TEXT PRIMARY KEY, source INTEGER NOT NULL, conversation TEXT NOT NULL,
  from_offset INTEGER NOT NULL, to_offset INTEGER NOT NULL, sha256 TEXT NOT NULL,
  started_s INTEGER, ended_s INTEGER, captured_s INTEGER NOT NULL, packed TEXT, change INTEGER) WITHOUT ROWID;
CREATE INDEX run_source ON run(source, from_offset);
CREATE UNIQUE INDEX run_change ON run(change);
CREATE INDEX run_conversation ON run(conversation);
CREATE TABLE seen(path TEXT PRIMARY KEY, n_bytes INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, note TEXT NOT NULL)
  WITHOUT ROWID;
CREATE TABLE applied(event_id TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class LedgerEntry(NamedTuple):
    """The ledger's entry for one run."""

    run_id: str
    user: str
    from_offset: int
    to_offset: int
    sha256: str
    pack_path: str | None  # path of its pack under archive/, or None while it is loose
    change: int | None  # None while its commit is under way


_ENTRY_COLUMNS = "run_id, user, from_offset, to_offset, sha256, packed, change"


def _to_entries(rows: Iterable[tuple[object, ...]]) -> list[LedgerEntry]:
    return [LedgerEntry._make(row) for row in rows]


def _make_cursor_class(report_damage: Callable[[apsw.Error], NoReturn]) -> Any:
    """Return the class of cursors that report damage of the file wherever they meet it. SQLite is loaded by now."""

    class ReportingCursor(apsw.Cursor):  # type: ignore[misc,unused-ignore]
        def execute(self, *arguments: Any, **options: Any) -> Any:
            try:
                return super().execute(*arguments, **options)
            except (apsw.NotADBError, apsw.CorruptError) as error:
                report_damage(error)

        def __next__(self) -> Any:
            try:
                return super().__next__()
            except (apsw.NotADBError, apsw.CorruptError) as error:
                report_damage(error)

    return ReportingCursor


class Ledger:
    """One connection to cache/ledger.db. Do not share it between threads."""

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        """Open the ledger, or make an empty one; `is_new` then says that the caller must fill it from the archive."""
        self._path = path
        self._inode: int | None = None  # of the file that is open to write
        if writable:
            make_folder(path.parent)
        self.is_new = False
        self.db = self._open_to_write() if writable else self._open_to_read()

    def _open_to_write(self) -> apsw.Connection:
        """Open a connection that writes. A file that is no database (any more) is a lost cache: make it again."""
        with self._map_faults():
            try:
                return self._connect()
            except (apsw.NotADBError, apsw.CorruptError):
                self._delete_files()
                return self._connect()

    def _delete_files(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _is_in_place(self) -> bool:
        """Return True if the open file is still the ledger of the home."""
        try:
            return self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _report_damage(self, error: apsw.Error) -> NoReturn:
        """Delete the damaged file: the next opening makes it again. Raises ArchiveFault."""
        if self._is_in_place():
            self._delete_files()
        raise ArchiveFault(f"{self._path} was damaged, and is made again at the next try") from error

    def _connect(self) -> apsw.Connection:
        self.db = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        self.db.set_busy_timeout(60_000)
        self._path.chmod(0o600)
        self._prepare()
        self._inode = self._path.stat().st_ino
        self.db.cursor_factory = _make_cursor_class(self._report_damage)
        return self.db

    def _open_to_read(self) -> apsw.Connection:
        """Open a connection that reads. If not even SQLite's own files can be made, nobody writes, so none are
        needed.

        If no ledger can be read, open one in memory, which the caller fills; `is_new` says so.
        """
        for options in ("mode=ro", "mode=ro&immutable=1"):
            try:
                self.db = apsw.Connection(
                    f"file:{quote(str(self._path))}?{options}", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
                )
                self.db.set_busy_timeout(60_000)
                if self.db.pragma("user_version") == _SCHEMA and self.get_meta("complete"):
                    return self.db
            except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError, apsw.NotADBError, apsw.CorruptError):
                continue
        self.db = apsw.Connection(":memory:")
        self._prepare()
        return self.db

    @contextlib.contextmanager
    def _map_faults(self) -> Iterator[None]:
        """Turn SQLite's errors into errors that say what to do."""
        try:
            yield
        except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
            raise ReadOnlyHome(str(self._path)) from error
        except apsw.BusyError as error:
            raise Busy(str(self._path)) from error
        except (apsw.FullError, apsw.IOError) as error:
            if is_disk_full(error, self._path.parent):
                raise DiskFull(str(self._path)) from error
            raise

    @contextlib.contextmanager
    def _open_transaction(self) -> Iterator[None]:
        """Open one transaction, and turn SQLite's errors into errors that say what to do."""
        with self._map_faults(), transaction(self.db):
            if self._inode is not None and not self._is_in_place():  # what is written here would be lost
                raise ArchiveFault(f"{self._path} was made again: open the home again")
            yield

    def _prepare(self) -> None:
        use_wal(self.db)
        self.db.pragma("synchronous", 2)
        if self.db.pragma("user_version") == _SCHEMA:
            self.is_new = not self.get_meta("complete")
            return
        with self._open_transaction():
            if self.db.pragma("user_version") == _SCHEMA:  # another process was faster
                self.is_new = not self.get_meta("complete")
                return
            for name in [row[0] for row in self.db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]:
                self.db.execute(f'DROP TABLE "{name}"')
            for statement in _TABLES.split(";"):
                self.db.execute(statement)
            self.db.execute("INSERT INTO meta VALUES ('epoch', ?)", (secrets.token_hex(8),))
            self.db.pragma("user_version", _SCHEMA)
        self.is_new = True

    def close(self) -> None:
        """Close the file."""
        self.db.close()

    def get_meta(self, key: str) -> str | None:
        """Return a named value, e.g. `epoch`: it changes when the ledger was rebuilt and changes were renumbered."""
        return next((row[0] for row in self.db.execute("SELECT value FROM meta WHERE key = ?", (key,))), None)

    def set_meta(self, key: str, value: str) -> None:
        """Set a named value."""
        with self._open_transaction():
            self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def drop_meta(self, key: str) -> None:
        """Delete a named value."""
        with self._open_transaction():
            self.db.execute("DELETE FROM meta WHERE key = ?", (key,))

    # sources ----------------------------------------------------------------------------------------------

    def get_generation(self, user: str, runtime: str, session: str) -> int:
        """Return the latest generation of a source; 0 when it was never seen."""
        query = "SELECT max(generation) FROM source WHERE user = ? AND runtime = ? AND session = ?"
        return next((row[0] or 0 for row in self.db.execute(query, (user, runtime, session))), 0)

    def get_end(self, source: Source) -> int:
        """Return the offset after the last captured byte of a source."""
        query = "SELECT end_offset FROM source WHERE user = ? AND runtime = ? AND session = ? AND generation = ?"
        return next((row[0] for row in self.db.execute(query, _to_source_row(source))), 0)

    def list_source_runs(self, source: Source, *, low: int = 0, high: int | None = None) -> list[LedgerEntry]:
        """Return the runs of a source that share bytes with [low, high), in the order of their offsets."""
        query = f"""SELECT {_ENTRY_COLUMNS}
            FROM run JOIN source ON source.id = run.source
            WHERE user = ? AND runtime = ? AND session = ? AND generation = ? AND to_offset > ? AND from_offset < ?
            ORDER BY from_offset, run_id"""
        bound = high if high is not None else 1 << 62
        return _to_entries(self.db.execute(query, (*_to_source_row(source), low, bound)))

    def list_session_runs(self, source: Source, base_session: str) -> dict[Source, list[LedgerEntry]]:
        """Return the committed runs of a session, by source: under its own name and those that merges set aside."""
        query = """SELECT id, session FROM source WHERE user = ? AND runtime = ? AND generation = ?
            AND (session = ? OR (session >= ? AND session < ?))"""
        parameters = (
            source.user,
            source.runtime,
            source.generation,
            base_session,
            f"{base_session}~~",
            f"{base_session}~~g",
        )
        sources = [
            Source(source.user, source.runtime, session, source.generation)
            for _, session in self.db.execute(query, parameters)
        ]
        return {
            session_source: [entry for entry in self.list_source_runs(session_source) if entry.change is not None]
            for session_source in sources
        }

    # runs -------------------------------------------------------------------------------------------------

    def begin(self, runs: Sequence[Run]) -> None:
        """Record runs whose bytes are about to be committed."""
        with self._open_transaction():
            for run in runs:
                self.db.execute("INSERT OR IGNORE INTO run VALUES (?,?,?,?,?,?,?,?,?,?,NULL)", self._to_row(run, None))

    def commit(self, runs: Sequence[Run], *, pack_path: str | None = None) -> None:
        """Number runs whose metadata is in place, and move the ends of their sources."""
        with self._open_transaction():
            change = self.get_last_change()
            for number, run in enumerate(runs, start=change + 1):
                row = (*self._to_row(run, pack_path), number)
                self.db.execute("INSERT OR REPLACE INTO run VALUES (?,?,?,?,?,?,?,?,?,?,?)", row)
                self.db.execute(
                    "UPDATE source SET end_offset = max(end_offset, ?) WHERE id = ?",
                    (run.to_offset, self._get_source_id(run.source)),
                )

    def list_pending(self) -> list[LedgerEntry]:
        """Return the runs whose commit was begun and not numbered: under way in another process, or interrupted by
        a crash.
        """
        query = f"SELECT {_ENTRY_COLUMNS} FROM run JOIN source ON source.id = run.source WHERE change IS NULL"
        return _to_entries(self.db.execute(query))

    def drop(self, run_ids: Iterable[str]) -> None:
        """Delete the rows of runs that were never committed, or that are now stored under another id."""
        update_query = """UPDATE source SET end_offset = (SELECT coalesce(max(to_offset), 0) FROM run WHERE source = ?1)
            WHERE id = ?1"""
        with self._open_transaction():
            self._record_last_change()
            for run_id in run_ids:
                source_rows = self.db.execute("DELETE FROM run WHERE run_id = ? RETURNING source", (run_id,)).fetchall()
                self.db.executemany(update_query, source_rows)

    def reopen(self, run_id: str) -> None:
        """Record that a run is about to be replaced: until it is committed again, it counts as under way."""
        with self._open_transaction():
            self._record_last_change()
            self.db.execute("UPDATE run SET change = NULL WHERE run_id = ?", (run_id,))

    def erase(self, user: str) -> None:
        """Delete every row of a user, and the list of imported files (it names no user).

        `wipe` then clears the database pages.
        """
        with self._open_transaction():
            self._record_last_change()
            self.db.execute("DELETE FROM run WHERE source IN (SELECT id FROM source WHERE user = ?)", (user,))
            self.db.execute("DELETE FROM source WHERE user = ?", (user,))
            self.db.execute("DELETE FROM seen")
            keys = [key for (key,) in self.db.execute("SELECT key FROM meta")]
            user_keys = [(key,) for key in keys if user in re.split("[: ]", key)]
            self.db.executemany("DELETE FROM meta WHERE key = ?", user_keys)

    def wipe(self) -> None:
        """Leave nothing of deleted rows in the file. Raises Busy when another process reads old pages."""
        with self._map_faults():
            self.db.execute("VACUUM")
            self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def set_pack(self, run_ids: Iterable[str], pack_path: str | None) -> None:
        """Record that runs are now in this pack (None: loose). Their content is unchanged."""
        with self._open_transaction():
            self.db.executemany(
                "UPDATE run SET packed = ? WHERE run_id = ?", [(pack_path, run_id) for run_id in run_ids]
            )

    def renumber(self, run_ids: Iterable[str]) -> None:
        """Renumber runs whose bytes were rewritten, so that every index projects them again."""
        with self._open_transaction():
            for number, run_id in enumerate(run_ids, start=self.get_last_change() + 1):
                self.db.execute("UPDATE run SET change = ? WHERE run_id = ?", (number, run_id))

    def get_last_change(self) -> int:
        """Return the number of the newest commit or rewrite; 0 for an empty archive. No number is used twice."""
        highest_used = int(self.get_meta("used") or 0)
        return max(highest_used, *(row[0] or 0 for row in self.db.execute("SELECT max(change) FROM run")))

    def _record_last_change(self) -> None:
        """Record the highest number so far, before the run that has it loses it."""
        self.db.execute("INSERT OR REPLACE INTO meta VALUES ('used', ?)", (self.get_last_change(),))

    def list_changes(self, after: int, limit: int = 1000, *, user: str | None = None) -> list[LedgerEntry]:
        """Return the runs (of one user, or of all) committed or rewritten after change `after`, oldest change first."""
        query = f"""SELECT {_ENTRY_COLUMNS} FROM run CROSS JOIN source ON source.id = run.source
            WHERE change > ?1 AND (?3 IS NULL OR user = ?3) ORDER BY change LIMIT ?2"""
        return _to_entries(self.db.execute(query, (after, limit, user)))

    def find_newest_changes(self, after: int) -> dict[str, int]:
        """Return the number of the newest change of each user who has one after change `after`."""
        query = """SELECT user, max(change) FROM run CROSS JOIN source ON source.id = run.source
            WHERE change > ? GROUP BY user"""
        return dict(self.db.execute(query, (after,)))

    def list_newest(self, user: str, after: int, upto: int, limit: int) -> list[tuple[int, LedgerEntry]]:
        """Return (seconds since 1970, run) of a user's runs committed after one change and up to another, latest
        first.

        The seconds say when the last message of the run was written or, if that is not known, when it was
        captured.
        """
        query = f"""SELECT coalesce(ended_s, captured_s), {_ENTRY_COLUMNS}
            FROM run JOIN source ON source.id = run.source
            WHERE change > ? AND change <= ? AND user = ? ORDER BY 1 DESC, run_id DESC LIMIT ?"""
        return [(row[0], LedgerEntry._make(row[1:])) for row in self.db.execute(query, (after, upto, user, limit))]

    def count_after(self, change: int, user: str | None = None) -> int:
        """Count the runs (of a user, or of all) committed or rewritten after a change."""
        query = """SELECT count(*) FROM run WHERE change > ?1
            AND (?2 IS NULL OR source IN (SELECT id FROM source WHERE user = ?2))"""
        return int(next(row[0] for row in self.db.execute(query, (change, user))))

    def find_entry(self, run_id: str) -> LedgerEntry | None:
        """Return the entry of one run, or None."""
        query = f"SELECT {_ENTRY_COLUMNS} FROM run JOIN source ON source.id = run.source WHERE run_id = ?"
        return next(iter(_to_entries(self.db.execute(query, (run_id,)))), None)

    def list_runs(self, user: str | None = None) -> Iterator[LedgerEntry]:
        """Yield every committed run, oldest first."""
        query = f"""SELECT {_ENTRY_COLUMNS}
            FROM run JOIN source ON source.id = run.source
            WHERE change IS NOT NULL AND (?1 IS NULL OR user = ?1) ORDER BY run_id"""
        yield from _to_entries(self.db.execute(query, (user,)))

    def list_sessions(self, user: str, runtime: str) -> list[str]:
        """Return the sessions of a runtime, by name."""
        query = "SELECT DISTINCT session FROM source WHERE user = ? AND runtime = ? ORDER BY session"
        return [session for (session,) in self.db.execute(query, (user, runtime))]

    def list_session_changes(self, user: str, runtime: str) -> dict[str, str]:
        """Return session -> a text that changes with each commit or rewrite of one of its runs, on all sources."""
        query = """SELECT iif(instr(session, '~~'), substr(session, 1, instr(session, '~~') - 1), session) AS base,
              max(change) || '/' || count(*) FROM source JOIN run ON run.source = source.id
            WHERE user = ? AND runtime = ? AND change IS NOT NULL GROUP BY base"""
        return {str(session): str(state) for session, state in self.db.execute(query, (user, runtime))}

    def list_records(self) -> list[RunRecord]:
        """Return every committed run as the manifest would name it."""
        query = """SELECT run_id, user, runtime, session, generation, from_offset, to_offset, sha256
            FROM run JOIN source ON source.id = run.source WHERE change IS NOT NULL"""
        return [RunRecord(row[0], Source(*row[1:5]), *row[5:]) for row in self.db.execute(query)]

    def list_users(self) -> list[str]:
        """Return the owners of all runs, by name. Finds each by one step in the index, however many runs they have."""
        query = """WITH RECURSIVE owner(name) AS (SELECT min(user) FROM source UNION ALL
              SELECT (SELECT min(user) FROM source WHERE user > name) FROM owner WHERE name IS NOT NULL)
            SELECT name FROM owner WHERE name IS NOT NULL"""
        return [row[0] for row in self.db.execute(query)]

    def list_runs_between(self, user: str, low_s: int, high_s: int) -> list[LedgerEntry]:
        """Return the runs of a user that may hold messages between two instants (seconds since 1970).

        A transcript that was rewritten may begin with later messages and continue with earlier ones.
        """
        query = f"""SELECT {_ENTRY_COLUMNS}
            FROM run JOIN source ON source.id = run.source
            WHERE change IS NOT NULL AND user = ? AND (generation > 0 OR started_s > ended_s
              OR coalesce(started_s, 0) <= ? AND coalesce(ended_s, 1 << 40) >= ?)"""
        return _to_entries(self.db.execute(query, (user, high_s, low_s)))

    def list_idle_conversations(self, before_s: int) -> list[tuple[str, str, str]]:
        """Return (user, runtime, conversation) with loose runs and no message or capture since an instant."""
        query = """SELECT user, runtime, conversation FROM run JOIN source ON source.id = run.source
            GROUP BY user, runtime, conversation
            HAVING count(*) > count(packed) AND count(change) = count(*)
               AND max(max(coalesce(ended_s, 0)), max(captured_s)) < ?"""
        return [(row[0], row[1], row[2]) for row in self.db.execute(query, (before_s,))]

    def list_conversation_runs(
        self, user: str, runtime: str, conversation: str, *, session_start: str = ""
    ) -> list[LedgerEntry]:
        """Return the committed runs of one conversation, oldest first. session_start: how their sessions begin."""
        query = f"""SELECT {_ENTRY_COLUMNS}
            FROM run JOIN source ON source.id = run.source
            WHERE user = ? AND runtime = ? AND conversation = ? AND substr(session, 1, ?) = ? AND change IS NOT NULL
            ORDER BY run_id"""
        values = (user, runtime, conversation, len(session_start), session_start)
        return _to_entries(self.db.execute(query, values))

    def count_all(self) -> tuple[int, int, int]:
        """Return (runs, sources, captured bytes) of the whole archive."""
        query = "SELECT count(*), count(DISTINCT source), coalesce(sum(to_offset - from_offset), 0) FROM run"
        n_runs, n_sources, n_bytes = next(iter(self.db.execute(query)))
        return int(n_runs), int(n_sources), int(n_bytes)

    def get_last_capture_s(self) -> int | None:
        """Return when a run was last captured, in seconds since 1970; None in an empty archive."""
        with self._map_faults():
            newest = self.db.execute("SELECT max(captured_s) FROM run").fetchall()[0][0]
        return int(newest) if newest else None

    def count_by_day(self, since_s: int) -> list[tuple[str, int, int]]:
        """Return (day, runs, bytes) captured on each day since an instant, oldest first."""
        query = """SELECT date(captured_s, 'unixepoch'), count(*), sum(to_offset - from_offset) FROM run
            WHERE captured_s >= ? GROUP BY 1 ORDER BY 1"""
        return [(row[0], row[1], row[2]) for row in self.db.execute(query, (since_s,))]

    # what import saw, and which tombstones took effect ------------------------------------------------------

    def get_seen(self, path: str) -> tuple[int, int, str] | None:
        """Return (size in bytes, mtime in ns, note) of a file at its last full import, or None."""
        rows = self.db.execute("SELECT n_bytes, mtime_ns, note FROM seen WHERE path = ?", (path,))
        return next(((row[0], row[1], row[2]) for row in rows), None)

    def set_seen(self, path: str, n_bytes: int, mtime_ns: int, note: str) -> None:
        """Record the size and time that a file had when it was imported in full."""
        with self._open_transaction():
            self.db.execute("INSERT OR REPLACE INTO seen VALUES (?,?,?,?)", (path, n_bytes, mtime_ns, note))

    def list_applied(self) -> set[str]:
        """Return the ids of tombstone events that were applied to everything captured before them."""
        return {row[0] for row in self.db.execute("SELECT event_id FROM applied")}

    def set_applied(self, event_ids: Iterable[str]) -> None:
        """Record tombstone events as applied."""
        with self._open_transaction():
            self.db.executemany("INSERT OR IGNORE INTO applied VALUES (?)", [(event_id,) for event_id in event_ids])

    def _to_row(self, run: Run, pack_path: str | None) -> tuple[object, ...]:
        return (
            run.run_id,
            self._get_source_id(run.source),
            run.conversation,
            run.from_offset,
            run.to_offset,
            run.sha256,
            int(run.started_at.timestamp()) if run.started_at else None,
            int(run.ended_at.timestamp()) if run.ended_at else None,
            int(run.captured_at.timestamp()),
            pack_path,
        )

    def _get_source_id(self, source: Source) -> int:
        row = _to_source_row(source)
        query = "SELECT id FROM source WHERE user = ? AND runtime = ? AND session = ? AND generation = ?"
        for (source_id,) in self.db.execute(query, row):
            return int(source_id)
        self.db.execute("INSERT INTO source(user, runtime, session, generation) VALUES (?,?,?,?)", row)
        return self.db.last_insert_rowid()


def _to_source_row(source: Source) -> tuple[str, str, str, int]:
    return (source.user, source.runtime, source.session, source.generation)
