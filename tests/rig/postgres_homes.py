"""A place in the Postgres of the tests for the index of each home: `rig.on_postgres` brings the server up."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from types import ModuleType

from perdure.config import IndexConfig
from perdure.index.index_database import IndexDatabase

ADDRESS = "POSTGRES_OF_TESTS"  # tells the processes of a test where the server is; some tests drop PERDURE_…


def choose_place(home: Path, _index: object = None) -> IndexDatabase:
    """Return the place of the index of a home: schemas of its own, the same in every process."""
    schema = f"home_{zlib.crc32(str(home.resolve()).encode()):08x}"
    return IndexDatabase(IndexConfig("postgres", os.environ[ADDRESS], schema=schema))


def use_postgres(connections: ModuleType) -> None:
    """Let every home of this process have its index in Postgres."""
    connections._choose_place = choose_place  # type: ignore[attr-defined]
