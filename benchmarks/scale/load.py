"""Load rows into an index in Postgres in bulk: the same rows as `write_run` writes, by COPY.

`RowCollector` is the product's own index connection with its database taken away: `write_run` writes into lists, and
reads nothing, because every session is new. So the rows are the product's (a test compares the digests), and only their
way into the tables is another one. The large tables are emptied, filled and indexed in one transaction, so that
Postgres writes no log for them (`wal_level = minimal`); their keys and indexes are built when all rows are there.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg

from benchmarks.scale import texts
from perdure.capture.lines import Line
from perdure.formats.run_turns import parse_run
from perdure.identity import make_run_id
from perdure.index.postgres import PostgresIndex
from perdure.index.projection import project_run
from perdure.index.write import write_run
from perdure.models.embedder import QuantisedVectors, quantise
from perdure.sqlite import apsw
from perdure.types import Run, Source

FLUSH_TURNS = 20_000
_INSERT = re.compile(r"INSERT (?:OR IGNORE )?INTO (\w+)\s*(?:\(([^)]*)\))?")
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
LARGE = ("run", "turn", "chunk", "chunk_text", "posting", "turn_facet", "slab_row", "vector")  # nothing refers to them
_KEYS = f"""
  SELECT format('ALTER TABLE %s ADD CONSTRAINT %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid)),
    format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname)
  FROM pg_constraint WHERE contype IN ('p', 'u') AND conrelid = ANY('{{{",".join(LARGE)}}}'::regclass[])
  UNION ALL
  SELECT pg_get_indexdef(indexrelid), format('DROP INDEX %s', indexrelid::regclass) FROM pg_index
  WHERE indrelid = ANY('{{{",".join(LARGE)}}}'::regclass[])
    AND indexrelid NOT IN (SELECT conindid FROM pg_constraint)"""
_SETTINGS = "SET maintenance_work_mem = '2GB'; SET work_mem = '256MB'; SET vacuum_buffer_usage_limit = '512MB'"


class RowCollector(PostgresIndex):
    """An index that collects the rows which are inserted into it."""

    def __init__(self, first_numbers: dict[str, int]) -> None:
        """first_numbers: of the rows of each table with numbers."""
        self._init_caches(Path("rows"))
        self.db = self.connection = self  # type: ignore[assignment]
        self.rows: dict[tuple[str, str], list[Sequence[Any]]] = {}  # by table and columns
        self.held: Counter[tuple[int, int]] = Counter()
        self._next_numbers = dict(first_numbers)
        self._held_facets = set()
        self._facets: dict[tuple[str, str], int] = {}
        self._totals, self._total_changes = {}, Counter()
        self._tokenizer = apsw.Connection(":memory:")
        self.totals: Counter[tuple[int, str]] = Counter()

    def execute(self, query: str, values: Sequence[Any] = ()) -> Any:
        """Collect the row of an INSERT; anything else finds nothing."""
        if "INSERT INTO posting" in query:
            owner, chunk, tokens, arrays = values
            rows = self.rows.setdefault(("posting", ""), [])
            rows += [(owner, token, chunk, array.count(",") + 1, array) for token, array in
                     zip(tokens, arrays, strict=True)]  # fmt: skip
        elif match := _INSERT.match(query.lstrip()):
            self._add(match, values)
        return _Nothing()

    def executemany(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Collect the rows of an INSERT."""
        if match := _INSERT.match(query.lstrip()):
            for row in rows:
                self._add(match, row)

    def _add(self, match: re.Match[str], values: Sequence[Any]) -> None:
        if match[1] == "held":
            self.held[values[0], values[1]] += values[2] if len(values) > 2 else 0
        elif match[1] != "word_total":
            self.rows.setdefault((match[1], match[2] or ""), []).append(values)

    def insert(self, query: str, values: Sequence[Any]) -> int:
        """Collect a row; return its number."""
        match = _INSERT.match(query.lstrip())
        assert match
        number = self._next_numbers[match[1]] = self._next_numbers.get(match[1], 0) + 1
        self.rows.setdefault((match[1], f"id, {match[2]}"), []).append((number, *values))
        return number

    def select(self, query: str, *values: Any) -> list[tuple[Any, ...]]:  # noqa: ARG002
        """Return nothing: every session is new."""
        return []

    def find_name(self, kind: str, value: str) -> int | None:
        """Return the number of a name that was added here."""
        return self._name_numbers.get((kind, value))

    def add_facet(self, kind: str, value: str, owner: int) -> int:
        """Return the number of a facet."""
        if (kind, value) not in self._facets:
            self._facets[kind, value] = self.insert("INSERT INTO facet(kind, value) VALUES (?, ?)", (kind, value))
        number = self._facets[kind, value]
        if (number, owner) not in self._held_facets:
            self._held_facets.add((number, owner))
            self.rows.setdefault(("facet_owner", ""), []).append((number, owner))
        return number

    def write_counts(self) -> None:
        """Keep the counts until the end."""
        self.held.update(self._chunk_counts)
        self.totals.update(self._total_changes)
        self._chunk_counts.clear()
        self._total_changes.clear()

    def hold_names(self, owner: int, numbers: Iterable[int]) -> None:
        """Record the names of an owner."""
        for number in {owner, *numbers}:
            self.held[owner, number] += 0


