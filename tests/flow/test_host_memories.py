"""Files of hosts, as memory for every client: versions, what vanished, who loads what, forgetting, the switch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from perdure.capture import host_memories
from perdure.capture.events import HookEvent
from perdure.surfaces.cli import cli
from perdure.types import ForgetRequest, Live


@pytest.fixture
def user_home(tmp_path: Path, monkeypatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "GEMINI_CLI_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(time.time_ns(), time.time_ns()))
    return path


def search(home, words: str) -> list[tuple[str, bool]]:
    return [(hit.text, hit.abandoned) for hit in home.search(words).hits]


@pytest.fixture
def memory(user_home: Path) -> Path:
    path = user_home / ".claude/projects/-w/memory/MEMORY.md"
    return write(
        path,
        "# Tides\n\n- The harbour gauge is broken.\n- The badger key is ghp_9Qx2badgerR7tLw4Zk1Vn8Yc3Hs6Jd0Bf5Mg.\n",
    )


def test_a_memory_of_a_host_is_found_with_its_file(opened, memory: Path) -> None:
    home = opened("home")
    assert home.import_files().by_runtime["host-memory"] == 1
    (hit,) = home.search("harbour gauge").hits
    assert (hit.runtime, hit.author, hit.conversation, hit.project) == ("host-memory", "machine", str(memory), "-w")
    assert "ghp_9Qx2" not in home.search("badger key").hits[0].text
    (cue, *_) = home.recall("what about the harbour gauge?").cues
    assert cue.note == f"from {memory}" and "The harbour gauge is broken." in cue.text
    assert home.import_files().n_runs == 0


def test_a_line_that_introduces_a_list_stands_above_its_items(opened, memory: Path) -> None:
    lead_in = "**Date:** 2026-02-08\n\n**Before a spring tide:**\n\n"
    text = f"# Tides\n\n{lead_in}- Close the northern sluice.\n\nThe gauge is broken.\n"
    home = opened("home")
    write(memory, text)
    home.import_files()
    assert sorted(hit.text for hit in home.search("").hits) == [
        "Tides\nThe gauge is broken.", "Tides > Before a spring tide\n- Close the northern sluice.",
    ]  # fmt: skip
    assert "".join(paragraph for _, paragraph in host_memories.split_paragraphs(text)) == text


def test_a_paragraph_that_does_not_last_is_found_and_not_vouched_for(opened, memory: Path) -> None:
    home = opened("home")
    write(
        memory, "# Tides\n\n## Next steps\n\n- Paint the walrus buoy.\n\n## Rules\n\n- Never moor at the walrus pier.\n"
    )
    home.import_files()
    assert {(hit.text.splitlines()[1], hit.author) for hit in home.search("walrus").hits} == {
        ("- Paint the walrus buoy.", "machine"), ("- Never moor at the walrus pier.", "agent"),
    }  # fmt: skip
    team = write(Path.home() / "w/.perdure/notes/team.md", "# Status\n\nThe walrus berth is free.\n")
    home.import_files([team])
    assert {hit.author for hit in home.search("walrus berth").hits if hit.conversation == str(team)} == {"agent"}


def test_the_type_of_a_note_says_what_lasts_without_a_rule(opened, memory: Path) -> None:
    home = opened("home")
    words = "---\nname: piers\nmetadata:\n  type: {}\n---\n\nPiers.\n\n---\n\n"
    words += "{} piers are of walrus oak.\n\n- Never paint {} walrus piers.\n"
    for name in ("project", "reference"):
        write(memory.with_name(f"{name}_piers.md"), words.format(name, name.title(), name))
    home.import_files()
    assert {(hit.text, hit.author) for hit in home.search("walrus").hits} == {
        ("Project piers are of walrus oak.", "machine"), ("- Never paint project walrus piers.", "agent"),
        ("Reference piers are of walrus oak.", "agent"), ("- Never paint reference walrus piers.", "agent"),
    }  # fmt: skip


def test_status_and_stats_count_what_is_believed_of_files(opened, memory: Path) -> None:
    home = opened("home")
    write(
        memory,
        "# Tides\n\n## Next steps\n\n- Paint the buoy.\n\n## Rules\n\n- Never moor here.\n- Leave at high tide.\n",
    )
    home.import_files()
    write(memory, "# Tides\n\n## Next steps\n\n- Paint the buoy.\n\n## Rules\n\n- Never moor here.\n")
    home.import_files()
    home.upkeep.catch_up()
    home.close()
    (home.path / "config.toml").write_text('user = "ada"\n')
    for command in (["status"], ["memories", "stats"]):
        words = [*command, "--home", str(home.path)]
        counted = json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout)["result"]["host_paragraphs"]
        assert counted == {"n_believed": 1, "n_passing": 1}
        assert "1 paragraph believed, 1 only found" in CliRunner().invoke(cli, words).stdout


def test_every_version_stays_and_says_what_is_gone(opened, memory: Path) -> None:
    home = opened("home")
    home.import_files()
    first = memory.read_text()
    (before,) = home.search("harbour").hits
    write(memory, "# Tides\n\n- The harbour gauge is broken.\n- The lighthouse was painted.\n")
    home.import_files()
    assert [hit.turn_id for hit in home.search("harbour").hits] == [before.turn_id], "a line that stays is one turn"
    assert [left for _, left in search(home, "badger")] == [True]
    assert [left for _, left in search(home, "lighthouse")] == [False]
    cues = home.recall("what is the badger key?").cues
    assert f"no longer in {memory}" in [cue.note for cue in cues]
    write(memory, "- The harbour opens at nine.\n")
    home.import_files()
    write(memory, "- The harbour opens at ten.\n")
    home.import_files()
    cues = home.recall("when does the harbour open?").cues
    assert cues[0].text == "- The harbour opens at ten." and cues[1].is_history
    write(memory, first)
    home.import_files()
    assert [left for _, left in search(home, "badger") + search(home, "lighthouse")] == [False, True]
    home.upkeep.rebuild()
    assert [left for _, left in search(home, "badger") + search(home, "lighthouse")] == [False, True]


def test_instructions_are_told_to_those_who_do_not_load_them(opened, user_home: Path) -> None:
    project = user_home / "w"
    (project / ".git").mkdir(parents=True)
    path = write(project / "CLAUDE.md", "Use the walrus linter before each release.\n")
    home = opened("home")
    home.import_files([path])
    question = "which linter runs before a release?"
    assert home.recall(question, cwd=str(project)).cues[0].runtime == "instructions"
    loaded = Live("s", loaded_files=(str(path),))
    assert home.recall(question, cwd=str(project), session=loaded).cues == ()

    def ask(client: str) -> str:
        from perdure.turn import answer_event

        event = HookEvent(client, "prompt", f"s-{client}", cwd=str(project), prompt=question)
        return answer_event(home, event, limit_ms=20_000, mode="keyword").text

    assert "walrus" in ask("codex") and "walrus" not in ask("claude-code")


def test_instructions_are_no_statements_of_the_owner(opened, user_home: Path) -> None:
    home = opened("home")
    home.import_files([write(user_home / "w/AGENTS.md", "We use PostgreSQL, not SQLite.\n\nAlways run the tests.\n")])
    assert home.memories.list_memories(every=True) == []


def test_a_forgotten_paragraph_does_not_return(opened, memory: Path, grep) -> None:
    home = opened("home")
    home.import_files()
    request = ForgetRequest(ids=(home.search("harbour gauge").hits[0].turn_id,))
    home.forgetting.delete(request, digest=home.forgetting.preview(request).digest)
    for text in (memory.read_text(), memory.read_text() + "- One more.\n"):
        write(memory, text)
        home.import_files()
    assert search(home, "harbour") == [] and grep(home.path / "archive", b"harbour") == []
    assert len(search(home, "more")) == 1


def test_the_setting_turns_it_off(opened, memory: Path, user_home: Path) -> None:
    (user_home / "home").mkdir()
    (user_home / "home/config.toml").write_text("[capture]\nhost_memories = false\n")
    assert opened("home").import_files().n_files == 0


def test_a_session_start_takes_what_changed(opened, memory: Path, user_home: Path) -> None:
    (user_home / "home").mkdir()
    (user_home / "home/config.toml").write_text('user = "ada"\n[hooks]\nlimit_ms = 10000\n')
    payload = {"hook_event_name": "SessionStart", "session_id": "s", "cwd": str(user_home), "source": "startup"}
    env = {**os.environ, "PERDURE_HOME": str(user_home / "home")}
    line = [sys.executable, "-m", "perdure.capture", "claude-code"]
    opened("home").close()
    for text in (memory.read_text(), "- The lighthouse was painted.\n"):
        write(memory, text)
        subprocess.run(line, env=env, input=json.dumps(payload), text=True, timeout=60, check=True)
    home = opened("home")
    home.captures.drain()
    assert [left for _, left in search(home, "harbour") + search(home, "lighthouse")] == [True, False]
