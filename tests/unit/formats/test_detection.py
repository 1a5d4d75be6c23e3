"""One detection per way a file of each kind may begin; each also cut in the middle of a line."""

import pytest

from perdure.formats import detect, is_append_only

STARTS = [
    ("claude-code", {"type": "summary", "summary": "x", "leafUuid": "u"}),
    ("claude-code", {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}),
    ("claude-code", {"type": "queue-operation", "operation": "enqueue", "sessionId": "s"}),
    (
        "claude-code",
        {"parentUuid": None, "isSidechain": False, "sessionId": "s", "type": "user", "uuid": "u", "message": {}},
    ),
    ("codex", {"timestamp": "t", "type": "session_meta", "payload": {"id": "a"}}),
    ("codex", {"timestamp": "t", "type": "response_item", "payload": {"type": "message"}}),
    ("codex", {"id": "a", "timestamp": "t", "instructions": None}),
    ("pi", {"type": "session", "version": 3, "id": "s", "cwd": "/w"}),
    (
        "pi",
        {"type": "message", "id": "a", "parentId": None, "timestamp": "t", "message": {"role": "user", "content": "x"}},
    ),
    ("copilot-cli", {"type": "session.start", "data": {"sessionId": "s"}, "id": "e", "timestamp": "t"}),
    ("gemini-cli", {"sessionId": "s", "projectHash": "h", "startTime": "t"}),
    ("gemini-cli", {"id": "m", "timestamp": "t", "type": "user", "content": "hi"}),
    ("qwen-code", {"uuid": "u", "sessionId": "s", "type": "user", "message": {"role": "user", "parts": []}}),
    ("kimi-code", {"type": "metadata", "protocol_version": "1.5", "created_at": 1795638874840}),
    ("kimi-code", {"type": "turn.prompt", "agentId": "main", "time": 1795638874881}),
    ("messages", {"role": "user", "content": "hi"}),
    ("messages", {"role": "assistant", "tool_calls": []}),
]


@pytest.mark.parametrize(("runtime", "line"), STARTS)
def test_each_beginning(as_head, runtime, line):
    head = as_head(line)
    assert detect(head) == runtime
    assert detect(b"\xef\xbb\xbf" + head, "anything.md") == runtime
    assert detect(head + b'{"type":"x","cut') == runtime
    assert is_append_only(runtime, head)


def test_an_unknown_line_before_a_known_one(as_head):
    assert detect(as_head({"type": "new"}, b"junk", {"type": "session", "id": "s", "cwd": "/w"})) == "pi"


@pytest.mark.parametrize(
    "head", [b"", b"\n\n", b"{}", b"[]", b'{"a":1}', b"[1,2]", b"{", b"\x7fELF", b'"text"', b"1\n2\n"]
)
def test_unknown_lines_give_no_format(head):
    assert detect(head) is None


def test_quoted_transcript_is_not_detected(as_head):
    quoted = '{"type":"session_meta","payload":{"id":"x"}}'
    assert detect(as_head({"role": "user", "content": quoted})) == "messages"
