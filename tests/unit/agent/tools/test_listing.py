"""Patterns of paths."""

from __future__ import annotations

import pytest

from perdure.agent.tools.listing import MAX_ALTERNATIVES, compile_pattern
from perdure.errors import ToolError


@pytest.mark.parametrize(("pattern", "path", "expected"), [
    ("*.py", "a.py", True), ("*.py", "a/b/c.py", True), ("./a/*.py", "a/b.py", True), ("a/*.py", "a/b/c.py", False),
    ("src/**", "src/a/b.py", True), ("src/**", "src", False), ("src/**/b.py", "src/b.py", True),
    ("**/test_*.py", "test_a.py", True), ("*.{js,ts}", "a/b.ts", True), ("*.{js,ts}", "a/b.tx", False),
    ("{src,lib}/*", "lib/a", True), ("[!a]*", "b", True), ("[^a]*", "a", False), ("a.b", "aXb", False),
    ("a?c", "abc", True), ("*", ".hidden", True), ("a{b", "a{b", True), ("a/**/b/**/c", "a/x/b/y/z/c", True),
])  # fmt: skip
def test_a_pattern_matches(pattern: str, path: str, expected: bool) -> None:
    assert compile_pattern(pattern).matches(path) is expected


@pytest.mark.parametrize("pattern", ["*a" * 30 + "b", "**/" * 30 + "b", "**/a/" * 30 + "b"])
def test_no_pattern_takes_longer_than_its_length(pattern: str) -> None:
    """A regular expression of such a pattern would not end before the session does."""
    assert not compile_pattern(pattern).matches("a/" * 60 + "a" * 200)


def test_very_many_alternatives_are_refused() -> None:
    with pytest.raises(ToolError, match=f"more than {MAX_ALTERNATIVES} alternatives"):
        compile_pattern("{a,b}" * 20)
