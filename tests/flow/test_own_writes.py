"""What the agent of a session just wrote does not come back to it, by whichever way it was written."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from perdure.capture.events import HookEvent
from perdure.surfaces.mcp import answers
from perdure.surfaces.memory_tool.tool import MemoryTool
from perdure.turn import answer_event
from perdure.types import Live

STATEMENT = "The zanzibar walrus exporter listens on port 7443."
QUESTION = "which port does the zanzibar walrus exporter listen on?"
DIARY = "Dear next one: the zanzibar walrus exporter is half done, look for the quincunx."


def stamp(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def claude_line(role: str, content, uuid: str, session: str, *, seconds: float = 0.0) -> bytes:
    line = {"type": role, "sessionId": session, "uuid": uuid, "parentUuid": None, "cwd": "/w"}
    line |= {"timestamp": stamp(seconds), "message": {"role": role, "content": content}}
    return json.dumps(line).encode() + b"\n"


def capture_call(home, tool: str, tool_input: dict, *, session: str = "s", seconds: float = 0.0) -> None:
    """Capture a session in which the agent makes one call."""
    call = {"type": "tool_use", "id": "t1", "name": tool, "input": tool_input}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "Done."}
    lines = [
        claude_line("user", "Please write down what you know.", f"{session}-1", session, seconds=seconds - 1),
        claude_line("assistant", [call], f"{session}-2", session, seconds=seconds),
        claude_line("user", [result], f"{session}-3", session, seconds=seconds + 1),
    ]
    home.capture(b"".join(lines), runtime="claude-code", session=session, conversation=session)


def ask(home, session: str = "s", question: str = QUESTION) -> str:
    """Return what a client's hook is told at a prompt of a session."""
    event = HookEvent("claude-code", "prompt", session, cwd="/w", prompt=question)
    return answer_event(home, event, limit_ms=20_000, mode="keyword").text


def remember_by_shell(home) -> tuple[str, dict]:
    home.remember(STATEMENT, trust="agent")
    return "Bash", {"command": f'perdure remember "{STATEMENT}" --by-agent'}


def remember_by_shell_as_owner(home) -> tuple[str, dict]:
    home.remember(STATEMENT)
    return "Bash", {"command": f"cd /w && perdure remember '{STATEMENT}'"}


def remember_by_mcp(home) -> tuple[str, dict]:
    answers.remember(home, STATEMENT, kind="", path="", cwd=None)
    return "mcp__perdure__remember", {"text": STATEMENT}


def remember_by_memory_tool(home) -> tuple[str, dict]:
    MemoryTool(home).call({"command": "create", "path": "/memories/exporter.md", "file_text": STATEMENT})
    return "memory", {"command": "create", "path": "/memories/exporter.md", "file_text": STATEMENT}


WAYS = (remember_by_shell, remember_by_shell_as_owner, remember_by_mcp, remember_by_memory_tool)


@pytest.mark.parametrize("way", WAYS)
def test_a_memory_is_told_to_others_and_not_to_its_session(home, way) -> None:
    tool, tool_input = way(home)
    capture_call(home, tool, tool_input)
    assert "7443" not in ask(home)
    told = ask(home, "another")
    assert told.count("7443") == 1 and "memory," in told  # the memory once, and not the call beside it


def test_a_memory_that_is_said_again_is_not_told_either(home) -> None:
    home.remember(STATEMENT, stated_at=datetime(2026, 1, 5, tzinfo=UTC))
    capture_call(home, "Bash", {"command": "ls"}, session="before", seconds=-7200)
    capture_call(home, "mcp__perdure__remember", {"text": STATEMENT}, seconds=7200)
    assert "7443" not in ask(home) and "7443" in ask(home, "another")


def test_after_a_compaction_it_is_told_again(home) -> None:
    tool, tool_input = remember_by_shell(home)
    capture_call(home, tool, tool_input, seconds=-60)
    emptied = Live("s", datetime.now(UTC))
    assert home.recall(QUESTION, session=Live("s"), mode="keyword").cues == ()
    assert "7443" in home.recall(QUESTION, session=emptied, mode="keyword").cues[0].text


def test_a_call_that_is_not_captured_yet_hides_the_memory_of_an_agent(home) -> None:
    """Some clients capture an answer at the next message: recall runs before that."""
    capture_call(home, "Bash", {"command": "ls"}, seconds=-5)
    remember_by_mcp(home)
    assert "7443" not in ask(home) and "7443" in ask(home, "another")


def test_what_the_owner_keeps_elsewhere_is_told(home) -> None:
    capture_call(home, "Bash", {"command": "ls"}, seconds=-5)
    home.remember(STATEMENT)
    assert "7443" in ask(home)


@pytest.mark.parametrize(
    ("tool", "tool_input"),
    [
        ("Bash", {"command": f'perdure floor write diary/2025-11-25 "{DIARY}" --by-agent'}),
        ("Bash", {"command": f"perdure floor write diary/2025-11-25 - <<'EOF'\n{DIARY}\nEOF"}),
        ("Bash", {"command": f'perdure floor card "{DIARY}" --by-agent'}),
        ("mcp__perdure__note", {"text": DIARY, "place": "diary"}),
        ("Write", {"file_path": "/h/.perdure/agents/default/diary/2025-11-25.md", "content": DIARY}),
    ],
)
@pytest.mark.parametrize("session", ["s", "another"])
def test_text_of_the_floor_does_not_enter_recall(home, tool, tool_input, session) -> None:
    home.floor.write("diary/2025-11-25", DIARY, by="agent")
    capture_call(home, tool, tool_input)
    for question in ("where is the quincunx?", "is the zanzibar walrus exporter done?"):
        assert "quincunx" not in ask(home, session, question).replace(question, "")
    assert [hit.turn_id for hit in home.search("quincunx").hits]  # the archive has it, and search finds it


def test_a_rebuilt_index_agrees(home, tmp_path: Path) -> None:
    tool, tool_input = remember_by_shell(home)
    capture_call(home, tool, tool_input)
    ask(home)
    assert home.upkeep.rebuild().same_digest
    assert "7443" not in ask(home)
