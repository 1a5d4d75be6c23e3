"""Patterns that are compiled when they are first used."""

from __future__ import annotations

import re

import pytest

from perdure.regex import lazy_re


def test_late_pattern_finds_the_same_matches() -> None:
    pattern = lazy_re(r"(?P<n>\d+)", re.IGNORECASE)
    assert pattern.findall("2 of 10") == ["2", "10"] and pattern.sub("n", "2 of 10") == "n of n"
    assert pattern.flags & re.IGNORECASE and pattern.groupindex == {"n": 1}


def test_late_pattern_is_compiled_once_at_first_use() -> None:
    broken = lazy_re("(")
    with pytest.raises(re.error):
        broken.search("x")
    pattern = lazy_re("x")
    assert pattern.search is pattern.search  # kept on the object: the second use asks nothing
