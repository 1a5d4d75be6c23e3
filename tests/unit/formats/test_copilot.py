"""Copilot CLI event logs."""

from perdure.formats import identify, parse
from perdure.types import Origin


def event(kind, id="e1", **data):
    return {"type": kind, "data": data, "id": id, "timestamp": "2026-06-25T01:50:44.763Z", "parentId": None}


def test_one_exchange(as_lines):
    rows = [
        event("session.start", sessionId="s", context={"cwd": "/w"}),
        event("system.message", "e2", role="system", content="You are"),
        event(
            "user.message", "e3", content="why?", transformedContent="<current_datetime>x</current_datetime>\n\nwhy?"
        ),
        event(
            "assistant.message",
            "e4",
            model="m",
            content="",
            reasoningText="hm",
            outputTokens=7,
            toolRequests=[{"toolCallId": "t", "name": "view", "arguments": {"path": "/w/a"}, "type": "function"}],
        ),
        event("tool.execution_start", "e5", toolCallId="t", toolName="view"),
        event(
            "tool.execution_complete",
            "e6",
            toolCallId="t",
            success=True,
            result={"content": "x", "detailedContent": "xx"},
        ),
        event(
            "tool.execution_complete", "e7", toolCallId="t2", success=False, error={"message": "denied", "code": "c"}
        ),
        event("assistant.message", "e8", content="Because.", toolRequests=[], parentToolCallId="t9"),
        event("session.title_changed", "e9", title="Why"),
        event("session.compaction_complete", "e10", summaryContent="so far"),
    ]
    parsed = parse("copilot-cli", as_lines(*rows))
    assert [(t.role, t.author, t.native_id, t.text()) for t in parsed.turns] == [
        ("system", "machine", "e2", "You are"),
        ("user", "person", "e3", "why?"),
        ("assistant", "agent", "e4", 'hm\n\n{"path":"/w/a"}'),
        ("tool", "tool", "e6", "x"),
        ("tool", "tool", "e7", "denied"),
        ("assistant", "agent", "e8", "Because."),
        ("system", "machine", "e10", "so far"),
    ]
    assert (parsed.turns[2].n_tokens, parsed.turns[2].files) == (7, ("/w/a",))
    assert (parsed.turns[3].parts[0].name, parsed.turns[4].parts[0].is_error) == ("view", True)
    assert [t.thread for t in parsed.turns] == ["", "", "", "", "", "t9", ""]
    assert parsed.turns[6].is_summary
    assert parsed.title == "Why"
    assert parsed.skipped == {"session.start": 1, "tool.execution_start": 1, "session.title_changed": 1}


def test_invalid_data_is_refused(as_lines):
    assert parse("copilot-cli", as_lines({"type": "user.message", "data": 3})).malformed == (0,)


def test_identify(as_head):
    head = as_head(event("session.start", sessionId="s", context={"cwd": "/w"}))
    assert identify("copilot-cli", head, "x") == Origin("copilot-cli", "s", "s", cwd="/w")
