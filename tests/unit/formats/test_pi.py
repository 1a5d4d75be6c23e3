"""pi sessions: version 3 trees, and files from before entries had ids."""

from perdure.formats import find_abandoned, identify, parse
from perdure.types import Origin

AT = "2026-01-02T03:04:05.678Z"


def entry(id, parent, role="user", content="hi", **more):
    return {
        "type": "message",
        "id": id,
        "parentId": parent,
        "timestamp": AT,
        "message": {"role": role, "content": content, **more},
    }


def run(as_lines, *rows, **how):
    return parse("pi", as_lines(*rows), **how)


def test_exchange_is_parsed_into_turns(as_lines):
    """Usage 1 + 2 + 3 + 4 = 10."""
    usage = {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "cost": {"total": 0.1}}
    blocks = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "ok"},
        {"type": "toolCall", "id": "t", "name": "read", "arguments": {"path": "a.py"}},
    ]
    rows = [
        {"type": "session", "version": 3, "id": "s", "cwd": "/w", "timestamp": AT},
        entry("aa", None, content=[{"type": "text", "text": "read it"}]),
        entry("bb", "aa", "assistant", blocks, model="m", usage=usage, stopReason="toolUse"),
        entry(
            "cc", "bb", "toolResult", [{"type": "text", "text": "body"}], toolCallId="t", toolName="read", isError=True
        ),
    ]
    parsed = run(as_lines, *rows)
    said, did, out = parsed.turns
    assert (said.author, said.native_id, said.link, said.text()) == ("person", f"aa@{AT}", ("aa", None), "read it")
    assert (did.author, did.model, did.n_tokens, did.files) == ("agent", "m", 10, ("a.py",))
    assert [(p.kind, p.text) for p in did.parts] == [("thinking", "hm"), ("text", "ok"), ("call", '{"path":"a.py"}')]
    assert (out.role, out.parts[0].text, out.parts[0].name, out.parts[0].is_error) == ("tool", "body", "read", True)
    assert parsed.links == (("aa", None), ("bb", "aa"), ("cc", "bb"))
    assert parsed.skipped == {"session": 1}


def test_other_entries_are_read_or_counted(as_lines):
    rows = [
        {
            "type": "compaction",
            "id": "c1",
            "parentId": None,
            "timestamp": AT,
            "summary": "so far",
            "firstKeptEntryId": "x",
        },
        {
            "type": "branch_summary",
            "id": "c2",
            "parentId": "c1",
            "timestamp": AT,
            "summary": "went back",
            "fromId": "x",
        },
        {
            "type": "custom_message",
            "id": "c3",
            "parentId": "c2",
            "timestamp": AT,
            "customType": "mem",
            "content": "recalled",
        },
        entry("c4", "c3", "system", "prompt"),
        entry("c5", "c4", "bashExecution", None, command="ls", output="a\nb", exitCode=1),
        {"type": "session_info", "id": "c6", "parentId": "c5", "name": "Login"},
        {"type": "label", "id": "c7", "parentId": "c6", "label": "x"},
        {"type": "custom", "id": "c8", "parentId": "c7", "data": {}},
    ]
    parsed = run(as_lines, *rows)
    assert [(t.role, t.author, t.is_summary, t.text("text")) for t in parsed.turns] == [
        ("system", "machine", True, "so far"),
        ("system", "machine", True, "went back"),
        ("system", "machine", False, "recalled"),
        ("system", "machine", False, "prompt"),
        ("user", "person", False, "! ls"),
    ]
    assert parsed.turns[4].parts[1].is_error
    assert parsed.title == "Login"
    assert parsed.skipped == {"session_info": 1, "label": 1, "custom": 1}
    assert len(parsed.links) == 8


def test_an_expanded_skill_is_pasted(as_lines):
    text = '<skill name="golang" location="/s/SKILL.md">\nrules\n</skill>\n\nfix main'
    (turn,) = run(as_lines, entry("a", None, content=text)).turns
    assert turn.author == "person"
    assert [p.kind for p in turn.parts] == ["pasted", "text"]


def test_entries_without_ids_are_read(as_lines):
    row = {"type": "message", "timestamp": AT, "message": {"role": "user", "content": "hi"}}
    parsed = run(as_lines, row)
    assert (parsed.turns[0].native_id, parsed.turns[0].link, parsed.links) == (None, None, ())


def test_sub_agent_has_no_typed_turns(as_lines):
    assert run(as_lines, entry("a", None), spawned=True).turns[0].author == "machine"


def test_abandoned_branch_is_found():
    """a - b - c was left for a - d - e; the branch b, c is dead."""
    assert find_abandoned([("a", None), ("b", "a"), ("c", "b"), ("d", "a"), ("e", "d")]) == {"b", "c"}
    assert find_abandoned([]) == frozenset()
    assert find_abandoned([("a", "b"), ("b", "a")]) == frozenset()
    assert find_abandoned([("b", "gone"), ("c", "b")]) == frozenset()


def test_session_is_identified_by_its_head(as_head):
    head = as_head({"type": "session", "version": 3, "id": "s1", "cwd": "/w"})
    assert identify("pi", head, "x") == Origin("pi", "s1", "s1", cwd="/w")
    parent = "/h/.pi/agent/sessions/--w--/2025-11-20T23-33-50-805Z_d703a1a9-1b7b.jsonl"
    head = as_head({"type": "session", "id": "s2", "parentSession": parent})
    assert identify("pi", head, "x") == Origin("pi", "s2", "s2", parent_session="d703a1a9-1b7b", fork=True)
