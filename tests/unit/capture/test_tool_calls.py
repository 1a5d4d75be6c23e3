"""Tool calls as clients report them: recorded events of real clients, and every other shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.capture import events
from perdure.capture.tool_calls import MAX_COMMAND_CHARS, MAX_ERROR_CHARS, read_call

DATA = Path(__file__).parents[2] / "data" / "hooks" / "tools.jsonl"
RECORDED = [json.loads(row) for row in DATA.read_text().splitlines()]
COMMAND = "ls /nonexist-dir && false"


def find(name: str, tool: str, client: str) -> dict:
    """The first recorded event of a client for a tool that failed, or read a file."""
    is_codex = client == "codex"
    return next(
        payload
        for payload in RECORDED
        if payload["hook_event_name"] == name and payload["tool_name"] == tool and ("turn_id" in payload) == is_codex
    )


def test_a_call_before_it_runs_has_no_error() -> None:
    for client in ("claude-code", "codex"):
        event = events.read_event(client, find("PreToolUse", "Bash", client))
        assert (event.kind, event.tool, event.command, event.error) == ("before-tool", "Bash", COMMAND, "")
        assert events.can_answer_tool(event)
    assert events.read_event("claude-code", find("PreToolUse", "Read", "claude-code")).files == ("/w/project/a.txt",)


@pytest.mark.parametrize(
    ("client", "name", "tool"),
    [
        ("claude-code", "PostToolUseFailure", "Bash"),
        ("codex", "PostToolUse", "Bash"),
        ("gemini-cli", "AfterTool", "run_shell_command"),
    ],
)
def test_a_call_that_failed_has_the_end_of_its_output(client: str, name: str, tool: str) -> None:
    event = events.read_event(client, find(name, tool, client))
    assert event.kind == "after-tool" and event.command == COMMAND and "cannot access '/nonexist-dir'" in event.error


def test_a_call_that_worked_is_answered_only_where_nothing_was_said_before_it() -> None:
    worked = {
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "ls"},
        "tool_response": "a",
    }
    assert not events.can_answer_tool(events.read_event("codex", worked))
    read = {"hook_event_name": "AfterTool", "tool_name": "read_file", "tool_input": {"file_path": "/w/a"}}
    assert events.can_answer_tool(events.read_event("gemini-cli", read))


def test_a_stopped_call_did_not_fail() -> None:
    stopped = {"tool_name": "Bash", "tool_input": {"command": "x"}, "error": "Exit code 137", "is_interrupt": True}
    assert read_call(stopped).error == ""


def test_the_files_of_a_patch_are_its_files() -> None:
    patch = "*** Begin Patch\n*** Update File: src/a.py\n*** Add File: b.py\n*** End Patch"
    for tool_input in (patch, {"command": patch}, {"command": ["apply_patch", patch]}, {"input": patch}):
        call = read_call({"tool_name": "apply_patch", "tool_input": tool_input})
        assert call.files == ("src/a.py", "b.py") and call.command == ""


def test_long_parts_are_left_out_or_cut_at_their_start() -> None:
    call = {
        "tool_name": "Bash",
        "tool_input": {"command": "x" * (MAX_COMMAND_CHARS + 1)},
        "error": "y" * 99_999 + "end",
    }
    read = read_call(call)
    assert read.command == "" and len(read.error) == MAX_ERROR_CHARS and read.error.endswith("end")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["command", "file_path", "output", "error", "exit_code", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["tool_name", "tool_input", "tool_response", "error", "is_interrupt"]), JSON))
def test_any_report_is_read(payload: dict) -> None:
    call = read_call(payload)
    assert isinstance(call.command, str) and all(isinstance(path, str) for path in call.files)
