"""Memories as Markdown, out and in: the same ids, nothing twice, and nothing beyond the folder that was named."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from perdure.errors import UsageError
from perdure.home import Home
from perdure.memories.markdown_io import MAX_FILE_BYTES, ImportResult, ImportTerms
from perdure.types import Memory, Span

AT = datetime(2026, 1, 15, 9, tzinfo=UTC)


@pytest.fixture
def full(home: Home) -> Home:
    """Memories of many forms: two in a chain, one that came back, a pinned one, a retired one, one of a project."""
    for n, said in enumerate(("I prefer vim", "I prefer Helix", "I prefer vim")):
        home.remember(said, kind="preference", path="user/editor", stated_at=AT + timedelta(days=n))
    home.remember("Ports:\n---\n8443: staging", path="staging/port", pinned=True, cwd="/w/web", stated_at=AT)
    home.remember("Mira is out", stated_at=AT, trust="agent", entities=("Mira",), valid_until=AT + timedelta(days=9),
                  sources=(Span("0" * 26, 3, 9),), confidence=0.5)  # fmt: skip
    gone = home.remember("The fax number is 5", path="fax/number", stated_at=AT)
    home.memories.change([gone.memory_id], retired=True)
    return home


def seen(memory: Memory) -> tuple[object, ...]:
    """What a round trip keeps of a memory."""
    return (
        memory.memory_id, memory.text, memory.kind, memory.path, memory.project, memory.agent, memory.stated_at,
        memory.trust, memory.sources, memory.entities, memory.valid_from, memory.valid_until, memory.pinned,
        memory.retired, memory.confidence, memory.superseded_by, memory.ended_at,
    )  # fmt: skip


def everything(home: Home) -> list[tuple[object, ...]]:
    return [seen(memory) for memory in home.memories.list_memories(every=True)]


def counts(taken: ImportResult) -> tuple[int, int, int]:
    assert taken.refusals == []
    return len(taken.new), len(taken.changed), taken.n_unchanged


def write(path: Path, said: str, day: int = 0) -> Path:
    """A file that was last changed so many days after 2026-01-15."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(said, encoding="utf-8")
    at_s = (AT + timedelta(days=day)).timestamp()
    os.utime(path, (at_s, at_s))
    return path


def texts(memories: list[Memory]) -> list[str]:
    return [memory.text for memory in memories]


# round trip ---------------------------------------------------------------------------------------------------


def test_exported_home_is_imported_unchanged(full: Home, opened, tmp_path: Path) -> None:
    done = full.memories.export_markdown(tmp_path / "out", every=True)
    assert (done.n_written, done.n_same, done.refusals) == (6, 0, [])
    assert (tmp_path / "out/user/editor.md").is_file() and (tmp_path / "out/staging/port.md").is_file()
    other = opened("other")
    assert counts(other.memories.import_markdown([tmp_path / "out"])) == (6, 0, 0)
    assert everything(other) == everything(full)
    assert counts(other.memories.import_markdown([tmp_path / "out"])) == (0, 0, 6)
    assert counts(full.memories.import_markdown([tmp_path / "out"])) == (0, 0, 6)
    assert everything(other) == everything(full) and all(
        m.n_stated == 1 for m in other.memories.list_memories(every=True)
    )


def test_export_holds_only_current_memories_by_default(full: Home, tmp_path: Path) -> None:
    assert full.memories.export_markdown(tmp_path / "out").n_written == 3
    assert full.memories.export_markdown(tmp_path / "some", prefix="user").n_written == 1
    assert full.memories.export_markdown(tmp_path / "out").n_same == 3


def test_an_edited_file_becomes_an_edit_once(full: Home, tmp_path: Path) -> None:
    full.memories.export_markdown(tmp_path / "out")
    file = tmp_path / "out/user/editor.md"
    file.write_text(file.read_text().replace("I prefer vim", "I prefer Zed"))
    before = file.read_bytes()
    (refused,) = full.memories.export_markdown(tmp_path / "out").refusals
    assert refused.path == "user/editor.md" and file.read_bytes() == before
    assert counts(full.memories.import_markdown([file])) == (0, 1, 0)
    assert texts(full.memories.history("user/editor"))[-1] == "I prefer Zed"
    assert counts(full.memories.import_markdown([file])) == (0, 0, 1)
    assert full.memories.export_markdown(tmp_path / "out").n_written == 1


