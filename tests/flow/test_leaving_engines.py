"""One person leaves by two commands, whatever the engine of the index is and wherever the archive is kept too.

Row P15. The proof is a search of bytes: every file of the home, every row of every table of the database, every object.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import obstore
import pytest
from click.testing import CliRunner

import perdure
from perdure.archive.archive import Archive
from perdure.errors import Busy, IndexUnreachable
from perdure.index import catchup
from perdure.index.index_database import IndexDatabase
from perdure.objects import open_objects
from perdure.surfaces.cli import cli
from perdure.testing import FakeEmbedder
from rig.leaving import BOB, WORD, fill_home, find_traces, open_as
from rig.postgres import PostgresServer, list_text
from rig.store_homes import read_everything
from rig.tier_servers import ObjectServer


@dataclass(frozen=True)
class Everything:
    """A home, and what there is of it elsewhere."""

    home: Path
    grep: Callable[[Path, bytes], list[str]]
    database: str = ""
    store: str = ""
    postgres: PostgresServer | None = None
    objects: ObjectServer | None = None

    def find_in_tables(self) -> list[str]:
        """Return the tables with a row that holds the word; and the planner's notes about columns."""
        if self.postgres is None:
            return []
        tables = [table for table, rows in list_text(self.postgres, self.database).items() if has_word(rows)]
        ((notes,),) = self.postgres.execute("SELECT string_agg(s::text, '') FROM pg_stats s", database=self.database)
        return [*sorted(table.partition(".")[2] for table in tables), *(["pg_stats"] if has_word(notes) else [])]

    def find_in_objects(self) -> list[str]:
        """Return the objects of the archive's store with the word."""
        if self.objects is None:
            return []
        prefix = self.store.removeprefix("s3://bucket/") + "/"
        names = [
            item["path"].removeprefix(prefix) for page in obstore.list(self.objects.store, prefix) for item in page
        ]
        assert names
        objects = open_objects(self.store)
        return [name for name in names if has_word(read_everything(objects, [name]).decode("latin-1"))]

    def find_all(self) -> list[str]:
        """Return every place with the word."""
        return [*find_traces(self.home, self.grep), *self.find_in_tables(), *self.find_in_objects()]


def has_word(text: str) -> bool:
    return WORD.decode() in text.lower()


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def in_postgres(tmp_path: Path, message, grep, postgres: PostgresServer) -> Everything:
    database = postgres.create_database()
    fill_home(tmp_path / "home", message, postgres.get_settings(database))
    postgres.execute("ANALYZE", database=database)  # as its own service does every minute
    return Everything(tmp_path / "home", grep, database, postgres=postgres)


@pytest.fixture
def in_postgres_and_store(
    tmp_path: Path, message, grep, postgres: PostgresServer, object_server: ObjectServer, object_address: str
) -> Everything:
    database = postgres.create_database()
    settings = f'{postgres.get_settings(database)}[archive]\nstore = "{object_address}"\nstore_plain = true\n'
    fill_home(tmp_path / "home", message, settings)
    run(tmp_path / "home", "store")
    return Everything(tmp_path / "home", grep, database, object_address, postgres, object_server)


@pytest.fixture
def in_file_and_store(tmp_path: Path, message, grep, object_server: ObjectServer, object_address: str) -> Everything:
    fill_home(tmp_path / "home", message, f'[archive]\nstore = "{object_address}"\nstore_plain = true\n')
    run(tmp_path / "home", "store")
    return Everything(tmp_path / "home", grep, store=object_address, objects=object_server)


def run(home: Path, *words: str) -> str:
    result = CliRunner().invoke(cli, [*words, "--home", str(home)])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("name", ["in_postgres", "in_postgres_and_store", "in_file_and_store"])
