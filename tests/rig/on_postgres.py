"""Run tests with every index in Postgres: `pytest -p rig.on_postgres tests/unit/index tests/contract tests/flow/…`.

The tests are those of the index in a file; here each home, and each index of `rig.index_rows`, has schemas of its own
in one database, in the processes that a test starts, too. A test about the file itself is marked `index_file`, with its
reason.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import connections
from rig import index_rows
from rig.postgres import ROLE, PostgresServer
from rig.postgres_homes import ADDRESS, choose_place


@pytest.fixture(scope="session", autouse=True)
def postgres_for_every_home() -> Iterator[None]:
    server = PostgresServer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ADDRESS, server.get_address(server.create_database(), role=ROLE))
        folders = (Path(__file__).parent / "postgres_processes", Path(__file__).parents[1])
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))
        patch.setattr(connections, "_choose_place", choose_place)
        patch.setattr(shutil, "copytree", functools.partial(_copy_with_index, shutil.copytree))
        patch.setattr(index_rows, "open_index", lambda folder: choose_place(folder).open(create=True))
        yield
    server.close()


def _copy_with_index(copy: Callable[..., Any], source: Path, target: Path, *arguments: Any, **options: Any) -> Any:
    """Copy a folder; if it is a home with an index, give the copy an index, as the files would."""
    result = copy(source, target, *arguments, **options)
    if (Path(source) / "archive" / "FORMAT").exists() and choose_place(Path(source)).has_index():
        with perdure.open(target) as home:
            home.upkeep.rebuild()
    return result


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (marker := item.get_closest_marker("index_file")) is not None:
            item.add_marker(pytest.mark.skip(reason=f"about the index in a file: {marker.args[0]}"))
