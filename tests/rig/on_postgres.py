"""Run tests with every index in Postgres: `pytest -p rig.on_postgres tests/unit/index tests/contract tests/flow/…`.

The tests are those of the index in a file; here each home, and each index of `rig.index_rows`, gets a database.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import connections
from perdure.config import IndexConfig
from perdure.index.index_database import IndexDatabase
from perdure.index.store import IndexConnection
from rig import index_rows
from rig.postgres import ROLE, PostgresServer


class _Databases:
    """A database for each home of a test session."""

    def __init__(self) -> None:
        self._server: PostgresServer | None = None
        self._names: dict[Path, str] = {}

    def find_place(self, home: Path, _index: object = None) -> IndexDatabase:
        """Return the place of the index of a home."""
        if self._server is None:
            self._server = PostgresServer()
        key = home.resolve()
        if key not in self._names:
            self._names[key] = self._server.create_database()
        return IndexDatabase(IndexConfig("postgres", self._server.get_address(self._names[key], role=ROLE)))

    def open_index(self, folder: Path) -> IndexConnection:
        """Return the index of a folder of rows."""
        return self.find_place(folder).open(create=True)

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.close()


@pytest.fixture(scope="session", autouse=True)
def postgres_for_every_home() -> Iterator[None]:
    databases = _Databases()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "_choose_place", databases.find_place)
        patch.setattr(index_rows, "open_index", databases.open_index)
        yield
    databases.close()
