"""The shared loop, and that no input whatever raises."""

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import formats
from perdure.capture.lines import Line
from perdure.errors import FormatFault
from perdure.formats.parsing import is_forgotten_marker, repair_json
from perdure.types import RUNTIMES

CLAUDE = {
    "parentUuid": None,
    "isSidechain": True,
    "agentId": "a1",
    "type": "assistant",
    "uuid": "u1",
    "sessionId": "s",
    "timestamp": "2026-01-02T03:04:05.678Z",
    "promptSource": "typed",
    "origin": {"kind": "human"},
    "planContent": "x",
    "message": {
        "role": "user",
        "id": "m1",
        "model": "claude",
        "usage": {"input_tokens": 3, "output_tokens": 4},
        "content": [
            {"type": "text", "text": "hi"},
            {"type": "thinking", "thinking": "hm"},
            {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a.py"}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "out"}]},
        ],
    },
    "attachment": {"type": "queued_command", "prompt": "also this", "commandMode": "prompt"},
    "customTitle": "T",
}
CODEX = {
    "timestamp": "2026-01-02T03:04:05.678Z",
    "type": "response_item",
    "payload": {
        "type": "function_call",
        "id": "fc",
        "role": "user",
        "name": "exec_command",
        "call_id": "c",
        "content": [{"type": "input_text", "text": "hi"}],
        "summary": [{"type": "summary_text", "text": "s"}],
        "arguments": '{"cmd":"cat a.py"}',
        "input": "*** Update File: a",
        "action": {"command": ["ls"]},
        "output": '{"output":"o","metadata":{"exit_code":1}}',
        "message": "m",
        "model": "gpt",
        "info": {"last_token_usage": {"total_tokens": 3}, "total_token_usage": {"total_tokens": 3}},
        "internal_chat_message_metadata_passthrough": {"content_item_kinds": ["user.text"]},
        "provenance": {"type": "harness"},
        "thread_name": "T",
        "source": {"subagent": {"thread_spawn": {}}},
    },
}
PI = {
    "type": "message",
    "id": "ab12cd34",
    "parentId": None,
    "timestamp": "2026-01-02T03:04:05.678Z",
    "summary": "s",
    "message": {
        "role": "assistant",
        "model": "m",
        "usage": {"input": 1, "output": 2},
        "toolCallId": "t",
        "toolName": "read",
        "isError": False,
        "command": "ls",
        "output": "o",
        "exitCode": 0,
        "content": [
            {"type": "text", "text": "hi"},
            {"type": "thinking", "thinking": "x"},
            {"type": "toolCall", "id": "t", "name": "read", "arguments": {"path": "a"}},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        ],
    },
}
COPILOT = {
    "type": "assistant.message",
    "id": "e1",
    "timestamp": "2026-01-02T03:04:05.678Z",
    "data": {
        "content": "hi",
        "reasoningText": "r",
        "outputTokens": 5,
        "toolCallId": "t",
        "success": False,
        "result": {"content": "x"},
        "error": {"message": "e"},
        "parentToolCallId": "p",
        "title": "T",
        "toolRequests": [{"toolCallId": "t", "name": "view", "arguments": {"path": "a"}}],
    },
}
GEMINI = {
    "id": "g1",
    "timestamp": "2026-01-02T03:04:05.678Z",
    "type": "gemini",
    "content": [{"text": "hi"}],
    "model": "g",
    "thoughts": [{"subject": "s", "description": "d"}],
    "tokens": {"total": 9},
    "sessionId": "s",
    "$set": {"summary": "T", "messages": [{"id": "g2", "type": "user", "content": "old"}]},
    "toolCalls": [
        {
            "id": "c",
            "name": "read_file",
            "args": {"file_path": "a"},
            "status": "success",
            "result": [{"functionResponse": {"response": {"output": "o"}}}],
        }
    ],
}
OPENCODE = {
    "info": {
        "id": "msg_1",
        "role": "assistant",
        "modelID": "m",
        "time": {"created": 1763681581544},
        "summary": True,
        "tokens": {"input": 1, "cache": {"read": 2}},
    },
    "spawned": False,
    "session": {"id": "s"},
    "title": "T",
    "parts": [
        {"type": "text", "text": "hi", "synthetic": True},
        {"type": "reasoning", "text": "r"},
        {"type": "file", "mime": "image/png", "url": "data:image/png;base64,aGk=", "filename": "f"},
        {"type": "subtask", "prompt": "p"},
        {
            "type": "tool",
            "tool": "read",
            "callID": "c",
            "state": {"status": "completed", "input": {"filePath": "a"}, "output": "o", "error": "e"},
        },
    ],
}
MESSAGES = {
    "role": "assistant",
    "content": [
        {"type": "text", "text": "hi"},
        {"type": "tool_use", "id": "t", "name": "x", "input": {}},
        {"type": "tool_result", "tool_use_id": "t", "content": "o"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    ],
    "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
    "function_call": {"name": "g"},
    "id": "i",
    "message": {"role": "user", "content": "hi"},
    "usage": {"total_tokens": 3},
    "created_at": 1763681581,
}
NOTES = {"id": "n@1", "heading": ["A"], "text": "# A\n\nwords", "at": "2026-01-02", "note": "n.md", "title": "T"}
QWEN = {
    "uuid": "u1",
    "parentUuid": None,
    "sessionId": "s",
    "timestamp": "2026-01-02T03:04:05.678Z",
    "type": "assistant",
    "subtype": "custom_title",
    "cwd": "/w",
    "model": "q",
    "message": {
        "role": "model",
        "parts": [
            {"text": "hi", "thought": True},
            {"functionCall": {"id": "c", "name": "read_file", "args": {"file_path": "a"}}},
            {"functionResponse": {"id": "c", "name": "read_file", "response": {"output": "o"}}},
            {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
        ],
    },
    "usageMetadata": {"totalTokenCount": 9},
    "toolCallResult": {"callId": "c", "status": "error"},
    "systemPayload": {"customTitle": "T"},
}
KIMI = {
    "type": "context.append_loop_event",
    "agentId": "main",
    "time": 1763681581544,
    "kind": "loop",
    "model": "k",
    "summary": "so far",
    "message": {"role": "user", "id": "m", "content": [{"type": "text", "text": "hi"}], "origin": {"kind": "user"}},
    "event": {
        "type": "tool.call",
        "uuid": "u",
        "stepUuid": "t",
        "parentUuid": "p",
        "toolCallId": "c",
        "name": "Bash",
        "args": {"command": "ls"},
        "part": {"type": "text", "text": "hi", "think": "hm"},
        "result": {"output": "o", "isError": True},
        "usage": {"inputOther": 3, "output": 4},
    },
}
CLINE = {
    "sessionId": "s",
    "origin": {"mode": "subagent", "parentThreadId": "p"},
    "id": "m",
    "role": "user",
    "ts": 1763681581544,
    "modelInfo": {"id": "c"},
    "metrics": {"inputTokens": 3},
    "content": [
        {"type": "text", "text": '<user_input mode="act">hi</user_input>'},
        {"type": "thinking", "thinking": "hm"},
        {"type": "tool_use", "id": "t", "name": "read_files", "input": {"files": [{"path": "a"}]}},
        {"type": "tool_result", "tool_use_id": "t", "content": [{"query": "a", "result": "o", "success": False}]},
    ],
}
AIDER = {"session": "s", "id": "s#1", "by": "person", "text": "/ask why?", "at": "2026-01-02 03:04:05", "model": "m"}
OWN = {
    "type": "message",
    "id": "e1",
    "parent": "e0",
    "timestamp": "2026-01-02T03:04:05.678Z",
    "role": "assistant",
    "text": "hi",
    "thought": "x",
    "images": [{"type": "image", "media_type": "image/png", "data": "aGk="}],
    "calls": [{"id": "c", "name": "read", "input": {"path": "a"}}],
    "native": {"provider": "p", "blocks": [{"type": "thinking", "signature": "s"}]},
    "call_id": "c",
    "tool": "read",
    "model": "m",
    "stop": "end",
    "usage": {"n_input": 1, "n_output": 2, "money": 0.5},
    "session": "s",
    "format": 1,
    "summary": "s",
    "first_kept": "e1",
}
SAMPLES = {
    "perdure": OWN,
    "qwen-code": QWEN,
    "kimi-code": KIMI,
    "cline": CLINE,
    "aider": AIDER,
    "claude-code": CLAUDE,
    "codex": CODEX,
    "pi": PI,
    "copilot-cli": COPILOT,
    "gemini-cli": GEMINI,
    "opencode": OPENCODE,
    "messages": MESSAGES,
    "notes": NOTES,
    "claude-code-prompts-only": {
        "display": "see [Pasted text #1]",
        "pastedContents": {"1": {"id": 1, "type": "text", "content": "words"}},
        "timestamp": 1763681581544,
        "project": "/w",
        "sessionId": "s",
    },
    "host-memory": {
        "id": "a",
        "headings": ["A"],
        "text": "- words",
        "version": "v",
        "paragraphs": ["a"],
    },
    "instructions": {"file": "/w/AGENTS.md", "version": "v", "paragraphs": ["a", "b"], "at": None},
    "codex-prompts-only": {"session_id": "s", "ts": 1763681581, "text": "hi"},
}
TYPES = (
    "context.append_message",
    "context.append_loop_event",
    "context.apply_compaction",
    "llm.request",
    "content.part",
    "tool.call",
    "tool.result",
    "step.end",
    "agent",
    "client",
    "user",
    "assistant",
    "attachment",
    "summary",
    "message",
    "reasoning",
    "response_item",
    "event_msg",
    "token_count",
    "user_message",
    "compacted",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "toolResult",
    "tool",
    "system",
    "bashExecution",
    "compaction",
    "custom_message",
    "session",
    "user.message",
    "tool.execution_complete",
    "gemini",
    "tool_result",
    "session_meta",
    "local_shell_call",
    "web_search_call",
    "custom",
    "session_info",
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(TYPES)
)
anything = st.recursive(
    leaves, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=8), v, max_size=3), max_leaves=8
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path into a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, item in inner for p in places(item, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    result = copy.copy(value)
    result[path[0]] = replaced(value[path[0]], path[1:], new)
    return result


def check(runtime: str, lines: list[Line]) -> None:
    """Parse, and hold the account against the lines: each is a turn's, skipped, malformed, forgotten or blank."""
    parsed = formats.parse(runtime, lines)
    owned = [span for turn in parsed.turns for span in turn.lines]
    assert len(owned) == len(set(owned))
    assert set(owned) <= {(line.offset, line.end) for line in lines}
    accounted = len(owned) + sum(parsed.skipped.values()) + len(parsed.malformed) + parsed.n_forgotten
    assert accounted == sum(1 for line in lines if line.raw.strip())
    assert [t.offset for t in parsed.turns] == sorted({t.offset for t in parsed.turns})
    for turn in parsed.turns:
        json.dumps([p.text for p in turn.parts], ensure_ascii=False).encode()  # no lone surrogates
        assert turn.native_id is None or "\0" not in turn.native_id


@pytest.mark.parametrize("runtime", sorted(SAMPLES))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_mutation_of_a_line_is_accounted_for(runtime, data):
    rows = []
    for _ in range(data.draw(st.integers(1, 3))):
        row: Any = SAMPLES[runtime]
        for _ in range(data.draw(st.integers(0, 4))):
            row = replaced(row, data.draw(st.sampled_from(places(row))), data.draw(anything))
        rows.append(row)
    raws = [json.dumps(row, ensure_ascii=data.draw(st.booleans())).encode("utf-8", "surrogatepass") for row in rows]
    if data.draw(st.booleans()):
        cut = data.draw(st.integers(0, len(raws[0])))
        raws[0] = raws[0][:cut] + data.draw(st.binary(max_size=4)) + raws[0][cut:]
    raws = [raw.replace(b"\n", b" ") for raw in raws]
    offsets = [sum(len(r) + 1 for r in raws[:i]) for i in range(len(raws))]
    check(runtime, [Line(at, raw) for at, raw in zip(offsets, raws, strict=True)])
    head = b"\n".join(raws)
    formats.detect(head)
    assert "\0" not in formats.identify(runtime, head, "some/path.jsonl").session


@pytest.mark.parametrize("runtime", RUNTIMES)
@settings(max_examples=60, deadline=None)
@given(raws=st.lists(st.binary(max_size=60).map(lambda b: b.replace(b"\n", b"")), max_size=4))
def test_any_bytes_are_accounted_for(runtime, raws):
    offsets = [sum(len(r) + 1 for r in raws[:i]) for i in range(len(raws))]
    check(runtime, [Line(at, raw) for at, raw in zip(offsets, raws, strict=True)])
    head = b"\n".join(raws)
    formats.detect(head, "x.md")
    formats.is_append_only(runtime, head)
    formats.identify(runtime, head, "a/b\0c")


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 100_000,
        b'{"type":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"message":' + b'{"content":' * 5_000 + b"1" + b"}" * 5_001,
        b'{"type":"user","uuid":"\xff\xfe","message":{"content":"\xff"},"text":"' + b"x" * 3_000_000 + b'"}',
        b'{"a":' + b"9" * 10_000 + b"}",
        b'{"type":"\\ud800","role":"\\udfff"}',
        b"\0\0\0",
        b'{"type":NaN}',
    ],
    ids=["open", "deep", "nested", "huge", "digits", "surrogates", "nul", "nan"],
)
def test_hostile_lines_never_raise(runtime, raw):
    check(runtime, [Line(0, raw)])
    formats.detect(raw)
    formats.identify(runtime, raw, "")
    formats.is_append_only(runtime, raw)


def test_line_with_invalid_utf8_is_still_a_turn(as_lines):
    raw = b'{"type":"user","uuid":"u","sessionId":"s","message":{"role":"user","content":"caf\xe9 at nine"}}'
    (turn,) = formats.parse("claude-code", as_lines(raw)).turns
    assert turn.text() == "caf\ufffd at nine"


def test_a_lone_surrogate_costs_one_character_not_the_line(as_lines):
    raw = b'{"type":"user","uuid":"u","sessionId":"s","message":{"role":"user","content":"a\\ud83d!"}}'
    (turn,) = formats.parse("claude-code", as_lines(raw)).turns
    assert turn.text() == "a?!"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_forgotten_and_empty_lines_are_counted(runtime, as_lines):
    parsed = formats.parse(runtime, as_lines({"forgotten": "t1"}, b"", b"  ", b'{"forgotten":"t2"}'))
    assert (parsed.n_forgotten, parsed.turns, parsed.malformed, dict(parsed.skipped)) == (2, (), (), {})


@pytest.mark.parametrize(
    "raw", [b'{"forgotten":1}', b'{"forgotten":"a","b":"c"}', b'{"forgotten":"a"', b'["forgotten"]']
)
def test_only_the_exact_marker_is_one(raw):
    assert not is_forgotten_marker(raw)


def test_offsets_count_from_the_start_of_the_source():
    raw = b'{"type":"user","uuid":"u","sessionId":"s","message":{"content":"hi"}}'
    parsed = formats.parse("claude-code", [Line(1000, b"not json"), Line(1009, raw)])
    assert parsed.malformed == (1000,)
    assert parsed.turns[0].lines == ((1009, 1009 + len(raw) + 1),)


def test_an_unknown_runtime_is_refused():
    for ask in (lambda: formats.parse("x", []), lambda: formats.identify("x", b"", ""), lambda: formats.emit("x", b"")):
        with pytest.raises(FormatFault):
            ask()
    with pytest.raises(FormatFault):
        formats.emit("claude-code", b"")


def test_repair_keeps_valid_json_and_refuses_cut_json():
    assert json.loads(repair_json(b'\xef\xbb\xbf{"a":"\xff"}')) == {"a": "\ufffd"}
    with pytest.raises(ValueError):
        repair_json(b'{"a"')
