"""A text is found exactly, or by its letters, and its place is one of the original."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.agent.tools.find_text import find_spans


@pytest.mark.parametrize(("text", "wanted", "expected"), [
    ("a b a", "a", ["a", "a"]),
    ("x “y” z", '"y"', ["“y”"]),
    ("it’s", "it's", ["it’s"]),
    ("a – b", "a - b", ["a – b"]),
    ("a \t\nb", "a\nb", ["a \t\nb"]),
    ("a\r\nb\r\n", "a\nb", ["a\r\nb"]),
    ("a\u00a0b", "a b", ["a\u00a0b"]),
    ("cafe\u0301!", "caf\u00e9", ["cafe\u0301"]),
    ("ﬁne", "fine", ["ﬁne"]),
    ("abc", "d", []),
    ("“a” “a”", '"a"', ["“a”", "“a”"]),
])  # fmt: skip
def test_a_text_is_found(text: str, wanted: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end in find_spans(text, wanted).places] == expected


def test_an_exact_place_counts_before_similar_ones() -> None:
    spans = find_spans('“a” "a"', '"a"')
    assert spans.is_exact
    assert spans.places == [(4, 7)]


@settings(max_examples=200, deadline=None)
@given(st.text("ab “”’–\u00a0\u0301\r\n\tﬁ", max_size=40), st.data())
def test_every_piece_of_a_text_is_found_in_it(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    spans = find_spans(text, text[start:end]) if text[start:end] else None
    if spans is not None:
        assert spans.is_exact
        assert all(text[a:b] in (text[start:end], text[start:end].replace("\n", "\r\n")) for a, b in spans.places)


@settings(max_examples=200, deadline=None)
@given(st.text("ab “”’–\u00a0\u0301\r\n\tﬁ", max_size=40), st.text("ab \"'-e\u0301\n", min_size=1, max_size=6))
def test_places_lie_in_the_text_and_do_not_overlap(text: str, wanted: str) -> None:
    places = find_spans(text, wanted).places
    assert all(0 <= start < end <= len(text) for start, end in places)
    assert all(first[1] <= second[0] for first, second in pairwise(places))
