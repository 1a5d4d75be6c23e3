"""The index file: its tables, its connection, which file is current, and how far each journal was read. A
cache.

`index.db` is a link to the file in use (`index-<n>.db`). A rebuild writes another file beside it and
moves the link in one step, so readers that hold the old file keep answering from it. The words of each
owner lie in a table of their own (`words_<n>`): a query opens only the tables that its principal may
read, and no count of one owner changes the ranking of another. Words are contentless FTS5; the masked
text of a chunk is stored once, compressed, in `packed_text`, and read through the view `chunk_text`.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from perdure.archive.journal import FilePosition, measure_files
from perdure.disk import lock_file
from perdure.errors import Busy, DiskFull, IndexDamaged, IndexFault, IndexMissing, ReadOnlyHome
from perdure.index.encoding import pack_text, unpack_text
from perdure.sqlite import apsw, transaction, use_wal
from perdure.text import index_terms

SCHEMA = 32  # a file with another number is rebuilt, never migrated: it is a cache
PAGE_CACHE_KIB, MMAP_BYTES = 64000, 134217728  # of a connection that writes: an import changes many pages
READER_PAGE_CACHE_KIB, READER_MMAP_BYTES = 8000, 33554432  # a resident home has several; more is not faster
BUSY_MS = 5000
_MAX_LISTED = 512  # values in one IN (…)
_BESIDE = ("-wal", "-shm")  # ends of the names of what SQLite keeps beside a file
_VERSION_START, _VERSION_END = 60, 64  # where the header of a SQLite file has its user_version

TABLES = """
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
  parent_run_id TEXT, parent_session TEXT, fork BOOLEAN NOT NULL, path TEXT, cwd TEXT, readable_by TEXT NOT NULL,
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
  is_summary BOOLEAN NOT NULL, entry TEXT, thread INTEGER NOT NULL, said BOOLEAN NOT NULL, speaker TEXT NOT NULL,
  abandoned BOOLEAN NOT NULL DEFAULT FALSE);
CREATE INDEX turn_run ON turn(run, offset);
CREATE INDEX turn_content ON turn(content_run);
CREATE INDEX turn_said ON turn(thread, offset) WHERE said;
CREATE INDEX turn_typed ON turn(thread, offset) WHERE said AND role = 'user';
CREATE TABLE chunk(
  id INTEGER PRIMARY KEY AUTOINCREMENT, turn INTEGER NOT NULL, n INTEGER NOT NULL, tie INTEGER NOT NULL,
  user INTEGER NOT NULL, run INTEGER NOT NULL, project INTEGER NOT NULL, conversation INTEGER NOT NULL,
  runtime INTEGER NOT NULL, machine INTEGER NOT NULL, agent INTEGER NOT NULL, role INTEGER NOT NULL,
  kind INTEGER NOT NULL, stated_ms INTEGER);
CREATE INDEX chunk_turn ON chunk(turn, n);
CREATE TABLE facet(id INTEGER PRIMARY KEY, kind TEXT NOT NULL, value TEXT NOT NULL, UNIQUE(kind, value));
CREATE TABLE turn_facet(facet INTEGER NOT NULL, turn INTEGER NOT NULL, PRIMARY KEY(facet, turn)) WITHOUT ROWID;
CREATE INDEX turn_facets ON turn_facet(turn);
CREATE TABLE fact(id INTEGER PRIMARY KEY, turn INTEGER NOT NULL, thread INTEGER NOT NULL, place INTEGER NOT NULL,
  n INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL, detail TEXT NOT NULL);
CREATE INDEX fact_turn ON fact(turn);
CREATE INDEX fact_thread ON fact(thread, place, n);
CREATE TABLE fact_key(key INTEGER NOT NULL, project INTEGER NOT NULL, fact INTEGER NOT NULL,
  PRIMARY KEY(key, project, fact)) WITHOUT ROWID;
CREATE INDEX fact_keys ON fact_key(fact);
CREATE TABLE picture(turn INTEGER NOT NULL, n INTEGER NOT NULL, digest TEXT NOT NULL, tag TEXT NOT NULL DEFAULT '',
  fault TEXT NOT NULL DEFAULT '', PRIMARY KEY(turn, n)) WITHOUT ROWID;
