"""The ledger: which runs the archive holds, and in which order they came. Derived from the metadata files.

It exists so that a capture finds the end of its source, and an index what is new, without walking a million
files. It is a cache in `cache/ledger.db`: delete it and it is rebuilt from the archive. A row is written before
the metadata file that commits its run and numbered after it, so the ledger never misses a committed run;
`change` counts commits and rewrites, and an index that has seen change n asks for what is greater.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import apsw

from perdure.capture.files import make_folder
from perdure.errors import Busy, DiskFull, ReadOnlyHome
from perdure.transactions import transaction
from perdure.types import Run, Source

_SCHEMA = 3
_LOG_INDEX_BYTES = 32768  # SQLite grows the index of its write-ahead log by so much
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


class Held(NamedTuple):
    """A run as the ledger knows it."""

    run_id: str
    user: str
    from_offset: int
    to_offset: int
    sha256: str
    packed: str | None  # path of its pack under archive/, or None while it is loose
    change: int | None  # None while its commit is under way


_HELD = "run_id, user, from_offset, to_offset, sha256, packed, change"


def _held(rows: Iterable[tuple[object, ...]]) -> list[Held]:
    return [Held._make(row) for row in rows]


class Ledger:
    """One connection to cache/ledger.db. Not shared between threads."""

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        """Open, or make an empty one; `is_new` then says that it must be filled from the archive."""
        self._path = path
        if writable:
            make_folder(path.parent)
        self.is_new = False
        self.db = self._opened() if writable else self._opened_to_read()

    def _opened(self) -> apsw.Connection:
        """A connection that writes. A file that is no database (any more) is a lost cache: it is made anew."""
        with self._faults():
            try:
                return self._connected()
            except (apsw.NotADBError, apsw.CorruptError):
                for suffix in ("", "-wal", "-shm"):
                    self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
                return self._connected()

    def _connected(self) -> apsw.Connection:
        self.db = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        self.db.set_busy_timeout(60_000)
        self._path.chmod(0o600)
        self._prepare()
        return self.db

    def _opened_to_read(self) -> apsw.Connection:
        """A connection that reads. Where not even SQLite's own files can be made, nobody writes: none are needed.

        Without a ledger that can be read, one in memory is filled by the caller; `is_new` says so.
        """
        for options in ("mode=ro", "mode=ro&immutable=1"):
            try:
                self.db = apsw.Connection(
                    f"file:{quote(str(self._path))}?{options}", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
                )
                self.db.set_busy_timeout(60_000)
                if self.db.pragma("user_version") == _SCHEMA and self.meta("complete"):
                    return self.db
            except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError, apsw.NotADBError, apsw.CorruptError):
                continue
        self.db = apsw.Connection(":memory:")
        self._prepare()
        return self.db

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn SQLite's refusals into errors that say what to do."""
        try:
            yield
        except apsw.FullError as error:
            raise DiskFull(str(self._path)) from error
        except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
            raise ReadOnlyHome(str(self._path)) from error
        except apsw.BusyError as error:
            raise Busy(str(self._path)) from error
        except apsw.IOError as error:  # so SQLite calls a disk that is full under the index of its log
            space = os.statvfs(self._path.parent)
            if space.f_bavail * space.f_frsize < _LOG_INDEX_BYTES:
                raise DiskFull(str(self._path)) from error
            raise

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction; what SQLite refuses becomes an error that says what to do."""
        with self._faults(), transaction(self.db):
            yield

    def _prepare(self) -> None:
        self.db.pragma("journal_mode", "wal")
        self.db.pragma("synchronous", 2)
        if self.db.pragma("user_version") == _SCHEMA:
            self.is_new = not self.meta("complete")
            return
        with self._writing():
            if self.db.pragma("user_version") == _SCHEMA:  # another process was faster
                self.is_new = not self.meta("complete")
                return
            for name in [row[0] for row in self.db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]:
                self.db.execute(f'DROP TABLE "{name}"')
            for statement in _TABLES.split(";"):
                self.db.execute(statement)
            self.db.execute("INSERT INTO meta VALUES ('epoch', ?)", (secrets.token_hex(8),))
            self.db.pragma("user_version", _SCHEMA)
        self.is_new = True

    def close(self) -> None:
        """Release the file."""
        self.db.close()

    def meta(self, key: str) -> str | None:
        """A named value, e.g. `epoch`: it changes when the ledger was made anew and changes were renumbered."""
        return next((row[0] for row in self.db.execute("SELECT value FROM meta WHERE key = ?", (key,))), None)

    def set_meta(self, key: str, value: str) -> None:
        """Set a named value."""
        with self._writing():
            self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def drop_meta(self, key: str) -> None:
        """Take a named value away."""
        with self._writing():
            self.db.execute("DELETE FROM meta WHERE key = ?", (key,))

    # sources ----------------------------------------------------------------------------------------------

    def generation(self, user: str, runtime: str, session: str) -> int:
        """The latest generation of a source; 0 when it was never seen."""
        query = "SELECT max(generation) FROM source WHERE user = ? AND runtime = ? AND session = ?"
        return next((row[0] or 0 for row in self.db.execute(query, (user, runtime, session))), 0)

    def end(self, source: Source) -> int:
        """The offset behind the last captured byte of a source."""
        query = "SELECT end_offset FROM source WHERE user = ? AND runtime = ? AND session = ? AND generation = ?"
        return next((row[0] for row in self.db.execute(query, _source_row(source))), 0)

    def runs_of(self, source: Source, *, low: int = 0, high: int | None = None) -> list[Held]:
        """The runs of a source that share bytes with [low, high), in the order of their offsets."""
        query = f"""SELECT {_HELD} FROM run JOIN source ON source.id = run.source
            WHERE user = ? AND runtime = ? AND session = ? AND generation = ? AND to_offset > ? AND from_offset < ?
            ORDER BY from_offset, run_id"""
        bound = high if high is not None else 1 << 62
        return _held(self.db.execute(query, (*_source_row(source), low, bound)))

    def family(self, source: Source, base: str) -> dict[Source, list[Held]]:
        """The committed runs of a session, by source: under its own name and as what was put aside in merges."""
        query = """SELECT id, session FROM source WHERE user = ? AND runtime = ? AND generation = ?
            AND (session = ? OR (session >= ? AND session < ?))"""
        near = (source.user, source.runtime, source.generation, base, f"{base}~~", f"{base}~~g")
        found = [
            Source(source.user, source.runtime, name, source.generation) for _, name in self.db.execute(query, near)
        ]
        return {one: [held for held in self.runs_of(one) if held.change is not None] for one in found}

    # runs -------------------------------------------------------------------------------------------------

    def begin(self, runs: Sequence[Run]) -> None:
        """Note runs whose bytes are about to be committed."""
        with self._writing():
            for run in runs:
                self.db.execute("INSERT OR IGNORE INTO run VALUES (?,?,?,?,?,?,?,?,?,?,NULL)", self._row(run, None))

    def commit(self, runs: Sequence[Run], *, packed: str | None = None) -> None:
        """Number runs whose metadata is in place, and move the ends of their sources."""
        with self._writing():
            change = self.last_change()
            for number, run in enumerate(runs, start=change + 1):
                row = (*self._row(run, packed), number)
                self.db.execute("INSERT OR REPLACE INTO run VALUES (?,?,?,?,?,?,?,?,?,?,?)", row)
                self.db.execute(
                    "UPDATE source SET end_offset = max(end_offset, ?) WHERE id = ?",
                    (run.to_offset, self._source_id(run.source)),
                )

    def pending(self) -> list[Held]:
        """Runs whose commit was begun and not numbered: under way elsewhere, or cut short by a crash."""
        query = f"SELECT {_HELD} FROM run JOIN source ON source.id = run.source WHERE change IS NULL"
        return _held(self.db.execute(query))

    def drop(self, run_ids: Iterable[str]) -> None:
        """Forget rows of runs that were never committed, or stand elsewhere now."""
        ends = """UPDATE source SET end_offset = (SELECT coalesce(max(to_offset), 0) FROM run WHERE source = ?1)
            WHERE id = ?1"""
        with self._writing():
            self._keep_numbers()
            for run_id in run_ids:
                gone = self.db.execute("DELETE FROM run WHERE run_id = ? RETURNING source", (run_id,)).fetchall()
                self.db.executemany(ends, gone)

    def reopen(self, run_id: str) -> None:
        """Note that a run is about to be replaced: until it is committed again, it counts as under way."""
        with self._writing():
            self._keep_numbers()
            self.db.execute("UPDATE run SET change = NULL WHERE run_id = ?", (run_id,))

    def erase(self, user: str) -> None:
        """Drop every row of a user, and what import saw (its notes name no user). `wipe` clears their pages."""
        with self._writing():
            self._keep_numbers()
            self.db.execute("DELETE FROM run WHERE source IN (SELECT id FROM source WHERE user = ?)", (user,))
            self.db.execute("DELETE FROM source WHERE user = ?", (user,))
            self.db.execute("DELETE FROM seen")
            names = [name for (name,) in self.db.execute("SELECT key FROM meta")]
            theirs = [(name,) for name in names if user in re.split("[: ]", name)]
            self.db.executemany("DELETE FROM meta WHERE key = ?", theirs)

    def wipe(self) -> None:
        """Leave nothing in the file of rows that were dropped. Raises Busy when another process reads old pages."""
        with self._faults():
            self.db.execute("VACUUM")
            self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def moved(self, run_ids: Iterable[str], packed: str | None) -> None:
        """Note that runs now lie in this pack (None: loose). Their content is unchanged."""
        with self._writing():
            self.db.executemany("UPDATE run SET packed = ? WHERE run_id = ?", [(packed, r) for r in run_ids])

    def touched(self, run_ids: Iterable[str]) -> None:
        """Renumber runs whose bytes were rewritten, so that every index projects them again."""
        with self._writing():
            for number, run_id in enumerate(run_ids, start=self.last_change() + 1):
                self.db.execute("UPDATE run SET change = ? WHERE run_id = ?", (number, run_id))

    def last_change(self) -> int:
        """The number of the newest commit or rewrite; 0 for an empty archive. No number is given twice."""
        used = int(self.meta("used") or 0)
        return max(used, *(row[0] or 0 for row in self.db.execute("SELECT max(change) FROM run")))

    def _keep_numbers(self) -> None:
        """Note the highest number so far, before the run that has it loses it."""
        self.db.execute("INSERT OR REPLACE INTO meta VALUES ('used', ?)", (self.last_change(),))

    def changes(self, after: int, limit: int = 1000, *, user: str | None = None) -> list[Held]:
        """Runs (of one user, or of all) committed or rewritten after change `after`, oldest change first."""
        query = f"""SELECT {_HELD} FROM run CROSS JOIN source ON source.id = run.source
            WHERE change > ?1 AND (?3 IS NULL OR user = ?3) ORDER BY change LIMIT ?2"""
        return _held(self.db.execute(query, (after, limit, user)))

    def newest(self, user: str, after: int, upto: int, limit: int) -> list[tuple[int, Held]]:
        """(seconds since 1970, run): a user's runs committed after one change and up to another, by when something was
        last said in them or, where that is not known, when they were captured; the latest first.
        """
        query = f"""SELECT coalesce(ended_s, captured_s), {_HELD} FROM run JOIN source ON source.id = run.source
            WHERE change > ? AND change <= ? AND user = ? ORDER BY 1 DESC, run_id DESC LIMIT ?"""
        return [(row[0], Held._make(row[1:])) for row in self.db.execute(query, (after, upto, user, limit))]

    def count_after(self, change: int, user: str | None = None) -> int:
        """How many runs (of a user, or of all) were committed or rewritten after a change."""
        query = """SELECT count(*) FROM run WHERE change > ?1
            AND (?2 IS NULL OR source IN (SELECT id FROM source WHERE user = ?2))"""
        return int(next(row[0] for row in self.db.execute(query, (change, user))))

    def held(self, run_id: str) -> Held | None:
        """What the ledger knows of one run."""
        query = f"SELECT {_HELD} FROM run JOIN source ON source.id = run.source WHERE run_id = ?"
        return next(iter(_held(self.db.execute(query, (run_id,)))), None)

    def all(self, user: str | None = None) -> Iterator[Held]:
        """Every committed run, oldest first."""
        query = f"""SELECT {_HELD} FROM run JOIN source ON source.id = run.source
            WHERE change IS NOT NULL AND (?1 IS NULL OR user = ?1) ORDER BY run_id"""
        yield from _held(self.db.execute(query, (user,)))

    def users(self) -> list[str]:
        """The owners of everything here, by name: each found by a step in the index, however many runs they have."""
        query = """WITH RECURSIVE owner(name) AS (SELECT min(user) FROM source UNION ALL
              SELECT (SELECT min(user) FROM source WHERE user > name) FROM owner WHERE name IS NOT NULL)
            SELECT name FROM owner WHERE name IS NOT NULL"""
        return [row[0] for row in self.db.execute(query)]

    def near(self, user: str, low_s: int, high_s: int) -> list[Held]:
        """Runs of a user that may hold something said between two instants (seconds since 1970).

        A transcript that was rewritten may begin with what was said last, and go on with what was said before.
        """
        query = f"""SELECT {_HELD} FROM run JOIN source ON source.id = run.source
            WHERE change IS NOT NULL AND user = ? AND (generation > 0 OR started_s > ended_s
              OR coalesce(started_s, 0) <= ? AND coalesce(ended_s, 1 << 40) >= ?)"""
        return _held(self.db.execute(query, (user, high_s, low_s)))

    def idle_conversations(self, before_s: int) -> list[tuple[str, str, str]]:
        """(user, runtime, conversation) with loose runs and nothing said or captured since an instant."""
        query = """SELECT user, runtime, conversation FROM run JOIN source ON source.id = run.source
            GROUP BY user, runtime, conversation
            HAVING count(*) > count(packed) AND count(change) = count(*)
               AND max(max(coalesce(ended_s, 0)), max(captured_s)) < ?"""
        return [(row[0], row[1], row[2]) for row in self.db.execute(query, (before_s,))]

    def conversation(self, user: str, runtime: str, conversation: str) -> list[Held]:
        """The committed runs of one conversation, oldest first."""
        query = f"""SELECT {_HELD} FROM run JOIN source ON source.id = run.source
            WHERE user = ? AND runtime = ? AND conversation = ? AND change IS NOT NULL ORDER BY run_id"""
        return _held(self.db.execute(query, (user, runtime, conversation)))

    def counts(self) -> tuple[int, int, int]:
        """(runs, sources, captured bytes) of the whole archive."""
        query = "SELECT count(*), count(DISTINCT source), coalesce(sum(to_offset - from_offset), 0) FROM run"
        n_runs, n_sources, n_bytes = next(iter(self.db.execute(query)))
        return int(n_runs), int(n_sources), int(n_bytes)

    def growth(self, since_s: int) -> list[tuple[str, int, int]]:
        """(day, runs, bytes) captured on each day since an instant, oldest first."""
        query = """SELECT date(captured_s, 'unixepoch'), count(*), sum(to_offset - from_offset) FROM run
            WHERE captured_s >= ? GROUP BY 1 ORDER BY 1"""
        return [(row[0], row[1], row[2]) for row in self.db.execute(query, (since_s,))]

    # what import saw, and which tombstones took effect ------------------------------------------------------

    def seen(self, path: str) -> tuple[int, int, str] | None:
        """(size in bytes, mtime in ns, note) of a file when it was last imported in full."""
        rows = self.db.execute("SELECT n_bytes, mtime_ns, note FROM seen WHERE path = ?", (path,))
        return next(((row[0], row[1], row[2]) for row in rows), None)

    def set_seen(self, path: str, n_bytes: int, mtime_ns: int, note: str) -> None:
        """Note that a file was imported in full when it looked like this."""
        with self._writing():
            self.db.execute("INSERT OR REPLACE INTO seen VALUES (?,?,?,?)", (path, n_bytes, mtime_ns, note))

    def applied(self) -> set[str]:
        """Ids of tombstone events that were applied to everything captured before them."""
        return {row[0] for row in self.db.execute("SELECT event_id FROM applied")}

    def set_applied(self, event_ids: Iterable[str]) -> None:
        """Note tombstone events as applied."""
        with self._writing():
            self.db.executemany("INSERT OR IGNORE INTO applied VALUES (?)", [(event_id,) for event_id in event_ids])

    def _row(self, run: Run, packed: str | None) -> tuple[object, ...]:
        return (
            run.run_id,
            self._source_id(run.source),
            run.conversation,
            run.from_offset,
            run.to_offset,
            run.sha256,
            int(run.started_at.timestamp()) if run.started_at else None,
            int(run.ended_at.timestamp()) if run.ended_at else None,
            int(run.captured_at.timestamp()),
            packed,
        )

    def _source_id(self, source: Source) -> int:
        row = _source_row(source)
        query = "SELECT id FROM source WHERE user = ? AND runtime = ? AND session = ? AND generation = ?"
        for (found,) in self.db.execute(query, row):
            return int(found)
        self.db.execute("INSERT INTO source(user, runtime, session, generation) VALUES (?,?,?,?)", row)
        return self.db.last_insert_rowid()


def _source_row(source: Source) -> tuple[str, str, str, int]:
    return (source.user, source.runtime, source.session, source.generation)