def test_old_export_restores_nothing(full: Home, tmp_path: Path) -> None:
    full.memories.export_markdown(tmp_path / "out", prefix="user")
    (old,) = full.memories.list_memories(prefix="user")
    full.memories.edit(old.memory_id, "I prefer Zed")
    assert counts(full.memories.import_markdown([tmp_path / "out"])) == (0, 0, 1)
    file = tmp_path / "out/user/editor.md"
    file.write_text(file.read_text().replace("I prefer vim", "I prefer nano"))
    (refused,) = full.memories.import_markdown([file]).refusals
    assert "superseded" in refused.why and texts(full.memories.list_memories(prefix="user")) == ["I prefer Zed"]


def test_forgotten_memory_is_not_imported_again(full: Home, tmp_path: Path, grep) -> None:
    full.memories.export_markdown(tmp_path / "out")
    (memory,) = full.memories.list_memories(prefix="staging")
    full.forgetting.apply([], memories=[memory.memory_id])
    done = full.memories.import_markdown([tmp_path / "out"])
    assert (len(done.new), done.n_forgotten) == (0, 1) and grep(full.path, b"8443: staging") == []


def test_a_page_is_trusted_no_more_than_the_import(full: Home, opened, tmp_path: Path) -> None:
    """Of owner, agent and an import as tool, the lowest holds; and a stranger's page edits nothing of mine."""
    full.memories.export_markdown(tmp_path / "out")
    other = opened("other")
    other.memories.import_markdown([tmp_path / "out"], terms=ImportTerms("tool"))
    assert {memory.trust for memory in other.memories.list_memories(every=True)} == {"tool"}
    file = tmp_path / "out/user/editor.md"
    file.write_text(file.read_text().replace("I prefer vim", "I prefer what they say"))
    (refused,) = full.memories.import_markdown([file], terms=ImportTerms("web")).refusals
    assert "--trust owner" in refused.why and texts(full.memories.list_memories(prefix="user")) == ["I prefer vim"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("path: user/editor", "path: ../../etc/passwd"),
        ("path: user/editor", "path: /etc/passwd"),
        ("kind: preference", "kind: spell"),
        ("trust: owner", "trust: god"),
        ('stated_at: "2026', 'stated_at: "x2026'),
        ("id: mem-", "id: mem-../"),
        ("I prefer vim", ""),
        ("I prefer vim", "x" * 9000),
        ("agent: default", "agent: default\nsources: [x]"),
        ("agent: default", "agent: default\nconfidence: much"),
        ("agent: default", "agent: default\n&anchor *alias"),
    ],
)
def test_only_the_invalid_page_is_refused(full: Home, opened, tmp_path: Path, old: str, new: str) -> None:
    full.memories.export_markdown(tmp_path / "out")
    file = tmp_path / "out/user/editor.md"
    said = file.read_text()
    assert old in said
    file.write_text(said.replace(old, new))
    other = opened("other")
    done = other.memories.import_markdown([tmp_path / "out"])
    assert (len(done.new), len(done.refusals)) == (2, 1)


# hostile folders ----------------------------------------------------------------------------------------------


def test_export_stays_in_its_folder(full: Home, tmp_path: Path) -> None:
    out, outside = tmp_path / "out", tmp_path / "outside"
    (out / "staging").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.md").write_text("mine")
    (out / "user").symlink_to(outside)
    (out / "staging/port.md").symlink_to(outside / "secret.md")
    done = full.memories.export_markdown(out)
    assert sorted(item.path for item in done.refusals) == ["staging/port.md", "user/editor.md"]
    assert [path.name for path in outside.iterdir()] == ["secret.md"]
    assert (outside / "secret.md").read_text() == "mine" and done.n_written == 1
    link = tmp_path / "link"
    link.symlink_to(outside)
    with pytest.raises(UsageError, match="link"):
        full.memories.export_markdown(link)
    with pytest.raises(UsageError, match="home"):
        full.memories.export_markdown(full.path / "archive")


