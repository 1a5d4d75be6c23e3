"""Fill an index with users: some whose texts are made, and copies of them, made by Postgres itself.

A copy is another owner with rows of its own in every table, or more chunks of the same owner. In it the words that few
chunks hold are other words (a mark and the number of the copy stand behind them), so that vocabulary grows and no two
chunks are alike; the shown text stays that of the original. Copying takes a tenth of the time of making.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks.scale import load, texts
from benchmarks.scale.server import connect_as_superuser, find_schema
from rig.postgres import PostgresServer

_RARE_SHARE = 200  # a word that fewer than one in so many chunks of its owner hold is another word in a copy
# {k} is the number of the copy, {span} what it adds to numbers; twin: (owner, k, the owner of the copy). {end[…]}: the
# page of a table that follows the rows which are copied, so that a copy reads these alone.
_COPIES = (
    """INSERT INTO run SELECT id + {span}, run_id || '{k}', captured_in || '{k}', thread, twin.copy, runtime, machine,
       agent, project, conversation, session || '{k}', generation, from_offset, to_offset, stored_sha256, started_ms,
       ended_ms, captured_ms, parent_run_id, parent_session, fork, path, cwd, readable_by, title, intent, n_turns,
       n_user, n_assistant, n_tool, n_calls, n_tokens, n_forgotten, n_malformed, skipped
       FROM run JOIN twin ON twin.original = "user" AND twin.k = {k} WHERE id <= {n_runs}
         AND run.ctid < {end[run]}""",
    """INSERT INTO turn SELECT id + {span}, turn_id || '{k}', copy_key # ({mask}), run + {span}, "offset",
       content_run + {span}, content_offset, role, author, stated_ms, model, n_tokens, is_summary, entry,
       thread # ({mask}), said, speaker, abandoned FROM turn WHERE id <= {n_turns}
         AND turn.ctid < {end[turn]}""",
    """INSERT INTO chunk SELECT id + {span}, turn + {span}, n, tie # ({mask}), twin.copy, run + {span},
       project, conversation, runtime, machine, agent, role, kind, stated_ms
       FROM chunk JOIN twin ON twin.original = "user" AND twin.k = {k} WHERE id <= {n_chunks}
         AND chunk.ctid < {end[chunk]}""",
    """INSERT INTO chunk_text SELECT id + {span}, twin.copy, text, scope, names, n_tokens
       FROM chunk_text JOIN twin ON twin.original = owner AND twin.k = {k} WHERE id <= {n_chunks}
         AND chunk_text.ctid < {end[chunk_text]}""",
    """INSERT INTO posting SELECT twin.copy, CASE WHEN rare.token IS NULL THEN posting.token
         ELSE posting.token || 'qz{k}' END, chunk + {span}, n, places
       FROM posting JOIN twin ON twin.original = owner AND twin.k = {k} LEFT JOIN rare USING (token)
       WHERE chunk <= {n_chunks} AND posting.ctid < {end[posting]}""",
    """INSERT INTO turn_facet SELECT facet, turn + {span} FROM turn_facet WHERE turn <= {n_turns}
       AND turn_facet.ctid < {end[turn_facet]}""",
    """INSERT INTO slab_row SELECT {slab}, {row}, chunk + {span}, tie # ({mask}), scale, numbers
       FROM slab_row WHERE chunk <= {n_chunks} AND slab_row.ctid < {end[slab_row]}""",
    """INSERT INTO vector SELECT chunk + {span}, {slab}, {row} FROM vector WHERE chunk <= {n_chunks}
       AND vector.ctid < {end[vector]}""",
)
_COPIES_OF_OWNERS = (
    """INSERT INTO held SELECT twin.copy, CASE WHEN name = "user" THEN twin.copy ELSE name END, n_chunks
       FROM held JOIN twin ON twin.original = "user" AND twin.k = {k}""",
    "INSERT INTO facet_owner SELECT facet, twin.copy FROM facet_owner JOIN twin ON twin.original = owner AND k = {k}",
    """INSERT INTO word_total SELECT twin.copy, n_chunks, n_tokens
       FROM word_total JOIN twin ON twin.original = owner AND k = {k}""",
    """INSERT INTO slab SELECT {slab}, twin.copy, tag, dimension, n_rows, listed, n_left, made_by
       FROM slab AS slab JOIN twin ON twin.original = "user" AND k = {k}""",
)
_ADD_NAMES = """INSERT INTO name(kind, value, n_chunks)
  SELECT 'user', 'u' || substr(value, 2)::integer + {step}, n_chunks
  FROM name WHERE kind = 'user' AND substr(value, 2)::integer <= {n}"""
_PAIR_OWNERS = """INSERT INTO twin SELECT mine.id, {k}, theirs.id FROM name AS mine
  JOIN name AS theirs ON theirs.kind = 'user' AND theirs.value = 'u' || substr(mine.value, 2)::integer + {step}
  WHERE mine.kind = 'user' AND substr(mine.value, 2)::integer <= {n}"""
_GROW = ("UPDATE slab SET n_rows = n_rows * {n}", "UPDATE held SET n_chunks = n_chunks * {n}",
         "UPDATE word_total SET n_chunks = n_chunks * {n}, n_tokens = n_tokens * {n}",
         "UPDATE name SET n_chunks = n_chunks * {n} WHERE kind = 'user'")  # fmt: skip


@dataclass(frozen=True)
class Filled:
    """What an index holds."""

    n_users: int
    n_chunks: int
    n_made: int  # chunks whose texts were made
    session_bytes: int  # of the made sessions


def fill_users(server: PostgresServer, database: str, *, n_made: int, n_copies: int, n_chunks: int) -> Filled:
    """Fill an index with n_made users, u1 …, and n_copies copies of each as users of their own.

    The copies of user n are u<n + n_made>, u<n + 2 n_made>, …
    """
    with (
        connect_as_superuser(server, database) as connection,
        load.begin_load(connection, find_schema(server, database)) as bulk,
    ):
        for user in range(1, n_made + 1):
            bulk.add_user(f"u{user}", texts.make_sessions(user, n_chunks))
        if n_copies:
            bulk.write_names()
            _copy(bulk, connection, n_made, n_copies, is_same_owner=False)
    n_users = n_made * (1 + n_copies)
    return Filled(n_users, bulk.n_chunks * (1 + n_copies), bulk.n_chunks, bulk.n_bytes)


def fill_one(server: PostgresServer, database: str, *, n_chunks: int, n_copies: int) -> Filled:
    """Fill an index with one user, u1, of so many chunks, of which one in (1 + n_copies) is made."""
    with (
        connect_as_superuser(server, database) as connection,
        load.begin_load(connection, find_schema(server, database)) as bulk,
    ):
        bulk.add_user("u1", texts.make_sessions(1, n_chunks // (1 + n_copies)))
        if n_copies:
            bulk.write_names()
            _copy(bulk, connection, 1, n_copies, is_same_owner=True)
    return Filled(1, bulk.n_chunks * (1 + n_copies), bulk.n_chunks, bulk.n_bytes)


def _copy(
    bulk: load.BulkLoad, connection: psycopg.Connection[Any], n_made: int, n_copies: int, *, is_same_owner: bool
) -> None:
    """Copy the rows of every owner; with is_same_owner, as more rows of the same owner."""

    def run(statement: str, **values: object) -> None:
        connection.execute(statement.format(**values).encode())

    known = {f"n_{table}s": _find_last(connection, table) for table in ("run", "turn", "chunk")}
    for table in load.LARGE:
        run("ANALYZE {table}", table=table)
    end = {table: f"'({_count_pages(connection, table)},0)'" for table in load.LARGE}
    n_rare = max(2, known["n_chunks"] // _RARE_SHARE)
    run("CREATE TEMP TABLE rare AS SELECT token FROM posting GROUP BY token HAVING count(*) < {n}", n=n_rare)
    run("CREATE TEMP TABLE twin(original bigint, k integer, copy bigint, PRIMARY KEY (original, k)); ANALYZE rare")
    for k in range(1, n_copies + 1):
        step = 0 if is_same_owner else k * n_made
        if step:
            run(_ADD_NAMES, step=step, n=n_made)
        run(_PAIR_OWNERS, k=k, step=step, n=n_made)
        values: dict[str, object] = {
            **known, "end": end, "k": k, "mask": random.Random(k).getrandbits(63), "span": k * max(known.values()),
            "slab": f"slab + {step}",
            "row": f'"row" + {k * known["n_chunks"] if is_same_owner else 0}',
        }  # fmt: skip
        for statement in _COPIES:
            run(statement, **values)
        for statement in () if is_same_owner else _COPIES_OF_OWNERS:
            run(statement, **{**values, "slab": f"slab.id + {step}"})
        bulk.say(f"copy {k} of {n_copies} is made")
    for statement in _GROW if is_same_owner else ():
        run(statement, n=1 + n_copies)
    run("UPDATE name SET n_chunks = n_chunks * {n} WHERE kind <> 'user'", n=1 + n_copies)
    run("UPDATE slab SET listed = (SELECT max(id) FROM chunk)")


def _find_last(connection: psycopg.Connection[Any], table: str) -> int:
    row = connection.execute(f"SELECT max(id) FROM {table}".encode()).fetchone()
    assert row
    return int(row[0])


def _count_pages(connection: psycopg.Connection[Any], table: str) -> int:
    row = connection.execute(f"SELECT pg_relation_size('{table}') / 8192".encode()).fetchone()
    assert row
    return int(row[0])
