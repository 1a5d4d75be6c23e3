"""The index file: its tables, its connection, and which file is the current one. A cache of the archive.

`index.db` is a link to the file in use (`index-<n>.db`). A rebuild writes another file beside it and moves the
link in one step, so readers that hold the old one keep answering from it. Each owner's words lie in a table of
their own (`words_<n>`): a query opens only what its principal may see, and no count of one owner shapes another's
ranking. Words are contentless FTS5; the masked text of a chunk is stored once, in `chunk_text`.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from perdure.capture.files import locked
from perdure.errors import Busy, DiskFull, IndexDamaged, IndexMissing, ReadOnlyHome
from perdure.transactions import transaction

SCHEMA = 20  # a file with another number is rebuilt, never migrated: it is a cache
PAGE_CACHE_KIB = 64000
MMAP_BYTES = 134217728
BUSY_MS = 5000

_TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE name(id INTEGER PRIMARY KEY, kind TEXT NOT NULL, value TEXT NOT NULL, n_chunks INTEGER NOT NULL DEFAULT 0,
  UNIQUE(kind, value));
CREATE TABLE held(user INTEGER NOT NULL, name INTEGER NOT NULL, n_chunks INTEGER NOT NULL,
  PRIMARY KEY(user, name)) WITHOUT ROWID;
CREATE TABLE run(
  id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, captured_in TEXT NOT NULL, thread TEXT NOT NULL,
  user INTEGER NOT NULL, runtime INTEGER NOT NULL, machine INTEGER NOT NULL, agent INTEGER NOT NULL,
  project INTEGER NOT NULL, conversation INTEGER NOT NULL,
  session TEXT NOT NULL, generation INTEGER NOT NULL, from_offset INTEGER NOT NULL, to_offset INTEGER NOT NULL,
  stored_sha256 TEXT NOT NULL, started_ms INTEGER, ended_ms INTEGER, captured_ms INTEGER NOT NULL,
  parent_run_id TEXT, parent_session TEXT, fork INTEGER NOT NULL, path TEXT, cwd TEXT, readable_by TEXT NOT NULL,
  title TEXT NOT NULL, intent TEXT NOT NULL,
  n_turns INTEGER NOT NULL, n_user INTEGER NOT NULL, n_assistant INTEGER NOT NULL, n_tool INTEGER NOT NULL,
  n_calls INTEGER NOT NULL, n_tokens INTEGER NOT NULL, n_forgotten INTEGER NOT NULL, n_malformed INTEGER NOT NULL,
  skipped TEXT NOT NULL);
CREATE INDEX run_source ON run(user, runtime, session, generation, from_offset);
CREATE INDEX run_spawned ON run(user, runtime, parent_session) WHERE parent_session IS NOT NULL;
CREATE INDEX run_child ON run(parent_run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX run_threads ON run(captured_in);
CREATE INDEX run_conversation ON run(conversation);
CREATE INDEX run_time ON run(started_ms);
CREATE TABLE run_tag(tag INTEGER NOT NULL, run INTEGER NOT NULL, PRIMARY KEY(tag, run)) WITHOUT ROWID;
CREATE INDEX run_tags ON run_tag(run);
CREATE TABLE turn(
  id INTEGER PRIMARY KEY, turn_id TEXT NOT NULL UNIQUE, copy_key INTEGER NOT NULL UNIQUE, run INTEGER NOT NULL,
  offset INTEGER NOT NULL, content_run INTEGER NOT NULL, content_offset INTEGER NOT NULL,
  role TEXT NOT NULL, author TEXT NOT NULL, stated_ms INTEGER, model TEXT NOT NULL, n_tokens INTEGER NOT NULL,
  is_summary INTEGER NOT NULL, entry TEXT, thread INTEGER NOT NULL, said INTEGER NOT NULL, speaker TEXT NOT NULL,
  abandoned INTEGER NOT NULL DEFAULT 0);
CREATE INDEX turn_run ON turn(run, offset);
CREATE INDEX turn_content ON turn(content_run);
CREATE INDEX turn_said ON turn(thread, offset) WHERE said;
CREATE TABLE chunk(
  id INTEGER PRIMARY KEY AUTOINCREMENT, turn INTEGER NOT NULL, n INTEGER NOT NULL, tie INTEGER NOT NULL,
  user INTEGER NOT NULL, run INTEGER NOT NULL, project INTEGER NOT NULL, conversation INTEGER NOT NULL,
  runtime INTEGER NOT NULL, machine INTEGER NOT NULL, agent INTEGER NOT NULL, role INTEGER NOT NULL,
  kind INTEGER NOT NULL, stated_ms INTEGER);
CREATE INDEX chunk_turn ON chunk(turn, n);
CREATE TABLE chunk_text(id INTEGER PRIMARY KEY, text TEXT NOT NULL, scope TEXT NOT NULL);
CREATE TABLE facet(id INTEGER PRIMARY KEY, kind TEXT NOT NULL, value TEXT NOT NULL, UNIQUE(kind, value));
CREATE TABLE turn_facet(facet INTEGER NOT NULL, turn INTEGER NOT NULL, PRIMARY KEY(facet, turn)) WITHOUT ROWID;
CREATE INDEX turn_facets ON turn_facet(turn);
CREATE TABLE link(source TEXT NOT NULL, n INTEGER NOT NULL, entry TEXT NOT NULL, parent TEXT,
  PRIMARY KEY(source, n)) WITHOUT ROWID;
CREATE TABLE memory(
  id INTEGER PRIMARY KEY AUTOINCREMENT, memory_id TEXT NOT NULL, user INTEGER NOT NULL, agent TEXT NOT NULL,
  project TEXT NOT NULL, path TEXT NOT NULL, place TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL,
  trust TEXT NOT NULL, conversation TEXT NOT NULL, stated_ms INTEGER NOT NULL, recorded_ms INTEGER NOT NULL,
  ended_ms INTEGER, superseded_by TEXT, retired INTEGER NOT NULL, pinned INTEGER NOT NULL, body BLOB NOT NULL,
  UNIQUE(user, memory_id));
CREATE INDEX memory_chain ON memory(user, agent, project, place);
CREATE INDEX memory_current ON memory(user, pinned DESC, place, stated_ms DESC, memory_id)
  WHERE superseded_by IS NULL AND NOT retired;
CREATE INDEX memory_newest ON memory(user, stated_ms DESC, memory_id);
CREATE TABLE memory_source(memory INTEGER NOT NULL, run_id TEXT NOT NULL, from_offset INTEGER NOT NULL,
  to_offset INTEGER NOT NULL);
CREATE INDEX memory_sources ON memory_source(run_id, from_offset);
CREATE INDEX memory_source_of ON memory_source(memory);
CREATE TABLE mined(user INTEGER NOT NULL, source TEXT NOT NULL, from_offset INTEGER NOT NULL,
  to_offset INTEGER NOT NULL, PRIMARY KEY(user, source, from_offset)) WITHOUT ROWID;
CREATE TABLE judged(user INTEGER NOT NULL, nonce TEXT NOT NULL, PRIMARY KEY(user, nonce)) WITHOUT ROWID;
CREATE TABLE injection(
  id INTEGER PRIMARY KEY, user INTEGER NOT NULL, nonce TEXT NOT NULL, at_ms INTEGER NOT NULL, session TEXT NOT NULL,
  n_turns INTEGER NOT NULL, n_memories INTEGER NOT NULL, n_used_turns INTEGER, n_used_memories INTEGER, used TEXT,
  body BLOB NOT NULL, UNIQUE(user, nonce));
CREATE INDEX injection_of ON injection(user);
CREATE INDEX injection_session ON injection(user, session);
CREATE INDEX injection_time ON injection(user, at_ms, n_turns, n_memories, n_used_turns, n_used_memories);
CREATE TABLE told(user INTEGER NOT NULL, cue TEXT NOT NULL, injection INTEGER NOT NULL,
  PRIMARY KEY(user, cue, injection)) WITHOUT ROWID;
CREATE TABLE measured(user INTEGER NOT NULL, place TEXT NOT NULL, at_ms INTEGER NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY(user, place)) WITHOUT ROWID;
CREATE TABLE slab(id INTEGER PRIMARY KEY AUTOINCREMENT, user INTEGER NOT NULL, tag TEXT NOT NULL,
  dimension INTEGER NOT NULL, n_rows INTEGER NOT NULL DEFAULT 0, listed INTEGER NOT NULL DEFAULT 0,
  n_left INTEGER NOT NULL DEFAULT 0, made_by TEXT NOT NULL DEFAULT '', UNIQUE(user, tag));
CREATE TABLE vector(chunk INTEGER NOT NULL, slab INTEGER NOT NULL, row INTEGER, PRIMARY KEY(chunk, slab)) WITHOUT ROWID;
CREATE TABLE hole(slab INTEGER NOT NULL, row INTEGER NOT NULL, wiped INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY(slab, row)) WITHOUT ROWID;
CREATE TABLE gone(name BLOB PRIMARY KEY, after INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('generation', lower(hex(randomblob(8))));
"""
_WORDS = """CREATE VIRTUAL TABLE "words_{n}" USING fts5(
  text, scope, content='', tokenize='{tokenizer}')"""