def test_export_overwrites_no_foreign_file(full: Home, tmp_path: Path) -> None:
    mine = write(tmp_path / "out/user/editor.md", "# My own notes\n")
    (tmp_path / "out/staging").write_text("a file where a folder has to be")
    os.mkfifo(tmp_path / "fifo")
    done = full.memories.export_markdown(tmp_path / "out")
    assert len(done.refusals) == 2 and mine.read_text() == "# My own notes\n" and done.n_written == 1
    assert list((tmp_path / "out").rglob(".*")) == []


def test_import_stays_in_its_folder(home: Home, tmp_path: Path) -> None:
    write(tmp_path / "outside/secret.md", "- the key is under the mat\n")
    notes = tmp_path / "notes"
    write(notes / "one.md", "- tides turn twice a day\n")
    (notes / "two.md").symlink_to(tmp_path / "outside/secret.md")
    (notes / "three").symlink_to(tmp_path / "outside")
    (notes / "four.md").symlink_to(notes / "one.md")
    write(notes / ".hidden/five.md", "- hidden words here\n")
    write(notes / "node_modules/six.md", "- other people's words\n")
    done = home.memories.import_markdown([notes])
    assert texts(done.new) == ["tides turn twice a day"]
    assert sorted(Path(item.path).name for item in done.refusals) == ["three", "two.md"]
    (refused,) = home.memories.import_markdown([notes / "two.md"]).refusals
    assert "a link to a place outside" in refused.why
    assert counts(home.memories.import_markdown([notes / "four.md"])) == (0, 0, 1)