def test_two_commands_take_everything_along_and_leave_nothing(name: str, request, tmp_path: Path) -> None:
    everything: Everything = request.getfixturevalue(name)
    home, target = everything.home, tmp_path / "bob"
    if everything.postgres is not None:
        assert {"chunk_text", "posting", "name", "memory", "meta", "run", "pg_stats"} <= {*everything.find_in_tables()}
    assert everything.store == "" or everything.find_in_objects()
    exported = json.loads(run(home, "export", str(target), "--user", BOB, "--json"))["result"]
    erased = json.loads(run(home, "forget", "--everything", "--user", BOB, "--yes", "--json"))["result"]
    assert exported["runs"] == erased["runs"] == 3
    assert everything.find_all() == []
    with open_as(home, "mira") as mira:
        assert [hit.text for hit in mira.search("harbour", mode="keyword").hits] == ["The harbour office opens at nine"]
        assert mira.upkeep.verify().ok
    with perdure.open(target) as own:  # a home in files: it needs no server of ours
        assert own.user == BOB and {"The quokka is back"} <= {hit.text for hit in own.search("quokka").hits}


@pytest.mark.parametrize("name", ["in_postgres", "in_file_and_store"])
def test_those_who_stay_keep_their_vectors(name: str, request) -> None:
    home = request.getfixturevalue(name).home
    embedder = FakeEmbedder()
    with perdure.open(home, user="mira", embedder=embedder) as mira:
        (before,) = mira.upkeep.vector_status().slabs
        with open_as(home, BOB) as bob:
            assert bob.upkeep.vector_status().cached[before.tag] > before.n_embedded
            bob.forgetting.erase_user()
        (after,) = mira.upkeep.vector_status().slabs
        assert (after.n_embedded, after.n_missing) == (before.n_embedded, 0) and before.n_embedded == 2
        assert mira.upkeep.vector_status().cached[before.tag] == len({"of the turn", "of the memory"})
        texts = {hit.text for hit in mira.search("harbour", mode="semantic").hits}
        assert "The harbour office opens at nine" in texts
    assert all(kind == "query" for _, kind in embedder.asked)


STEPS = {
    "archive": (Archive, "erase"),
    "new index": (catchup, "catch_up_journals"),
    "swap": (IndexDatabase, "replace_with"),
}


@pytest.mark.parametrize("step", STEPS)
def test_erasure_that_was_stopped_is_finished_by_the_next(in_postgres: Everything, step: str, monkeypatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), open_as(in_postgres.home, BOB) as bob:
        patch.setattr(*STEPS[step], stop)
        bob.forgetting.erase_user()
    run(in_postgres.home, "forget", "--everything", "--user", BOB, "--yes")
    assert in_postgres.find_all() == []


def test_nobody_is_erased_by_half_while_the_server_is_away(in_postgres: Everything, tmp_path: Path) -> None:
    settings = (in_postgres.home / "config.toml").read_text()
    (in_postgres.home / "config.toml").write_text('user = "mira"\n[index]\nengine = "postgres"\n'
                                                  'address = "postgresql://perdure@127.0.0.1:9/none"\n')  # fmt: skip
    with open_as(in_postgres.home, BOB) as bob, pytest.raises(IndexUnreachable):
        bob.forgetting.erase_user()
    (in_postgres.home / "config.toml").write_text(settings)
    with open_as(in_postgres.home, BOB) as bob:
        assert "The quokka sleeps in the shed" in {hit.text for hit in bob.search("shed").hits}
        assert len(list(bob.archive.ledger.list_runs(BOB))) == 3 and bob.floor.read("profile.md")


def test_reader_of_the_old_index_delays_an_erasure_and_is_told(in_postgres: Everything) -> None:
    with open_as(in_postgres.home, "mira") as mira, mira.index().begin_read():
        mira.index().select("SELECT count(*) FROM chunk")
        with open_as(in_postgres.home, BOB) as bob, pytest.raises(Busy):
            bob.forgetting.erase_user()
    run(in_postgres.home, "forget", "--everything", "--user", BOB, "--yes")
    assert in_postgres.find_all() == []