_TOKENIZER = "porter unicode61 remove_diacritics 2"


def current(home: Path) -> Path | None:
    """The index file in use, or None when there is none."""
    link = home / "index.db"
    return link.resolve() if link.exists() else None


class Connection:
    """One connection to one index file."""

    def __init__(self, path: Path, *, writable: bool = True, create: bool = False) -> None:
        """Open an index file. Raises IndexMissing, IndexDamaged."""
        flags = apsw.SQLITE_OPEN_READWRITE if writable else apsw.SQLITE_OPEN_READONLY
        self.path = path
        self._numbers: dict[tuple[str, str], int] = {}
        self._counts: Counter[tuple[int, int]] = Counter()  # (owner, name)
        self._n_written = 0
        self.derived: tuple[Any, Any] | None = None  # what a reader keeps in TEMP tables: (made of what, what)
        try:
            try:
                self.db = apsw.Connection(str(path), flags=flags | (apsw.SQLITE_OPEN_CREATE if create else 0))
                self._configure(writable=writable, create=create)
            except apsw.CantOpenError:
                if writable or not path.exists():
                    raise
                self._open_unwritable()
            self._inode = path.stat().st_ino
        except (apsw.CantOpenError, FileNotFoundError) as error:
            raise IndexMissing(str(path)) from error
        except apsw.ReadOnlyError as error:
            raise ReadOnlyHome(str(path)) from error
        except apsw.FullError as error:
            raise DiskFull(str(path)) from error
        except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError) as error:
            raise IndexDamaged(f"{path} ({error})") from error

    def _open_unwritable(self) -> None:
        """Read a file beside which not even SQLite's own files can be made: nobody writes there, so none are needed."""
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        self.db = apsw.Connection(f"file:{quote(str(self.path))}?immutable=1", flags=flags)
        self._configure(writable=False, create=False)

    def _configure(self, *, writable: bool, create: bool) -> None:
        self.db.set_busy_timeout(BUSY_MS)
        self.db.pragma("mmap_size", MMAP_BYTES)
        self.db.pragma("cache_size", -PAGE_CACHE_KIB)
        if writable:
            self.db.pragma("journal_mode", "wal")
            self.db.pragma("synchronous", 1)
            self.db.pragma("secure_delete", True)
        if create and self.db.pragma("user_version") == 0:
            self.path.chmod(0o600)
            with self.db:
                for statement in _TABLES.split(";"):
                    self.db.execute(statement)
                self.db.pragma("user_version", SCHEMA)
        if self.db.pragma("user_version") != SCHEMA:
            raise IndexDamaged(f"{self.path} (made by another version)")
        self.db.execute("SELECT 1 FROM meta LIMIT 1").fetchall()

    def close(self) -> None:
        """Release the file."""
        self.db.close()

    def is_current(self, home: Path) -> bool:
        """Whether this connection still reads the file that `index.db` points to."""
        try:
            return (home / "index.db").stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def checkpoint(self) -> None:
        """Move everything out of the write-ahead log and empty it. Raises Busy while old pages are being read."""
        try:
            self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError as error:
            raise Busy(str(self.path)) from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """One transaction; what was noted for it is dropped when it fails."""
        is_done = False
        self._n_written += 1
        try:
            with self._faults(), transaction(self.db):
                yield self.db
            is_done = True
        finally:
            if not is_done:
                self._counts.clear()
                self._numbers.clear()  # some of them may be of names that are taken back now

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn SQLite's refusals into errors that say what to do."""
        try:
            yield
        except apsw.BusyError as error:
            raise Busy(str(self.path)) from error
        except apsw.FullError as error:
            raise DiskFull(str(self.path)) from error
        except apsw.ReadOnlyError as error:
            raise ReadOnlyHome(str(self.path)) from error
        except (apsw.NotADBError, apsw.CorruptError) as error:
            raise IndexDamaged(f"{self.path} ({error})") from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """One snapshot for several reads."""
        with self._faults():
            self.db.execute("BEGIN")
            try:
                yield self.db
            except BaseException:
                self.derived = None  # what it put into TEMP tables is taken back
                self.db.execute("ROLLBACK")
                raise
            self.db.execute("COMMIT")

    def version(self) -> tuple[int, int]:
        """What changes with every commit to the file, whoever made it."""
        return self.db.pragma("data_version"), self._n_written

    def meta(self, key: str) -> str | None:
        """A named value: `epoch` and `change` say how far the index has come in which ledger."""
        return next((row[0] for row in self.db.execute("SELECT value FROM meta WHERE key = ?", (key,))), None)

    def set_meta(self, **values: str) -> None:
        """Set named values."""
        self.db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(values.items()))

    def name(self, kind: str, value: str) -> int:
        """The number of a name, made if need be; docs/index.md lists the kinds."""
        if (kind, value) in self._numbers:
            return self._numbers[kind, value]
        found = self.known(kind, value)
        if found is not None:
            self._numbers[kind, value] = found
            return found
        self.db.execute("INSERT INTO name(kind, value) VALUES (?, ?)", (kind, value))
        number = self._numbers[kind, value] = self.db.last_insert_rowid()
        if kind == "user":
            self.db.execute(_WORDS.format(n=number, tokenizer=_TOKENIZER))
            self.db.execute(f'CREATE VIRTUAL TABLE "vocab_{number}" USING fts5vocab("words_{number}", \'row\')')
            self.db.execute(f'INSERT INTO "words_{number}"("words_{number}", rank) VALUES (\'secure-delete\', 1)')
        return number

    def known(self, kind: str, value: str) -> int | None:
        """The number of a name, or None when the index has never met it."""
        rows = self.db.execute("SELECT id FROM name WHERE kind = ? AND value = ?", (kind, value))
        return next((row[0] for row in rows), None)

    def names(self, kind: str) -> dict[int, str]:
        """Every name of a kind by its number."""
        return dict(self.db.execute("SELECT id, value FROM name WHERE kind = ?", (kind,)))

    def tokens(self, words: str) -> list[str]:
        """The tokens that the full-text index makes of some words: folded and stemmed."""
        name, *arguments = _TOKENIZER.split()
        tokenize = self.db.fts5_tokenizer(name, arguments)
        raw = words.encode("utf-8", "replace")
        found = tokenize(raw, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False)
        return [str(token) for token in found]

    def count(self, user: int, numbers: Iterable[int], step: int) -> None:
        """Note chunks of an owner that carry these names (or no longer do); `settle_counts` writes it down."""
        for number in numbers:
            self._counts[user, number] += step

    def settle_counts(self) -> None:
        """Write the noted chunk counts: they tell how selective a filter is, for each owner by what is theirs alone."""
        moves = [(user, number, step) for (user, number), step in self._counts.items() if step]
        self.db.executemany("UPDATE name SET n_chunks = n_chunks + ?3 WHERE id = ?2", moves)
        self.db.executemany(
            """INSERT INTO held VALUES (?1, ?2, ?3)
               ON CONFLICT(user, name) DO UPDATE SET n_chunks = n_chunks + excluded.n_chunks""",
            moves,
        )
        self._counts.clear()

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """All rows of a query. Raises IndexDamaged."""
        try:
            return self.db.execute(query, values).fetchall()
        except (apsw.NotADBError, apsw.CorruptError) as error:
            raise IndexDamaged(f"{self.path} ({error})") from error

    def facet(self, kind: str, value: str) -> int:
        """The number of a file, tool, skill or entity, made if need be."""
        rows = self.db.execute("SELECT id FROM facet WHERE kind = ? AND value = ?", (kind, value))
        for (number,) in rows:
            return int(number)
        self.db.execute("INSERT INTO facet(kind, value) VALUES (?, ?)", (kind, value))
        return self.db.last_insert_rowid()


