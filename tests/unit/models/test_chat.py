"""Schemas: what keeps one, what breaks one, and where."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import UsageError
from perdure.models.chat import find_violation, is_closed

OPERATION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "op": {"enum": ["create", "skip"]},
        "text": {"type": "string", "minLength": 1, "maxLength": 5},
        "trust": {"type": "number", "minimum": 0, "maximum": 1},
        "turns": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "maxItems": 2},
        "path": {"type": "string", "pattern": "^[a-z/]+$"},
        "old": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["op"],
    "additionalProperties": False,
}
KINDS = {"type": ["string", "null"], "title": "a title", "description": "said", "default": "x"}


@pytest.mark.parametrize(
    "value",
    [
        {"op": "skip"},
        {"op": "create", "text": "hello", "trust": 1, "turns": [0, 3], "path": "user/x", "old": None},
        {"op": "create", "trust": 0.5, "turns": [2.0], "old": "m1"},
    ],
)
def test_valid_value_has_no_violation(value: Any) -> None:
    assert find_violation(value, OPERATION) == ""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "answer is not of type object"),
        ({}, "answer.op is missing"),
        ({"op": "delete"}, "answer.op is none of 'create', 'skip'"),
        ({"op": "skip", "why": 1}, "answer.why was not requested"),
        ({"op": "skip", "text": ""}, "answer.text is shorter than 1"),
        ({"op": "skip", "text": "longer"}, "answer.text is longer than 5"),
        ({"op": "skip", "text": None}, "answer.text is not of type string"),
        ({"op": "skip", "trust": 1.5}, "answer.trust is more than 1"),
        ({"op": "skip", "trust": True}, "answer.trust is not of type number"),
        ({"op": "skip", "turns": []}, "answer.turns is fewer items than 1"),
        ({"op": "skip", "turns": [1, 2, 3]}, "answer.turns is more items than 2"),
        ({"op": "skip", "turns": [1, -1]}, "answer.turns[1] is less than 0"),
        ({"op": "skip", "turns": [1.5]}, "answer.turns[0] is not of type integer"),
        ({"op": "skip", "turns": [True]}, "answer.turns[0] is not of type integer"),
        ({"op": "skip", "path": "User"}, "answer.path is not of the form ^[a-z/]+$"),
        ({"op": "skip", "old": 3}, "answer.old is not of type string"),
    ],
)
def test_invalid_value_has_a_violation(value: Any, said: str) -> None:
    assert find_violation(value, OPERATION) == said


def test_one_of_several_types_and_constants() -> None:
    assert find_violation(None, KINDS) == "" and find_violation("x", KINDS) == ""
    assert find_violation(1, KINDS) == "answer is not of type string or null"
    assert find_violation(1, {"const": 1}) == "" and find_violation(True, {"const": 1}) == "answer is not 1"
    assert find_violation(True, {"enum": [1]}) == "answer is none of 1"
    assert find_violation({"a": 1}, {"additionalProperties": {"type": "string"}}) == "answer.a is not of type string"


def test_unknown_schema_rule_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"answer\.text has 'format'"):
        find_violation({"text": "x"}, {"properties": {"text": {"type": "string", "format": "date"}}})


def test_strict_decoder_needs_a_closed_schema() -> None:
    assert not is_closed(OPERATION)  # not all of its fields are required
    whole = {**OPERATION, "required": list(OPERATION["properties"])}
    assert is_closed(whole) and is_closed({"type": "array", "items": whole}) and is_closed({"type": "string"})
    assert not is_closed({"type": "array", "items": OPERATION}) and not is_closed({"anyOf": [whole, OPERATION]})
    assert not is_closed({**whole, "additionalProperties": True})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda below: st.lists(below) | st.dictionaries(st.text(), below),
    max_leaves=10,
)


@given(JSON)
def test_any_value_is_judged(value: Any) -> None:
    assert isinstance(find_violation(value, OPERATION), str) and find_violation(value, {}) == ""
