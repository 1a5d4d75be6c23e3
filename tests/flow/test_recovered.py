"""Prompts of deleted sessions: taken from the client's prompt history, once, and hidden when a transcript comes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.capture import transcripts
from perdure.types import ForgetRequest

GONE, KEPT = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
AT_MS = 1768467600000  # 2026-01-15 09:00 UTC


def type_prompt(display: str, session: str = GONE, minute: int = 0, folder: str = "/w") -> bytes:
    line = {"display": display, "pastedContents": {}, "timestamp": AT_MS + 60_000 * minute, "project": folder}
    return json.dumps({**line, "sessionId": session}).encode() + b"\n"


@pytest.fixture
def history(tmp_path: Path, claude) -> Path:
    """A prompt history beside one transcript: its session is there, and another one's was deleted."""
    folder = tmp_path / ".claude"
    (folder / "projects/w").mkdir(parents=True)
    (folder / f"projects/w/{KEPT}.jsonl").write_bytes(claude("user", "the marmot sleeps", "u1", 0, KEPT))
    prompts = [type_prompt("the badger lives in the cellar"), type_prompt("the marmot sleeps", KEPT)]
    (folder / "history.jsonl").write_bytes(b"".join(prompts))
    return folder / "history.jsonl"


def search(home, words: str) -> list[tuple[str, str, str]]:
    return [(hit.runtime, hit.conversation, hit.text) for hit in home.search(words).hits]


def test_prompts_of_deleted_sessions_are_found(opened, history: Path) -> None:
    home = opened("home")
    done = home.import_files([history.parent])
    assert (done.n_recovered_prompts, done.n_recovered_sessions) == (1, 1)
    assert search(home, "badger") == [("claude-code-prompts-only", GONE, "the badger lives in the cellar")]
    assert [runtime for runtime, _, _ in search(home, "marmot")] == ["claude-code"]
    (cue,) = home.recall("where does the badger live?").cues
    assert cue.runtime == "claude-code-prompts-only" and cue.project == "/w"


def test_only_new_prompts_are_taken_whatever_the_client_drops(opened, history: Path) -> None:
    home = opened("home")
    home.import_files([history])
    assert home.import_files([history]).n_unchanged == 1
    history.write_bytes(history.read_bytes() + type_prompt("the otter swims", minute=9))
    assert home.import_files([history]).n_recovered_prompts == 1
    history.write_bytes(type_prompt("the otter swims", minute=9) + type_prompt("the lynx hunts", minute=10))
    assert home.import_files([history]).n_recovered_prompts == 1
    assert [len(search(home, word)) for word in ("badger", "otter", "lynx")] == [1, 1, 1]


@pytest.mark.parametrize("is_late", [True, False])
def test_a_transcript_in_the_archive_hides_the_prompts(opened, history: Path, claude, is_late: bool, tmp_path) -> None:
    home, transcript = opened("home"), tmp_path / "backup" / f"{GONE}.jsonl"
    transcript.parent.mkdir()
    transcript.write_bytes(claude("user", "the badger lives in the cellar", "g1", 0, GONE))
    for path in (history, transcript) if is_late else (transcript, history):
        home.import_files([path])
    assert [runtime for runtime, _, _ in search(home, "badger")] == ["claude-code"]
    home.upkeep.rebuild()
    assert [runtime for runtime, _, _ in search(home, "badger")] == ["claude-code"]
    assert home.runs.first_runs([home.search("badger").hits[0].run_id]).popitem()[1].runtime == "claude-code"


def test_a_forgotten_message_does_not_return_as_a_prompt(opened, history: Path, claude, tmp_path, grep) -> None:
    home, transcript = opened("home"), tmp_path / f"{GONE}.jsonl"
    home.import_files([history])
    transcript.write_bytes(claude("user", "the badger lives in the cellar", "g1", 0, GONE))
    home.import_files([transcript])
    request = ForgetRequest(ids=(home.search("badger").hits[0].turn_id,))
    home.forgetting.delete(request, digest=home.forgetting.preview(request).digest)
    history.write_bytes(history.read_bytes() + type_prompt("and the otter", minute=3))
    home.import_files([history])
    assert search(home, "badger") == [] and grep(home.path / "archive", b"badger") == []


def test_prompts_of_private_sessions_stay_outside(opened, history: Path, tmp_path: Path) -> None:
    home = opened("home")
    home.captures.mark_incognito("claude-code", GONE)
    assert home.import_files([history]).left_out == [(f"{history} ({GONE})", "incognito session")]
    (tmp_path / "strict").mkdir()
    (tmp_path / "strict/config.toml").write_text('[capture]\nexclude = ["/w"]\n')
    strict, codex = opened("strict"), tmp_path / "history.jsonl"
    codex.write_bytes(b'{"session_id":"s","ts":1768467600,"text":"the badger"}\n')
    done = strict.import_files([history, codex])
    assert done.n_runs == 0
    assert [why.partition(":")[0] for _, why in done.left_out] == ["excluded project (/w)", "excluded"]


def test_sessions_whose_transcript_is_gone_are_counted(opened, history: Path, monkeypatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(history.parent))
    home = opened("home")
    home.import_files([history.parent])
    assert home.runs.count_saved_sessions() == 0
    (history.parent / f"projects/w/{KEPT}.jsonl").unlink()
    assert home.runs.count_saved_sessions() == 1


def test_the_standard_places_include_prompt_histories(history: Path, tmp_path: Path) -> None:
    sources = list(transcripts.find_sources(tmp_path, lambda _: None))
    assert [path.name for path in sources] == [f"{KEPT}.jsonl", "history.jsonl"]
    assert transcripts.list_session_ids(history) == {KEPT}


def run(folder: Path, *words: str) -> str:
    """Run a command as the person whose home folder this is; return what it prints."""
    moved = ("CLAUDE_CONFIG_DIR", "CODEX_HOME")
    env = {name: value for name, value in os.environ.items() if name not in moved}
    env |= {"HOME": str(folder), "PERDURE_HOME": str(folder / "home"), "NO_COLOR": "1", "COLUMNS": "120"}
    line = [sys.executable, "-m", "perdure.surfaces.cli", *words]
    return subprocess.run(line, env=env, capture_output=True, text=True, timeout=120, check=True).stdout


def read_json(folder: Path, *words: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(run(folder, *words, "--json"))["result"]
    return result


def test_import_and_status_tell_what_was_saved(history: Path, tmp_path: Path) -> None:
    output = run(tmp_path, "import")
    assert "Recovered 1 prompt of 1 deleted session, without the answers." in output
    assert "Claude Code deletes a session 30 days after its last use." in output
    (tmp_path / f".claude/projects/w/{KEPT}.jsonl").unlink()
    found = read_json(tmp_path, "import")
    assert (found["recovered"], found["saved_sessions"]) == ({"prompts": 0, "sessions": 0}, 1)
    assert "1 session that their clients have deleted since" in run(tmp_path, "import").replace("\n", " ")
    assert read_json(tmp_path, "status")["saved_sessions"] == 1
    assert "claude-code-prompts-only" in run(tmp_path, "search", "badger")
    assert "badger" in run(tmp_path, "show", GONE)


def test_start_recovers_prompts(history: Path, tmp_path: Path) -> None:
    found = read_json(tmp_path, "start", "--no-install", "--no-service")
    assert found["recovered"] == {"prompts": 1, "sessions": 1}