class _Nothing:
    def fetchall(self) -> list[Any]:
        return []

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def build_run(user: str, session: texts.Session) -> tuple[Run, list[Line]]:
    """Return the run and the lines of a session, as the archive would hold them."""
    source = Source(user, "messages", session.name)
    run = Run(
        run_id=make_run_id(source, 0, session.began_at), source=source, machine="bench", agent="default",
        project=session.project, conversation=session.name, from_offset=0, to_offset=len(session.lines),
        sha256="0" * 64, started_at=session.began_at, ended_at=session.began_at, captured_at=session.began_at,
    )  # fmt: skip
    lines, offset = [], 0
    for raw in session.lines.splitlines():
        lines.append(Line(offset, raw))
        offset += len(raw) + 1
    return run, lines


class BulkLoad:
    """Users and their sessions on their way into an empty index of Postgres."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str, tag: str, dimension: int) -> None:
        """connection: of a superuser. schema: of the index. tag, dimension: of the vectors; "" for none."""
        self._connection, self._tag, self._dimension = connection, tag, dimension
        self._began_s = time.perf_counter()
        connection.execute(f"SET search_path = {schema}, public; {_SETTINGS}".encode())
        self._keys = connection.execute(_KEYS.encode()).fetchall()  # (how to add it, how to drop it)
        for _, drop in self._keys:
            connection.execute(str(drop).encode())
        connection.execute(f"TRUNCATE {', '.join(LARGE)}".encode())
        self._collector = RowCollector({})
        self._n_slabs = 0
        self._has_names = False
        self.n_chunks = 0
        self.n_bytes = 0  # of the sessions

    def add_user(self, user: str, sessions: Iterable[texts.Session]) -> None:
        """Load a user's sessions, and a vector for each chunk."""
        self._n_slabs += 1
        n_rows = n_turns = 0
        keys: list[tuple[str, int]] = []  # (session, its chunks)
        for session in sessions:
            run, lines = build_run(user, session)
            parsed = parse_run(run, lines)
            n_chunks = write_run(self._collector, run, parsed, project_run(run, parsed))
            keys.append((session.name, n_chunks))
            self.n_bytes += len(session.lines)
            n_turns += session.n_turns
            if n_turns >= FLUSH_TURNS:
                n_rows += self._flush(keys, n_rows)
                keys, n_turns = [], 0
        n_rows += self._flush(keys, n_rows)
        if self._tag:
            number = self._collector.find_name("user", user)
            row = (self._n_slabs, number, self._tag, self._dimension, n_rows, self.n_chunks)
            query = b'INSERT INTO slab(id, "user", tag, dimension, n_rows, listed) VALUES (%s, %s, %s, %s, %s, %s)'
            self._connection.execute(query, row)
        self.say(f"{user} is loaded, {self.n_chunks:,} chunks")

    def say(self, what: str) -> None:
        """Tell the terminal how far the load is."""
        print(f"  {time.perf_counter() - self._began_s:5.0f} s: {what}", file=sys.stderr, flush=True)

    def _flush(self, keys: list[tuple[str, int]], n_rows: int) -> int:
        chunks = [(row[0], row[3]) for (table, _), rows in self._collector.rows.items() if table == "chunk"
                  for row in rows]  # fmt: skip
        for (table, columns), rows in sorted(self._collector.rows.items()):  # a facet goes before its owner
            if table != "name":
                _copy(self._connection, table, columns, rows)
        self._collector.rows = {key: rows for key, rows in self._collector.rows.items() if key[0] == "name"}
        if self._tag and chunks:
            self._copy_vectors(keys, np.array(chunks, np.int64), n_rows)
        self.n_chunks += len(chunks)
        return len(chunks)

    def _copy_vectors(self, keys: list[tuple[str, int]], chunks: Any, n_rows: int) -> None:
        shape = texts.measure_vectors()
        quantised = quantise(np.concatenate([shape.make(name, n) for name, n in keys if n]))
        copy_slab_rows(self._connection, self._n_slabs, n_rows, chunks, quantised)
        pairs = zip(chunks[:, 0].tolist(), range(n_rows, n_rows + len(chunks)), strict=True)
        _copy(self._connection, "vector", "chunk, slab, row", [(chunk, self._n_slabs, row) for chunk, row in pairs])

    def write_names(self) -> None:
        """Load names and counts, which are known when the last user is there."""
        collector, connection, self._has_names = self._collector, self._connection, True
        n_chunks: Counter[int] = Counter()
        for (_, name), n in collector.held.items():
            n_chunks[name] += n
        for (_, columns), rows in collector.rows.items():
            _copy(connection, "name", f"{columns}, n_chunks", [(*row, n_chunks[row[0]]) for row in rows])
        _copy(connection, "held", "", [(owner, name, n) for (owner, name), n in collector.held.items()])
        owners = sorted({owner for owner, _ in collector.totals})
        totals = [(o, collector.totals[o, "n_chunks"], collector.totals[o, "n_tokens"]) for o in owners]
        _copy(connection, "word_total", "", totals)
        self._continue_numbers()

    def _continue_numbers(self) -> None:
        """Let the numbers of new rows follow the last."""
        for table in ("run", "turn", "chunk", "facet", "slab", "name"):
            query = f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table}"
            self._connection.execute(query.encode())

    def finish(self) -> None:
        """Build keys and indexes, and let Postgres look at the tables."""
        if not self._has_names:
            self.write_names()
        connection = self._connection
        for add, _ in self._keys:
            connection.execute(str(add).encode())
            self.say(str(add)[:100])
        self._continue_numbers()
        connection.commit()
        self.say("committed")
        connection.autocommit = True
        connection.execute(b"VACUUM ANALYZE")
        connection.execute(b"CHECKPOINT")
        self.say("ready")


