"""Message lists of the OpenAI and Anthropic APIs."""

import json

import pytest

from perdure.errors import FormatFault
from perdure.formats import detect, emit, identify, is_append_only, parse

OPENAI = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "weather?"},
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        ],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get", "arguments": '{"city": "Köln"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    {"role": "assistant", "content": "Rain.", "reasoning_content": "look", "model": "m", "usage": {"total_tokens": 8}},
]
ANTHROPIC = {
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "read a"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "ok"},
                {"type": "tool_use", "id": "t", "name": "read", "input": {"path": "a"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": [{"type": "text", "text": "body"}],
                    "is_error": True,
                }
            ],
        },
    ],
}


def check_openai(turns):
    assert [(t.role, t.author) for t in turns] == [
        ("system", "machine"),
        ("user", "person"),
        ("assistant", "agent"),
        ("tool", "tool"),
        ("assistant", "agent"),
    ]
    assert [(p.kind, p.text) for p in turns[1].parts] == [("text", "weather?"), ("image", "[image https://x/y.png]")]
    assert [(p.kind, p.text, p.name, p.call_id) for p in turns[2].parts] == [("call", '{"city":"Köln"}', "get", "c1")]
    assert [(p.kind, p.text, p.name, p.call_id) for p in turns[3].parts] == [("result", "rain", "get", "c1")]
    assert ([p.text for p in turns[4].parts], turns[4].model, turns[4].n_tokens) == (["look", "Rain."], "m", 8)


def test_file_with_one_message_per_line_is_read(as_lines, as_head):
    head = as_head(*OPENAI)
    assert (detect(head), is_append_only("messages", head)) == ("messages", True)
    check_openai(parse("messages", as_lines(*OPENAI)).turns)
    assert identify("messages", head, "x").session == identify("messages", head[: head.index(b"\n") + 1], "y").session


@pytest.mark.parametrize("whole", [OPENAI, {"messages": OPENAI}, {"id": "conv", "title": "T", "messages": OPENAI}])
@pytest.mark.parametrize("indent", [None, 1])
def test_whole_json_document_is_read(as_lines, whole, indent):
    data = json.dumps(whole, indent=indent).encode()
    assert (detect(data), is_append_only("messages", data)) == ("messages", False)
    ((origin, lines),) = emit("messages", data)
    parsed = parse("messages", as_lines(*lines))
    check_openai(parsed.turns)
    assert [t.native_id for t in parsed.turns] == [f"{origin.session}#{n}" for n in range(5)]
    if isinstance(whole, dict) and "id" in whole:
        assert (origin.session, parsed.title) == ("conv", "T")


def test_anthropic_messages_are_read(as_lines):
    ((_, lines),) = emit("messages", json.dumps(ANTHROPIC).encode())
    system, said, did, out = parse("messages", as_lines(*lines)).turns
    assert (system.role, system.text(), said.author) == ("system", "Be brief.", "person")
    assert [(p.kind, p.text) for p in did.parts] == [("thinking", "hm"), ("text", "ok"), ("call", '{"path":"a"}')]
    assert did.files == ("a",)
    assert (out.role, out.author) == ("tool", "tool")
    assert [(p.text, p.name, p.is_error) for p in out.parts] == [("body", "read", True)]


def test_file_with_one_conversation_per_line_is_read(as_head, as_lines):
    other = {"messages": [{"role": "user", "content": "b"}]}
    head = as_head({"messages": OPENAI}, other, {"messages": OPENAI})
    assert (detect(head), is_append_only("messages", head)) == ("messages", False)
    sessions = [origin.session for origin, _ in emit("messages", head)]
    assert len(set(sessions)) == 3
    assert sessions[2] == sessions[0] + "~2"


def test_growing_conversation_keeps_its_lines():
    before = emit("messages", json.dumps(OPENAI).encode())[0]
    after = emit("messages", json.dumps([*OPENAI, {"role": "user", "content": "thanks"}]).encode())[0]
    assert after[0] == before[0]
    assert after[1][:-1] == before[1]


def test_changed_message_keeps_its_id(as_lines):
    changed = [*OPENAI[:4], OPENAI[4] | {"content": "Sun."}]
    before = emit("messages", json.dumps(OPENAI).encode())[0][1]
    after = emit("messages", json.dumps(changed).encode())[0][1]
    (new,) = [line for line in after if line not in before]
    turns = parse("messages", as_lines(*before, new)).turns
    assert len(turns) == 5
    assert turns[4].parts[-1].text == "Sun."


def test_times_and_machine_turns_are_read(as_lines):
    rows = [
        {"role": "user", "content": "<system-reminder>x</system-reminder>", "created_at": 1763681581},
        {"role": "human", "content": "hi"},
    ]
    first, second = parse("messages", as_lines(*rows)).turns
    assert (first.author, first.stated_at.isoformat()) == ("machine", "2025-11-20T23:33:01+00:00")
    assert second.author == "person"
    assert parse("messages", as_lines(*rows), spawned=True).turns[1].author == "machine"


def test_a_long_first_message_is_still_recognised(as_head):
    head = as_head({"role": "system", "content": "x" * 100_000}, *OPENAI)[:65_536]
    assert (detect(head), is_append_only("messages", head)) == ("messages", True)
    document = json.dumps({"messages": [{"role": "system", "content": "x" * 100_000}]}).encode()[:65_536]
    assert (detect(document), is_append_only("messages", document)) == ("messages", False)


def test_a_session_id_in_the_line(as_head):
    assert (
        identify("messages", as_head({"role": "user", "content": "x", "session_id": "s7", "id": "m1"}), "").session
        == "s7"
    )


def test_other_json_is_no_conversation(as_lines):
    for data in (b"", b"3", b"{", b"words", b"{}"):
        with pytest.raises(FormatFault):
            emit("messages", data)
    parsed = parse("messages", as_lines({"role": "critic", "content": "x"}, {"a": 1}))
    assert parsed.skipped == {"critic": 1, "untyped": 1}
