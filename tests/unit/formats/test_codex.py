"""Codex rollouts in the shapes of 0.140 to 0.169, and of the first versions."""

import json

import pytest

from perdure.formats import identify, parse
from perdure.types import Origin


def line(kind, payload, at="2026-06-18T02:34:50.278Z"):
    return {"timestamp": at, "type": kind, "payload": payload}


def item(**payload):
    return line("response_item", payload)


def message(role, *texts, **more):
    kind = "output_text" if role == "assistant" else "input_text"
    return item(type="message", role=role, content=[{"type": kind, "text": text} for text in texts], **more)


def event(kind, **payload):
    return line("event_msg", {"type": kind, **payload})


def run(as_lines, *rows, **how):
    return parse("codex", as_lines(*rows), **how)


def usage(last, total):
    return event(
        "token_count", info={"last_token_usage": {"total_tokens": last}, "total_token_usage": {"total_tokens": total}}
    )


def test_agent_turn_includes_everything_up_to_an_output(as_lines):
    """Usage 30 and 12 belongs to the turns before; the repeated event counts nothing."""
    rows = [
        line("turn_context", {"model": "gpt-5.5", "cwd": "/w"}),
        message("user", "list files"),
        event("user_message", message="list files"),
        item(type="reasoning", id="rs_1", summary=[{"type": "summary_text", "text": "think"}], encrypted_content="zzz"),
        event("agent_message", message="Looking."),
        message("assistant", "Looking.", id="msg_1"),
        item(type="function_call", name="exec_command", arguments='{"cmd": "cat a.py"}', call_id="c1", id="fc_1"),
        item(type="function_call_output", call_id="c1", output="Process exited with code 2\nOutput:\nno"),
        usage(30, 30),
        usage(30, 30),
        message("assistant", "Not there."),
        usage(12, 42),
    ]
    parsed = run(as_lines, *rows)
    assert [(t.role, t.author, t.native_id, t.n_tokens) for t in parsed.turns] == [
        ("user", "person", None, 0),
        ("assistant", "agent", "rs_1", 30),
        ("tool", "tool", None, 0),
        ("assistant", "agent", None, 12),
    ]
    agent, out = parsed.turns[1:3]
    assert [(p.kind, p.text) for p in agent.parts] == [
        ("thinking", "think"),
        ("text", "Looking."),
        ("call", '{"cmd":"cat a.py"}'),
    ]
    assert (agent.model, agent.files, len(agent.lines)) == ("gpt-5.5", ("a.py",), 3)
    assert [(p.name, p.call_id, p.is_error) for p in out.parts] == [("exec_command", "c1", True)]
    assert out.text() == "Process exited with code 2\nOutput:\nno"
    assert parsed.skipped == {
        "turn_context": 1,
        "event_msg:user_message": 1,
        "event_msg:agent_message": 1,
        "event_msg:token_count": 3,
    }


@pytest.mark.parametrize(
    "row",
    [
        message(
            "user",
            "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>x",
            "<environment_context>\n  <cwd>/w</cwd>\n</environment_context>",
        ),
        message("user", "<environment_context>\n<cwd>/w</cwd>\n</environment_context>"),
        message("user", "<user_instructions>\nx\n</user_instructions>"),
        message("user", "<turn_aborted>\nThe user interrupted"),
        message(
            "user",
            "remembered",
            internal_chat_message_metadata_passthrough={"content_item_kinds": ["hooks.additional_context"]},
        ),
        message("user", "remembered", provenance={"type": "harness", "hook": True}),
    ],
)
def test_injected_messages_are_a_machines(as_lines, row):
    (turn,) = run(as_lines, row).turns
    assert (turn.role, turn.author) == ("user", "machine")


def test_tagged_words_of_a_person(as_lines):
    row = message(
        "user",
        "hello",
        internal_chat_message_metadata_passthrough={"content_item_kinds": ["user.text"], "turn_id": "t"},
    )
    assert run(as_lines, row).turns[0].author == "person"


def test_developer_messages_are_the_systems(as_lines):
    (turn,) = run(as_lines, message("developer", "rules")).turns
    assert (turn.role, turn.author, turn.text()) == ("system", "machine", "rules")


def test_inserted_skill_is_recognised(as_lines):
    row = message("user", "<skill>\n<name>worktree</name>\n<path>/s/SKILL.md</path>\nbody\n</skill>")
    (turn,) = run(as_lines, row).turns
    assert (turn.author, turn.skills) == ("machine", ("worktree",))


def test_editor_context_is_pasted(as_lines):
    text = "# Context from my IDE setup:\n## Open tabs:\n- a.py\n\n## My request for Codex:\nrename it"
    (turn,) = run(as_lines, message("user", text)).turns
    assert turn.author == "person"
    assert [(p.kind, p.text.strip()) for p in turn.parts][1] == ("text", "rename it")
    assert turn.parts[0].kind == "pasted"


