"""Does an approximate index of vectors (HNSW) pay under the filter by owner? Against the exact query of the product.

Two forms: one index over the vectors of all owners, which is asked for more until enough of the owner's are found
(pgvector's iterative scan), and one index for one owner's vectors alone.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.common import spread
from benchmarks.scale import texts
from benchmarks.scale.load import copy_slab_rows
from benchmarks.scale.server import connect_as_superuser, go_first, run_server
from perdure.models.embedder import quantise
from rig.postgres import PostgresServer

K = 24  # nearest chunks that recall fetches
_TABLE = 'CREATE TABLE slab_row(slab bigint, "row" bigint, chunk bigint, tie bigint, scale real, numbers halfvec({}))'
_EXACT = "SET enable_indexscan = off; SET enable_bitmapscan = on; SET enable_seqscan = on; SET enable_sort = on"
_NEAR = "SET enable_indexscan = on; SET enable_bitmapscan = off; SET enable_seqscan = off; SET enable_sort = off"
_NEAREST = "SELECT row FROM slab_row WHERE slab = %s ORDER BY numbers <=> %s::halfvec LIMIT %s"


def measure(*, n_users: int, n_each: int, n_queries: int) -> dict[str, Any]:
    """Return recall overlap, milliseconds, megabytes and seconds to build of each way."""
    shape, dimension = texts.measure_vectors(), texts.open_embedder().tag.dimension
    rng = np.random.default_rng(3)
    with run_server() as server:
        database = server.create_database()
        with connect_as_superuser(server, database) as connection:
            run = connection.execute
            run(_TABLE.format(dimension).encode())
            for user in range(n_users):
                _load(connection, shape, user, n_each)
            run(b"CREATE INDEX slab_of ON slab_row(slab)")
            connection.commit()
            connection.autocommit = True
            run(b"VACUUM ANALYZE slab_row")
            run(b"SET hnsw.iterative_scan = strict_order")
            queries = [(int(user), shape.make(f"u{user}-s{rng.integers(n_each // 32 + 1)}", 1, seed=7)[0])
                       for user in rng.integers(n_users, size=n_queries)]  # fmt: skip
            run(_EXACT.encode())
            exact = _ask(server, connection, queries)
            run(_NEAR.encode())
            rows = [{"way": "exact, by owner", "overlap": 1.0, "ms": exact[1]}]
            rows.append(_build(server, connection, "one HNSW over all owners", "", queries, exact[0]))
            run(b"DROP INDEX near")
            own = [(0, vector) for _, vector in queries]
            run(_EXACT.encode())
            exact_own = _ask(server, connection, own)
            run(_NEAR.encode())
            rows.append(_build(server, connection, "one HNSW for one owner", "WHERE slab = 0", own, exact_own[0]))
    return {"users": n_users, "vectors of each": n_each, "k": K, "rows": rows}


def _load(connection: Any, shape: texts.VectorShape, user: int, n_each: int) -> None:
    vectors = np.concatenate([shape.make(f"u{user}-s{number}", 32) for number in range(n_each // 32 + 1)])[:n_each]
    places = np.arange(n_each).repeat(2).reshape(-1, 2)
    copy_slab_rows(connection, user, 0, places, quantise(vectors))


def _ask(
    server: PostgresServer, connection: Any, queries: list[tuple[int, Any]]
) -> tuple[list[set[int]], dict[str, float]]:
    found, times = [], []
    with go_first(server):
        for user, vector in [queries[0], *queries]:
            began_s = time.perf_counter()
            values = (user, str(np.rint(vector * 500).tolist()), K)
            rows = connection.execute(_NEAREST, values, prepare=False).fetchall()
            times.append((time.perf_counter() - began_s) * 1000)
            found.append({row for (row,) in rows})
    return found[1:], spread(times[1:])


def _build(
    server: PostgresServer, connection: Any, way: str, where: str, queries: list[tuple[int, Any]], exact: list[set[int]]
) -> dict[str, Any]:
    began_s = time.perf_counter()
    connection.execute(f"CREATE INDEX near ON slab_row USING hnsw (numbers halfvec_cosine_ops) {where}".encode())
    build_s = time.perf_counter() - began_s
    found, ms = _ask(server, connection, queries)
    plan = str(connection.execute("EXPLAIN " + _NEAREST, (queries[0][0], str(queries[0][1].tolist()), K)).fetchall())
    size = connection.execute(b"SELECT pg_relation_size('near')").fetchone()[0]
    overlap = sum(len(a & b) / K for a, b in zip(found, exact, strict=True)) / len(exact)
    return {"way": way, "overlap": round(overlap, 3), "ms": ms, "build s": round(build_s, 1),
            "MB": round(size / 1e6, 1), "is used": "near" in plan}  # fmt: skip