CREATE INDEX picture_digest ON picture(digest);
CREATE TABLE gone_picture(digest TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE link(source TEXT NOT NULL, n INTEGER NOT NULL, entry TEXT NOT NULL, parent TEXT,
  PRIMARY KEY(source, n)) WITHOUT ROWID;
CREATE TABLE memory(
  id INTEGER PRIMARY KEY AUTOINCREMENT, memory_id TEXT NOT NULL, user INTEGER NOT NULL, agent TEXT NOT NULL,
  project TEXT NOT NULL, path TEXT NOT NULL, place TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL,
  trust TEXT NOT NULL, conversation TEXT NOT NULL, stated_ms INTEGER NOT NULL, recorded_ms INTEGER NOT NULL,
  ended_ms INTEGER, superseded_by TEXT, retired BOOLEAN NOT NULL, pinned BOOLEAN NOT NULL, body BLOB NOT NULL,
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
CREATE TABLE workflow_turn(turn INTEGER PRIMARY KEY, user INTEGER NOT NULL, agent INTEGER NOT NULL,
  at_ms INTEGER NOT NULL, offset INTEGER NOT NULL, topic INTEGER, embedded BLOB);
CREATE INDEX workflow_turn_agent ON workflow_turn(user, agent, at_ms);
CREATE INDEX workflow_turn_open ON workflow_turn(user, agent, at_ms) WHERE topic IS NULL;
CREATE INDEX workflow_turn_topic ON workflow_turn(topic) WHERE topic IS NOT NULL;
CREATE TABLE topic(id INTEGER PRIMARY KEY, user INTEGER NOT NULL, agent INTEGER NOT NULL, first TEXT NOT NULL,
  ended_ms INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE(user, first));
CREATE INDEX topic_agent ON topic(user, agent, ended_ms);
CREATE TABLE topic_mark(user INTEGER NOT NULL, topic TEXT NOT NULL, turn TEXT NOT NULL, at_ms INTEGER NOT NULL,
  same INTEGER NOT NULL, PRIMARY KEY(user, topic, turn, at_ms)) WITHOUT ROWID;
CREATE TABLE relation(topic INTEGER NOT NULL, turn INTEGER NOT NULL, subject TEXT NOT NULL, verb TEXT NOT NULL,
  object TEXT NOT NULL, PRIMARY KEY(topic, turn, subject, verb, object)) WITHOUT ROWID;
"""  # both engines make these: docs/decisions/059-a-second-engine.md
_TEXT_TABLES = """
CREATE TABLE packed_text(id INTEGER PRIMARY KEY, body NOT NULL, scope TEXT NOT NULL);
CREATE VIEW chunk_text AS SELECT id, unpack_text(body) AS text, scope FROM packed_text;
INSERT INTO meta VALUES ('generation', lower(hex(randomblob(8))));
"""
_WORDS_TABLE = """CREATE VIRTUAL TABLE "words_{n}" USING fts5(
  text, scope, content='', tokenize='{tokenizer}')"""
_TOKENIZER = "porter unicode61 remove_diacritics 2"
_WORD_BUFFER_BYTES = 4_000_000  # words of one transaction that FTS5 sorts in memory: fewer, larger segments
_MAX_SEGMENTS = 4  # of a full-text index that need not be joined
_MERGED_PAGES = 200  # written in one transaction: 12 ms, 51 at most
_FIRST_IN_ARRAYS = (
    3  # snapshot of a connection from which on `postings` scores words: one that asks less often loses by it
)


def find_current_file(home: Path) -> Path | None:
    """Return the index file in use, or None when there is none."""
    link = home / "index.db"
    return link.resolve() if link.exists() else None


def is_old(home: Path) -> bool:
    """Return True if an older version of Perdure made the index file in use."""
    path = find_current_file(home)
    if path is None:
        return False
    with path.open("rb") as file:
        return 0 < int.from_bytes(file.read(_VERSION_END)[_VERSION_START:], "big") < SCHEMA


class WordMatch(NamedTuple):
    """The chunks that match an expression of words, as parts of a query."""

    source: str  # what to select from
    chunk: str  # the number of the chunk in it
    test: str  # for WHERE
    score: str  # its BM25, higher is better
    values: tuple[Any, ...]  # of source and test, in this order


class IndexConnection:
    """One connection to one index file. `postgres.PostgresIndex` answers the same from a database."""

    HAS_WALL = False  # True: `limit_to` hides the rows of others from every query
    LAST_CHUNK = "(SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'chunk')"  # the greatest number ever

    def __init__(self, path: Path, *, writable: bool = True, create: bool = False) -> None:
        """Open an index file. Raises IndexMissing, IndexDamaged, ReadOnlyHome, DiskFull."""
        flags = apsw.SQLITE_OPEN_READWRITE if writable else apsw.SQLITE_OPEN_READONLY
        self._init_caches(path)
        try:
            try:
                self.db = apsw.Connection(str(path), flags=flags | (apsw.SQLITE_OPEN_CREATE if create else 0))
                self._configure(writable=writable, create=create)
            except (apsw.CantOpenError, apsw.IOError, apsw.FullError, apsw.ReadOnlyError):
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

    def _init_caches(self, path: Path) -> None:
        self.path = path
        self._name_numbers: dict[tuple[str, str], int] = {}
        self._chunk_counts: Counter[tuple[int, int]] = Counter()  # (owner, name)
        self._n_transactions = 0
        self.temp_cache: tuple[Any, Any] | None = None  # what a reader keeps in TEMP tables: (key, value)
        self._word_counts: dict[tuple[int, str], int] | None = None  # (owner, token), inside a snapshot for reading
        self._names_read: dict[tuple[str, str], int | None] | None = None  # inside a snapshot for reading
        self.chunk_lengths: Any = None  # of `postings`, which all connections to the file share
        self._n_scored, self._is_counted = 0, False  # snapshots in which words were scored; whether this one is counted

    def _open_unwritable(self) -> None:
        """Open a file in a folder where not even SQLite can create its own files: nobody writes there, so none are
        needed.
        """
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        self.db = apsw.Connection(f"file:{quote(str(self.path))}?immutable=1", flags=flags)
        self._configure(writable=False, create=False)

    def _configure(self, *, writable: bool, create: bool) -> None:
        self.db.set_busy_timeout(BUSY_MS)
        self._add_functions()
        self.db.pragma("mmap_size", MMAP_BYTES if writable else READER_MMAP_BYTES)
        self.db.pragma("cache_size", -(PAGE_CACHE_KIB if writable else READER_PAGE_CACHE_KIB))
        if writable:
            use_wal(self.db)
            self.db.pragma("synchronous", 1)
            self.db.pragma("secure_delete", True)
        if create and self.db.pragma("user_version") == 0:
            self.path.chmod(0o600)
            self._create_tables()
        if self.db.pragma("user_version") != SCHEMA:
            raise IndexDamaged(f"{self.path} (made by another version)")
        self.db.execute("SELECT 1 FROM meta LIMIT 1").fetchall()

    def _add_functions(self) -> None:
        flags = apsw.SQLITE_INNOCUOUS  # so that a view may call it
        unpack: Any = unpack_text  # the stubs of apsw know no bytes
        self.db.create_scalar_function("unpack_text", unpack, 1, deterministic=True, flags=flags)

    def _create_tables(self) -> None:
        with self.db:
            for statement in (TABLES + _TEXT_TABLES).split(";"):
                self.db.execute(statement)
            self.db.pragma("user_version", SCHEMA)

    def find_damage(self) -> str:
        """Read every page of the file; return what is wrong with it, or ""."""
        try:
            ((finding,),) = self.db.execute("PRAGMA quick_check(1)").fetchall()
        except apsw.CorruptError as error:
            finding = str(error)
        return "" if finding == "ok" else f"damaged: {finding}"

    def close(self) -> None:
        """Release the file."""
        self.db.close()

    def is_current(self, home: Path) -> bool:
        """Return True if this connection still reads the file that `index.db` points to."""
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
    def begin_write(self) -> Iterator[apsw.Connection]:
        """Open one transaction; when it fails, drop the counts and names that were collected for it."""
        is_done = False
        self._n_transactions += 1
        try:
            with self._map_errors(), transaction(self.db):
                yield self.db
            is_done = True
        finally:
            if not is_done:
                self._chunk_counts.clear()
                self._name_numbers.clear()  # the rollback may have removed some of these names

    @contextlib.contextmanager
    def _map_errors(self) -> Iterator[None]:
        """Turn refusals of SQLite into errors that say what to do."""
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
    def begin_read(self) -> Iterator[apsw.Connection]:
        """Open one snapshot for several reads."""
        with self._map_errors():
            self.db.execute("BEGIN")
            self._word_counts, self._names_read, self._is_counted = {}, {}, False
            try:
                yield self.db
            except BaseException:
                self.temp_cache = None  # the rollback removes its rows in TEMP tables
                self.db.execute("ROLLBACK")
                raise
            finally:
                self._word_counts = self._names_read = None
            self.db.execute("COMMIT")

    def count_chunks_with(self, user: int, tokens: Iterable[str]) -> dict[str, int]:
        """Return for each token of the full-text index how many chunks of an owner hold it; read once in a snapshot."""
        known_counts = self._word_counts if self._word_counts is not None else {}
        new_tokens = [token for token in dict.fromkeys(tokens) if (user, token) not in known_counts]
        query = f'SELECT term, doc FROM "vocab_{user}" WHERE term IN ({", ".join("?" * len(new_tokens))})'
        counts = dict(self.select(query, *new_tokens)) if new_tokens else {}
        known_counts.update(((user, token), int(counts.get(token, 0))) for token in new_tokens)
        return {token: known_counts[user, token] for token in tokens}

    def get_version(self) -> tuple[int, int]:
        """Return a value that changes with every commit to the file, by any process."""
        return self.db.pragma("data_version"), self._n_transactions

    def get_meta(self, key: str) -> str | None:
        """Return a named value: `epoch` and `change` say how far the index has come in which ledger."""
        return next((row[0] for row in self.select("SELECT value FROM meta WHERE key = ?", key)), None)

    def set_meta(self, **values: str) -> None:
        """Set named values."""
        self.db.executemany(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value", list(values.items())
        )

    def add_name(self, kind: str, value: str) -> int:
        """Return the number of a name; add the name if it is new. docs/index.md lists the kinds."""
        if (kind, value) in self._name_numbers:
            return self._name_numbers[kind, value]
        known_number = self.find_name(kind, value)
        if known_number is not None:
            self._name_numbers[kind, value] = known_number
            return known_number
        number = self._name_numbers[kind, value] = self.insert(
            "INSERT INTO name(kind, value) VALUES (?, ?)", (kind, value)
        )
        if kind == "user":
            self._add_owner(number)
        return number

    def _add_owner(self, number: int) -> None:
        self.db.execute(_WORDS_TABLE.format(n=number, tokenizer=_TOKENIZER))
        self.db.execute(f'CREATE VIRTUAL TABLE "vocab_{number}" USING fts5vocab("words_{number}", \'row\')')
        for setting, value in (("secure-delete", 1), ("hashsize", _WORD_BUFFER_BYTES)):
            self.db.execute(f'INSERT INTO "words_{number}"("words_{number}", rank) VALUES (?, ?)', (setting, value))

    def find_name(self, kind: str, value: str) -> int | None:
        """Return the number of a name, or None when the index does not have it; read once in a snapshot."""
        if self._names_read is not None and (kind, value) in self._names_read:
            return self._names_read[kind, value]
        rows = self.select("SELECT id FROM name WHERE kind = ? AND value = ?", kind, value)
        number = next((int(row[0]) for row in rows), None)
        if self._names_read is not None:
            self._names_read[kind, value] = number
        return number

    def list_names(self, kind: str) -> dict[int, str]:
        """Return every name of a kind by its number."""
        return dict(self.select("SELECT id, value FROM name WHERE kind = ?", kind))

    def tokenize(self, words: str) -> list[str]:
        """Return the tokens that the full-text index makes of some words: folded and stemmed."""
        return tokenize(self.db, words)

    # words --------------------------------------------------------------------------------------------------

    def add_text(self, owner: int, chunk: int, text: str, scope: str) -> None:
        """Store the text of a chunk, and index its words. scope: the words of its names."""
        self.db.execute("INSERT INTO packed_text VALUES (?, ?, ?)", (chunk, pack_text(text), scope))
        query = f'INSERT INTO "words_{owner}"(rowid, text, scope) VALUES (?, ?, ?)'
        self.db.execute(query, (chunk, index_terms(text), scope))

    def delete_text(self, owner: int, chunk: int, text: str, scope: str) -> None:
        """Delete the text of a chunk; its words leave the full-text index by the exact text."""
        query = f'INSERT INTO "words_{owner}"("words_{owner}", rowid, text, scope) VALUES (\'delete\', ?, ?, ?)'
        self.db.execute(query, (chunk, index_terms(text), scope))
        self.db.execute("DELETE FROM packed_text WHERE id = ?", (chunk,))

    def merge_words(self, should_stop: Callable[[], bool] = lambda: False) -> int:
        """Join the segments of each full-text index in short transactions; return how many indexes had too many.

        Each commit adds a segment, and a search looks into all of them: with one it takes a fifth less. Raises Busy.
        """
        n_merged = 0
        for (owner,) in self.select("SELECT id FROM name WHERE kind = 'user'"):
            if self.select(f'SELECT count(DISTINCT segid) FROM "words_{owner}_idx"')[0][0] <= _MAX_SEGMENTS:
                continue
            n_pages = -_MERGED_PAGES  # negative: begin with all segments, however unlike their sizes are
            while not should_stop():
                n_before = self.db.total_changes()
                with self.begin_write() as db:
                    db.execute(f'INSERT INTO "words_{owner}"("words_{owner}", rank) VALUES (\'merge\', ?)', (n_pages,))
                if self.db.total_changes() - n_before < 2:  # FTS5's sign that nothing is left
                    break
                n_pages = _MERGED_PAGES
            n_merged += 1
        return n_merged

    def match_words(self, owner: int, expression: str) -> WordMatch:
        """Return the SQL of an owner's chunks that match an expression of FTS5 over the columns `text` and `scope`."""
        table = f'"words_{owner}"'
        score = f"-bm25({table}, 1.0, 0.0)"
        return WordMatch(table, f"{table}.rowid", f"{table} MATCH ?", score, (expression,))

    def count_scoring(self) -> bool:
        """Count this snapshot among those in which words are scored; return True if there were enough for `postings`.

        Outside a snapshot for reading, count nothing and return False.
        """
        if self._names_read is None:
            return False
        self._n_scored, self._is_counted = self._n_scored + (not self._is_counted), True
        return self._n_scored >= _FIRST_IN_ARRAYS

    def add_to_counts(self, user: int, numbers: Iterable[int], change: int) -> None:
        """Add to the number of an owner's chunks with each of these names; `write_counts` writes the sums."""
        for number in numbers:
            self._chunk_counts[user, number] += change

    def write_counts(self) -> None:
        """Write the collected chunk counts. They tell how selective a filter is, for each owner by their own
        chunks alone.
        """
        changes = [(user, number, change) for (user, number), change in self._chunk_counts.items() if change]
        self.db.executemany("UPDATE name SET n_chunks = n_chunks + ?3 WHERE id = ?2", changes)
        self.db.executemany(
            """INSERT INTO held VALUES (?1, ?2, ?3)
               ON CONFLICT(user, name) DO UPDATE SET n_chunks = held.n_chunks + excluded.n_chunks""",
            changes,
        )
        self._chunk_counts.clear()

    def select(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query. Raises IndexDamaged."""
        try:
            return self.db.execute(query, values).fetchall()
        except (apsw.NotADBError, apsw.CorruptError) as error:
            raise IndexDamaged(f"{self.path} ({error})") from error

    def select_in(self, query: str, listed: Sequence[Any], *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query with `IN ({})`, for any number of listed values. Raises IndexDamaged.

        values: bound after them. The last listed value is repeated up to a power of two, so that the few statements
        that this gives are planned once each.

        >>> TemporaryIndex().select_in("SELECT value FROM json_each('[1, 2, 3]') WHERE value IN ({})", [1, 2, 2, 3, 4])
        [(1,), (2,), (3,)]
        """
        rows: list[tuple[Any, ...]] = []
        for start in range(0, len(listed), _MAX_LISTED):
            part = listed[start : start + _MAX_LISTED]
            n_marks = 1 << (len(part) - 1).bit_length()
            padding = [part[-1]] * (n_marks - len(part))
            rows += self.select(query.format(", ".join("?" * n_marks)), *part, *padding, *values)
        return rows

    def select_once(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query that a database should plan for these very values."""
        return self.select(query, *values)

    def add_facet(self, kind: str, value: str, owner: int) -> int:  # noqa: ARG002 - a file has no wall
        """Return the number of a file, tool, skill or entity of an owner; add it if it is new."""
        rows = self.db.execute("SELECT id FROM facet WHERE kind = ? AND value = ?", (kind, value))
        for (number,) in rows:
            return int(number)
        return self.insert("INSERT INTO facet(kind, value) VALUES (?, ?)", (kind, value))

    def insert(self, query: str, values: Sequence[Any]) -> int:
        """Insert one row; return its number."""
        self.db.execute(query, values)
        return self.db.last_insert_rowid()

    def record_gone(self, hashes: Iterable[bytes]) -> None:
        """Record that embedded texts are gone, by their hashes, so that the embedding cache drops them."""
        query = f"""INSERT INTO gone VALUES (?, {self.LAST_CHUNK})
          ON CONFLICT(name) DO UPDATE SET after = excluded.after"""
        self.db.executemany(query, [(text_hash,) for text_hash in hashes])

    def open_slab(self, number: int, owner: int, dimension: int) -> Any:  # noqa: ARG002
        """Return the rows of a slab that this index holds itself; None: they are in files beside it."""
        return None

    # who reads ----------------------------------------------------------------------------------------------

    def is_wall_open(self) -> bool:
        """Return True if `limit_to` should hide the rows of others but cannot, because of this connection's role."""
        return False

    def limit_to(self, owners: Sequence[str]) -> None:
        """Show the rows of these owners alone. A file has no such wall: every query of it filters by itself."""

    def hold_names(self, owner: int, numbers: Iterable[int]) -> None:
        """Record that an owner has these names, so that they may read them."""

    @contextlib.contextmanager
    def show_all(self) -> Iterator[None]:
        """Show the rows of every owner inside the block: for work that is about the whole index."""
        yield


def tokenize(db: apsw.Connection, words: str) -> list[str]:
    """Return the tokens that FTS5 makes of some words."""
    tokenizer_name, *arguments = _TOKENIZER.split()
    tokenizer = db.fts5_tokenizer(tokenizer_name, arguments)
    encoded = words.encode("utf-8", "replace")
    tokens = tokenizer(encoded, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False)
    return [str(token) for token in tokens]


class TemporaryIndex(IndexConnection):
    """An index for one question, which lies in memory, or in a nameless file once it is large."""

    def __init__(self) -> None:
        self._init_caches(Path("temporary index"))
        self.db = apsw.Connection("")
        self.db.pragma("cache_size", -PAGE_CACHE_KIB)
        self.db.pragma("journal_mode", "off")
        self._add_functions()
        self._create_tables()

    def count_scoring(self) -> bool:
        """Return False: there is one question."""
        return False


class IndexFolder:
    """The place of the index of a home in its folder. `index_database.IndexDatabase` is one in Postgres."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def has_index(self) -> bool:
        """Return True if there is an index in use, also one whose file was lost."""
        return os.path.lexists(self._home / "index.db")

    def is_old(self) -> bool:
        """Return True if an older version of Perdure made the index in use."""
        return is_old(self._home)

    def open(self, *, create: bool = False, writable: bool = True) -> IndexConnection:
        """Open the index in use. Raises IndexMissing, IndexDamaged."""
        return open_current(self._home, writable=writable, create=create)

    def delete(self) -> None:
        """Delete every index of the home."""
        delete_files([*list_files(self._home), self._home / "index.db"])

    def delete_unused(self) -> None:
        """Delete the indexes that are not in use: of a rebuild that did not end."""
        used = find_current_file(self._home)
        delete_files(path for path in list_files(self._home) if path != used)

    def begin_build(self) -> tuple[IndexConnection, bool]:
        """Return (an index beside the one in use, True if an earlier rebuild began it); delete other left-overs."""
        unfinished_path = None
        for path in list_files(self._home):
            if path == find_current_file(self._home):
                continue
            if unfinished_path is None and _is_unfinished(path):
                unfinished_path = path
            else:
                delete_files([path])
        return IndexConnection(unfinished_path or choose_new_path(self._home), create=True), unfinished_path is not None

    def replace_with(self, index: IndexConnection) -> None:
        """Take an index into use and delete the others; processes that read them keep them until they close."""
        index.close()
        point_to(self._home, index.path)
        delete_files(path for path in list_files(self._home) if path != index.path)


def _is_unfinished(path: Path) -> bool:
    try:
        connection = IndexConnection(path)
    except IndexFault:
        return False
    try:
        return connection.get_meta("building") == "yes"
    finally:
        connection.close()


def open_current(home: Path, *, writable: bool, create: bool = False) -> IndexConnection:
    """Open the index of a home. Raises IndexMissing when there is none and it may not be created."""
    path = find_current_file(home)
    if path is None:
        if not create:
            raise IndexMissing(str(home / "index.db"))
        return _create_index(home)
    try:
        return IndexConnection(path, writable=writable)
    except ReadOnlyHome:
        return IndexConnection(path, writable=False)


def _create_index(home: Path) -> IndexConnection:
    """Create a first, empty index. When two processes come at once, the later one opens the file of the
    earlier one.
    """
    with lock_file(home / ".index.lock"):
        path = find_current_file(home)
        if path is None:
            path = choose_new_path(home)
            IndexConnection(path, create=True).close()
            point_to(home, path)
    return IndexConnection(path)


def choose_new_path(home: Path) -> Path:
    """Return an unused file name for the next index."""
    used_numbers = [int(p.stem.split("-")[1]) for p in list_files(home)]
    return home / f"index-{max(used_numbers, default=0) + 1}.db"


def list_files(home: Path) -> list[Path]:
    """Return all index files in the home: the one in use, an unfinished one, left-overs."""
    return sorted(p for p in home.glob("index-*.db") if p.stem.split("-")[1].isdigit())


def point_to(home: Path, path: Path) -> None:
    """Make a file the current index, in one step."""
    temporary = home / f".index.{os.getpid()}.tmp"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(path.name)
    temporary.replace(home / "index.db")
    delete_files([home / "index.db"], suffixes=_BESIDE)  # of a copied home, where it was no link


def delete_files(paths: Iterable[Path], *, suffixes: Sequence[str] = ("", *_BESIDE)) -> None:
    """Delete index files and the files that SQLite keeps beside them."""
    for path in paths:
        for suffix in suffixes:
            path.with_name(path.name + suffix).unlink(missing_ok=True)


def list_changed_journals(index: IndexConnection, journal_root: Path, user: str | None) -> list[Path]:
    """Return the folders of journals (of one user, or of all) that changed since the index read them.

    journal_root: archive/journal. Every search calls this.
    """
    folders = sorted(journal_root.glob("*")) if user is None else [journal_root / user]
    return [
        folder
        for folder in folders
        if folder.is_dir() and measure_files(folder) != get_journal_positions(index, folder.name)
    ]


def get_journal_positions(index: IndexConnection, user: str) -> dict[str, FilePosition]:
    """Return how far the index has read each file of a user's journal."""
    encoded = index.get_meta(f"journal:{user}")
    return msgspec.json.decode(encoded, type=dict[str, FilePosition]) if encoded else {}


def get_last_journal_order(index: IndexConnection, user: str) -> str:
    """Return the order of the newest event that the index has read, "" before it has read any."""
    return index.get_meta(f"journal-last:{user}") or ""
