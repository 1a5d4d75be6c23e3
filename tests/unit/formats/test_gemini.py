"""Gemini CLI: old documents, new lines."""

import json

from perdure.capture.transcripts import SUMMARY_REPLY
from perdure.formats import emit, identify, is_append_only, parse

AT = "2026-01-10T02:08:26.108Z"
CALL = {
    "id": "c1",
    "name": "write_file",
    "args": {"file_path": "a.txt", "content": "x"},
    "status": "success",
    "result": [{"functionResponse": {"id": "c1", "name": "write_file", "response": {"output": "written"}}}],
}
DOCUMENT = {
    "sessionId": "s1",
    "projectHash": "h",
    "startTime": AT,
    "lastUpdated": AT,
    "messages": [
        {"id": "m1", "timestamp": AT, "type": "user", "content": "add it"},
        {
            "id": "m2",
            "timestamp": AT,
            "type": "gemini",
            "content": "Done.",
            "model": "g",
            "tokens": {"input": 1, "total": 9},
            "thoughts": [{"subject": "Plan", "description": "write"}],
            "toolCalls": [CALL],
        },
        {"id": "m3", "timestamp": AT, "type": "info", "content": "Request cancelled."},
    ],
}


def test_a_document_becomes_lines_that_parse(as_lines):
    ((origin, lines),) = emit("gemini-cli", json.dumps(DOCUMENT, indent=2).encode())
    assert (origin.session, len(lines)) == ("s1", 4)
    parsed = parse("gemini-cli", as_lines(*lines))
    said, did = parsed.turns
    assert (said.author, said.text(), said.native_id) == ("person", "add it", "m1")
    assert (did.native_id, did.model, did.n_tokens, did.files) == ("m2", "g", 9, ("a.txt",))
    assert [(p.kind, p.text, p.name, p.call_id) for p in did.parts] == [
        ("thinking", "Plan: write", "", ""),
        ("text", "Done.", "", ""),
        ("call", '{"file_path":"a.txt","content":"x"}', "write_file", "c1"),
        ("result", "written", "write_file", "c1"),
    ]
    assert parsed.skipped == {"header": 1, "info": 1}


def test_lines_do_not_change_when_only_the_time_of_saving_does():
    """A message more is a line more: what was captured before stays as it was."""
    grown = DOCUMENT | {
        "lastUpdated": "2027",
        "messages": [*DOCUMENT["messages"], {"id": "m4", "type": "user", "content": "é"}],
    }
    before = emit("gemini-cli", json.dumps(DOCUMENT).encode())[0][1]
    after = emit("gemini-cli", json.dumps(grown, indent=1, ensure_ascii=False).encode())[0][1]
    assert after == [*before, '{"id":"m4","type":"user","content":"é"}'.encode()]


def test_values_are_not_touched():
    raw = b'{"sessionId": "s", "messages": [ {"id": "m", "n": 1.0e2, "big": 123456789012345678901, "t": "\\u00e9"} ]}'
    assert emit("gemini-cli", raw)[0][1][1] == b'{"id":"m","n":1.0e2,"big":123456789012345678901,"t":"\\u00e9"}'


def test_a_title_is_a_patch_line(as_lines):
    lines = emit("gemini-cli", json.dumps(DOCUMENT | {"summary": "Adding"}).encode())[0][1]
    assert lines[-1] == b'{"$set":{"summary":"Adding"}}'
    assert parse("gemini-cli", as_lines(*lines)).title == "Adding"


def test_the_last_line_of_an_id_wins(as_lines):
    first = {"id": "m2", "type": "gemini", "content": "", "toolCalls": [{"id": "c1", "name": "write_file", "args": {}}]}
    lines = as_lines(first, {"id": "m9", "type": "user", "content": "wait"}, first | {"toolCalls": [CALL]})
    did, said = parse("gemini-cli", lines).turns
    assert did.lines == ((lines[0].offset, lines[0].end), (lines[2].offset, lines[2].end))
    assert [p.kind for p in did.parts] == ["call", "result"]
    assert said.text() == "wait"


def test_patch_restates_no_turn_except_one_compaction_summary(as_lines):
    """A resumption restates it all: the messages have lines of their own, in this run or an earlier one."""
    known = {"id": "m1", "type": "user", "content": "hi"}
    context = {"id": "m0", "type": "user", "content": [{"text": "<session_context>\nToday is Sunday"}]}
    earlier = {"id": "m2", "type": "gemini", "content": "of an earlier run"}
    compacted = [context, {"id": "m3", "type": "user", "content": [{"text": "They said hi."}]},
                 {"id": "m4", "type": "gemini", "content": [{"text": SUMMARY_REPLY}]}]  # fmt: skip
    patches = [{"$set": {"messages": [context, known, earlier], "summary": "T"}}, {"$set": {"messages": compacted}},
               {"$set": {"messages": [*compacted, earlier]}}, {"$set": {"lastUpdated": AT}}]  # fmt: skip
    parsed = parse("gemini-cli", as_lines(known, *patches))
    assert [(t.role, t.author, t.is_summary, t.text(), t.native_id) for t in parsed.turns] == [
        ("user", "person", False, "hi", "m1"),
        ("system", "machine", True, "They said hi.", "m3"),
    ]
    assert (parsed.title, parsed.skipped) == ("T", {"$set": 3})


def test_sub_agent_finds_its_spawner_by_its_folder(as_head, as_lines):
    header = {"sessionId": "a1", "projectHash": "h", "startTime": AT, "kind": "subagent"}
    found = identify("gemini-cli", as_head(header), "/h/.gemini/tmp/p/chats/s1/a1.jsonl")
    assert (found.session, found.parent_session, found.conversation) == ("a1", "s1", "s1")
    (turn,) = parse("gemini-cli", as_lines(header, {"id": "m", "type": "user", "content": "Look into it."})).turns
    assert turn.author == "machine"


def test_hook_context_and_automatic_prompts(as_lines):
    hooked = {
        "id": "a",
        "type": "user",
        "content": [{"text": "go"}, {"text": "<hook_context>old &lt;b&gt;</hook_context>"}],
    }
    automatic = {"id": "b", "type": "user", "content": "System: Please continue."}
    first, second = parse("gemini-cli", as_lines(hooked, automatic)).turns
    assert [(p.kind, p.text) for p in first.parts] == [
        ("text", "go"),
        ("pasted", "<hook_context>old &lt;b&gt;</hook_context>"),
    ]
    assert second.author == "machine"


def test_a_failed_call(as_lines):
    call = {"id": "c", "name": "shell", "args": {}, "status": "error", "resultDisplay": "no such file"}
    (turn,) = parse("gemini-cli", as_lines({"id": "a", "type": "gemini", "content": "", "toolCalls": [call]})).turns
    assert (turn.parts[1].text, turn.parts[1].is_error) == ("no such file", True)


def test_both_kinds_of_file_are_told_apart(as_head):
    header = {"sessionId": "s1", "projectHash": "h", "startTime": AT, "lastUpdated": AT, "kind": "main"}
    lines = as_head(header, {"id": "m1", "type": "user", "content": "hi"})
    assert is_append_only("gemini-cli", lines)
    assert identify("gemini-cli", lines, "x").session == "s1"
    for indent in (None, 2):
        document = json.dumps(DOCUMENT, indent=indent).encode()
        assert not is_append_only("gemini-cli", document)
        assert identify("gemini-cli", document[:200], "x").session == "s1"
