"""What a request asks for, and which conversation it belongs to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import UsageError
from perdure.surfaces.agent_api.requests import make_key, read_request, render_earlier

TURNS = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=20)), max_size=6)


def read(messages: list[dict[str, Any]], **more: Any) -> Any:
    return read_request("chat", json.dumps({"model": "perdure", "messages": messages, **more}).encode(), {})


def test_what_was_said_before_ends_at_the_newest_message() -> None:
    messages = [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "One"},
        {"role": "assistant", "content": "First."}, {"role": "assistant", "content": "And second."},
        {"role": "user", "content": [{"type": "text", "text": "Two"}]},
    ]  # fmt: skip
    request = read(messages)
    assert (request.text, request.system) == ("Two", "Be brief.")
    assert request.earlier == (("user", "One"), ("assistant", "First.\n\nAnd second."))


@pytest.mark.parametrize(
    "name", [{"conversation": "a"}, {"conversation": {"id": "a"}}, {"metadata": {"session_id": "a"}}]
)
def test_a_program_names_its_conversation(name: dict[str, Any]) -> None:
    assert read([{"role": "user", "content": "One"}], **name).client_session == "a"


@given(TURNS, TURNS)
def test_a_key_stands_for_one_history(one: list[tuple[str, str]], two: list[tuple[str, str]]) -> None:
    stripped = [[(role, text.strip()) for role, text in turns] for turns in (one, two)]
    is_same = stripped[0] == stripped[1]
    if not any("\0" in text for turns in stripped for _, text in turns):
        assert (make_key("", one) == make_key("", two)) == is_same
    assert make_key("start", one) != make_key("", one) or not one


def test_an_earlier_conversation_is_cut_at_its_beginning() -> None:
    assert render_earlier((("user", "One"), ("assistant", "Two")), 100) == "user: One\n\nassistant: Two"
    assert render_earlier((("user", "a" * 50 + "end"),), 10).endswith("aaaaaaaend")


def test_an_id_that_is_a_path_is_refused() -> None:
    with pytest.raises(UsageError, match="no id"):
        read_request("chat", b'{"model": "perdure", "messages": [{"role": "user", "content": "x"}]}',
                     {"x-perdure-session": "s/../x"})  # fmt: skip
