"""Where an index is in Postgres: a schema for each, and a row that says which is in use. Migrations by number.

A rebuild makes another schema beside the one in use and moves the row in one transaction, so readers keep answering
from the old one until then. The tables of an index are never migrated, because an index is a cache: one of another
version is made again. Only the table that names the schemas lives on, and `_MIGRATIONS` bring it up to date.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import errors, sql

from perdure.config import IndexConfig
from perdure.environ import read_variable
from perdure.errors import IndexDamaged, IndexMissing, IndexUnreachable, VariableMissing
from perdure.index.dialect import to_postgres_tables
from perdure.index.postgres import PostgresIndex, connect, map_errors
from perdure.index.store import BUSY_MS, SCHEMA, TABLES

VERSION = 100 * SCHEMA + 1  # of the tables: the second part counts changes of those that only Postgres has
_MIGRATIONS = (  # of the schema that names the others; {base} is its name
    """CREATE TABLE {base}.generation(
         number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, schema_name text NOT NULL UNIQUE,
         tables_version integer NOT NULL, is_current boolean NOT NULL DEFAULT FALSE);
       CREATE UNIQUE INDEX generation_current ON {base}.generation(is_current) WHERE is_current""",
)
_OWN_TABLES = """
CREATE TABLE chunk_text(id bigint PRIMARY KEY, owner bigint NOT NULL, text text NOT NULL, scope text NOT NULL,
  names bigint[] NOT NULL, n_tokens bigint NOT NULL);
CREATE INDEX chunk_text_owner ON chunk_text(owner);
CREATE TABLE posting(owner bigint NOT NULL, token text COLLATE "C" NOT NULL, chunk bigint NOT NULL, n integer NOT NULL,
  places integer[] NOT NULL, PRIMARY KEY(owner, token, chunk) INCLUDE (n));
CREATE TABLE word_total(owner bigint PRIMARY KEY, n_chunks bigint NOT NULL, n_tokens bigint NOT NULL);
CREATE TABLE slab_row(slab bigint NOT NULL, "row" bigint NOT NULL, chunk bigint NOT NULL, tie bigint NOT NULL,
  scale real NOT NULL, numbers halfvec NOT NULL, PRIMARY KEY(slab, "row"));
CREATE INDEX slab_row_chunk ON slab_row(slab, chunk);
CREATE INDEX chunk_owner ON chunk("user", id);
CREATE TABLE facet_owner(facet bigint NOT NULL REFERENCES facet(id) ON DELETE CASCADE, owner bigint NOT NULL,
  PRIMARY KEY(facet, owner));
CREATE FUNCTION instr(text, text) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT strpos($1, $2)';
CREATE FUNCTION strftime(text, bigint, text) RETURNS text LANGUAGE sql STABLE
  AS $$SELECT to_char(to_timestamp($2) AT TIME ZONE 'UTC', 'YYYY-MM')$$;
CREATE FUNCTION date(bigint, text, text, text) RETURNS text LANGUAGE sql STABLE
  AS $$SELECT to_char(date_trunc('week', to_timestamp($1) AT TIME ZONE 'UTC'), 'YYYY-MM-DD')$$;
CREATE FUNCTION readers() RETURNS bigint[] LANGUAGE sql STABLE AS
  $$SELECT CASE WHEN coalesce(current_setting('perdure.readers', true), '') IN ('', '*') THEN '{}'
    ELSE string_to_array(current_setting('perdure.readers', true), ',') END::bigint[]$$;
