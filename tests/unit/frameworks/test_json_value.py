"""What is JSON, what a person reads in it, and what a filter wants of it."""

import doctest
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import UsageError
from perdure.frameworks import json_value
from perdure.frameworks.json_value import fits, list_texts, to_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_examples_hold() -> None:
    assert doctest.testmod(json_value).failed == 0


@given(JSON)
def test_a_json_value_comes_back_equal(value: object) -> None:
    assert json.loads(to_json(value, "v")) == value
    assert all(isinstance(line, str) for line in list_texts(value))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [1, {2}]}, "v.a[1] is of the type set"),
        ({"a": float("inf")}, "v.a is inf"),
        ({"a": {3: "x"}}, "v.a has the key 3"),
        ({"a": "\udc00"}, "not UTF-8"),
    ],
)
def test_what_is_no_json_is_named_with_its_place(value: object, words: str) -> None:
    with pytest.raises(UsageError) as refusal:
        to_json(value, "v")
    assert words in str(refusal.value)


def test_an_unknown_comparison_is_an_error_and_no_number_fits_none() -> None:
    assert not fits("abc", {"$gt": 1}) and not fits(None, {"$lt": 1})
    with pytest.raises(UsageError, match="known"):
        fits(1, {"$in": [1]})
