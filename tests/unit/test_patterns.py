"""Patterns that are compiled when they are first used."""

from __future__ import annotations

import re

import pytest

from perdure.patterns import late


def test_it_finds_what_the_pattern_finds() -> None:
    pattern = late(r"(?P<n>\d+)", re.IGNORECASE)
    assert pattern.findall("2 of 10") == ["2", "10"] and pattern.sub("n", "2 of 10") == "n of n"
    assert pattern.flags & re.IGNORECASE and pattern.groupindex == {"n": 1}


def test_it_is_compiled_by_its_first_use_and_once() -> None:
    broken = late("(")
    with pytest.raises(re.error):
        broken.search("x")
    pattern = late("x")
    assert pattern.search is pattern.search  # kept on the object: the second use asks nothing
