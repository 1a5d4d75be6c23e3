"""What may be expected of an index, in a file and in Postgres: the same answers to the same questions.

Rows P15, E25, E27 and R11: one contract, two engines, real servers.
"""

import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import psycopg
import pytest
from click.testing import CliRunner

import perdure
from perdure import samples
from perdure.errors import ConfigFault, IndexDamaged, IndexUnreachable
from perdure.home import Home
from perdure.index import facts, known_values, store
from perdure.index.index_database import IndexDatabase
from perdure.report import own_report
from perdure.surfaces.cli import cli
from perdure.testing import FakeEmbedder
from perdure.types import Filters, ForgetRequest
from rig.postgres import ROLE, PostgresServer, delete_orphans, list_text

NOW = datetime(2026, 12, 1, tzinfo=UTC)
QUERIES = (
    "tide",
    "port 8417",
    '"wal mode"',
    "src/tides",
    "TIDE-4711",
    "the evening job",
    "sqlite_busy timeout",
    "zeppelin",
)


@pytest.fixture(scope="module")
def server():
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    """A home in a file with the samples, whose archive the tests copy."""
    folder = tmp_path_factory.mktemp("archive") / "home"
    with perdure.open(folder, user="ada", embedder=FakeEmbedder()) as home:
        home.import_files([Path(samples.__path__[0])])
    return folder / "archive"


def open_home(folder: Path, archive: Path, settings: str = "", *, user: str = "ada") -> Home:
    if not folder.exists():
        folder.mkdir(mode=0o700)
        shutil.copytree(archive, folder / "archive")
        (folder / "config.toml").write_text(f'user = "ada"\n{settings}')
    home = perdure.open(folder, user=user, embedder=FakeEmbedder())
    home.upkeep.catch_up()
    return home


@pytest.fixture
def database(server) -> str:
    return server.create_database()


@pytest.fixture
def in_file(tmp_path, archive):
    with open_home(tmp_path / "file", archive) as home:
        yield home


@pytest.fixture
def in_postgres(tmp_path, archive, server, database):
    with open_home(tmp_path / "postgres", archive, server.get_settings(database)) as home:
        yield home


def make_message(text: str) -> bytes:
    return json.dumps({"role": "user", "content": text, "timestamp": NOW.isoformat()}).encode() + b"\n"


def ask(home: Home) -> list[object]:
    """Return what search and recall answer to the recorded queries, and to the first words of every session."""
    openings = [" ".join(run.intent.split()[:8]) for run in sorted_runs(home)]
    answers: list[object] = []
    for query in (*QUERIES, *openings):
        hits = home.search(query, limit=20).hits
        answers.append([(hit.turn_id, hit.run_id, round(hit.score, 6), hit.keyword_score) for hit in hits])
        answers.append([cue.turn_id for cue in home.recall(query, now=NOW).cues])
    answers.append([hit.turn_id for hit in home.search("", limit=50).hits])
    return answers


def sorted_runs(home: Home):
    return sorted((node.run for node in home.runs.forest()), key=lambda run: run.run_id)


def test_same_answers_with_the_same_scores_by_words(in_file, in_postgres):
    assert ask(in_file) == ask(in_postgres) and any(ask(in_file))


def test_same_answers_to_phrases_of_many_words(in_file, in_postgres):
    """Eight words of each session as a phrase, and one of them twice in it."""
    phrases = [f'"{" ".join(run.intent.split()[:8])}"' for run in sorted_runs(in_file)]
    phrases += [f'"{phrase[1:-1]} {phrase[1:-1]}"' for phrase in phrases[:3]]
    found = [[(hit.turn_id, hit.keyword_score) for hit in in_file.search(phrase).hits] for phrase in phrases]
    assert [
        [(hit.turn_id, hit.keyword_score) for hit in in_postgres.search(phrase).hits] for phrase in phrases
    ] == found
    assert sum(map(bool, found)) >= 5


def test_same_order_with_vectors(in_file, in_postgres):
    for home in (in_file, in_postgres):
        assert home.upkeep.embed().n_left == 0
    assert ask(in_file) == ask(in_postgres)
    modes = {home.search("tide", mode="semantic").mode for home in (in_file, in_postgres)}
    assert modes == {"semantic"}