def open_current(home: Path, *, writable: bool, create: bool = False) -> Connection:
    """The home's index. Raises IndexMissing when there is none and it may not be made."""
    path = current(home)
    if path is None:
        if not create:
            raise IndexMissing(str(home / "index.db"))
        return _create(home)
    try:
        return Connection(path, writable=writable)
    except ReadOnlyHome:
        return Connection(path, writable=False)


def _create(home: Path) -> Connection:
    """A first, empty index. Of two processes that come at once, the later takes what the earlier made."""
    with locked(home / ".index.lock"):
        path = current(home)
        if path is None:
            path = new_path(home)
            Connection(path, create=True).close()
            point_to(home, path)
    return Connection(path)


def new_path(home: Path) -> Path:
    """A file name for the next index that no index has."""
    taken = [int(p.stem.split("-")[1]) for p in files(home)]
    return home / f"index-{max(taken, default=0) + 1}.db"


def files(home: Path) -> list[Path]:
    """All index files in the home: the one in use, an unfinished one, left-overs."""
    return sorted(p for p in home.glob("index-*.db") if p.stem.split("-")[1].isdigit())


def point_to(home: Path, path: Path) -> None:
    """Make a file the current index, in one step."""
    temporary = home / f".index.{os.getpid()}.tmp"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(path.name)
    temporary.replace(home / "index.db")


def remove(paths: Iterable[Path]) -> None:
    """Delete index files with what SQLite keeps beside them."""
    for path in paths:
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
