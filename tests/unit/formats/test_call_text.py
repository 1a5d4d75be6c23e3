"""Tool calls in words: the tools of every client, inputs that are cut, and tools that nobody knows."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.formats.call_text import (
    describe_call,
    describe_calls,
    describe_turn,
    is_cut_call,
    list_words,
    writes_memory,
)
from perdure.types import Part, Turn

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-x = 1\n+x = 2\n*** Add File: b.py\n+y = 3\n*** End Patch"


@pytest.mark.parametrize(
    ("tool", "tool_input", "words"),
    [
        # Claude Code
        ("Bash", {"command": 'git commit -m "x"', "description": "Commit"}, 'ran `git commit -m "x"`'),
        ("Read", {"file_path": "/w/src/server.py", "limit": 20}, "read `src/server.py`"),
        ("Write", {"file_path": "/w/a.txt", "content": "one\ntwo"}, "wrote `a.txt`\none\ntwo"),
        ("Edit", {"file_path": "/w/server.py", "old_string": "a = 1", "new_string": "a = 2"},
         "edited `server.py`\n- a = 1\n+ a = 2"),
        ("MultiEdit", {"file_path": "/w/a", "edits": [{"old_string": "x", "new_string": "y"}]}, "edited `a`\n- x\n+ y"),
        ("Grep", {"pattern": "def main", "path": "/w"}, "searched for `def main` in `.`"),
        ("Glob", {"pattern": "**/*.py"}, "looked for files `**/*.py`"),
        ("WebFetch", {"url": "https://example.org", "prompt": "read it"}, "fetched `https://example.org`"),
        ("Task", {"description": "Find it", "prompt": "Search all."}, "started an agent: Find it\nSearch all."),
        ("Skill", {"skill": "deploy"}, "used the skill `deploy`"),
        ("TodoWrite", {"todos": [{"content": "Test it", "status": "pending"}]}, "updated its list of tasks\n- Test it"),
        ("AskUserQuestion", {"questions": [{"question": "Which port?"}]}, "asked the user\n- Which port?"),
        # Codex
        ("exec_command", {"cmd": "pytest -q", "workdir": "/w"}, "ran `pytest -q`"),
        ("shell", {"command": ["bash", "-lc", "pytest -q"]}, "ran `pytest -q`"),
        ("shell", {"command": ["ls", "-l"]}, "ran `ls -l`"),
        ("shell", {"command": ["apply_patch", PATCH]}, "edited `a.py`, `b.py`"),
        ("apply_patch", PATCH, "edited `a.py`, `b.py`"),
        ("update_plan", {"plan": [{"step": "Test it", "status": "pending"}]}, "updated its list of tasks\n- Test it"),
        # pi, Gemini CLI, OpenCode, Copilot CLI
        ("edit", {"path": "a", "oldText": "x", "newText": "y"}, "edited `a`\n- x\n+ y"),
        ("run_shell_command", {"command": "make"}, "ran `make`"),
        ("read_many_files", {"paths": ["a", "b"]}, "read `a`, `b`"),
        ("replace", {"file_path": "a", "old_string": "x", "new_string": "y"}, "edited `a`\n- x\n+ y"),
        ("edit", {"filePath": "/w/a", "oldString": "x", "newString": "y"}, "edited `a`\n- x\n+ y"),
        ("patch", {"patchText": PATCH}, "edited `a.py`, `b.py`"),
        ("create", {"path": "/w/a", "file_text": "one"}, "wrote `a`\none"),
        ("str_replace_editor", {"command": "view", "path": "/w/a"}, "read `a`"),
        # any other
        ("mcp__linear__get_issue", {"id": "ENT-7", "deep": {"a": [1, True]}, "none": None},
         "linear.get_issue(id=ENT-7, deep=a: 1, true)"),
        ("wait", {}, "wait()"),
        ("Read", {"offset": 3}, "Read(offset=3)"),
    ],
)  # fmt: skip
def test_a_call_is_told_in_words(tool, tool_input, words):
    encoded = tool_input if isinstance(tool_input, str) else json.dumps(tool_input, separators=(",", ":"))
    assert describe_call(tool, encoded, "/w").startswith(words)
    assert describe_calls(f"{tool} {encoded}", "/w") == describe_call(tool, encoded, "/w") or not tool_input


def test_a_patch_is_shown_without_its_marks():
    assert describe_call("apply_patch", PATCH) == "edited `a.py`, `b.py`\n@@\n-x = 1\n+x = 2\n+y = 3"


def test_the_calls_of_a_chunk_stand_on_lines_of_their_own():
    chunk = 'Read {"file_path":"a"}\n\nBash {"command":"echo \\"one\\ntwo\\""}'
    assert describe_calls(chunk) == 'read `a`\nran `echo "one\ntwo"`'


def test_a_call_that_is_cut_shows_what_can_be_read():
    whole = 'Edit {"file_path":"a.py","old_string":"print(\\"x\\")\\n\\treturn","new_string":"log(\\"x\\")"}'
    assert describe_calls(whole[:60]) == 'edited `a.py`\n- print("x")\n\tretur'
    assert describe_calls(whole[whole.index("int(") :]) == '…int("x")\n\treturn\nlog("x")'
    assert describe_calls(whole[45:] + '\n\nRead {"file_path":"b"}').endswith('log("x")\nread `b`')
    assert describe_calls("just a line of a patch\n+x = '\\n'") == "…just a line of a patch\n+x = '\\n'"


def test_a_call_that_continues_names_its_beginning():
    first = 'Bash {"command":"ls"}\n\nWrite {"file_path":"/w/plan.md","content":"# Plan\\none'
    assert describe_calls('two\\nthree"}', "/w", before=first) == "wrote `plan.md`\n…two\nthree"
    assert describe_calls('two\\nthree"}', before="no call") == "…two\nthree"
    assert is_cut_call('two"}') and not is_cut_call(first)


def test_a_secret_behind_escapes_is_masked():
    key = "AKIA" + "J7Q2W9E4R6T8Y1U3"
    escaped = "".join(f"\\u{ord(character):04x}" for character in key)
    assert key not in describe_call("Bash", '{"command":"export KEY=' + escaped + '"}')


def test_a_turn_is_shown_by_its_parts():
    parts = (Part("text", "I look."), Part("call", '{"command":"ls"}', "Bash"), Part("thinking", "hm"))
    turn = Turn("assistant", "agent", ((0, 9),), parts)
    assert describe_turn(turn, None, "text", "call") == "I look.\n\nran `ls`"


inputs = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)


@given(tool=st.sampled_from(["Bash", "Edit", "apply_patch", "TodoWrite", "x"]), value=inputs, cut=st.integers(0, 80))
def test_no_input_raises(tool, value, cut):
    chunk = f"{tool} {json.dumps(value)}"
    assert isinstance(describe_calls(chunk[cut:]) + describe_calls(chunk[:cut]), str)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=60))
def test_a_command_line_is_shown_without_escapes(command):
    words = describe_call("Bash", json.dumps({"command": command}))
    if command.strip() and "***" not in words and "[secret" not in words:
        assert words == f"ran `{command.strip()}`" or re.search(r"\*\*\* Begin Patch", command)


OWN_COMMANDS = (
    'perdure floor write diary/2026-11-21 "Dear next one"',
    "cd /w && perdure --home /h remember 'The port is 8443' --by-agent",
    "PERDURE_HOME=/h /w/.venv/bin/perdure floor card 'Ask first'",
    "perdure floor write diary/2026-11-21 - <<'EOF'\nDear next one\nEOF",
    "echo one | perdure remember -",
    "echo 'Dear next one' >> ~/.perdure/agents/default/diary/2026-11-21.md",
)


@pytest.mark.parametrize("command", OWN_COMMANDS)
def test_a_command_that_writes_into_perdure_is_known(command):
    for tool, tool_input in (
        ("Bash", {"command": command}),
        ("exec_command", {"cmd": command}),
        ("shell", {"command": ["bash", "-lc", command]}),
        ("run_shell_command", {"command": command}),
    ):
        assert writes_memory(tool, json.dumps(tool_input))


@pytest.mark.parametrize(
    ("tool", "tool_input"),
    [
        ("mcp__perdure__note", {"text": "x"}),
        ("perdure_remember", {"text": "x"}),
        ("memory", {"command": "create", "path": "/memories/a.md", "file_text": "x"}),
        ("memory", {"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/b.md"}),
        ("Write", {"file_path": "/h/.perdure/agents/default/diary/2026-11-21.md", "content": "x"}),
        ("apply_patch", "*** Begin Patch\n*** Update File: /h/.perdure/agents/default/notes.md\n+x\n*** End Patch"),
    ],
)
def test_a_tool_that_writes_into_perdure_is_known(tool, tool_input):
    assert writes_memory(tool, tool_input if isinstance(tool_input, str) else json.dumps(tool_input))


@pytest.mark.parametrize(
    ("tool", "tool_input"),
    [
        ("Bash", {"command": "grep -rn 'perdure floor write' docs"}),
        ("Bash", {"command": "perdure recall 'which port?' && perdure floor diary"}),
        ("Bash", {"command": "cat ~/.perdure/agents/default/notes.md"}),
        ("Bash", {"command": "pytest tests/perdure"}),
        ("Read", {"file_path": "/h/.perdure/agents/default/notes.md"}),
        ("Write", {"file_path": "/w/docs/perdure.md", "content": "Run perdure remember TEXT"}),
        ("memory", {"command": "view", "path": "/memories"}),
        ("mcp__perdure__recall", {"message": "x"}),
        ("mcp__other__remember", {"text": "x"}),
        ("Bash", "not json, perdure"),
    ],
)
def test_other_calls_are_told_apart(tool, tool_input):
    assert not writes_memory(tool, tool_input if isinstance(tool_input, str) else json.dumps(tool_input))


def test_words_of_a_call_are_without_escapes():
    assert list_words('{"command":"perdure remember \\"M\\u00fcsli\\nat 8\\""}') == [
        "command", "perdure", "remember", "müsli", "at", "8",
    ]  # fmt: skip


@given(st.text())
def test_any_input_is_read(tool_input):
    assert not writes_memory("Read", tool_input)
    for tool in ("Bash", "memory", "apply_patch", "perdure"):
        writes_memory(tool, tool_input)
