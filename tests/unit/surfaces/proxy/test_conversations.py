"""Reading a request and adding a block: nothing else of the body changes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.surfaces.proxy import json_spans
from perdure.surfaces.proxy.conversations import add_blocks, read_conversation

ODD = (
    '{ "z":1e400,\t"model":"m\\u00e9", '
    '"messages" : [ {"x":[{}],"role":"user", "content":"a \\"b\\" \\ud83d"} ],"a":[1 ,2]}'
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


def keys_of(api: str, body: object) -> list[str]:
    return [message.key for message in read_conversation(api, json.dumps(body).encode()).people]


def add_to_all(api: str, raw: bytes, block: str = "BLOCK") -> bytes:
    conversation = read_conversation(api, raw)
    return add_blocks(conversation, {message.key: block for message in conversation.people})


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.sampled_from([None, 1]))
def test_spans_are_the_texts_of_the_values(value: dict, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    fields = json_spans.read_fields(text, placed_lists=value)
    assert list(fields) == list(value)
    for name, field in fields.items():
        assert json.loads(text[field.start : field.end]) == value[name]
        if isinstance(value[name], list):
            assert [json.loads(text[item.start : item.end]) for item in field.value] == value[name]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"a":1,"a":2}', '{"a" 1}', '{"a":1 "b":2}', '{"a":}', "{1:2}", '{"a":1,}']
)
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        json_spans.read_fields(text)


@pytest.mark.parametrize(
    "raw", [b"", b"\xff", b"[]", b'{"messages":{}}', b'{"messages":[1]}', b'{"x":1}', b"[" * 100_000]
)
def test_a_body_that_is_no_request_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        read_conversation("messages", raw)


def test_a_block_is_the_only_change_of_an_odd_body() -> None:
    text = '"a \\"b\\" \\ud83d"'
    added = f'[{{"type":"text","text":{text}}},{{"type":"text","text":"BLOCK"}}]'
    assert add_to_all("messages", ODD.encode()).decode() == ODD.replace(text, added)


def test_a_block_stands_after_the_parts_of_a_message() -> None:
    body = (
        '{"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}} ]}]}'
    )
    added = body.replace("}} ]", '}} ,{"type":"text","text":"BLOCK"}]')
    assert add_to_all("messages", body.encode()).decode() == added


@pytest.mark.parametrize(
    ("api", "body", "added"),
    [
        ("chat", '{"messages":[{"role":"user","content":"hi"}]}',
         '{"messages":[{"role":"user","content":"hi\\n\\nBLOCK"}]}'),
        ("responses", '{"input":"hi"}', '{"input":"hi\\n\\nBLOCK"}'),
        ("responses", '{"input":[{"role":"user","content":"hi"}]}',
         '{"input":[{"role":"user","content":"hi\\n\\nBLOCK"}]}'),
        (
            "responses",
            '{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}]}',
            '{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}'
            ',{"type":"input_text","text":"BLOCK"}]}]}',
        ),
    ],
)  # fmt: skip
def test_openai_keeps_the_form_of_a_content(api: str, body: str, added: str) -> None:
    assert add_to_all(api, body.encode()).decode() == added


def test_string_and_list_are_the_same_message() -> None:
    """Claude Code sends its newest message as a list with a mark of the cache, and later as a string."""
    as_list = [{"type": "text", "text": "Two.", "cache_control": {"type": "ephemeral"}}]
    new = {"messages": [{"role": "user", "content": as_list}]}
    old = {"messages": [{"role": "user", "content": "Two."}]}
    assert keys_of("messages", new) == keys_of("messages", old)
    new_parts, old_parts = (
        json.loads(add_to_all("messages", json.dumps(body).encode()))["messages"][0]["content"] for body in (new, old)
    )
    assert [part["text"] for part in new_parts] == [part["text"] for part in old_parts] == ["Two.", "BLOCK"]


def test_keys_follow_people_and_answers_alone() -> None:
    said = [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "First "},
        {"role": "user", "content": "Two"},
    ]
    thought = {"type": "thinking", "thinking": "…", "signature": "s"}
    more = [
        {"role": "system", "content": "S"},
        said[0],
        {"role": "assistant", "content": [thought, {"type": "text", "text": "First"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "out"}]},
        said[2],
    ]
    assert keys_of("messages", {"messages": said}) == keys_of("messages", {"messages": more})
    other = [said[0], {"role": "assistant", "content": "Other"}, said[2]]
    first, second = keys_of("messages", {"messages": said}), keys_of("messages", {"messages": other})
    assert first[0] == second[0] and first[1] != second[1]


@pytest.mark.parametrize(
    ("last", "is_fresh"),
    [
        ({"role": "user", "content": "new"}, True),
        ({"role": "system", "content": "a reminder behind it"}, True),
        ({"role": "assistant", "content": "answered"}, False),
        (
            {"role": "user", "content": [{"type": "tool_result", "content": "out"}, {"type": "text", "text": "so?"}]},
            False,
        ),
        ({"role": "tool", "content": "out", "tool_call_id": "c"}, False),
        ({"role": "user", "content": "<task-notification>done</task-notification>"}, False),
    ],
)
def test_only_an_unanswered_message_is_fresh(last: dict, is_fresh: bool) -> None:
    body = {"messages": [{"role": "user", "content": "old"}, last]}
    assert read_conversation("messages", json.dumps(body).encode()).is_fresh is is_fresh


def test_a_continued_response_has_keys_of_its_own() -> None:
    first, second = ({"input": "hi", "previous_response_id": name} for name in ("resp_1", "resp_2"))
    assert (
        len({*keys_of("responses", first), *keys_of("responses", second), *keys_of("responses", {"input": "hi"})}) == 3
    )
