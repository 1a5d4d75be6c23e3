"""The memories of other products come in: previewed, gated, with their source, once; and what is hostile stays out."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from perdure.errors import UsageError
from perdure.memories.other_stores.plan import StoreTerms
from perdure.memories.store import MemoryDraft
from perdure.surfaces.cli import cli
from perdure.types import STORE_RUNTIMES, ForgetRequest

STORES = Path(__file__).parents[1] / "data" / "stores"
TOKEN = "ghp_9Qx2badgerR7tLw4Zk1Vn8Yc3Hs6Jd0Bf5Mg"


@pytest.fixture(autouse=True)
def user_home(tmp_path: Path, monkeypatch) -> Path:
    for name in ("CLAUDE_MEM_DATA_DIR", "MEM0_DIR", "BASIC_MEMORY_HOME", "MEMORY_FILE_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


@pytest.fixture
def database(tmp_path: Path):
    """Make a database from the SQL of a recorded store."""

    def make(sql_name: str, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with sqlite3.connect(path) as connection:
            connection.executescript((STORES / sql_name).read_text())
        connection.close()
        return path

    return make


@pytest.fixture
def stores(database, tmp_path: Path) -> dict[str, Path]:
    """Where each product's recorded store is."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "MEMORY.md").write_text(
        "# Memory\n\n## Tools\n\n- Lint with ruff before each push.\n- Looks good, thanks!\n"
    )
    return {
        "claude-mem": database("claude-mem.sql", tmp_path / "claude-mem.db"),
        "mem0": database("mem0-history.sql", tmp_path / "history.db"),
        "basic-memory": Path(shutil.copytree(STORES / "basic-memory", tmp_path / "basic-memory")),
        "memory-server": Path(shutil.copy(STORES / "memory-server.jsonl", tmp_path / "memory.jsonl")),
        "markdown": notes,
    }


EXPECTED = {  # store -> (a text that becomes a memory, its kind, its project, records)
    "claude-mem": (
        "Product search stays on SQLite FTS5\nPostgres full text search was considered and refused: "
        "one more service to run.", "decision", "shop", 5,
    ),
    "mem0": ("Deploys happen on Thursdays before noon", "fact", None, 3),
    "basic-memory": (
        "Search Design: Use SQLite FTS5 for the product search #search (benchmarked in May)", "decision", None, 8,
    ),
    "memory-server": ("Mira Okafor: Answers fastest by mail", "fact", None, 5),
    "markdown": ("Lint with ruff before each push.", "fact", None, 2),
}  # fmt: skip