def test_invalid_files_are_refused_by_name(home: Home, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    write(notes / "large.md", "- word word\n" * (MAX_FILE_BYTES // 12 + 1))
    (notes / "latin.md").write_bytes("- café au lait\n".encode("latin-1"))
    os.mkfifo(notes / "pipe.md")
    done = home.memories.import_markdown([notes])
    why = {Path(item.path).name: item.why for item in done.refusals}
    assert set(why) == {"large.md", "latin.md", "pipe.md"} and home.memories.list_memories() == []
    assert "256,000" in why["large.md"] and "byte 5" in why["latin.md"]


# notes --------------------------------------------------------------------------------------------------------

FIRST = "# Tidepool\n\n## Testing\n\n- Run the tests before you push\n- I prefer ruff\n\n```sh\nrm -rf\n```\n"
SECOND = "# Tidepool\n\n## Testing\n\n- Never force-push\n- Run all the tests before you push\n"


def repository(tmp_path: Path) -> Path:
    (tmp_path / "web/.git").mkdir(parents=True)
    return tmp_path / "web"


def test_instructions_become_memories_of_their_repository(home: Home, tmp_path: Path) -> None:
    root = repository(tmp_path)
    done = home.memories.import_markdown([write(root / "CLAUDE.md", FIRST)])
    assert counts(done) == (2, 0, 0) and dict(done.left_out) == {"code": 1}
    first, second = done.new
    assert first.path.startswith("notes/claude-md/testing/run-the-tests-before")
    assert (first.text, first.kind, second.kind) == ("Run the tests before you push", "procedure", "preference")
    assert (first.project, first.trust, first.how, first.stated_at) == (str(root), "owner", "imported", AT)
    assert home.memories.search("tests")[0].memory.memory_id == first.memory_id


def test_second_import_changes_nothing_and_an_edit_supersedes(home: Home, tmp_path: Path) -> None:
    file = write(repository(tmp_path) / "CLAUDE.md", FIRST)
    home.memories.import_markdown([file])
    before = [path.stat().st_size for path in home.journal().list_files()]
    assert counts(home.memories.import_markdown([file])) == (0, 0, 2)
    write(file, FIRST, day=1)  # touched
    assert counts(home.memories.import_markdown([file])) == (0, 0, 2)
    assert [path.stat().st_size for path in home.journal().list_files()] == before
    done = home.memories.import_markdown([write(file, SECOND, day=2)])
    assert texts(done.new) == ["Never force-push"] and texts(done.changed) == ["Run all the tests before you push"]
    assert texts(done.removed) == ["I prefer ruff"]
    chain = home.memories.history(done.changed[0].memory_id)
    assert texts(chain) == ["Run the tests before you push", "Run all the tests before you push"]
    assert "I prefer ruff" in texts(home.memories.list_memories())
    again = home.memories.import_markdown([file])
    assert counts(again) == (0, 0, 2) and texts(again.removed) == ["I prefer ruff"]
    home.memories.change([done.removed[0].memory_id], retired=True)
    assert home.memories.import_markdown([file]).removed == []


def test_a_statement_that_changes_back_is_believed_again(home: Home, tmp_path: Path) -> None:
    """A, B, A: as long as the file's times grow, what it says now is what is believed."""
    file = tmp_path / "web/CLAUDE.md"
    repository(tmp_path)
    for day, port in enumerate((8080, 9090, 8080)):
        home.memories.import_markdown([write(file, f"- The staging port is {port}\n", day=day)])
        assert texts(home.memories.list_memories()) == [f"The staging port is {port}"]
    assert len(home.memories.list_memories(every=True)) == 3


def test_corrected_or_retired_memory_is_not_imported_again(home: Home, tmp_path: Path) -> None:
    file = write(repository(tmp_path) / "CLAUDE.md", FIRST)
    tests, ruff = home.memories.import_markdown([file]).new
    home.memories.edit(tests.memory_id, "Run the quick tests before you push")
    home.memories.change([ruff.memory_id], retired=True)
    assert counts(home.memories.import_markdown([write(file, FIRST, day=3)])) == (0, 0, 2)
    assert texts(home.memories.list_memories()) == ["Run the quick tests before you push"]
    corrected = FIRST.replace("Run the tests", "Run the quick tests")
    for _ in range(2):
        done = home.memories.import_markdown([write(file, corrected, day=4)])
        assert (done.new, done.changed) == ([], [])
    assert all(memory.n_stated == 1 for memory in home.memories.list_memories(every=True))


def test_two_homes_import_a_file_with_the_same_ids(home: Home, opened, tmp_path: Path) -> None:
    file = write(repository(tmp_path) / "CLAUDE.md", FIRST)
    other = opened("other")
    one, two = home.memories.import_markdown([file]), other.memories.import_markdown([file.parent])
    assert [m.memory_id for m in one.new] == [m.memory_id for m in two.new]


def test_files_of_one_name_do_not_meet(home: Home, tmp_path: Path) -> None:
    """Three pages of one name: at the root of a repository, below it, and in no repository."""
    root = repository(tmp_path)
    for folder in (root, root / "backend", tmp_path / "plain"):
        home.memories.import_markdown([write(folder / "AGENTS.md", f"- Rules of {folder.name} here\n")])
    found = {memory.text: (memory.path.rpartition("/")[0], memory.project) for memory in home.memories.list_memories()}
    assert found["Rules of web here"] == ("notes/agents-md", str(root))
    assert found["Rules of backend here"] == ("notes/backend/agents-md", str(root))
    assert found["Rules of plain here"] == ("notes/plain/agents-md", None)


def test_own_front_matter_of_a_page_is_ignored(home: Home, tmp_path: Path) -> None:
    page = "---\ntitle: Tides\ntags:\n  nested: yes\n---\n\nTides turn twice a day.\n"
    assert texts(home.memories.import_markdown([write(tmp_path / "notes/tides.md", page)]).new) == [
        "Tides turn twice a day."
    ]


def test_secrets_in_files_are_masked(home: Home, tmp_path: Path, grep) -> None:
    key = "s" + "k-ant-" + "api03-q7Rz0pLk2XvB9nTe4WsY8mCd1HgJ5uAo"
    file = write(tmp_path / "notes/keys.md", f"# Keys\n\n## {key}\n\n{key} is the key\n")
    (memory,) = home.memories.import_markdown([file]).new
    assert "[secret:anthropic]" in memory.text and grep(home.path, b"q7Rz0pLk") == []
    assert "q7rz0" not in memory.path
    assert counts(home.memories.import_markdown([file])) == (0, 0, 1)


def test_terms_set_trust_and_project(home: Home, tmp_path: Path) -> None:
    file = write(repository(tmp_path) / "CLAUDE.md", FIRST)
    done = home.memories.import_markdown([file], terms=ImportTerms("web", lambda _: None))
    assert {(memory.trust, memory.project) for memory in done.new} == {("web", None)}