def test_a_scan_of_vectors_is_one_pass_and_leaves_out_the_rows_that_are_free(in_postgres, monkeypatch):
    """Row P15: rows that are free are looked up in memory, not in the table for each vector."""
    in_postgres.upkeep.embed()
    index, seen = in_postgres.index(), []
    select_once = type(index).select_once
    monkeypatch.setattr(
        type(index),
        "select_once",
        lambda self, query, *values: seen.append((query, values)) or select_once(self, query, *values),
    )
    in_postgres.search(QUERIES[0], mode="semantic")
    query, values = next((query, values) for query, values in seen if "slab_row" in query)
    best = [row for row, _ in index.select_once(query, *values)]
    with index.begin_write() as db:
        db.execute("INSERT INTO hole SELECT slab.id, ? FROM slab", (best[0],))
    plan = " ".join(line for (line,) in index.select_once(f"EXPLAIN {query}", *values))
    assert "NOT (ANY" in plan and "hashed SubPlan" in plan and "Anti Join" not in plan
    assert [row for row, _ in index.select_once(query, *values)][: len(best) - 1] == best[1:]


def test_a_connection_has_memory_for_a_large_scan(in_postgres, server, database, tmp_path, archive):
    query = "SELECT setting::integer FROM pg_settings WHERE name = 'work_mem'"
    assert in_postgres.index().select(query) == [(64 * 1024,)]
    server.execute(f"ALTER DATABASE {database} SET work_mem = '96MB'")
    with open_home(tmp_path / "postgres", archive) as home:
        assert home.index().select(query) == [(96 * 1024,)], "what an operator gives is not made less"


def test_same_digest_and_the_same_filters(in_file, in_postgres):
    assert in_file.upkeep.digest() == in_postgres.upkeep.digest()
    for filters in (
        Filters(roles=("user",)),
        Filters(runtimes=("codex",)),
        Filters(kinds=("call",)),
        Filters(tools=("bash",)),
    ):
        answers = [
            [hit.turn_id for hit in home.search("tide", filters=filters).hits] for home in (in_file, in_postgres)
        ]
        assert answers[0] == answers[1], filters


def test_same_pages_of_runs_and_threads(in_file, in_postgres):
    assert in_file.runs.forest() == in_postgres.runs.forest()
    for run in sorted_runs(in_file):
        threads = [home.runs.thread(run.run_id) for home in (in_file, in_postgres)]
        assert threads[0].summarise() == threads[1].summarise()
        turns = [[turn.turn_id for turn in thread.list_from(thread.start, 100)] for thread in threads]
        assert turns[0] == turns[1] and turns[0]
        assert in_file.runs.columns(run.run_id) == in_postgres.runs.columns(run.run_id)


def test_same_report_of_what_the_memory_was_worth(in_file, in_postgres):
    reports, sentences, others = [], [], []
    for home in (in_file, in_postgres):
        index = home.index()
        reports.append(own_report.make_report(home, now=NOW))
        sentences.append(known_values.list_stating(index, "ada"))
        project = next(sentence.project for sentence in sentences[-1] if sentence.project)
        others.append(known_values.list_other_turns(index, "ada", project, "another session", NOW))
    assert reports[0] == reports[1]
    assert sentences[0] == sentences[1] and sentences[0]
    assert others[0] == others[1] and others[0]


def test_same_searches_by_agents(in_file, in_postgres):
    call = {"type": "function", "function": {"name": "mcp__perdure__recall", "arguments": "{}"}, "id": "c"}
    line = {"role": "assistant", "content": None, "tool_calls": [call], "timestamp": NOW.isoformat()}
    answers = []
    for home in (in_file, in_postgres):
        home.capture(json.dumps(line).encode() + b"\n", runtime="messages", session="agent")
        home.upkeep.catch_up()
        answers.append(facts.list_memory_searches(home.index(), "ada", NOW - timedelta(days=1), NOW))
    assert answers[0] == answers[1] and [search.session for search in answers[0]] == ["agent"]