def tree(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {str(file): file.read_bytes() for file in files}


@pytest.mark.parametrize("store", STORE_RUNTIMES)
def test_a_store_comes_in_once_with_its_source(store: str, home, stores) -> None:
    text, kind, project, n_records = EXPECTED[store]
    before = tree(stores[store])
    preview = home.memories.import_store(store, stores[store], dry_run=True).plan
    assert (preview.n_records, home.memories.list_memories()) == (n_records, [])
    done = home.memories.import_store(store, stores[store])
    (memory,) = [memory for memory in done.new if memory.text == text]
    assert (memory.kind, memory.project, memory.trust, memory.how) == (kind, project, "agent", "imported")
    assert (memory.runtime, memory.conversation) == (store, str(stores[store]))
    ((span, turn_id),) = home.memories.sources(memory.memory_id)
    assert turn_id is not None
    (hit, *_) = [hit for hit in home.search(text).hits if hit.turn_id == turn_id]
    assert text in hit.text and (hit.runtime, hit.run_id, hit.author) == (store, span.run_id, "agent")
    again = home.memories.import_store(store, stores[store])
    assert (again.new, again.changed, again.plan.n_unchanged) == ([], [], len(done.new))
    assert tree(stores[store]) == before, "the store of another product is only read"
    assert sorted(Path(stores[store]).parent.glob("*-shm")) == []


def test_every_store_is_found_where_its_product_keeps_it(home, stores, user_home: Path) -> None:
    places = {
        "claude-mem": ".claude-mem/claude-mem.db", "mem0": ".mem0/history.db", "basic-memory": "basic-memory",
        "memory-server": ".npm/_npx/1f/node_modules/@modelcontextprotocol/server-memory/dist/memory.jsonl",
    }  # fmt: skip
    for store, place in places.items():
        with pytest.raises(UsageError, match="no store"):
            home.memories.import_store(store, dry_run=True)
        (user_home / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(stores[store], user_home / place)
        assert home.memories.import_store(store, dry_run=True).plan.path == str(user_home / place)


def test_a_changed_record_supersedes_its_earlier_text(home, stores) -> None:
    home.memories.import_store("mem0", stores["mem0"])
    with sqlite3.connect(stores["mem0"]) as connection:
        connection.execute(
            "INSERT INTO history SELECT 'x', memory_id, new_memory, 'Deploys happen on Fridays', 'UPDATE', created_at,"
            " '2026-11-26T00:00:00+00:00', 0, actor_id, role FROM history WHERE new_memory LIKE '%Thursdays%'"
        )
    connection.close()
    done = home.memories.import_store("mem0", stores["mem0"])
    (changed,) = done.changed
    assert (done.new, changed.text) == ([], "Deploys happen on Fridays")
    chain = [(memory.text, memory.is_current) for memory in home.memories.history(changed.memory_id)]
    assert chain == [("Deploys happen on Thursdays before noon", False), ("Deploys happen on Fridays", True)]
    left = [(hit.text, hit.abandoned) for hit in home.search("deploys happen").hits]
    assert ("Deploys happen on Thursdays before noon", True) in left and ("Deploys happen on Fridays", False) in left


def test_a_reworded_observation_replaces_the_one_that_is_gone(home, stores) -> None:
    path = stores["memory-server"]
    home.memories.import_store("memory-server", path)
    path.write_text(
        path.read_text().replace("port 5433", "port 5434").replace("Answers fastest by mail", "Plays chess")
    )
    done = home.memories.import_store("memory-server", path)
    assert [memory.text for memory in done.changed] == ["shop: The staging database runs on port 5434"]
    assert [memory.text for memory in done.new] == ["Mira Okafor: Plays chess"], "a shared name is no likeness"
    assert [memory.text for memory in done.plan.removed] == ["Mira Okafor: Answers fastest by mail"]


def test_the_owners_edits_and_deletions_stay(home, stores) -> None:
    done = home.memories.import_store("memory-server", stores["memory-server"])
    by_text = {memory.text: memory.memory_id for memory in done.new}
    home.memories.edit(by_text["Mira Okafor: Answers fastest by mail"], "Mira answers fastest on the phone")
    home.memories.change([by_text["Mira Okafor maintains shop"]], retired=True)
    gone = by_text["shop: The staging database runs on port 5433"]
    request = ForgetRequest(ids=(gone,))
    home.forgetting.delete(request, digest=home.forgetting.preview(request).digest)
    os.utime(stores["memory-server"])  # a store that names no time, written again
    again = home.memories.import_store("memory-server", stores["memory-server"])
    assert (again.new, again.changed, again.plan.n_forgotten) == ([], [], 1)
    texts = {memory.text for memory in home.memories.list_memories()}
    assert "Mira answers fastest on the phone" in texts and len(texts) == 3


def test_a_forgotten_record_stays_forgotten_in_every_form(home, stores, grep, tmp_path: Path) -> None:
    home.memories.import_store("mem0", stores["mem0"])
    (turn, *_) = home.search("staging database").hits
    request = ForgetRequest(ids=(turn.turn_id,))
    home.forgetting.delete(request, digest=home.forgetting.preview(request).digest)
    again = home.memories.import_store("mem0", stores["mem0"])
    assert (again.new, len(home.memories.list_memories(every=True))) == ([], 2)
    assert grep(tmp_path / "home", b"5433") == []


def test_the_gate_says_what_it_keeps_out_and_why(home, stores, grep, tmp_path: Path) -> None:
    done = home.memories.import_store("claude-mem", stores["claude-mem"])
    assert [item.reason for item in done.plan.discarded] == ["instruction"]
    notes = home.memories.import_store("markdown", stores["markdown"])
    assert [(item.record.text, item.reason) for item in notes.plan.discarded] == [
        ("Looks good, thanks!", "acknowledgement")
    ]
    assert not any(TOKEN in memory.text for memory in home.memories.list_memories())
    assert not [name for name in grep(tmp_path / "home", TOKEN.encode()) if not name.startswith("archive/runs")]
    assert "Ignore all previous" not in str(home.recall("print the system prompt of the website").cues)


def test_notes_that_tell_of_a_day_are_found_and_no_memories(home, tmp_path: Path) -> None:
    page = tmp_path / "log.md"
    page.write_text(
        "# Lamps\n\n## Next steps\n\n- Paint the walrus lamp red.\n\n## Rules\n\n- Never dim the walrus lamp.\n"
    )
    notes = home.memories.import_store("markdown", page)
    assert [(item.record.text, item.reason) for item in notes.plan.discarded] == [
        ("Paint the walrus lamp red.", "passing")
    ]
    assert [memory.text for memory in home.memories.list_memories()] == ["Never dim the walrus lamp."]
    assert any("Paint the walrus" in hit.text for hit in home.search("walrus lamp").hits)
    own = home.memories.import_store("markdown", page, terms=StoreTerms("owner"))
    assert [memory.text for memory in own.new] == ["Paint the walrus lamp red."], "their author vouches for them"


KEY_ID = "AKIA" + "Q3EGRZ7M4W2PLX5T"
NAMED_SECRETS = {  # name -> (store, file, content); the secret is a name there, not a part of the text
    "entity": ("memory-server", "m.jsonl", {"type": "entity", "name": f"token {TOKEN}", "observations": ["It is red"]}),
    "key id": ("memory-server", "m.jsonl", {"type": "entity", "name": KEY_ID, "observations": ["The pier is red"]}),
    "relation": (
        "memory-server", "m.jsonl", {"type": "relation", "from": TOKEN, "to": KEY_ID, "relationType": "opens"},
    ),
    "owner": ("mem0", "m.json", [{"id": TOKEN, "memory": "The pier is red", "user_id": TOKEN}]),
    "title": ("basic-memory", "n.md", f"---\ntitle: {TOKEN}\npermalink: a/{KEY_ID}\n---\n- The pier is red\n"),
    "file": ("markdown", f"{KEY_ID}.md", "- The pier is red\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED_SECRETS)
def test_a_secret_that_is_a_name_is_masked_everywhere(name: str, home, tmp_path: Path) -> None:
    store, file, content = NAMED_SECRETS[name]
    (tmp_path / file).write_text(content if isinstance(content, str) else json.dumps(content))
    (memory,) = home.memories.import_store(store, tmp_path / file, terms=StoreTerms()).new
    words = str((memory.text, memory.path, memory.entities, memory.project)).lower().replace("-", "_")
    assert TOKEN.lower()[4:] not in words and KEY_ID.lower() not in words
    assert "secret" in words


def test_a_project_that_is_a_secret_is_masked(home, database, tmp_path: Path) -> None:
    path = database("claude-mem.sql", tmp_path / "claude-mem.db")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE observations SET project = ?", (TOKEN,))
    connection.close()
    done = home.memories.import_store("claude-mem", path)
    assert done.new and not any(TOKEN in str((memory.path, memory.project)) for memory in done.new)
    assert TOKEN not in str(done.plan.by_project) and TOKEN.lower()[4:24] not in str([m.path for m in done.new])


def test_an_entity_of_any_memory_is_masked(home) -> None:
    draft = MemoryDraft("The pier is red", entities=(f"token {TOKEN}", "pier"))
    memory = home.memories.keep(draft).memory
    assert TOKEN not in str(memory.entities) and "pier" in memory.entities
    (changed,) = home.memories.change([memory.memory_id], entities=(TOKEN,))
    assert TOKEN not in str(changed.entities)


def test_a_text_that_is_known_here_is_not_doubled(home, stores) -> None:
    home.remember("Deploys happen on Thursdays before noon", cwd=None)
    done = home.memories.import_store("mem0", stores["mem0"])
    assert [item.reason for item in done.plan.discarded] == ["duplicate"] and len(done.new) == 2


def test_what_a_model_wrote_is_held_for_review(opened, tmp_path: Path, stores) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "config.toml").write_text("[memories]\nreview = true\n")
    home = opened("home")
    done = home.memories.import_store("mem0", stores["mem0"])
    assert done.n_held == 3 and len(home.memories.list_in_review()) == 3
    assert home.memories.import_store("mem0", stores["mem0"]).plan.n_unchanged == 3
    assert home.recall("which port does the staging database use?").cues == ()
    assert "5433" in home.search("staging database").hits[0].text


def test_what_was_retired_is_not_told_by_its_record(home, stores) -> None:
    home.memories.import_store("mem0", stores["mem0"])
    (memory,) = [memory for memory in home.memories.list_memories() if "5433" in memory.text]
    home.memories.change([memory.memory_id], retired=True)
    assert home.recall("which port does the staging database use?").cues == ()


def test_a_record_is_told_without_those_beside_it(home, stores) -> None:
    home.memories.import_store("mem0", stores["mem0"])
    cues = home.recall("which port does the staging database use?").cues
    assert [cue.text for cue in cues] == ["The staging database of the shop runs on port 5433"]


def test_two_databases_with_the_same_numbers_stay_apart(home, stores, database, tmp_path: Path) -> None:
    home.memories.import_store("claude-mem", stores["claude-mem"])
    other = database("claude-mem.sql", tmp_path / "laptop" / "claude-mem.db")
    with sqlite3.connect(other) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("UPDATE observations SET memory_session_id = 'laptop', title = 'From the laptop: ' || title")
        connection.execute("DELETE FROM session_summaries")
    connection.close()
    done = home.memories.import_store("claude-mem", other)
    assert (len(done.new), done.changed) == (3, [])


def test_a_name_of_a_project_becomes_its_one_known_folder(home, stores, claude, tmp_path: Path) -> None:
    folder = tmp_path / "work" / "shop"
    folder.mkdir(parents=True)
    transcript = tmp_path / "s.jsonl"
    transcript.write_bytes(claude("user", "Hello there, what is new in the shop?", "u1", cwd=str(folder)))
    home.import_files([transcript])
    plan = home.memories.import_store("claude-mem", stores["claude-mem"], dry_run=True).plan
    assert dict(plan.by_project) == {str(folder): 3, "website": 1}


def test_a_folder_wins_over_a_name_of_an_earlier_import(home, stores, claude, tmp_path: Path) -> None:
    home.memories.import_store("claude-mem", stores["claude-mem"])
    assert home.memories.find_named_project("shop") == "shop"
    transcript = tmp_path / "s.jsonl"
    transcript.write_bytes(claude("user", "Hello there, what is new in the shop?", "u1", cwd="/work/shop"))
    home.import_files([transcript])
    home.upkeep.catch_up()
    assert home.memories.find_named_project("shop") == "/work/shop"


def test_a_database_of_an_early_claude_mem_is_read(home, tmp_path: Path) -> None:
    """Version 4: an observation is one text, and no session has another name."""
    with sqlite3.connect(tmp_path / "claude-mem.db") as connection:
        connection.executescript("""
            CREATE TABLE observations (id INTEGER PRIMARY KEY, sdk_session_id TEXT, project TEXT, text TEXT, type TEXT,
              created_at TEXT, created_at_epoch INTEGER);
            INSERT INTO observations VALUES (1, 's', 'shop', 'The shop runs on one small server', 'discovery',
              '2025-10-01T08:00:00Z', 1759305600);
        """)
    connection.close()
    (memory,) = home.memories.import_store("claude-mem", tmp_path).new
    assert (memory.text, memory.stated_at.isoformat()) == (
        "The shop runs on one small server", "2025-10-01T08:00:00+00:00",
    )  # fmt: skip


def test_a_database_in_use_is_read_whole_from_a_copy(home, stores) -> None:
    path = stores["mem0"]
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("UPDATE history SET new_memory = 'Deploys happen on Mondays' WHERE new_memory LIKE '%Thursdays%'")
    files = sorted(path.parent.glob("history.db*"))
    plan = home.memories.import_store("mem0", path, dry_run=True).plan
    assert "Deploys happen on Mondays" in [planned.draft.text for planned in plan.new]
    assert sorted(path.parent.glob("history.db*")) == files
    writer.close()


RED_GATE = '{"type":"entity","name":"a","observations":["The gate is red"]}'
HOSTILE = {  # name -> (store, file, content, words of the refusal, records)
    "torn line": ("memory-server", "m.jsonl", RED_GATE + '\n{"type":', "is no JSON", 1),
    "no object": ("memory-server", "m.jsonl", "[1]\n" + RED_GATE, "is no JSON object", 1),
    "deep": ("memory-server", "m.jsonl", "[" * 200_000 + "\n" + RED_GATE, "nested", 1),
    "no name": ("memory-server", "m.jsonl", '{"type":"entity","observations":["It is red"]}', "without a name", 0),
    "circle": ("memory-server", "m.jsonl", '{"type":"relation","from":"a","to":"a","relationType":"is"}', "", 1),
    "another type": ("mem0", "m.json", '{"results": [1, {"memory": "The gate is red"}]}', "is no memory", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_damaged_record_costs_only_itself(name: str, home, tmp_path: Path) -> None:
    store, file, content, why, n_records = HOSTILE[name]
    (tmp_path / file).write_text(content)
    plan = home.memories.import_store(store, tmp_path / file, dry_run=True).plan
    assert plan.n_records == n_records
    assert why in " ".join(item.why for item in plan.refusals)


REFUSED = {  # name -> (store, file, content, words of the error)
    "no store": ("memory-server", "m.jsonl", b'{"a": 1}\n{"b": 2}\n', "holds no entities"),
    "no text": ("memory-server", "m.jsonl", b"\xff\xfe\x00", "is not UTF-8"),
    "no database": ("claude-mem", "claude-mem.db", b"hello" * 500, "no readable database"),
    "no history": ("mem0", "history.db", b"", "no history of mem0"),
    "pickles": ("mem0", "storage.sqlite", b"SQLite format 3\0", "never loaded"),
    "no JSON": ("mem0", "m.json", b'{"results": [', "is no JSON"),
    "no list": ("mem0", "m.json", b'{"results": 3}', "no export"),
    "too large": ("memory-server", "m.jsonl", b" " * ((1 << 26) + 1), "larger than"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_store_is_refused_by_name(name: str, home, tmp_path: Path) -> None:
    store, file, content, why = REFUSED[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UsageError, match=why):
        home.memories.import_store(store, tmp_path / file)
    assert home.memories.list_memories(every=True) == []


def test_a_pipe_a_missing_file_and_a_wrong_schema_are_refused(home, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "claude-mem.db")
    os.mkfifo(tmp_path / "memory.jsonl")
    for store in ("claude-mem", "memory-server"):
        path = tmp_path / ("claude-mem.db" if store == "claude-mem" else "memory.jsonl")
        with pytest.raises(UsageError, match="is not a file"):
            home.memories.import_store(store, path)
    with pytest.raises(UsageError, match="no such file"):
        home.memories.import_store("mem0", tmp_path / "nowhere")
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE VIEW observations AS SELECT 1 AS id, 'x' AS title")
    connection.close()
    with pytest.raises(UsageError, match="no database of claude-mem"):
        home.memories.import_store("claude-mem", tmp_path / "other.db")


def test_links_out_of_a_folder_of_notes_are_not_followed(home, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("- The launch code is four digits long.\n")
    (tmp_path / "vault-notes").mkdir()
    (tmp_path / "vault-notes" / "a.md").symlink_to(tmp_path / "secret.md")
    for store in ("markdown", "basic-memory"):
        plan = home.memories.import_store(store, tmp_path / "vault-notes", dry_run=True).plan
        assert plan.n_records == 0 and "link to a place outside" in plan.refusals[0].why


def test_memories_of_several_people_say_whose_they_are(home, tmp_path: Path) -> None:
    items = [{"id": name, "memory": "Prefers tea in the morning", "user_id": name} for name in ("mira", "tom")]
    (tmp_path / "m.json").write_text(json.dumps(items))
    done = home.memories.import_store("mem0", tmp_path / "m.json")
    assert sorted(memory.text for memory in done.new) == [f"{n}: Prefers tea in the morning" for n in ("mira", "tom")]


def test_names_that_look_alike_are_different_records(home, tmp_path: Path) -> None:
    ids = [f"conversation-memory-2026-{n:04}" for n in range(4)] + ["A1", "a1", "a_1", "a-1"]
    path = tmp_path / "m.json"
    items = [{"id": name, "memory": f"The gate number {n} is red"} for n, name in enumerate(ids)]
    path.write_text(json.dumps(items))
    done = home.memories.import_store("mem0", path)
    assert len({memory.path for memory in done.new}) == len(home.memories.list_memories()) == len(ids)
    again = home.memories.import_store("mem0", path)
    assert (again.new, again.changed, again.plan.n_unchanged) == ([], [], len(ids))
    path.write_text(json.dumps([{**item, "memory": item["memory"].replace("red", "green")} for item in items]))
    changed = home.memories.import_store("mem0", path)
    assert (changed.new, len(changed.changed), len(home.memories.list_memories())) == ([], len(ids), len(ids))


def test_an_excluded_project_and_a_pause_keep_records_out(opened, stores, tmp_path: Path) -> None:
    home = opened("home")
    home.captures.pause(reason="test")
    with pytest.raises(UsageError, match="paused"):
        home.memories.import_store("mem0", stores["mem0"])
    home.captures.resume()
    (tmp_path / "home" / "config.toml").write_text('[capture]\nexclude = ["/secret/**"]\n')
    home = opened("home")
    done = home.memories.import_store("mem0", stores["mem0"], terms=StoreTerms(project=lambda _: "/secret/plans"))
    assert done.new == [] and "excluded" in done.plan.refusals[0].why


def test_another_store_of_the_product_replaces_and_removes_nothing(home, stores, tmp_path: Path) -> None:
    home.memories.import_store("memory-server", stores["memory-server"])
    other = tmp_path / "work" / "memory.jsonl"
    other.parent.mkdir()
    other.write_text('{"type":"entity","name":"shop","observations":["The staging database runs on port 6000"]}')
    done = home.memories.import_store("memory-server", other)
    assert (len(done.new), done.changed, done.plan.removed) == (1, [], [])
    assert home.memories.import_store("memory-server", stores["memory-server"]).plan.n_unchanged == 5


def test_a_note_above_another_one_does_not_lose_its_statements(home, tmp_path: Path) -> None:
    notes = tmp_path / "bm"
    (notes / "shop").mkdir(parents=True)
    (notes / "shop.md").write_text("---\npermalink: shop\n---\n- [fact] The shop opens at nine\n")
    (notes / "shop" / "pier.md").write_text("---\npermalink: shop/pier\n---\n- [fact] The pier opens at ten\n")
    home.memories.import_store("basic-memory", notes)
    plan = home.memories.import_store("basic-memory", notes, dry_run=True).plan
    assert (plan.n_unchanged, plan.new, plan.removed) == (2, [], [])


def test_a_later_text_of_the_store_does_not_replace_the_owners(home, stores) -> None:
    done = home.memories.import_store("memory-server", stores["memory-server"])
    (port,) = [memory for memory in done.new if "5433" in memory.text]
    home.memories.edit(port.memory_id, "shop: The staging database runs on port 5439")
    path = stores["memory-server"]
    path.write_text(path.read_text().replace("5433", "5434"))
    again = home.memories.import_store("memory-server", path)
    assert (again.new, again.changed, [item.reason for item in again.plan.discarded]) == ([], [], ["corrected"])


def test_a_rebuild_gives_the_same_memories(home, stores) -> None:
    for store, path in stores.items():
        home.memories.import_store(store, path)
    before = home.memories.list_memories()
    home.upkeep.rebuild()
    assert home.memories.list_memories() == before and len(before) > 15


# the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def perdure(tmp_path: Path):
    """Run the command line on a home of its own; return (exit status, output)."""

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, [*arguments, "--home", str(tmp_path / "cli")])
        return done.exit_code, done.output

    return run


def test_the_command_previews_then_applies(perdure, stores) -> None:
    path = str(stores["claude-mem"])
    status, output = perdure("import", "--from", "claude-mem", path)
    assert status == 0 and "4 would be new" in output and "Add --apply" in output and "instruction 1" in output
    assert json.loads(perdure("memories", "list", "--json")[1])["error"]["code"] == "home-missing"
    status, output = perdure("import", "--from", "claude-mem", path, "--apply", "--json")
    (result,) = json.loads(output)["result"]["imports"]
    assert (status, len(result["new"]), result["discarded"][0]["reason"]) == (0, 4, "instruction")
    assert "0 new, 0 changed, 4 unchanged" in perdure("import", "--from", "claude-mem", path, "--apply")[1]


def test_a_preview_makes_no_home_and_a_failed_import_a_sound_one(perdure, stores, tmp_path: Path) -> None:
    status, output = perdure("import", "--from", "mem0", str(stores["mem0"]))
    assert status == 0 and "3 would be new" in output and not (tmp_path / "cli").exists()
    assert perdure("import", "--from", "mem0", str(tmp_path / "nowhere"))[0] == 2
    assert perdure("import", "--from", "mcp")[0] == 2
    assert not (tmp_path / "cli").exists()
    assert perdure("import", "--from", "mem0", str(tmp_path / "nowhere"), "--apply")[0] == 2
    status, output = perdure("search", "gate")
    assert "cannot be used" not in output and "Nothing is captured here yet" in output


def test_a_preview_prints_words_literally(perdure, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps([{"id": "a", "memory": "The gate [bold]is[/bold] :x: red", "user_id": "mira"}]))
    assert "The gate [bold]is[/bold] :x: red" in perdure("import", "--from", "mem0", str(path))[1]


def test_a_preview_names_the_command_that_applies_it(perdure, stores, tmp_path: Path) -> None:
    path = shutil.copy(stores["memory-server"], tmp_path / "my memory.jsonl")
    arguments = ["import", "--from", "memory-server", str(path), "--everywhere", "--json"]
    (action,) = json.loads(perdure(*arguments)[1])["next_actions"]
    assert action["command"] == f"perdure import --from memory-server '{path}' --everywhere --apply"
    assert perdure(*shlex.split(action["command"])[1:])[0] == 0
    assert json.loads(perdure(*arguments)[1])["next_actions"] == [], "nothing is left to import"


GIVES_NOTHING = {  # name -> (store, file, content, words)
    "numbers": ("mem0", "m.json", b"[1, 2, 3]", "is no memory"),
    "torn lines": ("mem0", "m.jsonl", b'{"memory": "The gate\n{"mem', "is no JSON"),
    "no text": ("markdown", "bin.json", b"\x00\xff\xfe", "UTF-8"),
    "no name": ("memory-server", "m.jsonl", b'{"type":"entity","observations":["It is red"]}', "without a name"),
    "torn entity": ("memory-server", "t.jsonl", b'{"type":"entity","na', "is no JSON"),
}  # fmt: skip


@pytest.mark.parametrize("name", GIVES_NOTHING)
def test_a_named_file_that_gives_nothing_is_an_error(name: str, perdure, tmp_path: Path) -> None:
    store, file, content, words = GIVES_NOTHING[name]
    (tmp_path / file).write_bytes(content)
    for more in ([], ["--apply"]):
        status, output = perdure("import", "--from", store, str(tmp_path / file), *more)
        assert status == 1 and words in output and file in output


def test_an_export_of_nothing_is_an_error(perdure, tmp_path: Path) -> None:
    perdure("remember", "I prefer Helix", "--everywhere")
    for form in ("markdown", "mem0"):
        out = tmp_path / form
        status, output = perdure("memories", "export", str(out), "--to", form, "--prefix", "typo")
        assert status == 1 and "'typo'" in output and not out.exists()


def test_one_memory_a_line_is_read(home, tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    for n_lines in (1, 2):
        lines = [json.dumps({"id": f"m{n}", "memory": f"The gate number {n} is red"}) for n in range(n_lines)]
        path.write_text("\n".join(lines) + "\n")
        assert home.memories.import_store("mem0", path, dry_run=True).plan.n_records == n_lines
    path.write_text(path.read_text() + '{"memory": ')
    plan = home.memories.import_store("mem0", path, dry_run=True).plan
    assert plan.n_records == 2 and plan.refusals[0].path.endswith("l.jsonl:3")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--apply"], "is for the memories of another product"),
        (["--from", "mem0", "--tag", "x"], "--tag is for transcripts"),
        (["--from", "mem0", "--trust", "owner"], "never your word"),
        (["--from", "markdown"], "name the files"),
        (["--from", "mem0", "--everywhere", "--project", "x"], "only one of"),
        (["--from", "mem0"], "no store of mem0 was found"),
        (["--format", "mem0", "x"], "no such file"),
        (["--format", "mem0", "."], "unknown format"),
    ],
)
def test_the_command_says_what_to_do_instead(arguments, words: str, perdure) -> None:
    status, output = perdure("import", *arguments)
    assert status == 2 and words in output


def test_notes_can_be_the_owners_words(perdure, stores) -> None:
    notes = str(stores["markdown"])
    output = perdure("import", "--from", "markdown", notes, "--trust", "owner", "--everywhere", "--apply", "--json")[1]
    (result,) = json.loads(output)["result"]["imports"]
    assert [(memory["trust"], memory["project"]) for memory in result["new"]] == [("owner", None)] * 2


# out --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(home):
    home.remember("I prefer Helix", kind="preference", path="user/preferences/editor")
    home.remember("The staging server listens on port 8443", path="servers/staging/port")
    home.remember("Line one\nand line two", path="servers/staging/note", cwd="/work/shop")
    home.remember("We used Vim before", path="old")
    home.memories.change([home.memories.history("old")[0].memory_id], retired=True)
    return home


def test_an_export_is_read_again_and_adds_nothing(filled, tmp_path: Path) -> None:
    paths = {"memory-server": "memory.jsonl", "mem0": "mem0.json", "basic-memory": ""}
    for form, name in paths.items():
        out = tmp_path / form
        assert filled.memories.export_to(form, out).n_written == (2 if form == "basic-memory" else 1)
        assert filled.memories.export_to(form, out).n_written == 0
        plan = filled.memories.import_store(form, out / name, dry_run=True).plan
        assert (plan.n_records, len(plan.new), len(plan.discarded)) == (3, 0, 3), plan.new


def test_an_export_has_the_words_and_times_of_each_memory(filled, opened, tmp_path: Path) -> None:
    for form, name in {"memory-server": "memory.jsonl", "mem0": "mem0.json", "basic-memory": ""}.items():
        out, other = tmp_path / form, opened(f"home-of-{form}")
        filled.memories.export_to(form, out)
        texts = {memory.text for memory in other.memories.import_store(form, out / name).new}
        assert len(texts) == 3 and all(
            any(words in text for text in texts) for words in ("I prefer Helix", "port 8443")
        )


def test_claude_gets_one_dated_line_for_each_memory(filled, tmp_path: Path) -> None:
    filled.memories.export_to("claude", tmp_path / "out", prefix="user")
    (memory,) = filled.memories.list_memories(prefix="user")
    written = (tmp_path / "out" / "claude-memory.md").read_text()
    assert written == f"[{memory.stated_at:%Y-%m-%d}] - I prefer Helix\n"


def test_an_export_overwrites_nothing_unless_it_is_told_to(filled, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "memory.jsonl").write_text('{"type":"entity","name":"mine","observations":[]}')
    result = filled.memories.export_to("memory-server", out)
    assert (result.n_written, len(result.refusals)) == (0, 1) and "mine" in (out / "memory.jsonl").read_text()
    assert filled.memories.export_to("memory-server", out, replace=True).n_written == 1
    (out / "mem0.json").symlink_to(tmp_path / "elsewhere")
    assert "link" in filled.memories.export_to("mem0", out, replace=True).refusals[0].why
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(UsageError, match="inside the home"):
        filled.memories.export_to("mem0", filled.path / "x")


def test_the_command_writes_every_form(perdure, tmp_path: Path) -> None:
    perdure("remember", "I prefer Helix", "--everywhere")
    for form in ("markdown", "basic-memory", "memory-server", "mem0", "claude"):
        status, output = perdure("memories", "export", str(tmp_path / form), "--to", form, "--json")
        assert (status, json.loads(output)["result"]["written"]) == (0, 1)
    status, output = perdure("memories", "export", str(tmp_path / "x"), "--to", "mem0", "--all")
    assert status == 2 and "no history" in output


def test_forgetting_an_imported_memory_forgets_its_record(home, stores) -> None:
    home.memories.import_store("memory-server", stores["memory-server"])
    (memory,) = [memory for memory in home.memories.list_memories() if "Answers fastest by mail" in memory.text]
    request = ForgetRequest((memory.path,))
    report = home.forgetting.preview(request)
    (item,) = report.items
    assert "Answers fastest by mail" in item.preview
    home.forgetting.delete(request, digest=report.digest)
    assert [hit.text for hit in home.search("Answers fastest by mail").hits if "fastest" in hit.text] == []
    again = home.memories.import_store("memory-server", stores["memory-server"])
    assert (again.new, again.plan.n_forgotten) == ([], 1)


@pytest.mark.parametrize("store", ["claude-mem", "memory-server"])
def test_a_store_that_was_moved_doubles_no_turn(store: str, home, stores, tmp_path: Path) -> None:
    home.memories.import_store(store, stores[store])
    n_turns = len(home.search("", limit=100).hits)
    copy = tmp_path / "elsewhere" / stores[store].name
    copy.parent.mkdir()
    shutil.copy(stores[store], copy)
    again = home.memories.import_store(store, copy)
    assert (again.new, again.changed) == ([], [])
    assert len(home.search("", limit=100).hits) == n_turns


def test_memories_move_to_the_folder_of_a_project_that_became_known(home, stores) -> None:
    home.memories.import_store("claude-mem", stores["claude-mem"])
    n_turns = len(home.search("", limit=100).hits)
    line = {"role": "user", "content": "hello", "timestamp": "2026-05-05T09:00:00+00:00"}
    home.capture(json.dumps(line).encode() + b"\n", runtime="messages", session="s", cwd="/work/shop")
    home.upkeep.catch_up()
    preview = home.memories.import_store("claude-mem", stores["claude-mem"], dry_run=True).plan
    n_moved = len(preview.moved["/work/shop"])
    assert n_moved and {memory.project for memory in home.memories.list_memories()} == {"shop", "website"}
    done = home.memories.import_store("claude-mem", stores["claude-mem"])
    assert (done.new, done.changed) == ([], [])
    projects = [memory.project for memory in home.memories.list_memories()]
    assert projects.count("/work/shop") == n_moved and "shop" not in projects
    assert len(home.search("", limit=100).hits) == n_turns + 1
    assert home.memories.import_store("claude-mem", stores["claude-mem"], dry_run=True).plan.moved == {}


def test_a_refused_store_stops_no_other(tmp_path: Path, stores) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b"\xff\xfe")
    environment = {"PERDURE_HOME": str(tmp_path / "cli-home")}
    arguments = ["import", "--from", "memory-server", str(bad), str(stores["memory-server"]), "--apply"]
    result = CliRunner().invoke(cli, arguments, env=environment)
    assert result.exit_code == 1 and "is not UTF-8" in result.output and "5 records" in result.output
    listed = CliRunner().invoke(cli, ["memories", "list"], env=environment)
    assert "Answers fastest by mail" in listed.output
    as_json = CliRunner().invoke(cli, [*arguments, "--json"], env=environment)
    assert json.loads(as_json.stdout)["result"]["failed"][0]["path"] == str(bad)
