"""What is measured for real: recall of users beside each other, idle and while workers take in, and what it costs."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

import perdure
from benchmarks.common import disk_use_of, scratch, spread
from benchmarks.scale import drive, fill, texts
from benchmarks.scale.server import ServerClock, go_first, make_home, measure_tables, run_server
from perdure.archive.archive import Delta
from perdure.index import embed, vector_search
from perdure.index.store import IndexConnection
from perdure.types import Origin
from rig.postgres import PostgresServer

RATE = 2.0  # messages a second, of all users together
N_ASKERS = 4
N_BACKLOGS = 8  # users whose sessions workers take in
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
    asked = [(user, drive.ask_about(user, n_each, n_sessions=n_sessions, n_made=n_made, seed=2))
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


def run_together(
    server: PostgresServer, database: str, path: Path, messages: list[drive.Message], *, n_workers: int, length_s: float
) -> tuple[dict[str, Any], list[drive.Answer]]:
    """Let askers answer messages while workers take in the backlog; return (figures, answers)."""
    answers: list[drive.Answer] = []
    with drive.run_askers(path, messages, N_ASKERS) as (pids, ask), drive.run_workers(path, n_workers) as workers:
        clock = ServerClock(server)
        with go_first(server, others=[*pids, *(worker.pid for worker in workers)]):
            before, began_s = count_backlog(server, database), time.perf_counter()
            cpu_s = sum(map(measure_cpu_s, workers))
            if messages:
                answers = ask()
            time.sleep(max(0.0, began_s + length_s - time.perf_counter()))
            took_s, after = time.perf_counter() - began_s, count_backlog(server, database)
            cpu_s = sum(map(measure_cpu_s, workers)) - cpu_s
        server_s = clock.stop()
    totals = [item.total_ms for item in answers]
    n_chunks, n_vectors = after[0] - before[0], after[1] - before[1]
    return {
        "workers": n_workers, "seconds": round(took_s, 1), "recalls": len(answers),
        "recall ms, with waiting": spread(totals) if totals else None,
        "recall ms": spread([item.wall_ms for item in answers]) if totals else None,
        "asker cpu ms, mean": round(sum(item.cpu_ms for item in answers) / len(answers), 1) if answers else None,
        "chunks indexed a second": round(n_chunks / took_s, 1), "vectors a second": round(n_vectors / took_s, 1),
        "worker cores": round(cpu_s / took_s, 2), "server cores": round(server_s / took_s, 2),
    }, answers  # fmt: skip


def measure_cpu_s(process: psutil.Process) -> float:
    """Return the processor seconds of a process until now."""
    times = process.cpu_times()
    return float(times.user + times.system)


def count_backlog(server: PostgresServer, database: str) -> tuple[int, int]:
    """Return (chunks, vectors) of the users whose backlog is taken in."""
    schema = server.execute("SELECT schema_name FROM perdure.generation WHERE is_current", database=database)[0][0]
    owners = f"(SELECT id FROM {schema}.name WHERE kind = 'user' AND value LIKE 'w%')"
    query = f"""SELECT (SELECT count(*) FROM {schema}.chunk WHERE "user" IN {owners}),
      (SELECT coalesce(sum(n_rows), 0) FROM {schema}.slab WHERE "user" IN {owners})"""
    n_chunks, n_vectors = server.execute(query, database=database)[0]
    return int(n_chunks), int(n_vectors)


def measure_ingest(server: PostgresServer, path: Path) -> dict[str, Any]:
    """Sessions taken in one by one, alone: what a chunk costs."""
    clock = ServerClock(server)
    with go_first(server):
        taken = drive.take_in(path, "v1", 12, clock.read)
    clock.stop()
    n_chunks = taken["chunks"]
    costs = {f"{name}, cpu ms a chunk": round(taken[name] / n_chunks * 1000, 3)
             for name in ("index", "index, server", "vectors", "vectors, server")}  # fmt: skip
    return {"chunks": n_chunks, "bytes a chunk of sessions": round(taken["bytes"] / n_chunks), **costs}


def measure_users(
    *, n_made: int, n_copies: int, n_chunks: int, n_asking: int, n_each: int, length_s: float, backlog: int
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
        result["ingest alone"] = alone = measure_ingest(server, path)
        drive.add_backlog(path, n_users=N_BACKLOGS, n_sessions=backlog)
        messages = drive.make_messages(users, RATE, length_s, n_sessions=n_sessions, n_made=n_made, seed=7)
        result["messages a second"], result["together"], result["ingest"] = RATE, [], []
        for n_workers in (0, 1, 2):
            figures, answers = run_together(server, database, path, messages, n_workers=n_workers, length_s=length_s)
            told += [(item.user, item.turns) for item in answers]
            result["together"].append(figures)
        for n_workers in (1, 2):
            figures, _ = run_together(server, database, path, [], n_workers=n_workers, length_s=length_s)
            mb = figures["chunks indexed a second"] * alone["bytes a chunk of sessions"] / 1e6
            result["ingest"].append({**figures, "session MB a second": round(mb, 3)})
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


def measure_file(*, n_chunks: int, n_each: int) -> dict[str, Any]:
    """The same texts of one user in a file of SQLite, through the product's own write path."""
    with scratch() as place:
        home = place / "home"
        with perdure.open(home, user="u1") as opened:
            deltas = [
                Delta(Origin("messages", session.name, session.name), "u1", "bench", session.lines,
                      project=session.project)
                for session in texts.make_sessions(1, n_chunks)
            ]  # fmt: skip
            opened.archive.store(deltas, now=datetime.now(UTC), tombstones={})
            clock = time.process_time()
            n_done = opened.upkeep.catch_up().n_chunks
            write_s = time.process_time() - clock
            index = opened.connections.index()
            write_made_vectors(index, home)
            index.checkpoint()
            size = disk_use_of(index.path.parent / "vectors") + index.path.resolve().stat().st_size
        walls, cpus = [], []
        with drive.open_homes(home, ["u1"]) as homes:
            n_sessions = max(1, int(n_chunks / TURNS_A_SESSION * 0.9))
            for question in texts.make_questions(1, n_each, n_sessions=n_sessions, seed=2):
                wall_ms, cpu_ms, _ = drive.answer(homes["u1"], question)
                walls.append(wall_ms)
                cpus.append(cpu_ms)
        return {"chunks": n_done, "bytes a chunk": round(size / n_done), "n": len(cpus),
                "write cpu ms a chunk": round(write_s / n_done * 1000, 3), "wall ms": spread(walls),
                "cpu ms": spread(cpus), "cpu ms, mean": round(sum(cpus) / len(cpus), 1)}  # fmt: skip


def write_made_vectors(index: IndexConnection, home: Path) -> None:
    """Give every chunk of u1 a made vector."""
    tag, user = texts.open_embedder().tag, index.add_name("user", "u1")
    slabs = vector_search.SlabFiles(home)
    with index.begin_write():
        info = vector_search.find_or_add_slab(index, user, tag.key, tag.dimension)
    missing = embed.list_missing(index, info)
    for start in range(0, len(missing), 2_000):
        pending = list(embed._read_pending(index, missing[start : start + 2_000]))
        vectors = texts.measure_vectors().make(f"part {start}", len(pending))
        n_left = max(0, len(missing) - start - 2_000)
        embed.write_vectors(index, slabs, info, pending, vectors, last_listed=max(missing), n_left=n_left)
