"""The index in Postgres: the same tables and the same queries as in a file, for a home that many machines share.

`dialect` turns the queries. Three things are its own here: the words (postings with their places, ranked by the
formula of FTS5, so that scores are equal to the last bit), the vectors (`postgres_vectors`), and a second wall:
row-level security shows a connection the rows of those owners alone that `limit_to` named, whatever a query forgets to
filter. An index is a schema of its own; `IndexDatabase` says which is in use. It is a cache, like the file.
"""

from __future__ import annotations

import contextlib
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors, sql
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.types.string import StrDumper, TextLoader

from perdure.errors import Busy, DiskFull, IndexDamaged, IndexUnreachable
from perdure.index.dialect import WordExpression, to_postgres
from perdure.index.store import BUSY_MS, IndexConnection, WordMatch, tokenize
from perdure.sqlite import apsw
from perdure.text import index_terms

if TYPE_CHECKING:  # it imports numpy, which a search by words does not need
    from perdure.index.postgres_vectors import PostgresSlab

CONNECT_S = 3  # a server that does not answer for so long is away
EVERYONE = "*"  # value of the setting `perdure.readers`: no owner is left out
_K1, _B = 1.2, 0.75  # of BM25, as in FTS5
_MIN_IDF = 1e-6  # of a term that stands in more than half of the chunks, as in FTS5
_MAX_JOINS = 5  # words of a phrase whose places are joined: planning takes as long as there are orders of joins
_MAX_TOKEN_BYTES = 200  # a longer token is indexed by its hash: an entry of a B-tree may have 2,700 bytes
_NUL, _NUL_MARK = "\0", "\ufffe"  # Postgres stores no NUL; U+FFFE is no character

_WORK_KB = 64 * 1024  # of a sort or a hash; 4 MB, as Postgres has it, let a scan of 300,000 vectors go through files
_CONFIGURE = sql.SQL("""SET search_path = {}, public; SELECT set_config('work_mem', '{}kB', false) FROM pg_settings
  WHERE name = 'work_mem' AND setting::integer < {}""")
_OF_NAMES = ("SELECT id FROM name ", "SELECT n_chunks FROM name ", "SELECT EXISTS (SELECT 1 FROM name ",
             "SELECT coalesce((SELECT n_chunks FROM held ")  # fmt: skip
_BEGIN_WRITE = """BEGIN; SELECT set_config('lock_timeout', '{busy_ms}', true), set_config('perdure.readers', '*', true);
  SELECT pg_advisory_xact_lock({lock}); UPDATE meta SET value = (value::bigint + 1)::text WHERE key = 'version'"""
_ADD_POSTINGS = """INSERT INTO posting SELECT $1, token, $2, cardinality(places::integer[]), places::integer[]
  FROM unnest($3::text[], $4::text[]) AS word(token, places)"""