def test_queries_use_no_words_that_postgres_has_not():
    only_sqlite = re.compile(r"\bGLOB\b|\browid\b|MATCH \?|\biif\(|last_insert_rowid|\.changes\(\)|OR REPLACE|NOCASE")
    modules = [path for path in Path(store.__file__).parent.glob("*.py") if path.name not in ("store.py", "dialect.py")]
    assert len(modules) > 20
    lines = [f"{path.name}: {line}" for path in modules for line in path.read_text().splitlines()]
    assert [line for line in lines if only_sqlite.search(line)] == []


def test_memories_are_kept_superseded_and_found(in_postgres):
    in_postgres.remember("The tide service listens on port 8417.", path="project/port")
    in_postgres.remember("The tide service listens on port 9000.", path="project/port")
    assert [memory.text for memory in in_postgres.memories.history("project/port")][-1].endswith("9000.")
    assert "9000" in in_postgres.memories.search("tide service port")[0].memory.text


def test_forgotten_words_are_in_no_table(in_postgres, server, database):
    in_postgres.upkeep.embed()
    word = "TIDE-4711"
    assert any(word in rows for rows in list_text(server, database).values())
    request = ForgetRequest(query=word)
    in_postgres.forgetting.delete(request, digest=in_postgres.forgetting.preview(request).digest)
    assert [table for table, rows in list_text(server, database).items() if word in rows] == []
    assert not in_postgres.search(word, mode="keyword").hits
    schema = in_postgres.index().schema
    query = f"""SELECT (SELECT count(*) FROM {schema}.gone), (SELECT count(*) FROM {schema}.slab_row),
      (SELECT count(*) FROM {schema}.vector WHERE vector.row IS NOT NULL)"""
    ((n_gone, n_rows, n_vectors),) = server.execute(query, database=database)
    assert n_gone == 0 and n_rows == n_vectors > 0  # the cache of embeddings was cleaned, and the rows are gone


def test_rebuild_answers_the_same_and_leaves_one_schema(in_postgres, server, database):
    in_postgres.upkeep.embed()
    before, old_schema = ask(in_postgres), in_postgres.index().schema
    with open_home(in_postgres.path, Path()) as reader:
        result = in_postgres.upkeep.rebuild()
        assert ask(reader) == before
        assert reader.index().schema == in_postgres.index().schema != old_schema
    assert result.same_digest and not result.differing and not result.differing_vectors and result.n_queries
    schemas = server.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'perdure%'", database=database)
    assert {name for (name,) in schemas} == {"perdure", in_postgres.index().schema}


def test_interrupted_rebuild_goes_on_and_the_old_index_answers(in_postgres):
    before = ask(in_postgres)
    place = in_postgres.connections.place
    unfinished, is_resumed = place.begin_build()
    unfinished.close()
    assert not is_resumed and ask(in_postgres) == before
    result = in_postgres.upkeep.rebuild()
    assert result.resumed and result.same_digest


def test_another_tenant_sees_no_row_even_without_a_filter(in_postgres, server, database):
    in_postgres.upkeep.embed()
    schema = in_postgres.index().schema
    query = f"""SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'
      AND table_type = 'BASE TABLE'"""
    tables = [name for (name,) in server.execute(query, database=database)]
    with psycopg.connect(server.get_address(database, role=ROLE), autocommit=True) as connection:
        connection.execute(f"SET search_path = {schema}, public")

        def count_rows(readers: str) -> dict[str, int]:
            connection.execute("SELECT set_config('perdure.readers', %s, false)", [readers])
            counts = {table: connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0] for table in tables}
            return {table: n for table, n in counts.items() if n}

        own, nobody, other = count_rows("1"), count_rows(""), count_rows("2")
    assert {"run", "turn", "chunk", "chunk_text", "posting", "slab_row", "facet"} <= own.keys()
    assert nobody.keys() == other.keys() == {"meta", "name"}
    assert other["name"] < own["name"]


def test_doctor_names_a_role_to_which_every_row_is_shown(in_postgres, tmp_path, archive, server, database):
    def run_doctor(folder: Path) -> str:
        return CliRunner().invoke(cli, ["doctor", "--home", str(folder)]).stdout

    problem = "✗ index: row-level security does not hold for its role"
    assert problem not in run_doctor(in_postgres.path)
    settings = f'[index]\nengine = "postgres"\naddress = "{server.get_address(database)}"\n'
    with open_home(tmp_path / "superuser", archive, settings) as home:
        assert problem in run_doctor(home.path)


