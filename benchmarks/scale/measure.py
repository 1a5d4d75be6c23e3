"""What is measured for real: recall of users beside each other, idle and while workers take in, and what it costs."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import perdure
from benchmarks.common import scratch, spread
from benchmarks.scale import drive, fill, texts
from benchmarks.scale.server import ServerClock, go_first, make_home, measure_tables, run_server
from rig.postgres import PostgresServer

RATE = 2.0  # messages a second, of all users together
N_ASKERS = 4
TURNS_A_SESSION = (texts.MIN_TURNS + texts.MAX_TURNS) / 2


@contextmanager
def open_index() -> Iterator[tuple[PostgresServer, str, Path]]:
    """Yield (server, database, folder of a home) with an empty index."""
    with run_server() as server, scratch() as place:
        database = server.create_database()
        home = make_home(place / "home", server, database)
        with perdure.open(home, user="u1") as opened:
            opened.index(create=True)
        yield server, database, home


def measure_recalls(server: PostgresServer, path: Path, users: Sequence[str], n_each: int, n_sessions: int,
                    n_made: int) -> dict[str, Any]:  # fmt: skip
    """Recalls one after another: milliseconds of wall, of the asking process and of the server."""
    walls, cpus, told = [], [], []
    rng = random.Random(5)
    asked = [(user, texts.make_questions((int(user[1:]) - 1) % n_made + 1, n_each, n_sessions=n_sessions, seed=2))
             for user in users]  # fmt: skip
    with drive.open_homes(path, users) as homes:
        clock = ServerClock(server)
        with go_first(server):
            for user, question in sorted(((user, q) for user, qs in asked for q in qs), key=lambda _: rng.random()):
                wall_ms, cpu_ms, turns = drive.answer(homes[user], question)
                walls.append(wall_ms)
                cpus.append(cpu_ms)
                told.append((user, turns))
        server_ms = clock.stop() * 1000 / len(walls)
    return {
        "n": len(walls), "wall ms": spread(walls), "asker cpu ms": spread(cpus),
        "asker cpu ms, mean": round(sum(cpus) / len(cpus), 1), "server cpu ms, mean": round(server_ms, 1),
        "told something": sum(bool(turns) for _, turns in told), "cpus": [round(cpu, 1) for cpu in sorted(cpus)],
        "told": told,
    }  # fmt: skip


def count_foreign(server: PostgresServer, database: str, told: Sequence[tuple[str, Sequence[str]]]) -> tuple[int, int]:
    """Return (turns told, those of them that belong to another user than the one who asked), as a superuser sees it."""
    schema = server.execute("SELECT schema_name FROM perdure.generation WHERE is_current", database=database)[0][0]
    query = f"""SELECT turn_id, value FROM {schema}.turn JOIN {schema}.run ON run.id = turn.run
      JOIN {schema}.name ON name.id = run."user" """
    owners = dict(server.execute(query, database=database))
    pairs = [(user, turn) for user, turns in told for turn in turns]
    return len(pairs), sum(owners.get(turn) != user for user, turn in pairs)


def measure_size(server: PostgresServer, database: str, n_chunks: int) -> dict[str, Any]:
    """Bytes for each chunk, by table."""
    tables = measure_tables(server, database)
    largest = sorted(tables.items(), key=lambda item: -item[1])[:6]
    return {"bytes a chunk": round(sum(tables.values()) / n_chunks), "GB": round(sum(tables.values()) / 1e9, 2),
            "by table": {name: round(size / n_chunks) for name, size in largest}}  # fmt: skip


def describe_driven(driven: drive.Driven, server_cpu_s: float) -> dict[str, Any]:
    """The figures of a run of askers and workers."""
    totals = [item.total_ms for item in driven.answers]
    taken = [item for worker in driven.taken for item in worker if item.ended_s <= driven.length_s]
    n_bytes = sum(item.n_bytes for item in taken)
    n = max(1, len(taken))
    return {
        "recalls": len(totals), "recall ms, with waiting": spread(totals) if totals else {},
        "recall ms, without": spread([item.wall_ms for item in driven.answers]) if totals else {},
        "asker cpu ms, mean": round(sum(item.cpu_ms for item in driven.answers) / max(1, len(totals)), 1),
        "sessions": len(taken), "session MB/s": round(n_bytes / driven.length_s / 1e6, 4),
        "sessions a second": round(len(taken) / driven.length_s, 3),
        "worker cpu s a session, index": round(sum(item.index_cpu_s for item in taken) / n, 4),
        "worker cpu s a session, vectors": round(sum(item.embed_cpu_s for item in taken) / n, 4),
        "server cpu s a second": round(server_cpu_s / driven.length_s, 3),
    }  # fmt: skip


def run_driven(
    server: PostgresServer,
    path: Path,
    users: Sequence[str],
    *,
    n_workers: int,
    length_s: float,
    n_sessions: int,
    n_made: int,
    rate: float,
    with_vectors: bool = True,
) -> tuple[dict[str, Any], drive.Driven]:
    """Drive askers and workers; return (figures, everything)."""
    messages = drive.make_messages(users, rate, length_s, n_sessions=n_sessions, n_made=n_made, seed=7) if rate else []
    spent_s = 0.0

    @contextmanager
    def measure_server(pids: list[int]) -> Iterator[None]:
        nonlocal spent_s
        clock = ServerClock(server)
        with go_first(server, others=pids):
            yield
        spent_s = clock.stop()

    driven = drive.drive(path, messages, n_askers=N_ASKERS, n_workers=n_workers, length_s=length_s,
                         with_vectors=with_vectors, on_start=measure_server)  # fmt: skip
    return describe_driven(driven, spent_s), driven


def measure_users(
    *, n_made: int, n_copies: int, n_chunks: int, n_asking: int, n_each: int, length_s: float
) -> dict[str, Any]:
    """Users of one size in one index: size, recall idle, recall and ingest together with no, one and two workers."""
    with open_index() as (server, database, path):
        began_s = time.perf_counter()
        filled = fill.fill_users(server, database, n_made=n_made, n_copies=n_copies, n_chunks=n_chunks)
        result: dict[str, Any] = {"users": filled.n_users, "chunks": filled.n_chunks,
                                  "chunks that were made": filled.n_made,
                                  "load s": round(time.perf_counter() - began_s),
                                  "size": measure_size(server, database, filled.n_chunks)}  # fmt: skip
        step = max(1, filled.n_users // n_asking)
        users = [f"u{number}" for number in range(1, filled.n_users + 1, step)][:n_asking]
        n_sessions = max(1, int(n_chunks / TURNS_A_SESSION * 0.9))
        idle = measure_recalls(server, path, users, n_each, n_sessions, n_made)
        told = idle.pop("told")
        result["idle"] = idle
        options = {"n_sessions": n_sessions, "n_made": n_made, "length_s": length_s}
        result["together"] = []
        for n_workers in (0, 1, 2):
            figures, driven = run_driven(server, path, users, n_workers=n_workers, rate=RATE, **options)
            told += [(item.user, item.turns) for item in driven.answers]
            result["together"].append({"workers": n_workers, "messages a second": RATE, **figures})
        result["ingest"] = [
            {"workers": n_workers, "vectors": with_vectors,
             **run_driven(server, path, users, n_workers=n_workers, rate=0, with_vectors=with_vectors,
                          **{**options, "length_s": length_s / 2})[0]}
            for with_vectors in (False, True) for n_workers in (1, 2)
        ]  # fmt: skip
        n_told, n_foreign = count_foreign(server, database, told)
        result["turns told"], result["of another user"] = n_told, n_foreign
        return result


def measure_one(*, n_chunks: int, n_copies: int, n_each: int) -> dict[str, Any]:
    """One large user alone in an index."""
    with open_index() as (server, database, path):
        began_s = time.perf_counter()
        filled = fill.fill_one(server, database, n_chunks=n_chunks, n_copies=n_copies)
        result: dict[str, Any] = {"chunks": filled.n_chunks, "chunks that were made": filled.n_made,
                                  "load s": round(time.perf_counter() - began_s),
                                  "size": measure_size(server, database, filled.n_chunks)}  # fmt: skip
        n_sessions = max(1, int(filled.n_made / TURNS_A_SESSION * 0.9))
        idle = measure_recalls(server, path, ["u1"], n_each, n_sessions, 1)
        del idle["told"]
        return {**result, "idle": idle}
