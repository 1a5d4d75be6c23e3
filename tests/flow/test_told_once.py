"""What one client was told, every other client knows at its next message, with no process running between."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.flow.test_opencode import OpenCode

import perdure
from perdure.capture import enqueue
from perdure.service.server import HomeServer, Intervals

HOOK = Path(perdure.__file__).parent / "capture" / "__main__.py"
PROMPTS = {  # client -> the event before a message
    "claude-code": "UserPromptSubmit",
    "codex": "UserPromptSubmit",
    "pi": "before_agent_start",
    "gemini-cli": "BeforeAgent",
    "opencode": "chat.message",
}
TURN_ENDS = {
    "claude-code": "Stop",
    "codex": "Stop",
    "pi": "turn_end",
    "gemini-cli": "AfterAgent",
    "opencode": "session.idle",
}
PATIENCE = "[hooks]\nlimit_ms = 6000\n"  # what is recalled is tested here, not how fast on a busy machine
QUESTION = "On which port is staging?"


def run_hook(home: Path, client: str, event: dict[str, str]) -> str:
    """Call the hook as the client does; return all that it prints. No resident home runs."""
    env = {**os.environ, "HOME": str(home.parent)}
    env.pop("XDG_DATA_HOME", None)
    command = [sys.executable, "-IS", str(HOOK), client, "--home", str(home)]
    fields = {"cwd": "/w", **event}
    done = subprocess.run(
        command, input=json.dumps(fields).encode(), capture_output=True, env=env, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def tell(home: Path, client: str, session: str, text: str, minute: int) -> None:
    """Add a message to a session as the client does, and report the end of the turn."""
    if client == "opencode":
        database = OpenCode(home.parent / ".local" / "share" / "opencode" / "opencode.db")
        database.session(session)
        database.say(session, f"msg{2 * minute + 1}", text, created_ms=1_763_629_200_000 + minute * 60_000)
        run_hook(home, client, {"hook_event_name": TURN_ENDS[client], "session_id": session})
        database.db.close()
        return
    at = f"2026-11-20T09:{minute:02d}:00.000Z"
    content = [{"type": "text", "text": text}]
    message = {"role": "user", "content": content}
    path = home.parent / client / f"{session}.jsonl"
    rows: dict[str, list[dict[str, object]]] = {
        "claude-code": [
            {
                "type": "user",
                "uuid": f"u-{session}-{minute}",
                "sessionId": session,
                "cwd": "/w",
                "timestamp": at,
                "message": message,
            }
        ],
        "codex": [
            {"timestamp": at, "type": "session_meta", "payload": {"id": session, "timestamp": at, "cwd": "/w"}},
            {
                "timestamp": at,
                "type": "response_item",
                "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
            },
        ],
        "pi": [
            {"type": "session", "version": 3, "id": session, "timestamp": at, "cwd": "/w"},
            {"type": "message", "id": f"m-{session}-{minute}", "parentId": None, "timestamp": at, "message": message},
        ],
        "gemini-cli": [
            {"sessionId": session, "kind": "main", "startTime": at},
            {"id": f"m-{session}-{minute}-0123456789", "timestamp": at, "type": "user", "content": text},
        ],
    }
    path.parent.mkdir(exist_ok=True)
    new_rows = rows[client][-1:] if path.exists() else rows[client]  # the header only once
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in new_rows)
    run_hook(home, client, {"hook_event_name": TURN_ENDS[client], "session_id": session, "transcript_path": str(path)})


def ask(home: Path, client: str, session: str) -> str:
    """Send a message; return the text that the client puts beside it."""
    printed = run_hook(home, client, {"hook_event_name": PROMPTS[client], "session_id": session, "prompt": QUESTION})
    reply = json.loads(printed) if printed else {}
    return str(reply.get("text") or reply.get("hookSpecificOutput", {}).get("additionalContext", ""))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with perdure.open(tmp_path / "home"):
        (tmp_path / "home" / "config.toml").write_text(PATIENCE)
        return tmp_path / "home"


@pytest.mark.parametrize(("teller", "asker"), [*itertools.product(TURN_ENDS, PROMPTS)])
def test_next_client_knows_the_newest_fact(teller: str, asker: str, home: Path) -> None:
    """A stale fact that the user corrected is worse than silence."""
    tell(home, "claude-code" if teller != "claude-code" else "pi", "first", "We moved staging to port 48642.", 1)
    assert "48642" in ask(home, asker, "ask-1")
    tell(home, teller, "second", "We moved staging to port 9090.", 2)
    assert "We moved staging to port 9090." in ask(home, asker, "ask-2")


def test_newest_session_is_read_first(home: Path) -> None:
    """When the time of a hook ends in the middle, what was told last is known."""
    for n in range(4):
        tell(home, "pi", f"s{n % 3}", f"Depot {n} opens at {n} o'clock.", n)
    deltas = [*enqueue.read_deltas(home / "outbox", newest_first=True)]
    assert [delta.header["origin"]["session"] for delta in deltas] == ["s0", "s0", "s2", "s1"]
    offsets = [delta.header["from_offset"] for delta in deltas if delta.header["origin"]["session"] == "s0"]
    assert offsets[0] == 0 < offsets[1], "the deltas of one session stay in order"


@pytest.mark.parametrize("teller", ["claude-code", "codex", "pi", "gemini-cli"])
def test_resident_reads_what_waits_before_it_answers(teller: str, tmp_path: Path) -> None:
    """Also in the long pause between two rounds, and in a home that holds nothing yet."""
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    (path / "config.toml").write_text(PATIENCE)
    with perdure.open(path) as home:
        resident = HomeServer(home, intervals=Intervals(round_s=3600))
        thread = threading.Thread(target=resident.run, daemon=True)
        thread.start()
        try:
            for n in range(3):
                tell(path, teller, f"s{n}", f"We moved staging to port {7000 + n}.", n)
                assert f"We moved staging to port {7000 + n}." in ask(path, "pi", f"ask-{n}")
        finally:
            resident.stop_event.set()
            thread.join(timeout=20)
    assert not thread.is_alive()


def test_block_says_how_many_captures_are_unread(home: Path) -> None:
    tell(home, "pi", "first", "We moved staging to port 48642.", 1)
    ask(home, "pi", "ask-1")
    tell(home, "codex", "second", "We moved staging to port 9090.", 2)
    with perdure.open(home, read_only=True) as opened:  # as where another process holds the outbox
        recalled = opened.recall(QUESTION, mode="keyword", catch_up_s=0.1)
    assert recalled.n_behind == 1 and "48642" in recalled.cues[0].text and "behind" in recalled.degraded