def test_other_tools(as_lines):
    patch = "*** Begin Patch\n*** Update File: src/a.py\n@@\n*** Add File: b.py\n*** End Patch"
    rows = [
        item(type="custom_tool_call", name="apply_patch", input=patch, call_id="c1"),
        item(
            type="local_shell_call",
            call_id="c2",
            action={"type": "exec", "command": ["bash", "-lc", "sed -n '1,9p' x.md"]},
        ),
        item(type="web_search_call", action={"type": "search", "query": "q"}),
        item(type="function_call", name="_create_issue", namespace="mcp__gh", arguments="not json", call_id="c3"),
        item(
            type="custom_tool_call_output",
            call_id="c1",
            output=json.dumps({"output": "Success", "metadata": {"exit_code": 1}}),
        ),
        item(
            type="function_call_output",
            call_id="c3",
            output=[
                {"type": "input_text", "text": "made"},
                {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
            ],
        ),
    ]
    agent, patched, made = run(as_lines, *rows).turns
    assert [(p.name, p.text) for p in agent.parts] == [
        ("apply_patch", patch),
        ("local_shell", '{"type":"exec","command":["bash","-lc","sed -n \'1,9p\' x.md"]}'),
        ("web_search", '{"type":"search","query":"q"}'),
        ("mcp__gh__create_issue", "not json"),
    ]
    assert agent.files == ("src/a.py", "b.py", "x.md")
    assert (patched.text(), patched.parts[0].is_error, patched.parts[0].name) == ("Success", True, "apply_patch")
    assert [(p.kind, p.text) for p in made.parts] == [("result", "made"), ("image", "[image/png 2 bytes]")]


def test_compaction(as_lines):
    first, second = run(as_lines, line("compacted", {"message": "so far"}), line("compacted", {"message": ""})).turns
    assert (first.role, first.is_summary, first.text()) == ("system", True, "so far")
    assert (second.is_summary, second.parts) == (True, ())


def test_a_version_that_wrote_only_events(as_lines):
    parsed = run(
        as_lines, event("user_message", message="hi"), event("agent_message", message="hello"), event("task_complete")
    )
    assert [(t.role, t.author, t.text()) for t in parsed.turns] == [
        ("user", "person", "hi"),
        ("assistant", "agent", "hello"),
    ]
    assert parsed.skipped == {"event_msg:task_complete": 1}


def test_the_first_versions_had_items_without_payload(as_lines, as_head):
    header = {"id": "old-1", "timestamp": "2025-06-01T00:00:00Z", "instructions": None, "git": {}}
    rows = [
        header,
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"record_type": "state"},
    ]
    parsed = run(as_lines, *rows)
    assert [t.text() for t in parsed.turns] == ["hi"]
    assert parsed.skipped == {"untyped": 2}
    assert identify("codex", as_head(*rows), "x").session == "old-1"


def test_sub_agent_has_no_typed_turns(as_lines):
    meta = line("session_meta", {"id": "b", "parent_thread_id": "a", "thread_source": "subagent"})
    assert run(as_lines, meta, message("user", "assess this")).turns[0].author == "machine"
    assert run(as_lines, message("user", "assess this"), spawned=True).turns[0].author == "machine"


def test_a_new_name_is_the_title(as_lines):
    assert run(as_lines, event("thread_name_updated", thread_name="Fix login")).title == "Fix login"


@pytest.mark.parametrize(
    ("meta", "origin"),
    [
        ({"id": "a", "cwd": "/w"}, Origin("codex", "a", "a", cwd="/w")),
        ({"id": "b", "parent_thread_id": "a", "session_id": "a"}, Origin("codex", "b", "a", parent_session="a")),
        ({"id": "c", "parent_thread_id": "b", "session_id": "a"}, Origin("codex", "c", "a", parent_session="b")),
        (
            {"id": "c", "source": {"subagent": {"thread_spawn": {"parent_thread_id": "b"}}}},
            Origin("codex", "c", "b", parent_session="b"),
        ),
        (
            {"id": "d", "forked_from_id": "a", "session_id": "d"},
            Origin("codex", "d", "d", parent_session="a", fork=True),
        ),
    ],
)
def test_identify(as_head, meta, origin):
    assert identify("codex", as_head(line("session_meta", meta), message("user", "x")), "rollout-x.jsonl") == origin


def test_identify_from_a_cut_first_line(as_head):
    meta = line("session_meta", {"id": "a", "cwd": "/w", "base_instructions": {"text": "x" * 100_000}})
    assert identify("codex", as_head(meta)[:65_536], "x") == Origin("codex", "a", "a", cwd="/w")
