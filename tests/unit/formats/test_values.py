"""Structs of JSON objects, and instants and ids from strangers."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.formats.parsing import TurnDraft
from perdure.formats.values import Tokens, clean_id, fit_object, make_reader, parse_instant, sum_token_counts
from perdure.types import Turn


class Block(msgspec.Struct):
    type: str = ""
    text: str | None = None


class Usage(msgspec.Struct, rename="camel"):
    n_in: Tokens = 0
    n_out: Tokens = 0


class Row(msgspec.Struct):
    at: datetime | None = None
    content: str | list[Block] | None = None
    usage: Usage | None = None
    rest: Any = None


read = make_reader(Row)


def test_line_of_the_right_types_is_read():
    row = read(b'{"at":"2026-01-02T03:04:05Z","content":[{"type":"a"}],"usage":{"nIn":3},"more":1,"rest":[1]}')
    assert row == Row(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), [Block("a")], Usage(3), [1])


@pytest.mark.parametrize(
    ("raw", "row"),
    [
        (b'{"content":5,"rest":1}', Row(rest=1)),
        (b'{"content":[{"type":7,"text":"t"}]}', Row(content=[Block("", "t")])),
        (b'{"content":[{"type":"a"},7]}', Row()),  # half of a message would pass for the whole
        (b'{"usage":{"nIn":-1,"nOut":2}}', Row(usage=Usage(0, 2))),
        (b'{"usage":{"nIn":1000000001,"nOut":true}}', Row(usage=Usage(0, 0))),
        (b'{"usage":"many","rest":1}', Row(rest=1)),
        (b'{"at":"yesterday","rest":1}', Row(rest=1)),
        (b'{"at":1767225600}', Row(datetime(2026, 1, 1, tzinfo=UTC))),  # seconds, where the field is strict about text
        (b'{"at":"20260101T000000Z"}', Row(datetime(2026, 1, 1, tzinfo=UTC))),
    ],
)
def test_a_value_of_another_type_counts_as_absent(raw, row):
    assert read(raw) == row


@pytest.mark.parametrize("raw", [b"", b"[]", b"1", b'"a"', b"{", b'{"a":}', b"\xff"])
def test_no_object_is_refused(raw):
    with pytest.raises(ValueError):
        read(raw)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(("type", "text", "nIn", "x")), v, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(("at", "content", "usage", "rest", "other")), values, max_size=5))
def test_any_object_fits(value):
    row = fit_object(value, Row)
    assert row.at is None or row.at.tzinfo is UTC
    assert row.content is None or isinstance(row.content, str) or all(isinstance(b, Block) for b in row.content)
    assert row.usage is None or 0 <= row.usage.n_in <= 10**9


def test_draft_has_the_fields_of_a_turn_in_order():
    """`Draft.turn` fills the tuple by place."""
    assert TurnDraft.__struct_fields__ == Turn._fields
    turn = TurnDraft("user", "person", [(3, 9)], files=("a", "b", "a")).to_turn()
    assert isinstance(turn, Turn)
    assert (turn.offset, turn.files, turn.skills, turn.parts, turn.is_summary) == (3, ("a", "b"), (), (), False)


@pytest.mark.parametrize(
    "value",
    [
        "2026-01-02T03:04:05Z",
        "2026-01-02T05:04:05+02:00",
        "2026-01-02T03:04:05",
        1767323045,
        1767323045000,
        1767323045000.0,
    ],
)
def test_instant_is_read_from_every_form(value):
    """1767323045 s: 56 years with 14 leap days are 20,454 days; + 1 day + 3:04:05 = 20455 * 86400 + 11045."""
    assert 20_455 * 86_400 + 11_045 == 1_767_323_045
    assert parse_instant(value) == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        "",
        "soon",
        "2026-13-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59-14:00",
        "9999-12-31T23:59:59Z",
        253402300799000,
        -1,
        0,
        1e300,
        10**30,
        float("nan"),
        [],
        {},
    ],
)
def test_invalid_instant_is_none(value):
    assert parse_instant(value) is None


def test_ids_are_cleaned():
    assert clean_id("msg_01-a.b:c@d") == "msg_01-a.b:c@d"
    assert clean_id(" a/b\\c\0d\n") == "a_b_cd_"
    assert clean_id(7) == clean_id(None) == clean_id("") == ""
    assert clean_id("x" * 201).startswith("sha256-")


def test_total_adds_only_counts():
    """Only 3 and 4 are counts."""
    assert sum_token_counts(3, 0, -1, 10**12, True, "3", None, 2.5, [], 4) == 7