class _NumberLoader(Loader):
    """Sums of whole numbers are whole numbers."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return float(text) if b"." in text else int(text)


class _FlagLoader(Loader):
    """SQLite has no booleans: True is 1."""

    def load(self, data: Buffer) -> int:
        return int(bytes(data) == b"t")


class _MarkedTextLoader(TextLoader):
    def load(self, data: Buffer) -> str:
        text = str(super().load(data))
        return text.replace(_NUL_MARK, _NUL) if _NUL_MARK in text else text


class _MarkedTextDumper(StrDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace(_NUL, _NUL_MARK) if _NUL in obj else obj)


class _Statements:
    """The connection, with the few methods of SQLite's that the index calls."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def execute(self, query: str, values: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        """Run a query; return its cursor."""
        return self.connection.execute(to_postgres(query), values)

    def executemany(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a query once for each row of values."""
        rows = list(rows)
        if rows:
            with self.connection.cursor() as cursor:
                cursor.executemany(to_postgres(query), rows)


def connect(address: str, password: str = "") -> psycopg.Connection[Any]:
    """Connect to a database. Raises IndexUnreachable."""
    secret: dict[str, Any] = {"password": password} if password else {}
    try:
        connection = psycopg.connect(
            address, autocommit=True, connect_timeout=CONNECT_S, cursor_factory=psycopg.RawCursor, **secret
        )
    except psycopg.OperationalError as error:
        raise IndexUnreachable(str(error).strip()) from error
    for type_name, loader in (("numeric", _NumberLoader), ("bool", _FlagLoader), ("text", _MarkedTextLoader)):
        connection.adapters.register_loader(type_name, loader)
    connection.adapters.register_dumper(str, _MarkedTextDumper)
    return connection


@contextlib.contextmanager
def map_errors(name: str) -> Iterator[None]:
    """Turn refusals of Postgres into errors that say what to do. name: of the index."""
    try:
        yield
    except (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure) as error:
        raise Busy(name) from error
    except errors.DiskFull as error:
        raise DiskFull(name) from error
    except (errors.UndefinedTable, errors.InvalidSchemaName, errors.DataCorrupted, errors.IndexCorrupted) as error:
        raise IndexDamaged(f"{name} ({_describe(error)})") from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise IndexUnreachable(f"{name} ({_describe(error)})") from error


def _describe(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0]


class PostgresIndex(IndexConnection):
    """One connection to an index in a schema of a database."""

    HAS_WALL = True
    LAST_CHUNK = "(SELECT last_value FROM chunk_id_seq)"

    def __init__(self, connection: psycopg.Connection[Any], schema: str, current_schema: str) -> None:
        """current_schema: a query for the schema in use now."""
        self._init_caches(Path(schema))
        self.schema = schema
        self.connection = connection
        self.db: Any = _Statements(connection)
        self._current_schema = current_schema
        self._readers: tuple[str, ...] | None = None  # None: every owner
        self._unknown_readers = False
        self._n_showing_all = 0  # blocks of `show_all` that are open
        self._totals: dict[int, tuple[int, int]] = {}  # owner -> (chunks, tokens), inside a snapshot for reading
        self._version: tuple[int, int] | None = None  # inside a snapshot for reading
        self._found_numbers: dict[tuple[str, str], int] = {}  # that these readers see; none is given again
        self._total_changes: Counter[tuple[int, str]] = Counter()
        self._held_facets: set[tuple[int, int]] = set()  # (owner, facet) that this connection wrote
        self._name_rows: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}  # of names, inside a snapshot for reading
        self._tokenizer = apsw.Connection(":memory:")
        with self._map_errors():
            connection.execute(_CONFIGURE.format(sql.Identifier(schema), _WORK_KB, _WORK_KB), prepare=False)
            self._set_readers(EVERYONE)

    def close(self) -> None:
        """Release the connection."""
        self.connection.close()
        self._tokenizer.close()

    def is_current(self, home: Path) -> bool:  # noqa: ARG002 - a file asks its folder
        """Return True if this connection still reads the index in use; False too when the server is gone."""
        try:
            return self.connection.execute(self._current_schema).fetchone() == (self.schema,)
        except psycopg.Error:
            return False

    def find_damage(self) -> str:
        """Return "": Postgres checks its pages by itself, where its operator turned that on."""
        return ""

    def checkpoint(self) -> None:
        """Take the deleted rows out of the tables, and their values out of what the planner knows of the columns.

        Their bytes may stay in the server's log and backups.
        """
        query = "SELECT string_agg(format('%I.%I', schemaname, tablename), ', ') FROM pg_tables WHERE schemaname = $1"
        with self._map_errors():
            ((tables,),) = self.connection.execute(query, [self.schema]).fetchall()
            self.connection.execute(f"VACUUM (SKIP_LOCKED, ANALYZE) {tables}".encode())
            self.connection.execute(b"VACUUM (SKIP_LOCKED) pg_catalog.pg_statistic")

    # transactions -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def begin_write(self) -> Iterator[Any]:
        """Open one transaction, which is the only writer; when it fails, drop what was collected for it."""
        is_done = False
        self._n_transactions += 1
        lock = zlib.crc32(self.schema.encode())
        try:
            with self._map_errors(), self._end_transaction():
                self.connection.execute(_BEGIN_WRITE.format(busy_ms=BUSY_MS, lock=lock).encode(), prepare=False)
                yield self.db
            is_done = True
        finally:
            if not is_done:
                self._chunk_counts.clear()
                self._name_numbers.clear()
                self._found_numbers.clear()
                self._total_changes.clear()
                self._held_facets.clear()
        if self._unknown_readers and self._readers is not None and not self._n_showing_all:
            self._apply_readers(self._readers)

    @contextlib.contextmanager
    def begin_read(self) -> Iterator[Any]:
        """Open one snapshot for several reads."""
        with self._map_errors():
            self.connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            self._word_counts, self._totals = {}, {}
            try:
                with self._end_transaction():
                    yield self.db
            except BaseException:
                self.temp_cache = None  # the rollback removes its rows in TEMP tables
                raise
            finally:
                self._word_counts, self._totals, self._version = None, {}, None
                self._name_rows.clear()

    @contextlib.contextmanager
    def _end_transaction(self) -> Iterator[None]:
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(psycopg.Error):
                self.connection.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _map_errors(self) -> Iterator[None]:
        with map_errors(f"Postgres schema {self.path}"):
            yield

    def get_version(self) -> tuple[int, int]:
        """Return a value that changes with every commit, by any process."""
        if self._version is not None:
            return self._version
        version = int(self.get_meta("version") or 0), self._n_transactions
        if self._word_counts is not None:
            self._version = version
        return version

    def find_name(self, kind: str, value: str) -> int | None:
        """Return the number of a name, or None when the index does not have it; a number is asked for once."""
        number = self._found_numbers.get((kind, value)) or super().find_name(kind, value)
        if number is not None:
            self._found_numbers[kind, value] = number
        return number

    def select(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query. Raises IndexDamaged, IndexUnreachable.

        Half of the queries of a recall ask for names again: a snapshot answers them once.
        """
        key = (query, *values)
        is_of_names = self._word_counts is not None and query.startswith(_OF_NAMES)
        if is_of_names and key in self._name_rows:
            return list(self._name_rows[key])
        with self._map_errors():
            rows: list[tuple[Any, ...]] = self.db.execute(query, values).fetchall()
        if is_of_names:
            self._name_rows[key] = rows
        return list(rows)

    def select_once(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query that is planned for these values: a plan for any owner reads too much."""
        with self._map_errors():
            return self.connection.execute(to_postgres(query).encode(), values, prepare=False).fetchall()

    def insert(self, query: str, values: Sequence[Any]) -> int:
        """Insert one row; return its number."""
        return int(self.db.execute(f"{query} RETURNING id", values).fetchone()[0])

    def open_slab(self, number: int, owner: int, dimension: int) -> PostgresSlab:
        """Return the rows of a slab."""
        from perdure.index.postgres_vectors import PostgresSlab

        return PostgresSlab(self, number, owner, dimension)

    # who reads ----------------------------------------------------------------------------------------------

    def is_wall_open(self) -> bool:
        """Return True if row-level security does not hold for this connection's role."""
        return not self.select("SELECT row_security_active('chunk')")[0][0]

    def limit_to(self, owners: Sequence[str]) -> None:
        """Show the rows of these owners alone, whatever a query asks for; rows are written all the same."""
        is_known = self._readers == tuple(owners) and not self._unknown_readers
        self._readers = tuple(owners)
        if not self._n_showing_all and not is_known:
            self._apply_readers(self._readers)

    def _apply_readers(self, readers: Sequence[str]) -> None:
        numbers = [self.find_name("user", owner) for owner in readers]
        self._unknown_readers = None in numbers
        self._set_readers(",".join(str(number) for number in numbers if number is not None) or "0")

    @contextlib.contextmanager
    def show_all(self) -> Iterator[None]:
        """Show the rows of every owner inside the block: for work that is about the whole index."""
        self._set_readers(EVERYONE)
        self._n_showing_all += 1
        try:
            yield
        finally:
            self._n_showing_all -= 1
            if self._readers is not None and not self._n_showing_all and not self.connection.closed:
                self._apply_readers(self._readers)

    def _set_readers(self, readers: str) -> None:
        self._name_rows.clear()
        self._found_numbers.clear()
        with self._map_errors():
            self.connection.execute("SELECT set_config('perdure.readers', $1, false)", [readers])

    def hold_names(self, owner: int, numbers: Iterable[int]) -> None:
        """Record that an owner has these names, so that they may read them."""
        rows = [(owner, number) for number in {owner, *numbers}]
        self.db.executemany("INSERT OR IGNORE INTO held VALUES (?, ?, 0)", rows)

    def add_facet(self, kind: str, value: str, owner: int) -> int:
        """Return the number of a facet, and record that an owner has it, so that they may read it."""
        number = super().add_facet(kind, value, owner)
        if (owner, number) not in self._held_facets:
            self.db.execute("INSERT OR IGNORE INTO facet_owner VALUES (?, ?)", (number, owner))
            self._held_facets.add((owner, number))
        return number

    # words --------------------------------------------------------------------------------------------------

    def _add_owner(self, number: int) -> None:
        self.db.execute("INSERT OR IGNORE INTO word_total VALUES (?, 0, 0)", (number,))

    def tokenize(self, words: str) -> list[str]:
        """Return the tokens of some words, as FTS5 makes them: both engines find the same."""
        return tokenize(self._tokenizer, words)

    def merge_words(self, should_stop: Callable[[], bool] = lambda: False) -> int:  # noqa: ARG002 - a file's
        """Do nothing: the postings of a word are rows of one table."""
        return 0

    def add_text(self, owner: int, chunk: int, text: str, scope: str) -> None:
        """Store the text of a chunk, and its postings."""
        names = [int(word.strip("z")) for word in scope.split()]
        tokens = self.tokenize(index_terms(text))
        places: dict[str, list[str]] = {}
        for place, token in enumerate(tokens):
            places.setdefault(_to_key(token), []).append(str(place))
        n_tokens = len(tokens) + len(names)
        self.db.execute(
            "INSERT INTO chunk_text VALUES (?, ?, ?, ?, ?::bigint[], ?)", (chunk, owner, text, scope, names, n_tokens)
        )
        arrays = [f"{{{','.join(numbers)}}}" for numbers in places.values()]
        self.connection.execute(_ADD_POSTINGS, [owner, chunk, list(places), arrays])
        self._change_total(owner, 1, n_tokens)

    def delete_text(self, owner: int, chunk: int, text: str, scope: str) -> None:
        """Delete the text of a chunk and its postings."""
        tokens = self.tokenize(index_terms(text))
        keys = list({_to_key(token) for token in tokens})
        query = "DELETE FROM posting WHERE owner = ? AND token = ANY(?::text[]) AND chunk = ?"
        self.db.execute(query, (owner, keys, chunk))
        self.db.execute("DELETE FROM chunk_text WHERE id = ?", (chunk,))
        self._change_total(owner, -1, -(len(tokens) + len(scope.split())))

    def _change_total(self, owner: int, n_chunks: int, n_tokens: int) -> None:
        self._total_changes[owner, "n_chunks"] += n_chunks
        self._total_changes[owner, "n_tokens"] += n_tokens

    def write_counts(self) -> None:
        """Write the collected counts."""
        super().write_counts()
        for owner in {owner for owner, _ in self._total_changes}:
            changes = (self._total_changes[owner, "n_chunks"], self._total_changes[owner, "n_tokens"], owner)
            query = "UPDATE word_total SET n_chunks = n_chunks + ?, n_tokens = n_tokens + ? WHERE owner = ?"
            self.db.execute(query, changes)
        self._total_changes.clear()

    def count_chunks_with(self, user: int, tokens: Iterable[str]) -> dict[str, int]:
        """Return for each token how many chunks of an owner hold it; read once in a snapshot."""
        known_counts = self._word_counts if self._word_counts is not None else {}
        tokens = list(dict.fromkeys(tokens))
        keys = {_to_key(token): token for token in tokens if (user, token) not in known_counts}
        query = """SELECT token, count(*) FROM posting WHERE owner = ? AND token = ANY(?::text[]) GROUP BY token"""
        counts = dict(self.select(query, user, list(keys))) if keys else {}
        known_counts.update(((user, token), counts.get(key, 0)) for key, token in keys.items())
        return {token: known_counts[user, token] for token in tokens}

    def count_scoring(self) -> bool:
        """Return False: the server scores."""
        return False

    def match_words(self, owner: int, expression: str) -> WordMatch:
        """Return the SQL of an owner's chunks that match an expression of FTS5 over the columns `text` and `scope`."""
        parsed = WordExpression(expression)
        if not parsed.terms:
            source = f"(SELECT id AS chunk, 0.0 AS score FROM chunk_text WHERE owner = ? AND {parsed.test}) AS found"
            return WordMatch(source, "found.chunk", "TRUE", "found.score", (owner,))
        keys = [[_to_key(token) for token in self.tokenize(term)] for term in parsed.terms]
        idfs, mean_tokens = self._weigh_terms(owner, keys)
        columns = ", ".join(f"max(n) FILTER (WHERE term = {i}) AS f{i}" for i in range(len(keys)))
        score = " + ".join(_SCORE.format(i=i) for i in range(len(keys)))
        parts = [_build_leaf(i, owner, term_keys) for i, term_keys in enumerate(keys)]
        hits = " UNION ALL ".join(query for query, _ in parts)
        source = f"""(SELECT hits.chunk, {score} AS score
            FROM (SELECT chunk, {columns} FROM ({hits}) AS hit GROUP BY chunk) AS hits
              JOIN chunk_text ON chunk_text.id = hits.chunk WHERE {parsed.test}) AS found"""
        weights = [value for idf in idfs for value in (idf, mean_tokens)]
        values = (*weights, *(value for _, part_values in parts for value in part_values))
        return WordMatch(source, "found.chunk", "TRUE", "found.score", values)

    def _weigh_terms(self, owner: int, keys: Sequence[Sequence[str]]) -> tuple[list[float], float]:
        """Return (the weight of each term among an owner's chunks, the mean number of tokens in one)."""
        if owner not in self._totals or self._word_counts is None:
            rows = self.select("SELECT n_chunks, n_tokens FROM word_total WHERE owner = ?", owner)
            self._totals[owner] = rows[0] if rows else (0, 0)
        n_chunks, n_tokens = self._totals[owner]
        singles = [term_keys[0] for term_keys in keys if len(term_keys) == 1]
        counts = self.count_chunks_with(owner, singles) if singles else {}
        idfs = []
        for i, term_keys in enumerate(keys):
            if len(term_keys) == 1:
                n_with = counts[term_keys[0]]
            else:
                query, values = _build_leaf(i, owner, term_keys)
                n_with = int(self.select(f"SELECT count(*) FROM ({query}) AS hit", *values)[0][0])
            idf = math.log((n_chunks - n_with + 0.5) / (n_with + 0.5)) if n_with <= n_chunks else 0.0
            idfs.append(idf if idf > 0 else _MIN_IDF)
        return idfs, n_tokens / n_chunks if n_chunks else 1.0


_SCORE = f"""?::float8 * (coalesce(f{{i}}, 0)::float8 * {_K1 + 1.0}::float8
  / (coalesce(f{{i}}, 0)::float8 + {_K1}::float8 * ({1 - _B}::float8 + {_B}::float8 * n_tokens::float8 / ?::float8)))"""


def _build_leaf(number: int, owner: int, keys: Sequence[str]) -> tuple[str, list[Any]]:
    """Return (query, its values) for the chunks with a term: its number, and how often it stands in each."""
    if not keys:
        return f"SELECT 0::bigint AS chunk, {number} AS term, 0 AS n WHERE FALSE", []
    if len(keys) == 1:
        return f"SELECT chunk, {number} AS term, n FROM posting WHERE owner = ? AND token = ?", [owner, keys[0]]
    if len(keys) > _MAX_JOINS:
        query = f"""SELECT chunk, {number} AS term, count(*)::integer AS n
          FROM (SELECT posting.chunk, place.at - key.i AS start
            FROM unnest(?::text[]) WITH ORDINALITY AS key(token, i)
              JOIN posting ON posting.owner = ? AND posting.token = key.token
              CROSS JOIN LATERAL unnest(posting.places) AS place(at)
            GROUP BY 1, 2 HAVING count(*) = {len(keys)}) AS phrase GROUP BY chunk"""
        return query, [list(keys), owner]
    joins = "".join(
        f" JOIN posting AS p{i} ON p{i}.owner = p0.owner AND p{i}.chunk = p0.chunk AND p{i}.token = ?"
        for i in range(1, len(keys))
    )
    tests = "".join(f" AND place.at + {i} = ANY(p{i}.places)" for i in range(1, len(keys)))
    query = f"""SELECT p0.chunk, {number} AS term, count(*)::integer AS n FROM posting AS p0{joins}
      CROSS JOIN LATERAL unnest(p0.places) AS place(at)
      WHERE p0.owner = ? AND p0.token = ?{tests} GROUP BY p0.chunk"""
    return query, [*keys[1:], owner, keys[0]]


def _to_key(token: str) -> str:
    """Return the token as the postings have it."""
    encoded = token.encode("utf-8", "replace")
    if len(encoded) <= _MAX_TOKEN_BYTES:
        return token
    return f"#{blake2b(encoded, digest_size=16).hexdigest()}"
