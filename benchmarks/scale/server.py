"""A Postgres of one's own for a measurement, with durable commits, and homes whose index lies in it."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import psycopg

from perdure.disk import lock_file
from rig.postgres import ROLE, PostgresServer

_SETTINGS = ("fsync = on", "synchronous_commit = on", "shared_buffers = '1GB'", "max_wal_size = '512MB'",
             "maintenance_work_mem = '512MB'", "wal_level = minimal", "max_wal_senders = 0",
             "max_connections = 60")  # fmt: skip


@contextlib.contextmanager
def run_server() -> Iterator[PostgresServer]:
    """Run a server whose commits are on disk, with 1 GB of shared buffers; delete it afterwards."""
    server = PostgresServer()
    try:
        server.execute(*(f"ALTER SYSTEM SET {setting}" for setting in _SETTINGS))
        restart(server)
        yield server
    finally:
        server.close()


def restart(server: PostgresServer) -> None:
    """Stop and start the server, so that all settings hold."""
    inner = server._server
    inner.stop()
    inner._postmaster_info = None
    inner.ensure_postgres_running()


def make_home(folder: Path, server: PostgresServer, database: str) -> Path:
    """Make the folder of a home whose index is in a database."""
    folder.mkdir(mode=0o700, parents=True)
    address = server.get_address(database, role=ROLE)
    (folder / "config.toml").write_text(
        f'[index]\nengine = "postgres"\naddress = "{address}"\n[workers]\nenabled = true\n'
    )
    return folder


class ServerClock:
    """Processor seconds of all processes of a server since the clock was made; it looks five times a second."""

    def __init__(self, server: PostgresServer) -> None:
        self._main = psutil.Process(server._server.get_pid())
        self._seen: dict[tuple[int, float], float] = {}
        self._began = self._sum()
        self._is_over = threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while not self._is_over.wait(0.2):
            self._sum()

    def _sum(self) -> float:
        with contextlib.suppress(psutil.Error):
            for process in (self._main, *self._main.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    times = process.cpu_times()
                    self._seen[process.pid, process.create_time()] = times.user + times.system
        return sum(self._seen.values())

    def read(self) -> float:
        """Return the seconds until now; of a process that ended, what was seen of it."""
        return self._sum() - self._began

    def stop(self) -> float:
        """Return the seconds until now, and look no more."""
        self._is_over.set()
        return self.read()


@contextlib.contextmanager
def go_first(server: PostgresServer, *, others: Sequence[int] = ()) -> Iterator[None]:
    """Run this process, some others and a server before all other programs inside the block, where that is allowed.

    One measurement at a time: another one waits.
    """
    with lock_file(Path(tempfile.gettempdir()) / "perdure-bench-first.lock", wait_s=600):
        yield from _go_first(server, others)


def _go_first(server: PostgresServer, others: Sequence[int]) -> Iterator[None]:
    main = psutil.Process(server._server.get_pid())
    pids = [os.getpid(), *others, main.pid, *(child.pid for child in main.children(recursive=True))]
    _schedule(pids, os.SCHED_RR, 1)
    try:
        yield
    finally:
        _schedule([*pids, *(child.pid for child in main.children(recursive=True))], os.SCHED_OTHER, 0)


def _schedule(pids: Sequence[int], policy: int, priority: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))


def measure_tables(server: PostgresServer, database: str) -> dict[str, int]:
    """Return the bytes of each table of the index in use, with its indexes."""
    query = """SELECT relname, pg_total_relation_size(oid) FROM pg_class
      WHERE relkind = 'r' AND relnamespace::regnamespace::text ~ '^perdure_[0-9]+$'"""
    return {name: int(size) for name, size in server.execute(query, database=database)}


def find_schema(server: PostgresServer, database: str) -> str:
    """Return the schema of the index in use."""
    query = "SELECT schema_name FROM perdure.generation WHERE is_current"
    return str(server.execute(query, database=database)[0][0])


def connect_as_superuser(server: PostgresServer, database: str) -> psycopg.Connection[tuple[object, ...]]:
    """Connect past row-level security, to load rows."""
    return psycopg.connect(server.get_address(database))