def copy_slab_rows(
    connection: psycopg.Connection[Any],
    slab: int,
    first_row: int,
    chunks: npt.NDArray[np.int64],
    vectors: QuantisedVectors,
) -> None:
    """Load rows of a slab in the binary form of COPY. chunks: (number, tie) of each."""
    n_rows, dimension = vectors.values.shape
    fields = (("slab", ">i8"), ("row", ">i8"), ("chunk", ">i8"), ("tie", ">i8"), ("scale", ">f4"))
    lengths = {f"length of {name}": int(kind[-1]) for name, kind in fields}
    columns = [("count", ">i2"), *((name, kind) for pair in zip(((key, ">i4") for key in lengths), fields, strict=True)
               for name, kind in pair), ("length", ">i4"), ("dimension", ">i2"), ("unused", ">i2"),
               ("numbers", ">f2", (dimension,))]  # fmt: skip
    rows = np.zeros(n_rows, np.dtype(columns))
    for name, length in {**lengths, "count": 6, "length": 4 + 2 * dimension, "dimension": dimension}.items():
        rows[name] = length
    rows["slab"], rows["row"] = slab, first_row + np.arange(n_rows)
    rows["chunk"], rows["tie"] = chunks[:, 0], chunks[:, 1]
    rows["scale"], rows["numbers"] = vectors.scales, vectors.values
    with connection.cursor().copy(b"COPY slab_row FROM STDIN (FORMAT BINARY)") as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8) + rows.tobytes() + b"\xff\xff")


def _copy(connection: psycopg.Connection[Any], table: str, columns: str, rows: Sequence[Sequence[Any]]) -> None:
    names = ", ".join(f'"{name.strip()}"' for name in columns.split(",")) if columns else ""
    target = f"{table}({names})" if names else table
    with connection.cursor().copy(f"COPY {table if not names else target} FROM STDIN".encode()) as copy:
        for start in range(0, len(rows), 2_000):
            copy.write("".join(map(_to_line, rows[start : start + 2_000])).encode("utf-8", "replace"))


def _to_line(row: Sequence[Any]) -> str:
    return "\t".join(map(_to_field, row)) + "\n"


def _to_field(value: Any) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, str):
        return value.translate(_ESCAPES) if "\\" in value or "\n" in value or "\t" in value or "\r" in value else value
    if isinstance(value, list):
        return f"{{{','.join(map(str, value))}}}"
    return ("t" if value else "f") if isinstance(value, bool) else str(value)


@contextlib.contextmanager
def begin_load(connection: psycopg.Connection[Any], schema: str, *, with_vectors: bool = True) -> Iterator[BulkLoad]:
    """Load users into an empty index; finish when the block ends."""
    tag = texts.open_embedder().tag
    load = BulkLoad(connection, schema, tag.key if with_vectors else "", tag.dimension)
    yield load
    load.finish()
