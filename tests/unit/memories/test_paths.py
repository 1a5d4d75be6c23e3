"""A memory's path is a name, never a place on a disk."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import UsageError
from perdure.memories import paths
from perdure.memories.paths import MAX_PATH_BYTES, checked, folded


def test_the_examples_in_docstrings_are_true() -> None:
    assert doctest.testmod(paths).failed == 0


@pytest.mark.parametrize(
    "path",
    [
        "user/preferences/editor",
        "Mara/Job",
        "staging-server/port",
        "用户/编辑器",
        "user/likes/café au lait",
        "a",
        "..a/b..",
    ],
)
def test_a_plain_path_stays_as_it_is_written(path: str) -> None:
    assert checked(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "", ".md", "/etc/passwd", "../secret", "a/../../b", "a/./b", "a//b", "a/", "C:/x", "c:x", "a\\b", "\\\\host\\x",
        "a\nb", "a\x00b", "a\x1b[31m", "a/\u202eb", "a/\u200b", "\ud800", " a/b", "a /b", "a/ .. /b", "...md",
        "a/...md", "x" * (MAX_PATH_BYTES + 1), "界" * (MAX_PATH_BYTES // 3 + 1),
    ],
)  # fmt: skip
def test_everything_else_is_refused_with_what_to_do(path: str) -> None:
    with pytest.raises(UsageError, match=r"the memory path .*: (write|shorten|name|remove)"):
        checked(path)


def test_the_suffix_is_dropped_and_case_does_not_tell_paths_apart() -> None:
    assert checked("user/preferences/editor.MD") == "user/preferences/editor"
    assert folded("User/Editor") == folded("user/editor") != folded("user/editors")


@given(st.text(max_size=300))
def test_what_passes_is_relative_and_passes_again(path: str) -> None:
    try:
        kept = checked(path)
    except UsageError as fault:
        assert str(fault).isprintable()
        return
    assert checked(kept) == kept or kept.lower().endswith(".md")
    assert len(kept.encode()) <= MAX_PATH_BYTES and not kept.startswith("/") and ".." not in kept.split("/")


def test_a_project_is_no_longer_than_a_path_may_be():
    assert paths.checked_project("x" * 256) == "x" * 256 and paths.checked_project(None) is None
    with pytest.raises(UsageError, match="longer than 256 bytes"):
        paths.checked_project("é" * 129)