"""  # the functions are those of SQLite that the queries use, for the few forms in which they use them

_SEES_ALL = "(SELECT coalesce(current_setting('perdure.readers', true), '')) = '*'"
_SEES_OWNER = "{column} = ANY((SELECT readers())::bigint[])"
_OWNED = {  # tables with a column for the owner
    **dict.fromkeys(("held", "run", "chunk", "memory", "mined", "judged", "injection", "told", "measured", "slab",
                     "workflow_turn", "topic", "topic_mark"), '"user"'),
    **dict.fromkeys(("chunk_text", "posting", "word_total", "facet_owner"), "owner"),
}  # fmt: skip
_BELONGS = {  # other tables: a row is seen by whoever sees this row of another table
    "relation": "topic WHERE topic.id = relation.topic",
    "turn": "run WHERE run.id = turn.run",
    "run_tag": "run WHERE run.id = run_tag.run",
    "turn_facet": "turn WHERE turn.id = turn_facet.turn",
    "facet": "facet_owner WHERE facet_owner.facet = facet.id AND facet_owner.owner = ANY((SELECT readers())::bigint[])",
    "fact": "turn WHERE turn.id = fact.turn",
    "fact_key": "fact WHERE fact.id = fact_key.fact",
    "picture": "turn WHERE turn.id = picture.turn",
    "memory_source": "memory WHERE memory.id = memory_source.memory",
    "vector": "slab WHERE slab.id = vector.slab",
    "hole": "slab WHERE slab.id = hole.slab",
    "slab_row": "slab WHERE slab.id = slab_row.slab",
}
_OF_NOBODY = ("link", "gone", "gone_picture")  # only work on the whole index reads them


def read_password(config: IndexConfig) -> str:
    """Return the password of the database; "" where the settings name no variable. Raises ConfigFault."""
    if not config.password_env:
        return ""
    if password := read_variable(config.password_env):
        return password
    raise VariableMissing(f"index.password_env: the environment has no {config.password_env}")


class IndexDatabase:
    """The place of the index of a home in Postgres."""

    def __init__(self, config: IndexConfig) -> None:
        self._config = config

    @property
    def _current(self) -> str:
        return f"SELECT schema_name FROM {self._config.schema}.generation WHERE is_current"

    def connect(self) -> psycopg.Connection[Any]:
        """Connect, and bring the table that names the indexes up to date. Raises IndexUnreachable, ConfigFault."""
        connection = connect(self._config.address, read_password(self._config))
        try:
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: psycopg.Connection[Any]) -> None:
        name = self._config.schema
        with map_errors(f"Postgres schema {name}"):
            try:
                rows = connection.execute(f"SELECT coalesce(max(number), 0) FROM {name}.migration".encode()).fetchall()
                number = int(rows[0][0])
            except (errors.UndefinedTable, errors.InvalidSchemaName):
                number = 0
            if number > len(_MIGRATIONS):
                raise IndexDamaged(f"{name} (a newer version of Perdure made it)")
            if number < len(_MIGRATIONS):
                self._apply_migrations(connection)

    def _apply_migrations(self, connection: psycopg.Connection[Any]) -> None:
        name = self._config.schema
        with connection.transaction():
            connection.execute(b"SELECT pg_advisory_xact_lock(hashtext('perdure.migration'))")
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {name}".encode())
            connection.execute(f"CREATE TABLE IF NOT EXISTS {name}.migration(number integer PRIMARY KEY)".encode())
            rows = connection.execute(f"SELECT coalesce(max(number), 0) FROM {name}.migration".encode()).fetchall()
            for number, statements in enumerate(_MIGRATIONS[rows[0][0] :], start=rows[0][0] + 1):
                for statement in statements.format(base=name).split(";"):
                    connection.execute(statement.encode())
                connection.execute(f"INSERT INTO {name}.migration VALUES ({number})".encode())

    @contextlib.contextmanager
    def _use(self) -> Iterator[psycopg.Connection[Any]]:
        with map_errors(f"Postgres schema {self._config.schema}"), contextlib.closing(self.connect()) as connection:
            connection.execute(f"SET lock_timeout = {BUSY_MS}".encode())  # for readers of what is to be deleted
            yield connection

    @contextlib.contextmanager
    def _connect_for_index(self) -> Iterator[psycopg.Connection[Any]]:
        """Connect for an index, which will close the connection; close it here only if the block fails."""
        connection = self.connect()
        try:
            with map_errors(f"Postgres schema {self._config.schema}"):
                yield connection
        except BaseException:
            connection.close()
            raise

    def _find_current(self, connection: psycopg.Connection[Any]) -> tuple[str, int] | None:
        query = f"SELECT schema_name, tables_version FROM {self._config.schema}.generation WHERE is_current"
        return connection.execute(query.encode()).fetchone()

    # the index in use -----------------------------------------------------------------------------------------

    def has_index(self) -> bool:
        """Return True if there is an index in use."""
        with self._use() as connection:
            return self._find_current(connection) is not None

    def is_old(self) -> bool:
        """Return False: `open` begins an index of an older version again, so that opening a home asks no server."""
        return False

    def open(self, *, create: bool = False, writable: bool = True) -> PostgresIndex:
        """Open the index in use. Raises IndexMissing, IndexDamaged, IndexUnreachable."""
        with self._connect_for_index() as connection:
            current = self._find_current(connection)
            is_old = current is not None and current[1] < VERSION and writable
            if is_old or (current is None and create):
                with connection.transaction():
                    connection.execute(b"SELECT pg_advisory_xact_lock(hashtext('perdure.generation'))")
                    current = self._find_current(connection)
                    if current is None or current[1] < VERSION:
                        current = (self._create(connection), VERSION)
                        self._point_to(connection, current[0])
            if current is None:
                raise IndexMissing(f"Postgres schema {self._config.schema}")
            if current[1] != VERSION:
                raise IndexDamaged(f"Postgres schema {current[0]} (made by another version)")
            return PostgresIndex(connection, current[0], self._current)

    def delete(self) -> None:
        """Delete every index of the home."""
        with self._use() as connection, connection.transaction():
            rows = connection.execute(f"SELECT schema_name FROM {self._config.schema}.generation".encode()).fetchall()
            for (name,) in rows:
                self._drop(connection, name)

    def delete_unused(self) -> None:
        """Delete the indexes that are not in use: of a rebuild that did not end."""
        with self._use() as connection, connection.transaction():
            self._drop_others(connection)

    # a new index ----------------------------------------------------------------------------------------------

    def begin_build(self) -> tuple[PostgresIndex, bool]:
        """Return (an index beside the one in use, True if an earlier rebuild began it)."""
        query = f"""SELECT schema_name FROM {self._config.schema}.generation
            WHERE NOT is_current AND tables_version = {VERSION} ORDER BY number DESC LIMIT 1"""
        with self._connect_for_index() as connection:
            row = connection.execute(query.encode()).fetchone()
            if row is None:
                with connection.transaction():
                    name = self._create(connection)
            else:
                name = row[0]
            return PostgresIndex(connection, name, self._current), row is not None

    def replace_with(self, index: PostgresIndex) -> None:
        """Take an index into use and delete the others, in one transaction."""
        with self._use() as connection, connection.transaction():
            self._point_to(connection, index.schema)
            self._drop_others(connection)

    def _create(self, connection: psycopg.Connection[Any]) -> str:
        """Make the tables of an index; return the name of its schema."""
        base = self._config.schema
        query = f"""INSERT INTO {base}.generation(schema_name, tables_version)
          VALUES ('{base}_' || pg_catalog.currval(pg_get_serial_sequence('{base}.generation', 'number')), {VERSION})
          RETURNING schema_name"""
        row = connection.execute(query.encode()).fetchone()
        assert row is not None
        name = sql.Identifier(row[0])
        self._require_vectors(connection)
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(name))
        connection.execute(sql.SQL("SET LOCAL search_path = {}, public").format(name))
        connection.execute((to_postgres_tables(TABLES) + _OWN_TABLES).encode(), prepare=False)
        connection.execute(_build_policies().encode(), prepare=False)
        connection.execute(b"INSERT INTO meta VALUES ('generation', $1), ('version', '0')", [secrets.token_hex(8)])
        return str(row[0])

    def _require_vectors(self, connection: psycopg.Connection[Any]) -> None:
        if connection.execute(b"SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone() is None:
            try:
                with connection.transaction():
                    connection.execute(b"CREATE EXTENSION vector SCHEMA public")
            except psycopg.Error as error:
                advice = "as its superuser, run CREATE EXTENSION vector"
                raise IndexUnreachable(f"the database has no pgvector: {advice}") from error

    def _point_to(self, connection: psycopg.Connection[Any], name: str) -> None:
        table = f"{self._config.schema}.generation"
        connection.execute(f"UPDATE {table} SET is_current = FALSE WHERE is_current".encode())
        connection.execute(f"UPDATE {table} SET is_current = TRUE WHERE schema_name = $1".encode(), [name])

    def _drop_others(self, connection: psycopg.Connection[Any]) -> None:
        query = f"SELECT schema_name FROM {self._config.schema}.generation WHERE NOT is_current"
        for (name,) in connection.execute(query.encode()).fetchall():
            self._drop(connection, name)

    def _drop(self, connection: psycopg.Connection[Any], name: str) -> None:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name)))
        query = f"DELETE FROM {self._config.schema}.generation WHERE schema_name = $1"
        connection.execute(query.encode(), [name])


def _build_policies() -> str:
    """Return the statements that let a connection see the rows of those owners alone that it named."""
    tests = {table: _SEES_OWNER.format(column=column) for table, column in _OWNED.items()}
    tests |= {table: f"EXISTS (SELECT 1 FROM {source})" for table, source in _BELONGS.items()}
    tests |= dict.fromkeys(_OF_NOBODY, "FALSE")
    tests["name"] = "kind IN ('user', 'role', 'kind') OR EXISTS (SELECT 1 FROM held WHERE held.name = name.id)"
    return ";\n".join(
        f"""ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
        CREATE POLICY readers ON {table} USING ({_SEES_ALL} OR {test})"""
        for table, test in tests.items()
    )