def test_home_of_two_users_keeps_them_apart(in_postgres, archive):
    in_postgres.capture(make_message("The skerry lamp is Ada's alone."), runtime="messages", session="a")
    with open_home(in_postgres.path, archive, user="bob") as other:
        other.capture(make_message("The skerry boat is Bob's alone."), runtime="messages", session="b")
        assert [hit.text for hit in other.search("skerry").hits] == ["The skerry boat is Bob's alone."]
        assert other.index().select("SELECT count(*) FROM chunk")[0][0] == 1
        assert other.upkeep.digest() == in_postgres.upkeep.digest()
    assert [hit.text for hit in in_postgres.search("skerry lamp boat").hits] == ["The skerry lamp is Ada's alone."]


def test_text_with_nul_and_long_words_comes_back(in_postgres):
    text = "a\0b " + "x" * 9000 + " harbour_light_7 ünïcode 数据库"
    in_postgres.capture(make_message(text), runtime="messages", session="odd")
    (hit,) = in_postgres.search("harbour_light_7").hits
    with open_copy_in_file(in_postgres) as home:
        assert home.search("harbour_light_7").hits[0].text == hit.text
        assert home.upkeep.digest() == in_postgres.upkeep.digest()


def open_copy_in_file(home: Home) -> Home:
    return open_home(home.path.parent / "copy", home.path / "archive")


def test_search_reads_the_archive_while_the_server_is_away(tmp_path, archive):
    settings = '[index]\nengine = "postgres"\naddress = "postgresql://perdure@127.0.0.1:9/none"\n'
    folder = tmp_path / "away"
    folder.mkdir(mode=0o700)
    (folder / "config.toml").write_text(settings)
    with perdure.open(folder, user="ada") as home:
        assert home.capture(make_message("Captured while away."), runtime="messages", session="s").n_bytes
        found = home.search("captured")
        assert found.degraded == ("index",) and found.hits[0].text == "Captured while away."
        with pytest.raises(IndexUnreachable):
            home.index()


def test_index_of_a_newer_version_is_refused_and_of_an_older_made_again(in_postgres, server, database):
    place = in_postgres.connections.place
    server.execute("UPDATE perdure.generation SET tables_version = tables_version + 1", database=database)
    with pytest.raises(IndexDamaged):
        place.open()
    server.execute(f"UPDATE perdure.generation SET tables_version = {store.SCHEMA - 1}", database=database)
    place.open().close()
    assert in_postgres.search("tide").hits


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ('engine = "oracle"', "sqlite or postgres"),
        ('engine = "postgres"', "postgresql://user@host/database"),
        ('engine = "postgres"\naddress = "postgresql://ada:secret@host/x"', "password_env"),
        ('engine = "postgres"\naddress = "postgresql://host/x"\nschema = "a b"', "index.schema"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path, settings, words):
    (tmp_path / "config.toml").write_text(f"[index]\n{settings}\n")
    tmp_path.chmod(0o700)
    with pytest.raises(ConfigFault, match=words):
        perdure.open(tmp_path)


def test_password_comes_from_the_environment(server, database, monkeypatch):
    config = perdure.config.IndexConfig("postgres", server.get_address(database, role=ROLE), password_env="PG_WORD")
    with pytest.raises(ConfigFault, match="the environment has no PG_WORD"):
        IndexDatabase(config).has_index()
    monkeypatch.setenv("PG_WORD", "any")  # the server of the tests trusts everybody
    assert not IndexDatabase(config).has_index()


def test_server_of_tests_that_were_killed_is_stopped():
    program = """import os, sys; sys.path.insert(0, sys.argv[1]); from rig.postgres import PostgresServer
print(PostgresServer().folder, flush=True); os.kill(os.getpid(), 9)"""
    command = [sys.executable, "-c", program, str(Path(__file__).parents[1])]
    started = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    folder = Path(started.stdout.strip())
    number = int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])
    assert psutil.pid_exists(number)
    delete_orphans()
    assert not folder.exists() and not psutil.pid_exists(number)
